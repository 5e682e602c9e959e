"""The webhook's Secret and the caBundle of its configuration."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from sojourn.act.kube import MERGE, Kube, Request
from sojourn.errors import ClusterUnavailable

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


async def read_secret(kube: Kube, namespace: str, name: str) -> dict[str, bytes] | None:
    """Decoded data of a Secret; None if it does not exist.

    Raises:
        ClusterUnavailable: it cannot be read.
    """
    try:
        secret = await kube.call(Request("GET", _secrets(namespace) + f"/{name}"))
    except ClusterUnavailable as exc:
        if exc.status == 404:
            return None
        raise
    data = secret.get("data") or {}
    return {key: base64.b64decode(value) for key, value in data.items()}


async def write_secret(kube: Kube, namespace: str, name: str, data: Mapping[str, bytes]) -> bool:
    """Create or replace a Secret; False when another process created it first.

    Raises:
        ClusterUnavailable: it cannot be written.
    """
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace},
        "data": encoded,
    }
    try:
        await kube.call(Request("POST", _secrets(namespace), body))
    except ClusterUnavailable as exc:
        if exc.status != 409:
            raise
        return False
    return True


async def replace_secret(kube: Kube, namespace: str, name: str, data: Mapping[str, bytes]) -> None:
    """Replace the data of a Secret that exists.

    Raises:
        ClusterUnavailable: it cannot be written.
    """
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    await kube.call(Request("PATCH", _secrets(namespace) + f"/{name}", {"data": encoded}, MERGE))


async def trust(kube: Kube, configuration: str, ca_pem: bytes) -> bool:
    """Put the CA into every webhook of a configuration; False if it already was there.

    Raises:
        ClusterUnavailable: the configuration does not exist (404) or cannot be written.
    """
    path = f"{CONFIGURATIONS}/{configuration}"
    current = await kube.call(Request("GET", path))
    bundle = base64.b64encode(ca_pem).decode()
    webhooks = current.get("webhooks") or []
    if all((w.get("clientConfig") or {}).get("caBundle") == bundle for w in webhooks):
        return False
    for webhook in webhooks:
        webhook.setdefault("clientConfig", {})["caBundle"] = bundle
    version = current["metadata"]["resourceVersion"]
    body = {"metadata": {"resourceVersion": version}, "webhooks": webhooks}
    await kube.call(Request("PATCH", path, body, MERGE))
    return True


def _secrets(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets"
