"""Which max batch the model would run (S5, S11, S17): the feasible interval and the objective."""

from __future__ import annotations

from dataclasses import dataclass

from sojourn.decide.batch_loop import BatchWish
from sojourn.decide.capacity import ROUNDING_SLACK, Serving, replicas_for
from sojourn.decide.table import Live
from sojourn.facts.declaration import Objective
from sojourn.facts.replica import OperatingPoint

STEPS = (1, 2, 3, 4, 6)
"""Batches scanned are these times powers of two: latency is flat in between (queueing.md 7)."""


@dataclass(frozen=True)
class BatchChoice:
    """The least replicas any admissible batch needs, and the batches that keep to it.

    Attributes:
        replicas: least c with a non-empty interval.
        interval: least and largest feasible batch at c replicas; None when no batch keeps the goal.
        batch: the one the objective picks.
        binding: what bounds the interval from above: ``SLO``, ``Memory`` or ``Spec``.
    """

    replicas: int
    interval: tuple[int, int] | None
    batch: int
    binding: str


def candidates(minimum: int, maximum: int) -> tuple[int, ...]:
    """Batches to scan between two bounds, both included: O(log(max / min)) of them."""
    grid = {minimum, maximum}
    power = 1
    while power <= maximum:
        grid.update(s * power for s in STEPS if minimum <= s * power <= maximum)
        power *= 2
    return tuple(sorted(grid))


def choose(serving: Serving, rate_per_s: float) -> BatchChoice:
    """Least replicas over all admissible batches, then the batch by objective."""
    bounds = serving.service.bounds
    largest = bounds.maximum if bounds.kv_limit is None else min(bounds.maximum, bounds.kv_limit)
    largest = max(bounds.minimum, largest)
    grid = candidates(bounds.minimum, largest)
    needs = {
        batch: replicas_for(rate_per_s, rate.rate_per_s)
        for batch in grid
        if (rate := serving.within_goal(batch)).reachable
    }
    memory_binds = largest < bounds.maximum
    if not needs:
        return BatchChoice(0, None, largest, "SLO")
    replicas = max(1, min(needs.values()))
    feasible = [batch for batch, need in needs.items() if need <= replicas]
    binding = "SLO" if feasible[-1] < largest else "Memory" if memory_binds else "Spec"
    batch = feasible[-1]
    if serving.service.declaration.scaling.objective is Objective.MIN_LATENCY:
        batch = _least_latency(serving, rate_per_s, replicas, feasible)
    return BatchChoice(replicas, (feasible[0], feasible[-1]), batch, binding)


def wish(live: Live, declared_batch: int | None, choice: BatchChoice) -> BatchWish:
    """What the batch loop is asked: the live batch beside the one the model would run."""
    restores = (
        choice.interval is not None
        and live.slo_missed
        and live.rate_per_s
        <= live.replicas * live.serving.within_goal(choice.batch).rate_per_s * (1 + ROUNDING_SLACK)
    )
    return BatchWish(
        live=declared_batch,
        wanted=choice.batch,
        feasible=choice.interval,
        replicas_saved=max(0, live.needed - choice.replicas) if choice.interval else 0,
        restores_slo=restores,
    )


def _least_latency(serving: Serving, rate_per_s: float, replicas: int, feasible: list[int]) -> int:
    routing = serving.service.declaration.traffic.routing

    def mean_s(batch: int) -> float:
        point = OperatingPoint(serving.replica(batch), rate_per_s, replicas, routing)
        return serving.queue.sojourn(point, (0.5,)).latency.mean_s

    return min(feasible, key=lambda batch: (mean_s(batch), batch))
