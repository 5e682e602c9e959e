"""lambda1*: the largest rate one replica takes within a goal, from any latency function.

P99 is quasi-convex in the rate: it rises, or (a timer longer than the service, or a surrogate that
waits for full batches) falls first and rises then. The largest rate that passes is therefore found
by looking for the valley only when the load limit itself fails, then halving to its right.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sojourn.facts.sojourn import LatencyGoal, ReplicaRate, Sojourn

# Relative width at which halving stops: P99 near the limit moves by less than its own error.
RATE_TOLERANCE = 2e-4

# The rate taken for "as the rate goes to 0", as a share of the rate at the load limit.
_IDLE_SHARE = 1e-4

_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Excess:
    """How far an answer is over a goal: value / goal of the worst metric, and its name."""

    ratio: float
    binding: str
    value_s: float


def excess(answer: Sojourn, goal: LatencyGoal) -> Excess:
    """The metric of ``answer`` furthest over ``goal``; ratio at most 1 passes."""
    found = [Excess(0.0, "Utilisation", 0.0)]
    asked = (
        ("Latency", answer.latency, goal.latency_s),
        ("FirstToken", answer.time_to_first_token, goal.first_token_s),
        ("OutputToken", answer.time_per_output_token, goal.output_token_s),
    )
    for name, latency, limit_s in asked:
        if latency is not None and limit_s is not None:
            value_s = latency.quantile_s(goal.probability)
            found.append(Excess(value_s / limit_s if limit_s > 0 else math.inf, name, value_s))
    if goal.max_blocking < 1 and answer.blocking > 0:
        found.append(Excess(answer.blocking / max(goal.max_blocking, 1e-12), "Blocking", 0.0))
    return max(found, key=lambda one: one.ratio)


def asks_latency(goal: LatencyGoal) -> bool:
    """Whether the goal holds more than the load limit and loss."""
    limits = (goal.latency_s, goal.first_token_s, goal.output_token_s)
    return any(limit is not None for limit in limits)


def largest_rate(
    answer_at: Callable[[float], Sojourn], limit_per_s: float, goal: LatencyGoal
) -> ReplicaRate:
    """The largest rate up to ``limit_per_s`` whose answer passes ``goal``.

    Args:
        answer_at: the model's answer at a rate, its quantiles at goal.probability.
        limit_per_s: the rate at which the load reaches goal.max_utilisation.
        goal: SLO and limits.
    """

    def at(rate_per_s: float) -> Excess:
        return excess(answer_at(rate_per_s), goal)

    idle_per_s = limit_per_s * _IDLE_SHARE
    at_limit, idle = at(limit_per_s), at(idle_per_s)
    best_per_s, best = (idle_per_s, idle) if idle.ratio <= 1 else (limit_per_s, at_limit)
    if best.ratio > 1:
        best_per_s, best = _valley(at, idle_per_s, limit_per_s)
    floor_s = min(idle.value_s, at_limit.value_s, best.value_s)
    if best.ratio > 1:
        return ReplicaRate(0.0, best.binding, floor_s, reachable=False)
    from_per_s = 0.0 if idle.ratio <= 1 else _edge(at, best_per_s, idle_per_s)
    if at_limit.ratio <= 1:
        return ReplicaRate(limit_per_s, "Utilisation", floor_s, True, from_per_s)
    most_per_s = _edge(at, best_per_s, limit_per_s)
    return ReplicaRate(most_per_s, at_limit.binding, floor_s, True, from_per_s)


def _edge(at: Callable[[float], Excess], passing: float, failing: float) -> float:
    """The passing rate next to where the goal begins to fail, by halving."""
    while abs(failing - passing) > RATE_TOLERANCE * max(failing, passing):
        middle = (passing + failing) / 2
        if at(middle).ratio <= 1:
            passing = middle
        else:
            failing = middle
    return passing


def _valley(at: Callable[[float], Excess], low: float, high: float) -> tuple[float, Excess]:
    """The best rate between two by golden section in log rate; stops at the first that passes."""
    left_end, right_end = math.log(low), math.log(high)
    best_rate, best = low, at(low)
    for _ in range(28):
        left = right_end - _GOLDEN * (right_end - left_end)
        right = left_end + _GOLDEN * (right_end - left_end)
        one, two = at(math.exp(left)), at(math.exp(right))
        rate, found = (left, one) if one.ratio <= two.ratio else (right, two)
        if found.ratio < best.ratio:
            best_rate, best = math.exp(rate), found
        if best.ratio <= 1:
            break
        if one.ratio <= two.ratio:
            right_end = right
        else:
            left_end = left
    return best_rate, best
