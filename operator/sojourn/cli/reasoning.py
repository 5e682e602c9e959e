"""The decision table at a live point: both sides of each comparison, and what would change it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sojourn.cli import outlook
from sojourn.cli.exits import UsageError
from sojourn.cli.sighting import Sighting
from sojourn.decide import table
from sojourn.decide.capacity import Serving
from sojourn.decide.table import Live, Row
from sojourn.facts.finding import Finding
from sojourn.facts.reasons import Reason
from sojourn.facts.sizing import Sizing
from sojourn.units import format_duration, format_rate

MOST_REPLICAS_AHEAD = 3
"""Breakpoints shown above the live rate; as many below."""


@dataclass(frozen=True)
class Comparison:
    """One row of the table: its condition with both sides, and whether the row fires."""

    row: Reason
    condition: str
    holds: bool
    fires: bool
    why_not: str = ""


@dataclass(frozen=True)
class Change:
    """A rate at which the decision becomes another one."""

    direction: str
    rate_per_s: float
    row: Row


@dataclass(frozen=True)
class Reasoning:
    """A live service explained.

    Attributes:
        row: the one that fires; None without a rate or replicas.
        sized: what the model would run at the rate; None without one.
        serving: None if the service cannot be resolved (``problem`` says why).
    """

    sighting: Sighting
    serving: Serving | None
    findings: tuple[Finding, ...]
    live: Live | None
    comparisons: tuple[Comparison, ...]
    row: Row | None
    changes: tuple[Change, ...]
    sized: Sizing | None
    problem: str = ""


def reason(sighting: Sighting) -> Reasoning:
    """Explain what was seen."""
    try:
        serving, findings = outlook.serving_of(sighting.subject)
    except UsageError as exc:
        return Reasoning(sighting, None, (), None, (), None, (), None, str(exc))
    rate, replicas = sighting.rate_per_s, sighting.replicas
    if rate is None or replicas is None:
        return Reasoning(sighting, serving, findings, None, (), None, (), None)
    batch = sighting.max_batch or serving.service.bounds.maximum
    live = Live(serving, sighting.policy, rate, replicas, batch)
    row = table.evaluate(live)
    return Reasoning(
        sighting,
        serving,
        findings,
        live,
        _comparisons(live, row),
        row,
        _changes(live),
        outlook.size(serving, rate),
    )


def _comparisons(live: Live, row: Row) -> tuple[Comparison, ...]:
    load = "none" if math.isinf(live.utilisation) else f"{live.utilisation:.2f}"
    policy = live.policy
    share = "no replica"
    if live.replicas:
        share = f"{format_rate(live.rate_per_s / live.replicas)} a replica"
    most = live.slo_rate
    limit = format_rate(most.rate_per_s) if most.reachable else "any rate: no rate meets it"
    high, low = policy.high_utilisation, policy.low_utilisation
    rows = (
        (Reason.BATCH_BELOW_MINIMUM, f"load {load} >= 1", live.utilisation >= 1),
        (
            Reason.LATENCY_ABOVE_SLO,
            f"{share} > {limit}, the most in {_slo(live)}",
            live.slo_missed,
        ),
        (Reason.UTILIZATION_HIGH, f"load {load} > {high:.2f}", live.utilisation > high),
        (Reason.UTILIZATION_LOW, f"load {load} < {low:.2f}", live.utilisation < low),
    )
    compared = [
        Comparison(
            reason,
            condition,
            holds,
            reason is row.reason,
            _kept_back(live, reason) if holds and reason is not row.reason else "",
        )
        for reason, condition, holds in rows
    ]
    steady = row.reason is Reason.STEADY
    return (*compared, Comparison(Reason.STEADY, "no row above changes anything", steady, steady))


def _kept_back(live: Live, reason: Reason) -> str:
    """Why a row whose comparison holds does not fire."""
    if reason is Reason.UTILIZATION_LOW:
        return f"{live.needed} replicas are the least"
    if live.needed <= live.replicas:
        return f"more replicas would not help: {live.needed} are enough"
    return "an earlier row fired"


def _slo(live: Live) -> str:
    goal = live.serving.service.goal
    limits = (
        ("", goal.latency_s),
        ("first token ", goal.first_token_s),
        ("output token ", goal.output_token_s),
    )
    asked = [f"{name}{format_duration(s)}" for name, s in limits if s is not None]
    return f"P{goal.probability * 100:g} {', '.join(asked)}"


def _changes(live: Live) -> tuple[Change, ...]:
    """The next rates above and below at which the table asks for other replicas."""
    found: list[Change] = []
    now = table.evaluate(live).replicas
    for direction, step in (("above", +1), ("below", -1)):
        at, asked = live.rate_per_s, now
        for _ in range(MOST_REPLICAS_AHEAD):
            edge = _edge(live, at, asked, step)
            if edge is None or edge <= 0:
                break
            row = _at(live, edge)
            found.append(Change(direction, edge, row))
            at, asked = edge, row.replicas
    return tuple(found)


def _edge(live: Live, at_per_s: float, asked: int, step: int) -> float | None:
    """The nearest rate in one direction with another answer than ``asked`` replicas."""

    def differs(rate: float) -> bool:
        return _at(live, rate).replicas != asked

    top = max(at_per_s, live.serving.capacity_per_s(live.max_batch) * max(1, live.replicas))
    far = at_per_s + 2 * top if step > 0 else 0.0
    if not differs(far):
        return None
    return _halved(differs, at_per_s, far)


def _halved(differs: Callable[[float], bool], same: float, other: float) -> float:
    # From the near side, so that a range with several changes gives the first.
    steps = [same + (other - same) * k / 64 for k in range(1, 65)]
    other = next((rate for rate in steps if differs(rate)), other)
    same = steps[max(0, steps.index(other) - 1)] if other in steps[1:] else same
    while abs(other - same) > 1e-4 * max(abs(other), abs(same), 1e-9):
        middle = (same + other) / 2
        same, other = (same, middle) if differs(middle) else (middle, other)
    return other


def _at(live: Live, rate_per_s: float) -> Row:
    return table.evaluate(
        Live(live.serving, live.policy, rate_per_s, live.replicas, live.max_batch)
    )
