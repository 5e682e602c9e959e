"""The loop: tend the lease, tick while it is held, tick early when a spec changed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from sojourn.act.lease import Lease
from sojourn.controller.clock import Clock, moved
from sojourn.controller.own_metrics import OwnMetrics
from sojourn.controller.tick import Corridor
from sojourn.errors import ClusterUnavailable

log = logging.getLogger(__name__)

EARLIEST_TICK_S = 3.0
"""A changed spec waits at most this long, so that churn does not multiply Prometheus' load."""


class Loop:
    """Ticks of one process.

    Args:
        sees: whether what is known of the cluster is up to date; else a tick is left out.
        pace_s: time between two ticks, and between two looks at the lease.
    """

    def __init__(
        self,
        corridor: Corridor,
        lease: Lease,
        metrics: OwnMetrics,
        sees: Callable[[], bool],
        pace_s: tuple[float, float],
    ) -> None:
        self._corridor = corridor
        self._lease = lease
        self._metrics = metrics
        self._sees = sees
        self._tick_s, self._retry_s = pace_s
        self._changed = asyncio.Event()
        self._clock = Clock()
        self.last_tick_at_s = 0.0

    def changed(self) -> None:
        """A spec changed, or the cluster is seen again: tick as soon as is polite."""
        self._changed.set()

    async def tend_lease(self) -> None:
        """Hold or seek the lease for ever.

        Raises:
            ClusterUnavailable: the API refuses lease rights; without them nobody would ever act.
        """
        was_held = False
        while True:
            held = await self._lease.tend()
            if held != was_held:
                log.info("lease %s", "taken: this process acts" if held else "not held: watching")
            was_held = held
            if held:
                self._metrics.leader.set(1.0)
            else:
                self._metrics.lease_lost()
            await asyncio.sleep(self._retry_s)

    async def run(self) -> None:
        """Tick for ever; an error of a tick is logged and the next tick tries again."""
        while True:
            started = time.monotonic()
            if self._lease.held and self._sees():
                await self._tick()
            await self._until_next(started)

    def _follow_the_clock(self) -> None:
        """Move what is remembered when the wall was set, before ages are taken from it."""
        set_by_s = self._clock.set_by_s()
        if set_by_s:
            log.warning("the clock was set by %+.0f s: what is remembered moves with it", set_by_s)
            for entry in self._corridor.registry.entries():
                entry.past = moved(entry.past, set_by_s)

    async def _tick(self) -> None:
        self._changed.clear()
        self._follow_the_clock()
        started = time.monotonic()
        try:
            await self._corridor.tick(time.time())
        except ClusterUnavailable as exc:
            log.warning("tick given up: %s", exc)
        except Exception:
            log.exception("tick failed")
        else:
            self.last_tick_at_s = time.time()
        self._metrics.tick_seconds.observe(time.monotonic() - started)
        self._metrics.services.set(len(self._corridor.registry))

    async def _until_next(self, started: float) -> None:
        earliest = min(self._tick_s, EARLIEST_TICK_S)
        await asyncio.sleep(max(0.0, started + earliest - time.monotonic()))
        rest = max(0.0, started + self._tick_s - time.monotonic())
        if self._lease.held and rest > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), rest)
        elif rest > 0:
            await asyncio.sleep(min(rest, self._retry_s))
