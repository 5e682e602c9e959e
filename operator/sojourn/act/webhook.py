"""The webhook's Secret, the caBundle of its configurations, and a question put to it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sojourn.act.kube import MERGE, Kube, Request
from sojourn.errors import ClusterUnavailable

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@dataclass(frozen=True)
class SecretData:
    """A Secret's decoded data and the version it was read at."""

    data: Mapping[str, bytes]
    version: str


async def read_secret(kube: Kube, namespace: str, name: str) -> SecretData | None:
    """A Secret; None if it does not exist. What is no base64 reads as empty.

    Raises:
        ClusterUnavailable: it cannot be read.
    """
    try:
        secret = await kube.call(Request("GET", _secrets(namespace) + f"/{name}"))
    except ClusterUnavailable as exc:
        if exc.status == 404:
            return None
        raise
    data = {key: _decoded(value) for key, value in (secret.get("data") or {}).items()}
    return SecretData(data, str(secret["metadata"]["resourceVersion"]))


async def create_secret(kube: Kube, namespace: str, name: str, data: Mapping[str, bytes]) -> bool:
    """Create a Secret; False when another process created it first.

    Raises:
        ClusterUnavailable: it cannot be written.
    """
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace},
        "data": {key: text for key, text in _encoded(data).items() if text},
    }
    return await _unless_conflict(kube, Request("POST", _secrets(namespace), body))


async def replace_secret(
    kube: Kube, namespace: str, name: str, data: Mapping[str, bytes], version: str
) -> bool:
    """Replace the data of a Secret; False when it changed since ``version``.

    Raises:
        ClusterUnavailable: it cannot be written.
    """
    body = {"metadata": {"resourceVersion": version}, "data": _encoded(data)}
    path = f"{_secrets(namespace)}/{name}"
    return await _unless_conflict(kube, Request("PATCH", path, body, MERGE))


async def bundles(kube: Kube, configuration: str) -> tuple[bytes, ...] | None:
    """The caBundle of every webhook of a configuration; None if there is no such configuration.

    Raises:
        ClusterUnavailable: it cannot be read.
    """
    current = await _configuration(kube, configuration)
    if current is None:
        return None
    found = (webhook.get("clientConfig") or {} for webhook in current.get("webhooks") or [])
    return tuple(_decoded(client.get("caBundle")) for client in found)


async def trust(kube: Kube, configuration: str, bundle_pem: bytes) -> bool:
    """Put a CA bundle into every webhook of a configuration; False if nothing was to be done.

    Raises:
        ClusterUnavailable: it cannot be read or written.
    """
    current = await _configuration(kube, configuration)
    if current is None:
        return False
    bundle = base64.b64encode(bundle_pem).decode()
    webhooks = current.get("webhooks") or []
    if all((w.get("clientConfig") or {}).get("caBundle") == bundle for w in webhooks):
        return False
    for webhook in webhooks:
        webhook.setdefault("clientConfig", {})["caBundle"] = bundle
    version = current["metadata"]["resourceVersion"]
    body = {"metadata": {"resourceVersion": version}, "webhooks": webhooks}
    return await _unless_conflict(
        kube, Request("PATCH", f"{CONFIGURATIONS}/{configuration}", body, MERGE)
    )


async def asks(kube: Kube, path: str, body: Mapping[str, Any]) -> str | None:
    """The refusal of a creation that is only tried (dry run); None when it was admitted.

    Raises:
        ClusterUnavailable: no answer, or one that is no refusal by a webhook.
    """
    request = Request("POST", path, body, query=(("dryRun", "All"),))
    try:
        await kube.call(request)
    except ClusterUnavailable as exc:
        if "denied the request" in exc.why:
            return exc.why
        raise
    return None


async def _configuration(kube: Kube, name: str) -> dict[str, Any] | None:
    try:
        return await kube.call(Request("GET", f"{CONFIGURATIONS}/{name}"))
    except ClusterUnavailable as exc:
        if exc.status == 404:
            return None
        raise


async def _unless_conflict(kube: Kube, request: Request) -> bool:
    try:
        await kube.call(request)
    except ClusterUnavailable as exc:
        if exc.status != 409:
            raise
        return False
    return True


def _secrets(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets"


def _encoded(data: Mapping[str, bytes]) -> dict[str, str | None]:
    """Base64; what is empty is taken out by a merge patch."""
    return {key: base64.b64encode(v).decode() if v else None for key, v in data.items()}


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(str(text or ""))
    except (ValueError, binascii.Error):
        return b""
