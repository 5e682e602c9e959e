"""Continuous batching behind the QueueModel protocol."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from sojourn.errors import ModelDomainError
from sojourn.facts.replica import ContinuousReplica, DynamicReplica, OperatingPoint, Replica
from sojourn.facts.service_time import LinearServiceTime
from sojourn.facts.sojourn import Latency, LatencyGoal, ReplicaRate, Sojourn
from sojourn.model import domain, max_rate
from sojourn.model.continuous import cells, decoding, first_token, honesty, steps
from sojourn.model.continuous.arrivals import arrivals
from sojourn.model.continuous.machine import Machine, machine
from sojourn.model.continuous.population import population
from sojourn.model.continuous.steps import Atoms

NAME = "Continuous"

# Load from which an unbounded queue is taken to grow for ever, floats being floats.
_UNSTABLE = 1 - 1e-9

_CACHED_ANSWERS = 4096


@dataclass(frozen=True)
class ContinuousModel:
    """An engine whose batch takes requests in and lets them go at every step."""

    @property
    def name(self) -> str:
        """Continuous."""
        return NAME

    def sojourn(self, point: OperatingPoint, probabilities: Sequence[float]) -> Sojourn:
        """Latency, time to first token and time per output token at one operating point.

        Answers of equal questions are cached. Outputs of one token are dynamic batching without a
        timer and are answered by the exact model.

        Raises:
            ModelDomainError: a number outside its domain, or a replica of another kind.
        """
        if probabilities:
            domain.fraction("percentile", probabilities)
        return _answer(point, tuple(float(level) for level in probabilities))

    def max_rate(self, replica: Replica, goal: LatencyGoal) -> ReplicaRate:
        """lambda1* of one replica under random splitting, the safe answer."""
        return _max_rate(_continuous(replica), goal)


def _continuous(replica: Replica) -> ContinuousReplica:
    if not isinstance(replica, ContinuousReplica):
        raise ModelDomainError("replica", type(replica).__name__, "a ContinuousReplica")
    return replica


@lru_cache(maxsize=_CACHED_ANSWERS)
def _max_rate(replica: ContinuousReplica, goal: LatencyGoal) -> ReplicaRate:
    limit_per_s = machine(replica).capacity_per_s * goal.max_utilisation
    may_lose = replica.queue_capacity is not None and goal.max_blocking < 1
    if not (max_rate.asks_latency(goal) or may_lose):
        return ReplicaRate(limit_per_s, "Utilisation", 0.0, reachable=True)

    def answer_at(rate_per_s: float) -> Sojourn:
        return _solve(OperatingPoint(replica, rate_per_s), (goal.probability,))

    return max_rate.largest_rate(answer_at, limit_per_s, goal)


@lru_cache(maxsize=_CACHED_ANSWERS)
def _answer(point: OperatingPoint, levels: tuple[float, ...]) -> Sojourn:
    return _solve(point, levels)


def _solve(point: OperatingPoint, levels: tuple[float, ...]) -> Sojourn:
    replica = _continuous(point.replica)
    if replica.output.law == "fixed" and replica.output.mean == 1:
        return _prompts_only(point, replica, levels)
    engine = machine(replica)
    stream = arrivals(point)
    load = stream.rate_per_s / engine.capacity_per_s
    if stream.rate_per_s == 0:
        # The limit of a rate that goes to 0.
        stream = replace(stream, rate_per_s=engine.capacity_per_s * 1e-9)
    elif engine.places is None and load >= _UNSTABLE:
        return _unstable(engine, point.replicas, load, levels)
    people = population(engine, stream)
    first = first_token.first_token(engine, stream, people)
    decoded, _ = decoding.decode(engine, stream, people, first)
    served = point.rate_per_s * (1 - people.blocking)
    mean_s = people.in_system / (stream.rate_per_s * (1 - people.blocking))
    return Sojourn(
        model=NAME,
        utilisation=load,
        busy_fraction=1 - people.idle * (1 - people.blocking),
        latency=_latency(decoded.latency, levels, mean_s),
        queue_wait_s=first.queue_wait_s,
        batch_wait_s=0.0,
        service_s=mean_s - first.queue_wait_s,
        mean_batch=people.running if point.rate_per_s > 0 else 0.0,
        blocking=people.blocking,
        throughput_per_s=served,
        in_system=served * mean_s,
        time_to_first_token=_latency(first.atoms(), levels),
        time_per_output_token=_latency(decoded.per_token, levels),
        warnings=honesty.warnings(engine, stream, people, levels),
    )


def _latency(atoms: Atoms, levels: tuple[float, ...], mean_s: float | None = None) -> Latency:
    weights = atoms.weights
    if mean_s is None:
        mean_s = float((atoms.values_s * weights).sum() / weights.sum())
    found = cells.quantiles(atoms.values_s, weights, levels)
    return Latency(mean_s, tuple(zip(levels, found, strict=True)))


def _unstable(engine: Machine, replicas: int, load: float, levels: tuple[float, ...]) -> Sojourn:
    """Load 1 or more on an unbounded queue: it grows for ever; decoding goes on at full batch."""
    endless = Latency(math.inf, tuple((level, math.inf) for level in levels))
    gap_s = engine.full_step_s + engine.prompt_s * engine.prompts_per_full_step
    full_s = engine.output.mean * gap_s
    return Sojourn(
        model=NAME,
        utilisation=load,
        busy_fraction=1.0,
        latency=endless,
        queue_wait_s=math.inf,
        batch_wait_s=0.0,
        service_s=full_s,
        mean_batch=float(engine.max_batch),
        blocking=0.0,
        throughput_per_s=engine.capacity_per_s * replicas,
        in_system=math.inf,
        time_to_first_token=endless,
        time_per_output_token=Latency(gap_s, tuple((level, gap_s) for level in levels)),
    )


def _prompts_only(
    point: OperatingPoint, replica: ContinuousReplica, levels: tuple[float, ...]
) -> Sojourn:
    """One output token: every step is a batch that starts and ends together (section 6)."""
    # Imported late: dynamic batching is another model, asked for only in this corner.
    from sojourn.model.exact_model import ExactModel  # noqa: PLC0415

    engine = machine(replica)
    budget = engine.prompts_per_budget
    batch = max(1, min(engine.max_batch, int(min(budget, engine.max_batch))))
    batched = DynamicReplica(
        service=LinearServiceTime(engine.fixed_s * steps.own_steps(engine), engine.prompt_s),
        max_batch=batch,
        queue_capacity=replica.queue_capacity,
    )
    answer = ExactModel().sojourn(replace(point, replica=batched), levels)
    return replace(
        answer,
        model=NAME,
        time_to_first_token=answer.latency,
        time_per_output_token=Latency(0.0, tuple((level, 0.0) for level in levels)),
    )


def mean_inter_token_s(point: OperatingPoint) -> float:
    """Mean inter-token latency over all tokens, seconds, at a stable point.

    It differs from the mean time per output token, which weighs every request alike.
    """
    engine, stream = machine(_continuous(point.replica)), arrivals(point)
    return decoding.pace(engine, population(engine, stream)).gap_s
