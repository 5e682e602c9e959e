"""Dynamic batching behind the QueueModel protocol: exact for one replica and random splitting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sojourn.facts.replica import DynamicReplica, OperatingPoint, Replica, Routing
from sojourn.facts.sojourn import Latency, LatencyGoal, ReplicaRate, Sojourn
from sojourn.model import domain, max_rate, routing, service_time, shared_queue
from sojourn.model.dynamic import answer
from sojourn.model.dynamic.problem import Problem
from sojourn.model.surrogate_model import dynamic, load_limit_per_s


@dataclass(frozen=True)
class ExactModel:
    """Dynamic batching with finite or infinite queue, any T_max and CV^2 (S7)."""

    @property
    def name(self) -> str:
        """Exact."""
        return "Exact"

    def sojourn(self, point: OperatingPoint, probabilities: Sequence[float]) -> Sojourn:
        """Latency, its parts and its quantiles; replicas by their routing."""
        domain.counting("replicas", point.replicas)
        if probabilities:
            domain.fraction("percentile", probabilities)
        if point.replicas == 1 or point.routing is Routing.RANDOM:
            return one_replica(point, probabilities)
        if point.routing is Routing.SHARED_QUEUE:
            return _one_queue(point, probabilities)
        return _evened(point, probabilities)

    def max_rate(self, replica: Replica, goal: LatencyGoal) -> ReplicaRate:
        """lambda1* of one replica under random splitting, the safe answer."""
        one = dynamic(replica)
        limit = load_limit_per_s(one.service, one.max_batch, goal)
        may_lose = one.queue_capacity is not None and goal.max_blocking < 1
        if not (max_rate.asks_latency(goal) or may_lose):
            return ReplicaRate(limit, "Utilisation", 0.0, reachable=True)
        return max_rate.largest_rate(
            lambda rate: self.sojourn(OperatingPoint(one, rate), (goal.probability,)), limit, goal
        )


def one_replica(point: OperatingPoint, probabilities: Sequence[float]) -> Sojourn:
    """Every replica alone with lambda / c: exactly what random splitting of Poisson arrivals is."""
    replica = dynamic(point.replica)
    domain.counting("max batch", replica.max_batch)
    domain.non_negative("max wait", replica.max_wait_s)
    rate = float(domain.non_negative("rate", point.rate_per_s)) / point.replicas
    replica, notes = _with_room(replica)
    if rate == 0:
        return _idle(replica, probabilities, notes)
    problem = Problem(
        rate, replica.service, replica.max_batch, replica.max_wait_s, replica.queue_capacity
    )
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


def _evened(point: OperatingPoint, probabilities: Sequence[float]) -> Sojourn:
    """Round robin and least loaded: between random splitting and even arrivals."""
    levels = routing.mean_levels()
    both = one_replica(point, (*probabilities, *levels))
    known = both.latency.quantiles_s
    wanted = len(tuple(probabilities))
    random = replace(both, latency=Latency(both.latency.mean_s, known[:wanted]))
    if point.rate_per_s == 0 or not math.isfinite(both.latency.mean_s):
        return random
    grid = replace(both, latency=Latency(both.latency.mean_s, known[wanted:]))
    return routing.interpolated(point, random, grid)


def _with_room(replica: DynamicReplica) -> tuple[DynamicReplica, tuple[str, ...]]:
    places = replica.queue_capacity
    if places is None or places >= replica.max_batch:
        return replica, ()
    note = (
        f"queue capacity {places} is below max batch {replica.max_batch}: a full batch never "
        f"gathers, {replica.max_batch} places assumed"
    )
    return replace(replica, queue_capacity=replica.max_batch), (note,)


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
