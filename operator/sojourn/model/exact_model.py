"""Dynamic batching behind the QueueModel protocol: exact for one replica and random splitting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from sojourn.facts.replica import DynamicReplica, OperatingPoint, Replica, Routing
from sojourn.facts.service_time import LinearServiceTime
from sojourn.facts.sojourn import Latency, LatencyGoal, ReplicaRate, Sojourn
from sojourn.model import (
    burstiness,
    domain,
    even_split,
    max_rate,
    poisson,
    routing,
    routing_loss,
    service_time,
    shared_queue,
    tabled,
)
from sojourn.model.dynamic import answer
from sojourn.model.dynamic.problem import Problem
from sojourn.model.stability import STABLE_BELOW
from sojourn.model.surrogate_model import dynamic, load_limit_per_s

# Least loaded, B = 1: share of 1 / c by which it falls short of one queue; from simulations of 2 to
# 6 servers at load 0.5 and 0.8, where it was 0.2 to 0.3, and at 0.9 and 0.93, where it was 0.1.
_NOT_POOLED = 0.25
_NOT_LEVEL = 1.25

# Readings of the table tried before lambda1* is searched from scratch, how close to the goal is
# close enough, and the factor that keeps the next reading on the safe side.
_READINGS = 4
_CLOSE = 0.97
_SAFE = 0.995

# Below this loss the bound of a queue hardly cuts the percentiles of those it lets in, at a load
# that an unbounded queue bears.
_RARELY_LOST = 0.02
_OPEN_BELOW = 0.98


@dataclass(frozen=True)
class ExactModel:
    """Dynamic batching with finite or infinite queue, any T_max and CV^2 (S7).

    Attributes:
        precise: lambda1* by halving with exact evaluations; otherwise from the dimensionless table
            where it covers the replica, checked exactly: as safe, faster, a few percent low.
    """

    precise: bool = False

    @property
    def name(self) -> str:
        """Exact."""
        return "Exact"

    def sojourn(self, point: OperatingPoint, probabilities: Sequence[float]) -> Sojourn:
        """Latency, its parts and its quantiles; replicas by their routing."""
        domain.counting("replicas", point.replicas)
        if probabilities:
            domain.fraction("percentile", probabilities)
        answer = self._poisson(point, probabilities)
        if point.dispersion == 1:
            return answer
        rate = point.rate_per_s / point.replicas
        one = poisson.thinned(point.dispersion, point.replicas)
        return burstiness.with_bursts(answer, dynamic(point.replica), rate, one)

    def _poisson(self, point: OperatingPoint, probabilities: Sequence[float]) -> Sojourn:
        if point.replicas == 1 or point.routing is Routing.RANDOM:
            return one_replica(point, probabilities)
        if point.routing is Routing.SHARED_QUEUE:
            return _one_queue(point, probabilities)
        if _is_plain(point):
            by_turns = point.routing is Routing.ROUND_ROBIN
            return (_every_nth if by_turns else _pooled)(point, probabilities)
        return _evened(point, probabilities)

    def max_rate(self, replica: Replica, goal: LatencyGoal, dispersion: float = 1.0) -> ReplicaRate:
        """Rate lambda1* of one replica under random splitting, the safe answer; cached."""
        peaks = max(1.0, float(domain.non_negative("index of dispersion", dispersion)))
        return _max_rate(dynamic(replica), goal, peaks, self.precise)


@lru_cache(maxsize=65_536)
def _max_rate(
    replica: DynamicReplica, goal: LatencyGoal, dispersion: float, precise: bool
) -> ReplicaRate:
    limit = load_limit_per_s(replica.service, replica.max_batch, goal)
    may_lose = replica.queue_capacity is not None and goal.max_blocking < 1
    if not (max_rate.asks_latency(goal) or may_lose):
        return ReplicaRate(limit, "Utilisation", 0.0, reachable=True)
    # The table is of Poisson arrivals; a goal they must be far within is hard to read off it.
    read = None if precise or dispersion > 1 else _read_rate(replica, goal)
    if read is not None:
        return read

    def at(rate_per_s: float) -> max_rate.Excess:
        point = OperatingPoint(replica, rate_per_s, dispersion=dispersion)
        return max_rate.excess(ExactModel().sojourn(point, (goal.probability,)), goal)

    return max_rate.largest_rate(at, limit)


def _read_rate(replica: DynamicReplica, goal: LatencyGoal) -> ReplicaRate | None:
    """Rate lambda1* by the table, each reading checked exactly; None where it does not settle.

    A reading whose exact percentile is off rescales the goal the table is asked with; what is
    returned passed exactly, and is within a few percent of the most that would.
    """
    latency_s = _latency_alone_s(goal)
    if latency_s is None:
        return None
    asked_s, best = latency_s, None
    for _ in range(_READINGS):
        found = _look_up(replica, goal, asked_s)
        if found is None or not found.rate_per_s > 0:
            break
        answer = one_replica(OperatingPoint(replica, found.rate_per_s), (goal.probability,))
        seconds = answer.latency.quantile_s(goal.probability)
        if seconds <= latency_s:
            if best is None or found.rate_per_s > best.rate_per_s:
                best = found
            if found.binding == "Utilisation" or seconds >= _CLOSE * latency_s:
                break
        asked_s *= latency_s / seconds * _SAFE
    return best


def _latency_alone_s(goal: LatencyGoal) -> float | None:
    """The latency of a goal that asks for nothing about tokens; None for any other."""
    return None if goal.first_token_s or goal.output_token_s else goal.latency_s


def _look_up(replica: DynamicReplica, goal: LatencyGoal, asked_s: float) -> ReplicaRate | None:
    law = replica.service
    if not isinstance(law, LinearServiceTime) or replica.queue_capacity is not None:
        return None
    numbers = (law.fixed_s, law.per_request_s, law.scv, replica.max_wait_s, asked_s)
    one = tabled.Services(*(np.array([x]) for x in (*numbers, goal.max_utilisation)))
    found = tabled.rates(one, [[replica.max_batch]], goal.probability)
    rate = float(found.rate_per_s[0, 0])
    if math.isnan(rate):
        return None
    binding = "Utilisation" if found.load_bound[0, 0] else "Latency"
    return ReplicaRate(rate, binding, float(found.floor_s[0, 0]), reachable=True)


def one_replica(point: OperatingPoint, probabilities: Sequence[float]) -> Sojourn:
    """Every replica alone with lambda / c: exactly what random splitting of Poisson arrivals is."""
    replica = dynamic(point.replica)
    domain.counting("max batch", replica.max_batch)
    domain.non_negative("max wait", replica.max_wait_s)
    rate = float(domain.non_negative("rate", point.rate_per_s)) / point.replicas
    replica, notes = _with_room(replica)
    if rate == 0:
        return _idle(replica, probabilities, notes)
    batch = replica.max_batch
    # After this time a batch has filled for certain: a longer window is the same as no end.
    certain_s = 3 * (batch + 10 * math.sqrt(batch) + 80) / rate
    wait_s = min(replica.max_wait_s, certain_s)
    problem = Problem(rate, replica.service, batch, wait_s, replica.queue_capacity)
    if not answer.is_stable(problem):
        return _unstable(problem, point.replicas, probabilities, notes)
    solved = answer.solve(problem)
    quantiles = tuple((q, solved.law.quantile_s(q)) for q in probabilities)
    throughput = solved.throughput_per_s * point.replicas
    return Sojourn(
        model="Exact",
        utilisation=problem.load,
        busy_fraction=solved.busy_fraction,
        latency=Latency(solved.mean_s, quantiles),
        queue_wait_s=solved.queue_wait_s,
        batch_wait_s=solved.batch_wait_s,
        service_s=solved.service_s,
        mean_batch=solved.means.mean_batch,
        blocking=solved.blocking,
        throughput_per_s=throughput,
        in_system=throughput * solved.mean_s,
        warnings=notes + solved.doubts(percentiles=bool(probabilities)),
    )


def _one_queue(point: OperatingPoint, probabilities: Sequence[float]) -> Sojourn:
    """One queue before all replicas; its capacity is the service's, not one replica's."""
    replica = dynamic(point.replica)
    if replica.max_batch == 1:
        domain.non_negative("rate", point.rate_per_s)
        return shared_queue.one_by_one(point, probabilities)
    split = one_replica(point, probabilities)
    return replace(split, warnings=(*split.warnings, shared_queue.ONLY_SIMULATED))


def _is_plain(point: OperatingPoint) -> bool:
    """One request at a time at a stable positive load."""
    replica = dynamic(point.replica)
    rate = float(domain.non_negative("rate", point.rate_per_s)) / point.replicas
    load = rate * float(service_time.service_s(replica.service, 1))
    return replica.max_batch == 1 and 1e-6 < load < STABLE_BELOW


def _every_nth(point: OperatingPoint, probabilities: Sequence[float]) -> Sojourn:
    """Round robin of single requests: a GI/G/1 queue, exactly, but for a bound rarely felt."""
    base = one_replica(point, ())
    if routing_loss.blocking(point, base.blocking) > _RARELY_LOST:
        return _evened(point, probabilities)
    scv = dynamic(point.replica).service.scv
    rate = point.rate_per_s / point.replicas
    found = even_split.waits(rate, base.service_s, scv, point.replicas, probabilities)
    mean_s = found.mean_wait_s + base.service_s
    answer = replace(
        base,
        latency=Latency(mean_s, tuple(zip(probabilities, found.quantiles_s, strict=True))),
        queue_wait_s=found.mean_wait_s,
        in_system=base.throughput_per_s * mean_s,
    )
    return routing_loss.with_loss(answer, point, base.blocking)


def _pooled(point: OperatingPoint, probabilities: Sequence[float]) -> Sojourn:
    """Least loaded before single servers: nearly one queue, a quarter of 1 / c towards random."""
    bound, unbounded = 0.0, point
    if dynamic(point.replica).queue_capacity is not None:
        bound, unbounded = one_replica(point, ()).blocking, _unbounded(point)
    if routing_loss.blocking(point, bound) > _RARELY_LOST:
        return _evened(point, probabilities)
    random = one_replica(unbounded, probabilities)
    pooled = shared_queue.one_by_one(unbounded, probabilities)
    # Near load 1 the replicas are level: what is lost against one queue stays, all else grows.
    weight = min(_NOT_POOLED, _NOT_LEVEL * (1 - random.utilisation)) / point.replicas
    both = zip(pooled.latency.quantiles_s, random.latency.quantiles_s, strict=True)
    quantiles = tuple((q, low + weight * (high - low)) for (q, low), (_, high) in both)
    wait_s = pooled.queue_wait_s + weight * (random.queue_wait_s - pooled.queue_wait_s)
    mean_s = wait_s + pooled.service_s
    note = f"{point.routing}: percentiles interpolated, may be 6 % off"
    answer = replace(
        random,
        latency=Latency(mean_s, quantiles),
        queue_wait_s=wait_s,
        in_system=random.throughput_per_s * mean_s,
        warnings=(*random.warnings, note),
    )
    return routing_loss.with_loss(answer, point, bound)


def _evened(point: OperatingPoint, probabilities: Sequence[float]) -> Sojourn:
    """Round robin and least loaded: between random splitting and even arrivals.

    Random splitting runs into a finite queue far more often, which cuts its percentiles: where the
    routing hardly does, those of an unbounded queue are taken.
    """
    bound, asked = 0.0, point
    if dynamic(point.replica).queue_capacity is not None:
        alone = one_replica(point, ())
        bound = alone.blocking
        if alone.utilisation < _OPEN_BELOW and routing_loss.blocking(point, bound) < _RARELY_LOST:
            asked = _unbounded(point)
    levels = routing.mean_levels()
    both = one_replica(asked, (*probabilities, *levels))
    known = both.latency.quantiles_s
    wanted = len(tuple(probabilities))
    random = replace(both, latency=Latency(both.latency.mean_s, known[:wanted]))
    if point.rate_per_s == 0 or not math.isfinite(both.latency.mean_s):
        return random
    grid = replace(both, latency=Latency(both.latency.mean_s, known[wanted:]))
    return routing_loss.with_loss(routing.corrected(asked, random, grid), point, bound)


def _unbounded(point: OperatingPoint) -> OperatingPoint:
    return replace(point, replica=replace(dynamic(point.replica), queue_capacity=None))


def _with_room(replica: DynamicReplica) -> tuple[DynamicReplica, tuple[str, ...]]:
    places = replica.queue_capacity
    if places is None or places >= replica.max_batch:
        return replica, ()
    note = (
        f"queue capacity {places} is below max batch {replica.max_batch}: a full batch never "
        f"gathers, batches of {places} assumed"
    )
    return replace(replica, max_batch=max(1, places), queue_capacity=max(1, places)), (note,)


def _idle(
    replica: DynamicReplica, probabilities: Sequence[float], notes: tuple[str, ...]
) -> Sojourn:
    """The limit of a rate that goes to 0: a lone request waits its timer out, then runs alone."""
    alone_s = float(service_time.service_s(replica.service, 1))
    gather_s = replica.max_wait_s if replica.max_batch > 1 else 0.0
    latency = Latency(gather_s + alone_s, tuple((q, gather_s + alone_s) for q in probabilities))
    return Sojourn(
        model="Exact",
        utilisation=0.0,
        busy_fraction=0.0,
        latency=latency,
        queue_wait_s=0.0,
        batch_wait_s=gather_s,
        service_s=alone_s,
        mean_batch=1.0,
        blocking=0.0,
        throughput_per_s=0.0,
        in_system=0.0,
        warnings=notes,
    )


def _unstable(
    problem: Problem, replicas: int, probabilities: Sequence[float], notes: tuple[str, ...]
) -> Sojourn:
    """Load 1 or more on an unbounded queue: it grows for ever."""
    return Sojourn(
        model="Exact",
        utilisation=problem.load,
        busy_fraction=1.0,
        latency=Latency(math.inf, tuple((q, math.inf) for q in probabilities)),
        queue_wait_s=math.inf,
        batch_wait_s=0.0,
        service_s=problem.full_s,
        mean_batch=float(problem.batch),
        blocking=0.0,
        throughput_per_s=problem.batch / problem.full_s * replicas,
        in_system=math.inf,
        warnings=notes,
    )
