"""Upper bounds on latency percentiles that cost a root and a sum, not a chain.

What a bound clears, the model would clear too; what it does not clear is asked of the model. Most
services are far from their SLO, so most questions end here.

Dynamic batching (one replica, Poisson arrivals, deterministic batch times). Let L be what a batch
leaves behind. A batch that leaves something is followed at once by the next, so L is at most the
stationary maximum of the walk with steps A - B, where A is Poisson(a), a = lambda s_B:
P(L >= k) <= z^-k with z > 1 the root of exp(a (z - 1)) = z^B (Kingman's bound). Cycles that start
with L > 0 are full ones and hold at most s_B / s_1 times the arrivals of an average one. A request
that arrives during a service finds at most L + A ahead of it, so

    P(T > T_max + (m + 1) s_B) <= P(L + A >= m B) <= sum_j P(A = j) min(1, c z^-(m B - j)).

Continuous batching. Six standard deviations above the mean number inside, and four above the mean
of the prompts that share a step or a request's life, stand for the worst; where that many requests
do not fit in the batch nothing is claimed. The allowances are checked against the model on a grid
(tests/unit/model/test_latency_bound.py).

Sources: Kingman (1964), "A martingale inequality in the theory of queues";
docs/explanation/queueing.md, docs/explanation/continuous-batching.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sojourn.facts.replica import ContinuousReplica, DynamicReplica, OperatingPoint
from sojourn.facts.sojourn import LatencyGoal
from sojourn.model import service_time
from sojourn.model.continuous import steps
from sojourn.model.continuous.machine import Machine, machine
from sojourn.model.dynamic.problem import Problem
from sojourn.model.poisson import pmf

_MOST_BATCHES = 64
_INSIDE_SDS = 6.0
_PROMPT_SDS = 4.0
_LIGHT_PROMPTS = 0.8


@dataclass(frozen=True)
class Bound:
    """Seconds that a percentile of each latency does not exceed, and a share of lost requests."""

    latency_s: float = math.inf
    first_token_s: float = math.inf
    output_token_s: float = math.inf
    blocking: float = 1.0


NOTHING_KNOWN = Bound()


def surely_within(point: OperatingPoint, goal: LatencyGoal) -> bool:
    """True when the goal's latencies and its loss are met beyond doubt.

    Holds for any routing that is no worse than random splitting of Poisson arrivals.
    """
    bound = at_most(point, goal.probability)
    asked = (
        (bound.latency_s, goal.latency_s),
        (bound.first_token_s, goal.first_token_s),
        (bound.output_token_s, goal.output_token_s),
    )
    met = all(limit_s is None or most_s <= limit_s for most_s, limit_s in asked)
    return met and bound.blocking <= goal.max_blocking


def at_most(point: OperatingPoint, probability: float) -> Bound:
    """The bound of one replica with its share of the rate; NOTHING_KNOWN if there is none."""
    if point.dispersion > 1:
        return NOTHING_KNOWN
    rate_per_s = point.rate_per_s / point.replicas
    if isinstance(point.replica, DynamicReplica):
        return _dynamic(point.replica, rate_per_s, probability)
    return _continuous(point.replica, rate_per_s, probability)


def _dynamic(replica: DynamicReplica, rate_per_s: float, probability: float) -> Bound:
    law, capacity = replica.service, replica.queue_capacity
    if rate_per_s == 0:
        gather_s = replica.max_wait_s if replica.max_batch > 1 else 0.0
        return Bound(gather_s + float(service_time.service_s(law, 1)), blocking=0.0)
    problem = Problem(rate_per_s, law, replica.max_batch, replica.max_wait_s, None)
    if problem.scv > 0 or not problem.load < 1:
        return NOTHING_KNOWN
    # A loss of requests only shortens the queue of the others.
    blocking = 0.0 if capacity is None else _share_behind(problem, capacity)
    for batches in range(1, _MOST_BATCHES + 1):
        if _share_behind(problem, batches * problem.batch) <= 1 - probability:
            return Bound(problem.wait_s + (batches + 1) * problem.full_s, blocking=blocking)
    return Bound(blocking=blocking)


def _share_behind(problem: Problem, requests: int) -> float:
    """Share of arrivals with at least ``requests`` ahead of them, at most."""
    counts = np.arange(requests)
    here = pmf(problem.rate_per_s * problem.full_s, requests)
    bias = problem.full_s / float(service_time.service_s(problem.service, 1))
    behind = np.minimum(1.0, bias * problem.decay ** (requests - counts))
    return float(here @ behind + max(0.0, 1 - here.sum()))


def _continuous(replica: ContinuousReplica, rate_per_s: float, probability: float) -> Bound:
    engine = machine(replica)
    inside = _inside_at_most(engine, rate_per_s)
    if inside is None or engine.prompts_per_budget < steps.TIGHT_BUDGET:
        return NOTHING_KNOWN
    step_s = engine.fixed_s + engine.per_request_s * inside
    tokens = engine.output.at_most(1 - (1 - probability) / 2, further=1)
    crowded_s = _with_prompts(engine, rate_per_s, step_s)
    return Bound(
        latency_s=2 * crowded_s + _with_prompts(engine, rate_per_s, tokens * step_s),
        first_token_s=2 * crowded_s,
        output_token_s=crowded_s,
        blocking=0.0,
    )


def _inside_at_most(engine: Machine, rate_per_s: float) -> float | None:
    """Requests running together, as good as never exceeded; None when they would not fit."""
    prompts = rate_per_s * engine.prompt_s
    marginal = rate_per_s * engine.output.mean * engine.per_request_s / max(1e-9, 1 - prompts)
    if prompts > _LIGHT_PROMPTS or marginal >= _LIGHT_PROMPTS:
        return None
    alone = rate_per_s * engine.output.mean * engine.fixed_s / (1 - prompts)
    mean = alone / (1 - marginal)
    spread = math.sqrt(mean / (1 - marginal)) / (1 - prompts)
    most = mean + _INSIDE_SDS * spread + (1.0 if rate_per_s == 0 else 4.0)
    return most if most <= engine.max_batch else None


def _with_prompts(engine: Machine, rate_per_s: float, decoding_s: float) -> float:
    """A stretch of decoding with the prompts that arrive meanwhile, and one more."""
    seconds = decoding_s
    for _ in range(50):
        arrived = rate_per_s * seconds
        prompts = arrived + _PROMPT_SDS * math.sqrt(arrived) + 1
        longer = decoding_s + engine.prompt_s * prompts
        if longer - seconds <= 1e-6 * longer:
            break
        seconds = longer
    return seconds
