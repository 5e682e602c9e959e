"""Kubeconfig files for one cluster. JSON, which is YAML, so nothing needs a YAML library."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.controlplane.certificates import KeyPair


@dataclass(frozen=True)
class Cluster:
    url: str
    ca_file: Path


def with_certificate(path: Path, cluster: Cluster, pair: KeyPair) -> Path:
    """Write a kubeconfig that authenticates by client certificate; returns its path."""
    user = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
    return _write(path, cluster, user)


def with_token(path: Path, cluster: Cluster, token: str) -> Path:
    """Write a kubeconfig that authenticates by bearer token; returns its path."""
    return _write(path, cluster, {"token": token})


def _write(path: Path, cluster: Cluster, user: dict[str, str]) -> Path:
    name = "sojourn-test"
    where = {"server": cluster.url, "certificate-authority": str(cluster.ca_file)}
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": where}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(document, indent=2))
    return path
