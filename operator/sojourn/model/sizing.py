"""Sizing by the one serving constraint (S17): least replicas, and the batches they may run.

Everything a replica does depends on lambda only through lambda / c. So each candidate batch has
one interval of rates it serves within the goal, [from, lambda1*], solved once and cached; a tick
is then c = ceil(lambda / lambda1*) over the candidates. c never falls when lambda rises.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from sojourn.facts.declaration import Objective
from sojourn.facts.replica import ContinuousReplica, OperatingPoint, Replica
from sojourn.facts.sizing import ServingConstraint, Sizing
from sojourn.facts.sojourn import LatencyGoal, ReplicaRate
from sojourn.model.candidates import (
    around_best,
    candidates,
    from_the_top,
    waits_are_steps,
)
from sojourn.model.domain import FloatArray, non_negative
from sojourn.model.protocol import QueueModel
from sojourn.model.stability import ROUNDING_SLACK

_CACHED = 65_536

# Mean latencies this close are one plateau.
_FLAT = 1.001


@dataclass(frozen=True, eq=False)
class Capacity:
    """What one replica takes at each candidate batch: the part of sizing that no rate changes.

    Attributes:
        batches: candidate max batches, increasing, (n,).
        rates_per_s: lambda1* of each, (n,); 0 where the goal cannot be met.
        from_per_s: least rate of each that meets the goal, (n,).
        answers: the model's answers, (n,).
        by_load_only: the SLO cannot be met at any batch, so the load limit alone sized this.
        floor_s: least value of the SLO's metric over the candidates.
        memory_binds: B_KV, not the declared most, ends the candidates.
    """

    batches: FloatArray
    rates_per_s: FloatArray
    from_per_s: FloatArray
    answers: tuple[ReplicaRate, ...]
    by_load_only: bool
    floor_s: float
    memory_binds: bool


def size(model: QueueModel, constraint: ServingConstraint, rate_per_s: float) -> Sizing:
    """Least replicas with a non-empty interval of batches at one total rate, and that interval.

    Args:
        model: answers for a replica.
        constraint: goal, memory and declared bounds.
        rate_per_s: lambda over all replicas.

    Returns:
        The sizing; with ``reachable`` False when no batch meets the SLO at any rate, or none at
        this one (a batch that waits for companions at a low rate): then the load limit sizes.

    Raises:
        ModelDomainError: a negative or NaN rate.

    Source: S17 of the theory.
    """
    rate = float(non_negative("rate", rate_per_s))
    plain = _sized_by_load(model, constraint, rate)
    if plain is not None:
        return plain
    table = capacity(model, constraint)
    replicas = least_replicas(rate, table)
    if math.isinf(replicas) and not table.by_load_only:
        unmet = capacity(model, _by_load(constraint))
        return replace(_sized(model, constraint, rate, unmet), reachable=False)
    return _sized(model, constraint, rate, table)


@lru_cache(maxsize=_CACHED)
def capacity(model: QueueModel, constraint: ServingConstraint) -> Capacity:
    """The rates one replica takes at each candidate batch, solved once per constraint."""
    low, high, memory_binds = bounds(constraint)
    one_sided = _one_sided(constraint, high)
    batches = _asked_about(model, constraint, (low, high), one_sided)
    answers = [_answer(model, constraint, b) for b in batches]
    floor_s = min(answer.floor_s for answer in answers)
    by_load_only = not any(answer.reachable for answer in answers)
    if by_load_only:
        constraint = _by_load(constraint)
        answers = [_answer(model, constraint, b) for b in batches]
    elif not one_sided:
        batches, answers = _refined_at_best(model, constraint, batches, answers)
    return Capacity(
        batches=np.array(batches, dtype=float),
        rates_per_s=np.array([answer.rate_per_s for answer in answers]),
        from_per_s=np.array([answer.from_rate_per_s for answer in answers]),
        answers=tuple(answers),
        by_load_only=by_load_only,
        floor_s=floor_s,
        memory_binds=memory_binds,
    )


def _one_sided(constraint: ServingConstraint, largest: int) -> bool:
    """Whether what binds at a batch tells on which side of it the best one is."""
    replica = constraint.replica
    return isinstance(replica, ContinuousReplica) and not waits_are_steps(
        replica, constraint.goal, largest
    )


def _asked_about(
    model: QueueModel, constraint: ServingConstraint, ends: tuple[int, int], one_sided: bool
) -> list[int]:
    def at(batch: int) -> ReplicaRate:
        return _answer(model, constraint, batch)

    if one_sided:
        return around_best(lambda batch: at(batch).binding, *ends)
    if isinstance(constraint.replica, ContinuousReplica):
        return from_the_top(lambda batch: at(batch).rate_per_s, candidates(*ends))
    return candidates(*ends)


def least_replicas(rate_per_s: float, table: Capacity) -> float:
    """Least c for which some candidate has from <= lambda / c <= lambda1*; inf if none has."""
    if rate_per_s == 0:
        return 0.0
    replicas = replicas_by_batch(rate_per_s, table.rates_per_s, table.from_per_s)
    return float(replicas.min())


def replicas_by_batch(
    rate_per_s: float | FloatArray, rates: FloatArray, from_rates: FloatArray
) -> FloatArray:
    """Least c at each candidate, the shape of ``rates``; inf where none serves."""
    # Ceil, not round: if 2.4 are needed, two run at load 1.2 and the queue never drains.
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = np.where(rates > 0, rate_per_s / rates, np.inf)
        replicas = np.maximum(1.0, np.ceil(needed * (1 - ROUNDING_SLACK)))
        starved = rate_per_s / replicas < from_rates * (1 - ROUNDING_SLACK)
    return np.asarray(np.where(starved, np.inf, replicas))


def _sized(
    model: QueueModel, constraint: ServingConstraint, rate_per_s: float, table: Capacity
) -> Sizing:
    best = table.answers[int(np.argmax(table.rates_per_s))]
    replicas = int(least_replicas(rate_per_s, table))
    share = rate_per_s / max(replicas, 1)
    asked = _by_load(constraint) if table.by_load_only else constraint
    serves = np.flatnonzero([_serves(answer, share) for answer in table.answers])
    low, below = _edge(model, asked, share, table, int(serves[0]), -1)
    high, above = _edge(model, asked, share, table, int(serves[-1]), +1)
    if constraint.objective is Objective.MIN_LATENCY:
        batch = least_latency_batch(
            model, constraint.replica, share, (low, high), constraint.dispersion
        )
    else:
        batch = high
    return Sizing(
        replicas=replicas,
        batch=batch,
        smallest_batch=low,
        largest_batch=high,
        bound_below=below or "SpecMinimum",
        bound_above=above or ("Memory" if table.memory_binds else "SpecMaximum"),
        binding=best.binding,
        rate_per_replica_per_s=best.rate_per_s,
        reachable=not table.by_load_only,
        floor_s=table.floor_s,
    )


@lru_cache(maxsize=_CACHED)
def _bound_by_load(model: QueueModel, constraint: ServingConstraint) -> ReplicaRate | None:
    """The largest batch's answer, if there the load limit binds and no other batch takes more."""
    low, high, _ = bounds(constraint)
    top = _answer(model, constraint, high)
    if top.binding != "Utilisation" or top.from_rate_per_s > 0 or not top.reachable:
        return None
    by_load = _by_load(constraint)
    limits = [_answer(model, by_load, b).rate_per_s for b in candidates(low, high)]
    return None if max(limits) > top.rate_per_s * (1 + ROUNDING_SLACK) else top


def _sized_by_load(
    model: QueueModel, constraint: ServingConstraint, rate_per_s: float
) -> Sizing | None:
    """The usual case, at a tenth of the cost: at the largest batch the load limit binds.

    No other batch can then take more: none has a larger rate at the load limit. None elsewhere.
    """
    low, high, memory_binds = bounds(constraint)
    if constraint.objective is Objective.MIN_LATENCY:
        return None
    top = _bound_by_load(model, constraint)
    if top is None:
        return None
    by_load = _by_load(constraint)
    needed = math.ceil(rate_per_s / top.rate_per_s * (1 - ROUNDING_SLACK))
    replicas = max(1, needed) if rate_per_s > 0 else 0
    share = rate_per_s / max(replicas, 1)
    least, below = _first_serving(model, by_load, share, (low, high))
    if not _likely_serves(model, constraint, least, share):
        least, below = _first_serving(model, constraint, share, (least + 1, high))
    return Sizing(
        replicas=replicas,
        batch=high,
        smallest_batch=least,
        largest_batch=high,
        bound_below=below if below and least > low else "SpecMinimum",
        bound_above="Memory" if memory_binds else "SpecMaximum",
        binding=top.binding,
        rate_per_replica_per_s=top.rate_per_s,
        reachable=True,
        floor_s=top.floor_s,
    )


def _likely_serves(
    model: QueueModel, constraint: ServingConstraint, batch: int, share_per_s: float
) -> bool:
    """Whether a batch serves, from the candidates around it.

    The share of the load limit that the SLO leaves changes slowly with the batch, so it is read
    between candidates: to ask about every batch that a changing rate points at costs a tick more.
    """
    low, high, _ = bounds(constraint)
    grid = candidates(low, high)
    above = grid[bisect_left(grid, batch)]
    below = grid[max(0, bisect_left(grid, batch) - 1)] if above > batch else above
    by_load = _by_load(constraint)
    kept = [
        _answer(model, constraint, b).rate_per_s / _answer(model, by_load, b).rate_per_s
        for b in (below, above)
    ]
    part = (batch - below) / (above - below) if above > below else 0.0
    limit = _answer(model, by_load, batch).rate_per_s
    likely = (kept[0] + part * (kept[1] - kept[0])) * limit
    return share_per_s <= likely * (1 + ROUNDING_SLACK)


def _first_serving(
    model: QueueModel, constraint: ServingConstraint, share_per_s: float, interval: tuple[int, int]
) -> tuple[int, str]:
    """Least batch that serves, given that the largest does, and why the one below does not."""
    failing, serving = interval[0] - 1, interval[1]
    why = ""
    while serving - failing > 1:
        middle = (serving + failing) // 2
        answer = _answer_to(model, constraint, middle, share_per_s)
        if _serves(answer, share_per_s):
            serving = middle
        else:
            failing, why = middle, answer.binding
    return serving, why


def _answer_to(
    model: QueueModel, constraint: ServingConstraint, batch: int, share_per_s: float
) -> ReplicaRate:
    """lambda1* at a batch; only the load limit, a division, where that is below the share."""
    limit = _answer(model, _by_load(constraint), batch)
    return limit if not _serves(limit, share_per_s) else _answer(model, constraint, batch)


def _serves(answer: ReplicaRate, share_per_s: float) -> bool:
    slack = ROUNDING_SLACK * share_per_s
    return answer.reachable and (
        answer.from_rate_per_s - slack <= share_per_s <= answer.rate_per_s + slack
    )


def _edge(
    model: QueueModel,
    constraint: ServingConstraint,
    share_per_s: float,
    table: Capacity,
    index: int,
    step: int,
) -> tuple[int, str]:
    """The last batch from candidate ``index`` on that serves, and why the next does not."""
    serving = int(table.batches[index])
    if not 0 <= index + step < table.batches.size:
        return serving, ""
    failing = int(table.batches[index + step])
    why = table.answers[index + step]
    while abs(failing - serving) > 1:
        middle = (serving + failing) // 2
        answer = _answer_to(model, constraint, middle, share_per_s)
        if _serves(answer, share_per_s):
            serving = middle
        else:
            failing, why = middle, answer
    starved = why.reachable and share_per_s < why.from_rate_per_s
    return serving, "Latency" if starved else why.binding


def least_latency_batch(
    model: QueueModel,
    replica: Replica,
    share_per_s: float,
    interval: tuple[int, int],
    dispersion: float = 1.0,
) -> int:
    """B* = argmin E[T] over the candidates of the interval, the smallest of equals (S5)."""

    def mean_s(batch: int) -> float:
        one = replace(replica, max_batch=batch)
        point = OperatingPoint(one, share_per_s, dispersion=dispersion)
        return model.sojourn(point, ()).latency.mean_s

    known = {batch: mean_s(batch) for batch in candidates(*interval)}
    while True:
        order = sorted(known)
        # Flat parts differ by less than the model's own error: take the smallest batch of them.
        enough_s = min(known.values()) * _FLAT
        best = next(batch for batch in order if known[batch] <= enough_s)
        at = order.index(best)
        around = order[max(0, at - 1) : at + 2]
        gaps = [(a + b) // 2 for a, b in pairwise(around) if b - a > 1]
        if not gaps:
            return best
        known |= {batch: mean_s(batch) for batch in gaps}


def _refined_at_best(
    model: QueueModel,
    constraint: ServingConstraint,
    batches: list[int],
    answers: list[ReplicaRate],
) -> tuple[list[int], list[ReplicaRate]]:
    """The candidates with the best batch between them found too.

    lambda1* is quasi-concave in B, because P99 is quasi-convex in B at every rate; so the best
    whole batch lies between the best candidate's neighbours.
    """
    known = dict(zip(batches, answers, strict=True))
    while True:
        order = sorted(known)
        best = max(order, key=lambda b: known[b].rate_per_s)
        at = order.index(best)
        around = order[max(0, at - 1) : at + 2]
        gaps = [(a + b) // 2 for a, b in pairwise(around) if b - a > 1]
        if not gaps:
            break
        for batch in gaps:
            known[batch] = _answer(model, constraint, batch)
        if best == order[-1] and all(known[b].rate_per_s < known[best].rate_per_s for b in gaps):
            # Still rising at the largest batch: nothing between can be better.
            break
    order = sorted(known)
    return order, [known[b] for b in order]


def _answer(model: QueueModel, constraint: ServingConstraint, batch: int) -> ReplicaRate:
    replica = replace(constraint.replica, max_batch=batch)
    return max_rate(model, replica, constraint.goal, constraint.dispersion)


@lru_cache(maxsize=8 * _CACHED)
def max_rate(
    model: QueueModel, replica: Replica, goal: LatencyGoal, dispersion: float = 1.0
) -> ReplicaRate:
    """The model's lambda1*, which nothing that a tick changes moves: solved once, for all."""
    return model.max_rate(replica, goal, dispersion)


def bounds(constraint: ServingConstraint) -> tuple[int, int, bool]:
    """Least and largest max batch, and whether KV memory, not the declaration, is the latter."""
    kv = constraint.kv_batch
    memory_binds = kv is not None and kv < constraint.largest_batch
    high = max(1, constraint.largest_batch if kv is None else min(constraint.largest_batch, kv))
    return min(max(1, constraint.smallest_batch), high), high, memory_binds


def _by_load(constraint: ServingConstraint) -> ServingConstraint:
    """The same bounded by the load limit alone."""
    goal = replace(
        constraint.goal, latency_s=None, first_token_s=None, output_token_s=None, max_blocking=1.0
    )
    return replace(constraint, goal=goal)
