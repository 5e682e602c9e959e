"""The book's five steps with a service's numbers (S11): profile, stability, latency, tail, choice.

For batches that start and end together every step stands beside the book's M/G/1 surrogate, so
that its distance from the real system is seen. A continuous batch has no surrogate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sojourn.cli import text
from sojourn.cli.exits import UsageError
from sojourn.cli.outlook import Outlook, levels
from sojourn.cli.table import Column, Table
from sojourn.facts.replica import DynamicReplica, OperatingPoint
from sojourn.facts.service_time import BatchServiceTime, LinearServiceTime
from sojourn.facts.sojourn import Sojourn
from sojourn.model import objective, service_time, stability, surrogate
from sojourn.plot import curves
from sojourn.units import format_duration, format_rate

PROFILED = (1, 8, 32)
"""Step 1 of the book measures these."""

_SMALLEST, _LARGEST = 4, 256


@dataclass(frozen=True)
class Step:
    """One step: what it asks, a table of its numbers, and what follows."""

    number: int
    title: str
    table: Table
    conclusion: tuple[str, ...]


def steps(look: Outlook) -> tuple[Step, ...]:
    """The five steps of one plan.

    Raises:
        UsageError: the engine would not start, so there is nothing to step through.
    """
    if look.sized is None or look.sized.replicas < 1:
        raise UsageError("the five steps need an engine that starts and a rate above 0")
    candidates = _candidates(look)
    answers = [_answer(look, batch) for batch in candidates]
    return (
        _profile(look),
        _stability(look),
        _latency(look, candidates, answers),
        _tail(look, candidates, answers),
        _choice(look),
    )


def _share(look: Outlook) -> float:
    assert look.sized is not None
    return look.rate_per_s / look.sized.replicas / look.serving.ranks


def _candidates(look: Outlook) -> list[int]:
    """Powers of two within bounds, from one that is too small on, and the batch chosen."""
    assert look.sized is not None
    bounds = look.serving.service.bounds
    most = min(bounds.maximum, bounds.kv_limit or bounds.maximum, _LARGEST)
    sizes = {1} | {2**k for k in range(2, 9) if _SMALLEST <= 2**k <= most}
    return sorted(b for b in sizes | {look.sized.batch} if b <= most or b == look.sized.batch)


def _answer(look: Outlook, batch: int) -> Sojourn:
    assert look.sized is not None
    serving = look.serving
    routing = serving.service.declaration.traffic.routing
    point = OperatingPoint(
        serving.replica(batch), look.rate_per_s, look.sized.replicas * serving.ranks, routing
    )
    return serving.queue.sojourn(point, levels(look.goal))


def law_of(look: Outlook) -> BatchServiceTime:
    """T(B): of a batch, or of one request when B run together."""
    return curves.law_of(look.serving.service.replica)


def _profile(look: Outlook) -> Step:
    law = law_of(look)
    rows = tuple(
        {
            "batch": batch,
            "service_s": float(service_time.service_s(law, batch)),
            "capacity_per_s": float(service_time.capacity_per_s(law, batch)),
        }
        for batch in PROFILED
    )
    columns = (
        Column("batch", "B"),
        Column("service_s", "T_svc(B)", text.seconds),
        Column("capacity_per_s", "B / T_svc(B)", text.rate),
    )
    source = {e.name: e for e in look.serving.service.effective}["serviceTime"]
    lines = [f"T_svc: {source.value} ({source.source.lower()})."]
    if isinstance(law, LinearServiceTime):
        limit = service_time.capacity_limit_per_s(law)
        lines.append(f"However large the batch, a replica serves less than {text.rate(limit)}.")
    return Step(1, "Profile: how long a batch takes", Table(columns, rows), tuple(lines))


def _stability(look: Outlook) -> Step:
    law, share = law_of(look), _share(look)
    assert look.sized is not None
    target = look.goal.max_utilisation
    wanted = (("stable", 1.0), ("target", target))
    rows: list[dict[str, Any]] = []
    for name, load in wanted:
        least = (
            stability.least_stable_batch(share, law)
            if load == 1
            else stability.min_batch(share, law, load)
        )
        batch = float(least)
        at = float(stability.utilisation(share, 1, batch, law)) if np.isfinite(batch) else None
        rows.append({"asked": name, "load": load, "batch": batch, "at": at})
    columns = (
        Column("asked", "asked", left=True),
        Column("load", "load", text.share),
        Column("batch", "least B", text.count),
        Column("at", "load at it", text.share),
    )
    rate = format_rate(share)
    lines = [
        f"B_min = lambda T_fixed / (rho - lambda t_req) at lambda = {rate} a replica "
        f"({text.plural(look.sized.replicas, 'replica')})."
    ]
    if isinstance(law, LinearServiceTime):
        exact = float(stability.min_batch_exact(share, law, 1.0))
        lines.append(
            f"At rho = 1 that is {share:g} x {law.fixed_s:g} / (1 - {share:g} x "
            f"{law.per_request_s:g}) = {exact:.2f}."
        )
    return Step(
        2, "Stability: the least batch that keeps up", Table(columns, tuple(rows)), (*lines,)
    )


def _latency(look: Outlook, candidates: Sequence[int], answers: Sequence[Sojourn]) -> Step:
    law, share = law_of(look), _share(look)
    dynamic = isinstance(look.serving.service.replica, DynamicReplica)
    rows = tuple(
        {
            "batch": batch,
            "load": one.utilisation,
            "waiting_s": one.queue_wait_s,
            "batching_s": one.batch_wait_s,
            "service_s": one.service_s,
            "mean_s": one.latency.mean_s,
            "surrogate_s": float(surrogate.latency_mean_s(share, batch, law)) if dynamic else None,
            "regime": str(stability.regime(share, law, batch)) if dynamic else None,
        }
        for batch, one in zip(candidates, answers, strict=True)
    )
    columns = [
        Column("batch", "B"),
        Column("load", "load", text.share),
        Column("waiting_s", "E[W]", text.seconds, rank=1),
        Column("batching_s", "E[T_batch]", text.seconds, rank=2),
        Column("service_s", "E[T_svc]", text.seconds, rank=1),
        Column("mean_s", "E[T]", text.seconds),
    ]
    lines: tuple[str, ...] = ()
    if dynamic:
        columns += [
            Column("surrogate_s", "surrogate E[T]", text.seconds),
            Column("regime", "regime", left=True),
        ]
        lines = (
            "E[T] = E[W] + E[T_batch] + E[T_svc]. The surrogate waits for full batches and counts",
            "gathering and queueing one after the other; in the real system they overlap.",
        )
    return Step(3, "Latency: the mean of each candidate", Table(tuple(columns), rows), lines)


def _tail(look: Outlook, candidates: Sequence[int], answers: Sequence[Sojourn]) -> Step:
    law, share, goal = law_of(look), _share(look), look.goal
    dynamic = isinstance(look.serving.service.replica, DynamicReplica)
    level = goal.probability
    rows = []
    for batch, one in zip(candidates, answers, strict=True):
        row: dict[str, Any] = {"batch": batch, "real_s": one.latency.quantile_s(level)}
        if dynamic:
            mean_s = surrogate.latency_mean_s(share, batch, law)
            std_s = surrogate.latency_std_s(share, batch, law)
            row["exponential_s"] = float(surrogate.exponential_quantile_s(mean_s, level))
            row["gaussian_s"] = float(surrogate.gaussian_quantile_s(mean_s, std_s, level))
        for key, latency in (
            ("first_s", one.time_to_first_token),
            ("token_s", one.time_per_output_token),
        ):
            row[key] = latency.quantile_s(level) if latency else None
        row["kept"] = _kept(look, one)
        rows.append(row)
    name = text.percentile(level)
    columns = [Column("batch", "B"), Column("real_s", f"{name} real", text.seconds)]
    if dynamic:
        columns += [
            Column(
                "exponential_s",
                f"{name} 4.6 E[T]" if level == 0.99 else "exponential",
                text.seconds,
            ),
            Column(
                "gaussian_s", f"{name} E[T]+2.33σ" if level == 0.99 else "Gaussian", text.seconds
            ),
        ]
    else:
        columns += [
            Column("first_s", "first token", text.seconds),
            Column("token_s", "output token", text.seconds),
        ]
    columns.append(Column("kept", "SLO kept", text.yes, left=True))
    lines = ("The two rules of thumb take the surrogate's mean and deviation.",) if dynamic else ()
    return Step(4, f"Tail: {name} of each candidate", Table(tuple(columns), tuple(rows)), lines)


def _kept(look: Outlook, one: Sojourn) -> bool:
    goal = look.goal
    pairs = (
        (one.latency, goal.latency_s),
        (one.time_to_first_token, goal.first_token_s),
        (one.time_per_output_token, goal.output_token_s),
    )
    return one.utilisation <= goal.max_utilisation + 1e-9 and all(
        latency.quantile_s(goal.probability) <= limit * (1 + 1e-6)
        for latency, limit in pairs
        if latency is not None and limit is not None
    )


def _choice(look: Outlook) -> Step:
    sized, share, law = look.sized, _share(look), law_of(look)
    assert sized is not None
    columns = (
        Column("replicas", "replicas"),
        Column("batch", "max batch"),
        Column("smallest", "from"),
        Column("largest", "to"),
        Column("p99_s", text.percentile(look.goal.probability), text.seconds),
    )
    one = look.sojourn
    row = {
        "replicas": sized.replicas,
        "batch": sized.batch,
        "smallest": sized.smallest_batch,
        "largest": sized.largest_batch,
        "p99_s": one.latency.quantile_s(look.goal.probability) if one else None,
    }
    chosen = look.serving.service.declaration.scaling.objective
    rule = {"MaxBatch": "the largest batch that keeps the SLO", "MinLatency": "argmin E[T]"}
    lines = [f"Objective {chosen}: {rule[str(chosen)]}."]
    if isinstance(look.serving.service.replica, DynamicReplica):
        best = objective.surrogate_best_batch(share, law, sized.largest_batch)
        if best is not None:
            least = float(surrogate.latency_mean_s(share, best, law))
            lines.append(
                f"The surrogate's own argmin E[T] is B* = {best} ({format_duration(least)})."
            )
    return Step(5, "Choice: replicas and max batch", Table(columns, (row,)), tuple(lines))
