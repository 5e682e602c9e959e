"""Wall time that may be set under a running process, by NTP, by hand or after a pause.

Decisions remember times of the wall, because Prometheus and the API server speak of the wall. When
it is set, what is remembered moves with it: ages stay what they were, no window is negative, none
ends an hour early.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from sojourn.facts.situation import Past

SETTING_S = 5.0
"""Smaller differences are drift and the resolution of sleeping, not somebody's setting."""


class Clock:
    """By how much the wall was set since it was last asked, by a clock nobody sets."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._steady = wall, steady
        self._ahead_s = wall() - steady()

    def set_by_s(self) -> float:
        """Seconds the wall was set forward (back, if negative); 0 when it was not."""
        ahead_s = self._wall() - self._steady()
        moved_s, self._ahead_s = ahead_s - self._ahead_s, ahead_s
        return moved_s if abs(moved_s) > SETTING_S else 0.0


def moved(past: Past, by_s: float) -> Past:
    """The past in the time of a wall that was set by so much."""

    def later(at_s: float | None) -> float | None:
        return None if at_s is None else at_s + by_s

    return replace(
        past,
        since_s=past.since_s + by_s,
        recommendations=tuple(replace(r, at_s=r.at_s + by_s) for r in past.recommendations),
        scale_events=tuple(replace(e, at_s=e.at_s + by_s) for e in past.scale_events),
        rates=tuple(replace(r, at_s=r.at_s + by_s) for r in past.rates),
        service_samples=tuple(replace(s, at_s=s.at_s + by_s) for s in past.service_samples),
        batch_changed_at_s=later(past.batch_changed_at_s),
        batch_wanted_since_s=later(past.batch_wanted_since_s),
        reverted_at_s=tuple(at_s + by_s for at_s in past.reverted_at_s),
        live_refused_at_s=later(past.live_refused_at_s),
        decided_at_s=later(past.decided_at_s),
        unbroken_since_s=later(past.unbroken_since_s),
    )
