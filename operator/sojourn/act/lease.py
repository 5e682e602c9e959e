"""The lease: at most one process acts, and it knows at every write whether it still may.

Ages are monotonic: a process that was stopped and continued finds its lease expired before it
writes anything. Times of the Lease object are UTC and only compared for change, so that skewed
clocks of two hosts do not matter: a lease is free when it has not changed for its duration.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sojourn.act.kube import MERGE, Kube, Request
from sojourn.errors import ClusterUnavailable

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LeaseSettings:
    """Where the lease lives and how long it holds."""

    namespace: str
    name: str
    holder: str
    duration_s: float = 15.0
    retry_s: float = 3.0


class Lease:
    """One coordination Lease, held or sought by this process.

    Args:
        monotonic: a clock that never steps back, in seconds.

    Attributes:
        silence: set when the API server gave no answer; whoever makes up for it clears it.
    """

    def __init__(
        self, kube: Kube, settings: LeaseSettings, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._kube = kube
        self._settings = settings
        self._monotonic = monotonic
        self.silence = asyncio.Event()
        self._renewed_at = float("-inf")
        self._seen: tuple[str, str] = ("", "")
        self._seen_at = float("-inf")
        root = f"/apis/coordination.k8s.io/v1/namespaces/{settings.namespace}/leases"
        self._root, self._path = root, f"{root}/{settings.name}"

    @property
    def held(self) -> bool:
        """True while no other process can have taken the lease, with a margin of a fifth."""
        return self._monotonic() - self._renewed_at < 0.8 * self._settings.duration_s

    async def tend(self) -> bool:
        """Renew the lease, or take it if it is free; True if it is held afterwards.

        Raises:
            ClusterUnavailable: the API refuses lease rights (401, 403): loud, because no process
                would ever act. Any other trouble counts as "not renewed".
        """
        started = self._monotonic()
        try:
            if await self._renew_or_take():
                self._renewed_at = started
        except ClusterUnavailable as exc:
            if exc.status in (401, 403):
                raise
            if exc.status is None:
                self.silence.set()
            log.warning("lease not renewed: %s", exc.why)
        return self.held

    async def release(self) -> None:
        """Give the lease back, so that another process takes over at once."""
        if not self.held:
            return
        self._renewed_at = float("-inf")
        body = {"spec": {"holderIdentity": None, "renewTime": _now()}}
        try:
            await self._kube.call(Request("PATCH", self._path, body, MERGE))
        except ClusterUnavailable as exc:
            log.warning("lease not released, it expires by itself: %s", exc.why)

    async def _renew_or_take(self) -> bool:
        try:
            lease = await self._kube.call(Request("GET", self._path))
        except ClusterUnavailable as exc:
            if exc.status != 404:
                raise
            return await self._create()
        spec = lease.get("spec") or {}
        mine = spec.get("holderIdentity") == self._settings.holder
        if not mine and not self._free(spec):
            return False
        return await self._write(lease, taking=not mine)

    def _free(self, spec: Mapping[str, Any]) -> bool:
        holder = spec.get("holderIdentity")
        if not holder:
            return True
        seen = (str(holder), str(spec.get("renewTime")))
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._monotonic()
        duration_s = float(spec.get("leaseDurationSeconds") or self._settings.duration_s)
        return self._monotonic() - self._seen_at > duration_s

    async def _create(self) -> bool:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._settings.name, "namespace": self._settings.namespace},
            "spec": self._spec(transitions=0, taking=True),
        }
        return await self._accepted(Request("POST", self._root, body))

    async def _write(self, lease: Mapping[str, Any], *, taking: bool) -> bool:
        transitions = int((lease.get("spec") or {}).get("leaseTransitions") or 0)
        body = {
            # A stale version is refused with 409: two processes never both win.
            "metadata": {"resourceVersion": lease["metadata"]["resourceVersion"]},
            "spec": self._spec(transitions + 1 if taking else transitions, taking=taking),
        }
        return await self._accepted(Request("PATCH", self._path, body, MERGE))

    async def _accepted(self, request: Request) -> bool:
        try:
            await self._kube.call(request)
        except ClusterUnavailable as exc:
            if exc.status == 409:
                return False
            raise
        return True

    def _spec(self, transitions: int, *, taking: bool) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "holderIdentity": self._settings.holder,
            "leaseDurationSeconds": max(1, round(self._settings.duration_s)),
            "renewTime": _now(),
            "leaseTransitions": transitions,
        }
        if taking:
            spec["acquireTime"] = spec["renewTime"]
        return spec


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
