"""Sizing of many services at once: arrays in, arrays out.

``fleet`` solves what no rate changes (cold: thousands of services a second where the dimensionless
table or the draft of continuous batching covers them, one by one elsewhere); ``Fleet.size`` is then
arithmetic on arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sojourn.facts.declaration import Objective, TailRule
from sojourn.facts.replica import DynamicReplica
from sojourn.facts.service_time import LinearServiceTime
from sojourn.facts.sizing import ServingConstraint
from sojourn.model import choose, dimensionless, domain, drafted, sizing, tabled
from sojourn.model.domain import BoolArray, FloatArray
from sojourn.model.stability import ROUNDING_SLACK

_NODES = np.array(dimensionless.BATCHES, dtype=float)


@dataclass(frozen=True, eq=False)
class FleetSizing:
    """Sizing of n services at one rate each; arrays (n,), as the fields of ``Sizing``."""

    replicas: FloatArray
    batch: FloatArray
    smallest_batch: FloatArray
    largest_batch: FloatArray
    rate_per_replica_per_s: FloatArray
    reachable: BoolArray


@dataclass(frozen=True, eq=False)
class Fleet:
    """What one replica of each service takes at its candidate batches.

    Attributes:
        constraints: the services, n.
        batches: candidates in increasing order, (n, m); padded by repetition.
        rates_per_s: lambda1*, (n, m).
        from_per_s: least rate that meets the goal, (n, m).
        reachable: some batch meets the SLO, (n,); otherwise sized by the load limit.
        floor_s: least value of the SLO's metric, (n,).
    """

    constraints: tuple[ServingConstraint, ...]
    batches: FloatArray
    rates_per_s: FloatArray
    from_per_s: FloatArray
    reachable: BoolArray
    floor_s: FloatArray

    def size(self, rate_per_s: npt.ArrayLike) -> FleetSizing:
        """Least replicas and batch interval of every service.

        Args:
            rate_per_s: total rate of each service, (n,).

        Raises:
            ModelDomainError: a negative or NaN rate.
        """
        rates = domain.non_negative("rate", rate_per_s)
        by_batch = sizing.replicas_by_batch(rates[:, None], self.rates_per_s, self.from_per_s)
        replicas = np.where(rates > 0, by_batch.min(axis=1), 0.0)
        share = rates / np.maximum(replicas, 1.0)
        slack = share[:, None] * ROUNDING_SLACK
        serves = (share[:, None] <= self.rates_per_s + slack) & ~(
            share[:, None] < self.from_per_s - slack
        )
        low, high = _interval(self, serves, share)
        return FleetSizing(
            replicas=replicas,
            batch=_chosen(self, share, low, high),
            smallest_batch=low,
            largest_batch=high,
            rate_per_replica_per_s=self.rates_per_s.max(axis=1),
            reachable=self.reachable & np.isfinite(replicas),
        )


def fleet(constraints: Sequence[ServingConstraint], tail_rule: TailRule = TailRule.EXACT) -> Fleet:
    """The services with everything solved that does not depend on their rates.

    The table and the draft answer where they cover a service; their percentiles are read with a
    margin (``tabled.MARGIN``, ``drafted.MARGIN``), so replicas are the model's or, next to a step,
    one more. What the draft finds unreachable is asked of the whole model.
    """
    services = tuple(constraints)
    exact = tail_rule is TailRule.EXACT
    fast = np.array([exact and _tabled(one) for one in services], dtype=bool)
    drafted_ = np.array([drafted.covers(one) for one in services], dtype=bool)
    solved = _Solved(len(services), _NODES.size + 2)
    if fast.any():
        solved.put(np.flatnonzero(fast), *_by_table([services[i] for i in np.flatnonzero(fast)]))
    if drafted_.any():
        rows = np.flatnonzero(drafted_)
        some = [services[i] for i in rows]
        found = drafted.answers(some, [sizing.bounds(one)[:2] for one in some])
        solved.put(rows, found.batches, found.rates_per_s, found.reachable, found.floor_s)
    slow = ~(fast | drafted_) | np.isnan(solved.rates).any(axis=1)
    for i in np.flatnonzero(slow):
        one = sizing.capacity(choose.model_for(services[i].replica, tail_rule), services[i])
        solved.put_one(int(i), one)
    return Fleet(
        services, solved.batches, solved.rates, solved.from_rates, solved.reachable, solved.floor_s
    )


class _Solved:
    """The arrays of a fleet while they fill; wider when a service has more candidates."""

    def __init__(self, count: int, width: int) -> None:
        self.batches = np.ones((count, width))
        self.rates, self.from_rates = np.zeros((2, count, width))
        self.reachable = np.ones(count, dtype=bool)
        self.floor_s = np.zeros(count)

    def put(
        self,
        rows: npt.NDArray[np.int64],
        batches: FloatArray,
        rates: FloatArray,
        reachable: BoolArray,
        floor_s: FloatArray,
    ) -> None:
        """Some services' candidates, repeated to the width of all."""
        pad = ((0, 0), (0, self.batches.shape[1] - batches.shape[1]))
        self.batches[rows] = np.pad(batches, pad, mode="edge")
        self.rates[rows] = np.pad(rates, pad, mode="edge")
        self.reachable[rows], self.floor_s[rows] = reachable, floor_s

    def put_one(self, row: int, one: sizing.Capacity) -> None:
        """A service solved alone."""
        missing = one.batches.size - self.batches.shape[1]
        if missing > 0:
            wider = ((0, 0), (0, missing))
            self.batches, self.rates, self.from_rates = (
                np.pad(values, wider, mode="edge")
                for values in (self.batches, self.rates, self.from_rates)
            )
        pad = (0, max(0, -missing))
        self.batches[row] = np.pad(one.batches, pad, mode="edge")
        self.rates[row] = np.pad(one.rates_per_s, pad, mode="edge")
        self.from_rates[row] = np.pad(one.from_per_s, pad, mode="edge")
        self.reachable[row], self.floor_s[row] = not one.by_load_only, one.floor_s


def _tabled(constraint: ServingConstraint) -> bool:
    replica, goal = constraint.replica, constraint.goal
    return (
        isinstance(replica, DynamicReplica)
        and isinstance(replica.service, LinearServiceTime)
        and replica.queue_capacity is None
        and goal.first_token_s is None
        and goal.output_token_s is None
        and constraint.dispersion == 1
        and tabled.available() is not None
    )


def _by_table(
    services: list[ServingConstraint],
) -> tuple[FloatArray, FloatArray, BoolArray, FloatArray]:
    """Candidates, rates, reachability and floors of the services the table may cover."""
    rows = np.array([_numbers(one) for one in services])
    low, high = rows[:, 6], rows[:, 7]
    nodes = np.clip(_NODES, low[:, None], high[:, None])
    batches = np.concatenate((low[:, None], nodes, high[:, None]), axis=1)
    parts = tabled.Services(*rows[:, :6].T)
    rates = np.zeros(batches.shape)
    floor_s = np.zeros(batches.shape)
    for level in np.unique(rows[:, 8]):
        here = rows[:, 8] == level
        some = tabled.Services(*rows[here, :6].T)
        found = tabled.rates(some, batches[here], float(level))
        rates[here], floor_s[here] = found.rate_per_s, found.floor_s
    reachable = np.asarray(np.any((rates > 0) | np.isnan(rates), axis=1), dtype=bool)
    full_s = parts.fixed_s[:, None] + parts.per_request_s[:, None] * batches
    by_load = parts.max_load[:, None] * batches / full_s
    rates = np.where(reachable[:, None], rates, by_load)
    return batches, np.asarray(rates), reachable, np.asarray(floor_s.min(axis=1))


def _numbers(one: ServingConstraint) -> tuple[float, ...]:
    replica, goal = one.replica, one.goal
    assert isinstance(replica, DynamicReplica)
    law = replica.service
    assert isinstance(law, LinearServiceTime)
    low, high, _ = sizing.bounds(one)
    return (
        law.fixed_s,
        law.per_request_s,
        law.scv,
        replica.max_wait_s,
        np.inf if goal.latency_s is None else goal.latency_s,
        goal.max_utilisation,
        low,
        high,
        goal.probability,
    )


def _interval(table: Fleet, serves: BoolArray, share: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Least and largest batch that serve, between candidates by the straight line of lambda1*."""
    rows = np.arange(share.size)
    first = np.argmax(serves, axis=1)
    last = serves.shape[1] - 1 - np.argmax(serves[:, ::-1], axis=1)
    low = _edge(table, rows, first, np.maximum(first - 1, 0), share)
    high = _edge(table, rows, last, np.minimum(last + 1, serves.shape[1] - 1), share)
    return np.ceil(low - 1e-9), np.floor(high + 1e-9)


def _edge(
    table: Fleet,
    rows: npt.NDArray[np.int64],
    inside: npt.NDArray[np.int64],
    outside: npt.NDArray[np.int64],
    share: FloatArray,
) -> FloatArray:
    from_batch, to_batch = table.batches[rows, inside], table.batches[rows, outside]
    from_rate, to_rate = table.rates_per_s[rows, inside], table.rates_per_s[rows, outside]
    drop = from_rate - to_rate
    part = np.where(drop > 0, (from_rate - share) / np.where(drop > 0, drop, 1.0), 0.0)
    return np.asarray(from_batch + np.clip(part, 0.0, 1.0) * (to_batch - from_batch))


def _chosen(table: Fleet, share: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """The largest batch, or for MinLatency the one of least mean latency, asked one by one."""
    batch = high.copy()
    for i, one in enumerate(table.constraints):
        if one.objective is Objective.MIN_LATENCY:
            model = choose.model_for(one.replica)
            batch[i] = sizing.least_latency_batch(
                model,
                one.replica,
                float(share[i]),
                (int(low[i]), int(high[i])),
                one.dispersion,
            )
    return batch
