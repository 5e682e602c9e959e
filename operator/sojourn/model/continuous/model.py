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
from sojourn.model.continuous import decoding, end_to_end, first_token, honesty, steps
from sojourn.model.continuous.arrivals import Arrivals, arrivals
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

    def max_rate(self, replica: Replica, goal: LatencyGoal, dispersion: float = 1.0) -> ReplicaRate:
        """lambda1* of one replica under random splitting, the safe answer."""
        return _max_rate(
            _continuous(replica), goal, float(domain.positive("dispersion", dispersion))
        )


def _continuous(replica: Replica) -> ContinuousReplica:
    if not isinstance(replica, ContinuousReplica):
        raise ModelDomainError("replica", type(replica).__name__, "a ContinuousReplica")
    return replica


@lru_cache(maxsize=_CACHED_ANSWERS)
def _max_rate(replica: ContinuousReplica, goal: LatencyGoal, dispersion: float) -> ReplicaRate:
    limit_per_s = machine(replica).capacity_per_s * goal.max_utilisation
    may_lose = replica.queue_capacity is not None and goal.max_blocking < 1
    if not (max_rate.asks_latency(goal) or may_lose):
        return ReplicaRate(limit_per_s, "Utilisation", 0.0, reachable=True)

    return max_rate.largest_rate(
        lambda rate: _excess(replica, Arrivals(rate, dispersion), goal),
        limit_per_s,
        only_rises=True,
    )


def _excess(replica: ContinuousReplica, stream: Arrivals, goal: LatencyGoal) -> max_rate.Excess:
    """How far one replica is over the goal at a positive rate: only what the goal asks for."""
    engine, levels = machine(replica), (goal.probability,)
    unbounded = engine.places is None and stream.rate_per_s / engine.capacity_per_s >= _UNSTABLE
    if unbounded or _is_prompts_only(replica):
        point = OperatingPoint(replica, stream.rate_per_s, dispersion=stream.dispersion)
        return max_rate.excess(_solve(point, levels), goal)
    people = population(engine, stream)
    asked = max_rate.limits_s(goal)
    values_s: dict[str, float] = {}
    missing = {}
    if asked:
        first = first_token.first_token(engine, stream, people)
    if "FirstToken" in asked:
        atoms = first.atoms()
        (values_s["FirstToken"],) = atoms.quantiles_s(levels)
        late = atoms.values_s > asked["FirstToken"]
        missing["FirstToken"] = float(atoms.weights[late].sum())
    if asked.keys() & {"Latency", "OutputToken"}:
        decoded = decoding.decode(engine, stream, people, first)
    if "Latency" in asked:
        (values_s["Latency"],) = end_to_end.quantiles_s(first, decoded, levels)
    if "OutputToken" in asked:
        (values_s["OutputToken"],) = decoded.per_token().quantiles_s(levels)
    return max_rate.worst(goal, values_s, people.blocking, missing)


def _is_prompts_only(replica: ContinuousReplica) -> bool:
    return replica.output.law == "fixed" and replica.output.mean == 1


@lru_cache(maxsize=_CACHED_ANSWERS)
def _answer(point: OperatingPoint, levels: tuple[float, ...]) -> Sojourn:
    return _solve(point, levels)


def _solve(point: OperatingPoint, levels: tuple[float, ...]) -> Sojourn:
    replica = _continuous(point.replica)
    if _is_prompts_only(replica):
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
    decoded = decoding.decode(engine, stream, people, first)
    served = point.rate_per_s * (1 - people.blocking)
    mean_s = people.in_system / (stream.rate_per_s * (1 - people.blocking))
    return Sojourn(
        model=NAME,
        utilisation=load,
        busy_fraction=1 - people.idle_time * (1 - people.blocking),
        latency=Latency(mean_s, _pairs(levels, end_to_end.quantiles_s(first, decoded, levels))),
        queue_wait_s=first.queue_wait_s,
        batch_wait_s=0.0,
        service_s=mean_s - first.queue_wait_s,
        mean_batch=people.running if point.rate_per_s > 0 else 0.0,
        blocking=people.blocking,
        throughput_per_s=served,
        in_system=served * mean_s,
        time_to_first_token=_latency(first.atoms(), levels),
        time_per_output_token=_latency(decoded.per_token(), levels),
        warnings=honesty.warnings(engine, stream, people, levels),
    )


def _latency(atoms: Atoms, levels: tuple[float, ...]) -> Latency:
    mean_s = float(atoms.values_s @ atoms.weights / atoms.weights.sum())
    return Latency(mean_s, _pairs(levels, atoms.quantiles_s(levels)))


def _pairs(levels: tuple[float, ...], seconds: Sequence[float]) -> tuple[tuple[float, float], ...]:
    return tuple(zip(levels, seconds, strict=True))


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
