"""The webhook's certificate: one Secret for all processes, files for the server, caBundle kept."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sojourn.act import webhook
from sojourn.act.kube import Kube
from sojourn.controller import certificates
from sojourn.controller.certificates import Pair
from sojourn.controller.settings import Webhook
from sojourn.errors import ClusterUnavailable

log = logging.getLogger(__name__)

CA, CERTIFICATE, KEY = "ca.crt", "tls.crt", "tls.key"


@dataclass(frozen=True)
class Files:
    """Where the server reads its certificate and key."""

    certificate: Path
    key: Path


async def ensure_pair(kube: Kube, namespace: str, options: Webhook) -> Pair:
    """The pair of the Secret, made or renewed if it must be; all processes end with one pair.

    Raises:
        ClusterUnavailable: the Secret can neither be read nor written.
    """
    names = certificates.service_names(options.service, namespace)
    now = datetime.now(UTC)
    stored = await _stored(kube, namespace, options)
    if stored is not None and certificates.usable(stored, names, now):
        return stored
    fresh = certificates.issue(names, now)
    data = {CA: fresh.ca_pem, CERTIFICATE: fresh.certificate_pem, KEY: fresh.key_pem}
    if stored is not None:
        log.info("webhook certificate renewed")
        await webhook.replace_secret(kube, namespace, options.secret, data)
        return fresh
    if await webhook.write_secret(kube, namespace, options.secret, data):
        return fresh
    # Another process was first: its pair is the one.
    other = await _stored(kube, namespace, options)
    if other is None:
        raise ClusterUnavailable(f"Secret {options.secret}", "it was deleted while being created")
    return other


def write_files(pair: Pair, folder: Path) -> Files:
    """The pair as files that only this user may read."""
    files = Files(folder / CERTIFICATE, folder / KEY)
    files.certificate.write_bytes(pair.certificate_pem)
    files.key.touch(mode=0o600)
    files.key.write_bytes(pair.key_pem)
    return files


async def keep_bundle(kube: Kube, options: Webhook, pair: Pair) -> None:
    """Put our CA into the webhook configuration if it is not there; trouble is logged."""
    try:
        if await webhook.trust(kube, options.configuration, pair.ca_pem):
            log.info("caBundle of %s written", options.configuration)
    except ClusterUnavailable as exc:
        log.warning("caBundle of %s not written: %s", options.configuration, exc.why)


async def _stored(kube: Kube, namespace: str, options: Webhook) -> Pair | None:
    data = await webhook.read_secret(kube, namespace, options.secret)
    if data is None:
        return None
    return Pair(data.get(CA, b""), data.get(CERTIFICATE, b""), data.get(KEY, b""))
