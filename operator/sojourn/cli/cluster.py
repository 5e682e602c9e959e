"""A cluster as the person at the terminal reaches it: kubeconfig, namespace, single questions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from sojourn.act.kube import Kube, Request
from sojourn.cli.cluster_options import ClusterOptions
from sojourn.errors import ClusterUnavailable

T = TypeVar("T")

TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Answer:
    """One object, or why there is none: ``status`` is the API's HTTP status, None without one."""

    body: dict[str, Any] | None
    why: str = ""
    status: int | None = None

    @property
    def missing(self) -> bool:
        """The API server says that it does not exist."""
        return self.status == 404

    @property
    def forbidden(self) -> bool:
        """The API server says that we may not read it."""
        return self.status in (401, 403)


class Cluster:
    """Questions to one cluster."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def ask(self, path: str) -> Answer:
        """GET a path; a refusal is an answer too.

        Raises:
            ClusterUnavailable: the API server does not answer at all.
        """
        return await self.send(Request("GET", path))

    async def send(self, request: Request) -> Answer:
        """Send one request; a refusal is an answer too.

        Raises:
            ClusterUnavailable: the API server does not answer at all.
        """
        try:
            return Answer(await self._kube.call(request))
        except ClusterUnavailable as exc:
            if exc.status is None:
                raise
            return Answer(None, exc.why, exc.status)


async def operator_settings(cluster: Cluster, system: str) -> dict[str, Any] | None:
    """The operator's settings file, from its newest ConfigMap; None if it cannot be read.

    Kustomize puts a hash of the content into the ConfigMap's name, so it is found by its key.
    """
    answer = await cluster.ask(f"/api/v1/namespaces/{system}/configmaps")
    found = list(_settings_files((answer.body or {}).get("items") or ()))
    if not found:
        return None
    try:
        settings = yaml.safe_load(max(found)[1])
    except yaml.YAMLError:
        return None
    return settings if isinstance(settings, dict) else None


def _settings_files(config_maps: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Time of creation and text of each settings file among the ConfigMaps."""
    for item in config_maps:
        metadata = item.get("metadata") or {}
        content = (item.get("data") or {}).get("settings.yaml")
        if content and "settings" in str(metadata.get("name")):
            yield str(metadata.get("creationTimestamp") or ""), content


def config_files(options: ClusterOptions) -> str | None:
    """The kubeconfig to use, as kubectl chooses it; None means that of the pod."""
    if options.kubeconfig is not None:
        return str(options.kubeconfig)
    if os.environ.get("KUBECONFIG"):
        return os.environ["KUBECONFIG"]
    usual = Path.home() / ".kube" / "config"
    return str(usual) if usual.is_file() else None


def namespace_of(options: ClusterOptions) -> str:
    """The namespace asked for, else that of the kubeconfig's current context, else default."""
    if options.namespace is not None:
        return options.namespace
    for path in (config_files(options) or "").split(os.pathsep):
        try:
            content = yaml.safe_load(Path(path).read_text()) if path else None
        except (OSError, yaml.YAMLError):
            continue
        if not isinstance(content, dict):
            continue
        current = _current_namespace(content)
        if current is not None:
            return current
    return "default"


def _current_namespace(content: dict[str, Any]) -> str | None:
    """The namespace of a kubeconfig's current context; None when that is in another file."""
    for context in content.get("contexts") or ():
        if context.get("name") == content.get("current-context"):
            return str((context.get("context") or {}).get("namespace") or "default")
    return None


def run(options: ClusterOptions, work: Callable[[Cluster], Awaitable[T]]) -> T:
    """Connect, do the work, close.

    Raises:
        ClusterUnavailable: no configuration, or no answer.
    """

    async def connected() -> T:
        files = config_files(options)
        if files is None and not os.environ.get("KUBERNETES_SERVICE_HOST"):
            raise ClusterUnavailable(
                "cluster configuration", "no kubeconfig found: give --kubeconfig or set KUBECONFIG"
            )
        kube = await Kube.connect(files, TIMEOUT_S)
        try:
            return await work(Cluster(kube))
        finally:
            await kube.close()

    return asyncio.run(connected())
