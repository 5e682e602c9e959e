"""lambda1* of many replicas by the draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from sojourn.facts.replica import ContinuousReplica
from sojourn.facts.sojourn import LatencyGoal
from sojourn.model.continuous import steps
from sojourn.model.continuous.draft import decoding, first_token
from sojourn.model.continuous.draft.engines import Engines, engines
from sojourn.model.continuous.draft.inside import inside
from sojourn.model.continuous.machine import Machine
from sojourn.model.domain import FloatArray

# Rows at a time: their arrays stay in the cache.
_CHUNK = 128

NEVER_S = 1e15
"""Stands for a latency that no goal bounds."""

_IDLE_SHARE = 1e-4
_TRIES = 9
_CLOSE = 1e-3
_MOST_LOAD = 0.97


@dataclass(frozen=True, eq=False)
class Goals:
    """Goals of k replicas, columns (k, 1); NEVER_S is not asked.

    Attributes:
        latency_s, first_token_s, output_token_s: at ``probability``.
        probability: the SLO's percentile.
        dispersion: of the arrivals.
        max_load: the load limit.
    """

    latency_s: FloatArray
    first_token_s: FloatArray
    output_token_s: FloatArray
    probability: FloatArray
    dispersion: FloatArray
    max_load: FloatArray

    def take(self, rows: npt.NDArray[np.int64] | slice) -> Goals:
        """Some of the rows."""
        return Goals(*(getattr(self, one.name)[rows] for one in fields(self)))


@dataclass(frozen=True, eq=False)
class Rates:
    """Answers by (machine, candidate), (n, m).

    Attributes:
        rate_per_s: lambda1*; 0 where the goal is not met at any rate.
        by_load_per_s: the rate at the load limit.
    """

    rate_per_s: FloatArray
    by_load_per_s: FloatArray


def covered(replica: ContinuousReplica, goal: LatencyGoal) -> bool:
    """Whether the draft answers for a replica under a goal."""
    if replica.queue_capacity is not None or not goal.max_utilisation <= _MOST_LOAD:
        return False
    budget, prompt = replica.max_batched_tokens, replica.prompt_tokens
    wide = budget is None or prompt == 0 or budget / prompt >= steps.TIGHT_BUDGET
    several = replica.output.mean > 1.5 and replica.iteration.fixed_s > 0
    return wide and several and goal.probability >= 0.5


def rates(machines: Sequence[Machine], batches: FloatArray, goals: Goals) -> Rates:
    """lambda1* of every machine at its candidate batches.

    Args:
        machines: n of them, each with the largest batch it may run.
        batches: rising candidates, (n, m), from 1; larger ones than a machine's are that one.
        goals: n of them.

    Returns:
        Answers of shape (n, m).
    """
    most = np.array([one.max_batch for one in machines], dtype=float)[:, None]
    sizes = np.minimum(batches, most)
    known = np.concatenate((np.zeros(most.shape, dtype=bool), np.diff(sizes, axis=1) == 0), axis=1)
    row, column = np.nonzero(~known)
    # Rows alike are neighbours: a chunk then asks for few metrics, on few cells.
    asked = [goals.latency_s, goals.output_token_s, goals.first_token_s]
    keys = ((one < NEVER_S)[row, 0] for one in asked)
    order = np.lexsort((sizes[row, column], *keys))
    row, column = row[order], column[order]
    some = replace(engines(machines).take(row), batch=sizes[row, column][:, None])
    goals = goals.take(row)
    limit = some.capacity_per_s * goals.max_load
    late = _late(some, goals, limit)
    share = np.ones(limit.shape)
    failing = np.flatnonzero(late[:, 0] > 0)
    if failing.size:
        share[failing] = _crossing(
            some.take(failing), goals.take(failing), limit[failing], late[failing]
        )
    # A candidate like the one before it has the same answer.
    source = np.maximum.accumulate(np.where(known, 0, np.arange(sizes.shape[1])), axis=1)
    by_load, found = np.empty(sizes.shape), np.empty(sizes.shape)
    by_load[row, column], found[row, column] = limit[:, 0], (limit * share)[:, 0]
    return Rates(*(np.take_along_axis(one, source, axis=1) for one in (found, by_load)))


def _crossing(some: Engines, goals: Goals, limit: FloatArray, f_limit: FloatArray) -> FloatArray:
    """Share of ``limit`` at which each row begins to fail, (k, 1); 0 where it fails idle.

    ``max_rate``'s bracket and interpolation (Chandrupatla), all rows at once.
    """
    x1, f1 = np.ones(f_limit.shape), f_limit
    x2 = np.full(x1.shape, _IDLE_SHARE)
    f2 = _late(some, goals, limit * x2)
    reached = f2[:, 0] <= 0
    part = np.clip(f1 / (f1 - np.minimum(f2, -1e-9)), 0.01, 0.99)
    for _ in range(_TRIES):
        wide = np.abs(x2 - x1) > _CLOSE * np.maximum(x1, x2)
        active = np.flatnonzero(reached & wide[:, 0])
        if not active.size:
            break
        x = x1[active] + part[active] * (x2[active] - x1[active])
        f = _late(some.take(active), goals.take(active), limit[active] * x)
        same = (f > 0) == (f1[active] > 0)
        x3, f3 = np.where(same, x1[active], x2[active]), np.where(same, f1[active], f2[active])
        x2[active] = np.where(same, x2[active], x1[active])
        f2[active] = np.where(same, f2[active], f1[active])
        x1[active], f1[active] = x, f
        part[active] = _part((x, f), (x2[active], f2[active]), (x3, f3))
    found = np.where(f1 <= 0, x1, x2)
    return np.asarray(np.where(reached[:, None], found, 0.0))


_Place = tuple[FloatArray, FloatArray]


def _part(newest: _Place, opposite: _Place, oldest: _Place) -> FloatArray:
    (x1, f1), (x2, f2), (x3, f3) = newest, opposite, oldest
    with np.errstate(divide="ignore", invalid="ignore"):
        xi, phi = (x1 - x2) / (x3 - x2), (f1 - f2) / (f3 - f2)
        smooth = (phi * phi < xi) & ((1 - phi) ** 2 < 1 - xi)
        part = f1 / (f1 - f2) * f3 / (f3 - f2)
        part = part + (x3 - x1) / (x2 - x1) * f1 / (f3 - f1) * f2 / (f3 - f2)
    least = 0.4 * _CLOSE * np.maximum(x1, x2) / np.abs(x2 - x1)
    return np.clip(np.where(smooth, part, 0.5), np.minimum(least, 0.5), 1 - np.minimum(least, 0.5))


def _late(some: Engines, goals: Goals, rate_per_s: FloatArray) -> FloatArray:
    """What the search brings to 0, of the sign of (late share - allowed share), (k, 1)."""
    late = np.empty(rate_per_s.shape)
    for start in range(0, rate_per_s.shape[0], _CHUNK):
        rows = slice(start, start + _CHUNK)
        late[rows] = _worst(some.take(rows), goals.take(rows), rate_per_s[rows])
    over = np.log(np.maximum(late, 1e-12) / (1 - goals.probability))
    return np.where(over > 0, over, -np.log1p(-np.minimum(over, 0.0)))


def _worst(some: Engines, goals: Goals, rate_per_s: FloatArray) -> FloatArray:
    """Largest share of late requests over the goals of a few rows."""
    found = inside(some, rate_per_s, goals.dispersion)
    means = first_token.first(some, found)
    late = np.zeros(rate_per_s.shape)
    if (goals.first_token_s < NEVER_S).any():
        late = first_token.late(some, found, means, goals.first_token_s)
    tokens, whole = (goals.output_token_s < NEVER_S).any(), (goals.latency_s < NEVER_S).any()
    if tokens or whole:
        law = decoding.decode(some, found, means)
    if tokens:
        late = np.maximum(late, decoding.token_late(some, law, goals.output_token_s))
    if whole:
        late = np.maximum(late, decoding.latency_late(some, law, means, goals.latency_s))
    return late
