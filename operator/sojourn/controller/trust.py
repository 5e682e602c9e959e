"""What makes the API server trust this process: a certificate in a Secret, its CA in caBundle.

Built-in: one Secret for all processes, its content advanced by ``rotation``, compare-and-set.
Mounted: cert-manager or the like writes files and caBundle; both are only read here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sojourn.act import webhook
from sojourn.act.kube import Kube
from sojourn.controller import certificates, rotation
from sojourn.controller.own_metrics import OwnMetrics
from sojourn.controller.rotation import Stored, Terms
from sojourn.controller.settings import CertificateSource, Webhook
from sojourn.errors import ClusterUnavailable

log = logging.getLogger(__name__)

CA, CERTIFICATE, KEY = "ca.crt", "tls.crt", "tls.key"
NEXT_CERTIFICATE, NEXT_KEY = "next.crt", "next.key"


@dataclass(frozen=True)
class Served:
    """A certificate and its key as the server presents them, PEM; and the CAs to be trusted."""

    certificate_pem: bytes
    key_pem: bytes
    bundle_pem: bytes = b""


class Trust:
    """Keeps certificate, Secret and caBundle right.

    Args:
        namespace: the operator's own.
    """

    def __init__(self, kube: Kube, namespace: str, options: Webhook, metrics: OwnMetrics) -> None:
        self._kube = kube
        self._namespace = namespace
        self._options = options
        self._metrics = metrics
        self._terms = Terms(
            names=certificates.service_names(options.service, namespace),
            life=timedelta(seconds=options.certificate_life),
            renew_before=timedelta(seconds=options.renew_before),
            overlap=timedelta(seconds=options.overlap),
        )

    @property
    def configurations(self) -> tuple[str, ...]:
        """Ours, and the optional guard's."""
        return self._options.configuration, f"{self._options.configuration}-guard"

    async def tend(self, *, leads: bool) -> Served:
        """One look after everything; what is to be served now.

        The lease's holder advances the rotation; anybody replaces what cannot be served at all.

        Raises:
            ClusterUnavailable: the Secret can neither be read nor written; or mounted files are
                missing.
        """
        if self._options.certificates is CertificateSource.MOUNTED:
            served = self._mounted()
        else:
            stored = await self._stored(leads=leads)
            served = Served(stored.certificate_pem, stored.key_pem, stored.bundle_pem)
            await self._keep_bundles(stored.bundle_pem)
        await self._measure(served)
        return served

    async def _stored(self, *, leads: bool) -> Stored:
        name, now = self._options.secret, datetime.now(UTC)
        for _ in range(5):
            secret = await webhook.read_secret(self._kube, self._namespace, name)
            held = _stored_of(secret.data) if secret is not None else None
            if held is not None and not leads and rotation.serviceable(held, self._terms, now):
                return held
            wanted = rotation.advance(held, self._terms, now)
            if held is not None and wanted == held:
                return held
            if await self._written(secret.version if secret is not None else None, wanted):
                log.info("webhook certificate: %s", _step(held, wanted))
                return wanted
            # Another process was first: look at what it wrote.
        raise ClusterUnavailable(f"Secret {name}", "it changes all the time")

    async def _written(self, version: str | None, wanted: Stored) -> bool:
        # What may be served soon must be trusted first, also when this process dies in between.
        await self._keep_bundles(wanted.bundle_pem)
        name, data = self._options.secret, _data_of(wanted)
        if version is None:
            return await webhook.create_secret(self._kube, self._namespace, name, data)
        return await webhook.replace_secret(self._kube, self._namespace, name, data, version)

    async def _keep_bundles(self, bundle_pem: bytes) -> None:
        for name in self.configurations:
            try:
                if await webhook.trust(self._kube, name, bundle_pem):
                    log.info("caBundle of %s written", name)
            except ClusterUnavailable as exc:
                log.warning("caBundle of %s not written: %s", name, exc.why)

    def _mounted(self) -> Served:
        folder = self._options.folder
        try:
            certificate, key = (folder / CERTIFICATE).read_bytes(), (folder / KEY).read_bytes()
        except OSError as exc:
            raise ClusterUnavailable(f"certificate in {folder}", str(exc)) from exc
        return Served(certificate, key)

    async def _measure(self, served: Served) -> None:
        """The gauges behind the alerts: is what we serve trusted, and until when."""
        leaf = certificates.readable(served.certificate_pem, served.key_pem)
        if leaf is not None:
            self._metrics.certificate_ends.set(leaf.not_valid_after_utc.timestamp())
        try:
            bundles = await webhook.bundles(self._kube, self._options.configuration)
        except ClusterUnavailable as exc:
            log.warning("caBundle of %s not read: %s", self._options.configuration, exc.why)
            bundles = None
        matches = bool(bundles) and all(
            certificates.trusted(served.certificate_pem, bundle) for bundle in bundles or ()
        )
        self._metrics.ca_matches.set(matches)


def write_files(served: Served, folder: Path) -> tuple[Path, Path]:
    """Certificate and key as files that only this user may read: what ``ssl`` can load."""
    certificate, key = folder / CERTIFICATE, folder / KEY
    for path, content in ((certificate, served.certificate_pem), (key, served.key_pem)):
        path.touch(mode=0o600)
        path.write_bytes(content)
    return certificate, key


def _stored_of(data: Mapping[str, bytes]) -> Stored:
    return Stored(
        bundle_pem=data.get(CA, b""),
        certificate_pem=data.get(CERTIFICATE, b""),
        key_pem=data.get(KEY, b""),
        next_certificate_pem=data.get(NEXT_CERTIFICATE, b""),
        next_key_pem=data.get(NEXT_KEY, b""),
    )


def _data_of(stored: Stored) -> dict[str, bytes]:
    return {
        CA: stored.bundle_pem,
        CERTIFICATE: stored.certificate_pem,
        KEY: stored.key_pem,
        NEXT_CERTIFICATE: stored.next_certificate_pem,
        NEXT_KEY: stored.next_key_pem,
    }


def _step(before: Stored | None, after: Stored) -> str:
    """One line for the log: which step of the rotation was taken."""
    if before is None:
        return "made"
    if after.next_certificate_pem and not before.next_certificate_pem:
        return "next one made, both CAs trusted"
    if before.next_certificate_pem and after.certificate_pem == before.next_certificate_pem:
        return "next one served, both CAs trusted"
    if after.certificate_pem == before.certificate_pem:
        return "rotated, old CA dropped"
    return "replaced, because it could not be served"
