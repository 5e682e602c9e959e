"""lambda1*: the largest rate one replica takes within a goal, from any latency function.

P99 is quasi-convex in the rate: it rises, or (a timer longer than the service, or a surrogate that
waits for full batches) falls first and rises then. The largest rate that passes is therefore found
by looking for the valley only when the load limit itself fails, then closing in on the edge to its
right by inverse quadratic interpolation of ln(value / goal), or by halving where that does not help
(a percentile may jump with the rate).

Source: Chandrupatla, Adv. Eng. Softw. 28 (1997): a bracket that never widens, about half of
Brent's bookkeeping.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sojourn.facts.sojourn import LatencyGoal, ReplicaRate, Sojourn

# Relative width at which the search stops: P99 near the limit moves by less than its own error.
RATE_TOLERANCE = 2e-4

# The rate taken for "as the rate goes to 0", as a share of the rate at the load limit.
_IDLE_SHARE = 1e-4

_TINY = 1e-300

_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Excess:
    """How far an answer is over a goal.

    Attributes:
        ratio: value / goal of the worst metric; at most 1 passes.
        binding: its name.
        value_s: its value.
        steers: by metric, a number of the sign of ln(value / goal) that the search brings to 0.
    """

    ratio: float
    binding: str
    value_s: float
    steers: Mapping[str, float]


def excess(answer: Sojourn, goal: LatencyGoal) -> Excess:
    """The metric of ``answer`` furthest over ``goal``; ratio at most 1 passes."""
    latencies = {
        "Latency": answer.latency,
        "FirstToken": answer.time_to_first_token,
        "OutputToken": answer.time_per_output_token,
    }
    asked = limits_s(goal)
    values_s = {
        name: latency.quantile_s(goal.probability)
        for name, latency in latencies.items()
        if latency is not None and name in asked
    }
    return worst(goal, values_s, answer.blocking)


def worst(
    goal: LatencyGoal,
    values_s: Mapping[str, float],
    blocking: float,
    missing: Mapping[str, float] | None = None,
) -> Excess:
    """The metric furthest over ``goal``.

    Args:
        goal: SLO and limits.
        values_s: by metric the goal asks for, seconds at its percentile.
        blocking: share lost.
        missing: by metric, the share that misses the goal, where it is known: it is smooth in the
            rate where the percentile jumps from one step to a wait in the queue.
    """
    asked = limits_s(goal)
    found = [(0.0, "Utilisation", 0.0)]
    for name, value_s in values_s.items():
        found.append((value_s / asked[name] if asked[name] > 0 else math.inf, name, value_s))
    if goal.max_blocking < 1 and blocking > 0:
        found.append((blocking / max(goal.max_blocking, _TINY), "Blocking", 0.0))
    steers = {name: math.log(max(ratio, _TINY)) for ratio, name, _ in found[1:]}
    for name, share in (missing or {}).items():
        late = math.log(max(share, 1e-12) / (1 - goal.probability))
        # Straightened where next to none are late; the percentile has the last word on the sign.
        late = late if late > 0 else -math.log1p(-late)
        steers[name] = max(late, 1e-12) if steers[name] > 0 else min(late, -1e-12)
    ratio, binding, value_s = max(found, key=lambda one: one[0])
    return Excess(ratio, binding, value_s, steers)


def limits_s(goal: LatencyGoal) -> dict[str, float]:
    """The latencies a goal asks for, by metric."""
    limits = {
        "Latency": goal.latency_s,
        "FirstToken": goal.first_token_s,
        "OutputToken": goal.output_token_s,
    }
    return {name: limit for name, limit in limits.items() if limit is not None}


def asks_latency(goal: LatencyGoal) -> bool:
    """Whether the goal holds more than the load limit and loss."""
    return bool(limits_s(goal))


def largest_rate(
    at: Callable[[float], Excess], limit_per_s: float, *, only_rises: bool = False
) -> ReplicaRate:
    """The largest rate up to ``limit_per_s`` whose excess over the goal is at most 1.

    Args:
        at: the model's excess at a rate.
        limit_per_s: the rate at which the load reaches goal.max_utilisation.
        only_rises: no metric falls with the rate, so what fails idle fails at every rate.
    """
    idle_per_s = limit_per_s * _IDLE_SHARE
    at_limit, idle = at(limit_per_s), at(idle_per_s)
    best_per_s, best = (idle_per_s, idle) if idle.ratio <= 1 else (limit_per_s, at_limit)
    if best.ratio > 1:
        best_per_s, best = (
            (idle_per_s, idle) if only_rises else _valley(at, idle_per_s, limit_per_s)
        )
    floor_s = min(idle.value_s, at_limit.value_s, best.value_s)
    if best.ratio > 1:
        return ReplicaRate(0.0, best.binding, floor_s, reachable=False)
    from_per_s = 0.0
    if idle.ratio > 1:
        from_per_s, _ = _edge(at, (best_per_s, best), (idle_per_s, idle))
    if at_limit.ratio <= 1:
        return ReplicaRate(limit_per_s, "Utilisation", floor_s, True, from_per_s)
    most_per_s, binding = _edge(at, (best_per_s, best), (limit_per_s, at_limit))
    return ReplicaRate(most_per_s, binding, floor_s, True, from_per_s)


_Try = tuple[float, Excess]


def _edge(at: Callable[[float], Excess], passing: _Try, failing: _Try) -> tuple[float, str]:
    """The passing rate next to where the goal begins to fail, and the metric that fails there."""
    left: _Try | None = None
    while True:
        tolerance = RATE_TOLERANCE * max(failing[0], passing[0])
        width = abs(failing[0] - passing[0])
        if width <= tolerance:
            return passing[0], failing[1].binding
        # Never nearer to an end than what may close the bracket at once.
        part = min(0.9 * tolerance / width, 0.5)
        part = min(max(_part(passing, failing, left), part), 1 - part)
        rate = passing[0] + part * (failing[0] - passing[0])
        tried = (rate, at(rate))
        if tried[1].ratio <= 1:
            left, passing = passing, tried
        else:
            left, failing = failing, tried


def _part(passing: _Try, failing: _Try, left: _Try | None) -> float:
    """Share of the way from passing to failing at which the first metric should reach its goal.

    Args:
        passing, failing: the ends of the bracket.
        left: the end given up last.
    """
    found = []
    for name, f_failing in failing[1].steers.items():
        f_passing = passing[1].steers.get(name, -math.inf)
        if f_failing > 0:
            f_left = math.nan if left is None else left[1].steers.get(name, math.nan)
            place = 0.0 if left is None else (left[0] - passing[0]) / (failing[0] - passing[0])
            found.append(_zero(f_passing, f_failing, (place, f_left)))
    return min(found)


def _zero(f_start: float, f_end: float, third: tuple[float, float]) -> float:
    """Where a function that rises from ``f_start`` < 0 at 0 to ``f_end`` > 0 at 1 is zero.

    Straight through both ends when there is no third point (x, f); inverse quadratic through three
    where Chandrupatla's test says that it is monotone; else the middle.
    """
    x, f = third
    if not (math.isfinite(f_start) and math.isfinite(f_end)):
        return 0.5
    if math.isnan(f):
        return -f_start / (f_end - f_start)
    xi = 1 / x if x > 1 else 1 / (1 - x)
    near, far = (f_end, f_start) if x > 1 else (f_start, f_end)
    phi = (near - far) / (f - far) if f != far else math.inf
    if not (phi * phi < xi and (1 - phi) ** 2 < 1 - xi):
        return 0.5
    through_ends = f_start * f / ((f_end - f_start) * (f_end - f))
    return through_ends + x * f_start * f_end / ((f - f_start) * (f - f_end))


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
