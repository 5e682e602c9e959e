"""Which statuses of a tick are written: facts at once, the rest lasting, in turn and within bounds.

A steady service's status is not even rendered: what was written last is remembered as its plan
had it, and a plan that says the same has nothing new to show.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sojourn.api import changes
from sojourn.api import status as status_api
from sojourn.api.changes import Change
from sojourn.facts.plan import Plan
from sojourn.facts.reading import Known, Reading
from sojourn.facts.service import Service
from sojourn.facts.sojourn import Sojourn

if TYPE_CHECKING:
    from sojourn.controller.registry import Entry

FEWEST = 10
"""Statuses of a tick that may always be written, so that a few services need not take turns."""

ROUND_S = 1.2 * changes.HEARTBEAT_S
"""Time in which all services have had their heartbeat: turns leave some room for news."""

NEAR = 0.9
"""Share of a threshold within which a number surely has not passed it, rounding included."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a status says, as its plan has it.

    Attributes:
        facts: everything whose change counts.
        numbers: rate first, then what is derived and measured; None where there is none.
        at_s: when it was decided.
    """

    service: Service | None
    facts: tuple[object, ...]
    numbers: tuple[float | None, ...]
    at_s: float

    def still(self, new: Shown) -> bool:
        """True when a status rendered from ``new`` could only be due for its age."""
        if new.service is not self.service or new.facts != self.facts:
            return False
        rate, fresh = self.numbers[0], new.numbers[0]
        if rate is None or fresh is None:
            same_rate = rate is fresh
        else:
            same_rate = abs(fresh - rate) <= NEAR * changes.DRIFT * max(rate, fresh)
        same_many = len(self.numbers) == len(new.numbers)
        return same_rate and same_many and all(map(_near, self.numbers[1:], new.numbers[1:]))


def shown(plan: Plan) -> Shown:
    """What a plan's status would say; of messages with figures in them only the words."""
    decision, report = plan.decision, plan.report
    rate, limits, predicted = report.rate_per_s, report.limits, report.predicted
    facts = (
        plan.ref,
        decision.row,
        decision.before,
        decision.after,
        decision.raw,
        [clip.reason for clip in decision.limited_by],
        changes.words(decision.message),
        plan.ready_replicas,
        plan.write_max_batch or plan.rollout_running,
        plan.conditions,
        plan.findings,
        report.regime,
        (limits.min_batch, limits.max_batch_for_slo, limits.max_batch_for_memory, limits.binding),
        rate.state if isinstance(rate, Known) else rate,
    )
    numbers = (
        rate.value if isinstance(rate, Known) else None,
        report.utilisation,
        _value(report.latency_p50_s),
        _value(report.latency_p99_s),
        limits.rate_per_replica,
        limits.max_stable_rate,
        *(_predicted(predicted) if predicted is not None else ()),
    )
    return Shown(plan.service, facts, numbers, decision.at_s)


def _predicted(answer: Sojourn) -> tuple[float, ...]:
    quantiles = (seconds for _, seconds in answer.latency.quantiles_s)
    waits = (answer.queue_wait_s, answer.batch_wait_s, answer.service_s)
    return (*quantiles, *waits, answer.utilisation)


def _value(reading: Reading) -> float | None:
    return reading.value if isinstance(reading, Known) else None


def _near(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return before is after
    return before == after or abs(after - before) <= NEAR * changes.JUMP * max(before, after)


class Statuses:
    """Renders statuses and says which are due; one for all ticks of a process."""

    def __init__(self) -> None:
        self._news_left = self._refreshes_left = 0
        self._begun_at_s = -math.inf

    def begin(self, services: int, now_s: float) -> None:
        """Begin a tick: what is not urgent takes turns, lasting news within a minute."""
        turn_s = min(max(0.0, now_s - self._begun_at_s), changes.LASTING_S)
        self._news_left = max(FEWEST, math.ceil(services * turn_s / changes.LASTING_S))
        self._refreshes_left = max(FEWEST, math.ceil(services * turn_s / ROUND_S))
        self._begun_at_s = now_s

    def due(self, entry: Entry, plan: Plan, now_s: float) -> Mapping[str, Any] | None:
        """The status to write after a plan; None when nothing of it is due.

        Without news O(parts of a plan); else O(size of a status).
        """
        writes = plan.write_replicas or plan.write_max_batch or plan.live_max_batch is not None
        old = entry.shown
        fresh_enough = old is not None and 0 <= now_s - old.at_s < changes.HEARTBEAT_S
        if fresh_enough and not writes and old is not None and old.still(shown(plan)):
            entry.differs_since_s = None
            return None
        now = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        fresh = status_api.status(plan, entry.status, now)
        return fresh if self._is_due(entry, fresh, now_s) else None

    def _is_due(self, entry: Entry, fresh: Mapping[str, Any], now_s: float) -> bool:
        change = changes.change(entry.status, fresh)
        if change is Change.FACT:
            return True
        if change is Change.NOTHING:
            entry.differs_since_s = None
        elif entry.differs_since_s is None:
            entry.differs_since_s = now_s
        since_s = entry.differs_since_s
        lasted = since_s is not None and now_s - since_s >= changes.LASTING_S
        if lasted and self._news_left > 0:
            self._news_left -= 1
            self._refreshes_left -= 1
            return True
        if changes.age_s(entry.status, fresh) < changes.HEARTBEAT_S or self._refreshes_left <= 0:
            return False
        self._refreshes_left -= 1
        return True
