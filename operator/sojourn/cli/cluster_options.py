"""Flags that say which cluster and namespace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True)
class ClusterOptions:
    """Which cluster and namespace, chosen as kubectl does."""

    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", metavar="NAME", help="Default: the kubeconfig's."),
    ] = None
    kubeconfig: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Default: $KUBECONFIG, ~/.kube/config, or the pod's."),
    ] = None
