"""An upper bound on a latency percentile that costs a root and a sum, not a chain.

Dynamic batching of one replica under Poisson arrivals, deterministic batch times. Let L be what a
batch leaves behind. A batch that leaves something is followed at once by the next, so L is at most
the stationary maximum of the walk with steps A - B, where A is Poisson(a), a = lambda s_B:
P(L >= k) <= z^-k with z > 1 the root of exp(a (z - 1)) = z^B (Kingman's bound). Cycles that start
with L > 0 are full ones and hold at most s_B / s_1 times the arrivals of an average one. A request
that arrives during a service finds at most L + A ahead of it, so

    P(T > T_max + (m + 1) s_B) <= P(L + A >= m B) <= sum_j P(A = j) min(1, c z^-(m B - j)).

What the bound clears, the exact answer clears too; what it does not clear is asked exactly. A loss
of requests only shortens the queue of the others.

Source: Kingman (1964), "A martingale inequality in the theory of queues"; docs/explanation/queueing.md.
"""

from __future__ import annotations

import math

import numpy as np

from sojourn.facts.replica import DynamicReplica, OperatingPoint
from sojourn.model import service_time
from sojourn.model.dynamic.problem import Problem
from sojourn.model.poisson import pmf

_MOST_BATCHES = 64


def latency_at_most_s(point: OperatingPoint, probability: float) -> float:
    """Seconds that the percentile of latency does not exceed; inf where no bound is known.

    Holds for any routing that is no worse than random splitting.
    """
    if not isinstance(point.replica, DynamicReplica):
        return math.inf
    replica, rate = point.replica, point.rate_per_s / point.replicas
    problem = Problem(rate, replica.service, replica.max_batch, replica.max_wait_s, None)
    if problem.scv > 0 or not 0 < problem.load < 1:
        return math.inf
    batches = _waiting_batches(problem, 1 - probability)
    return math.inf if batches is None else problem.wait_s + (batches + 1) * problem.full_s


def loss_at_most(point: OperatingPoint) -> float:
    """Share of arrivals that a full queue refuses, at most; 1 where no bound is known."""
    replica = point.replica
    if replica.queue_capacity is None:
        return 0.0
    if not isinstance(replica, DynamicReplica):
        return 1.0
    rate = point.rate_per_s / point.replicas
    problem = Problem(rate, replica.service, replica.max_batch, replica.max_wait_s, None)
    if problem.scv > 0 or not 0 < problem.load < 1:
        return 1.0
    return _share_behind(problem, replica.queue_capacity)


def _waiting_batches(problem: Problem, tail: float) -> int | None:
    """Least m with P(L + A >= m B) <= tail."""
    for batches in range(1, _MOST_BATCHES + 1):
        if _share_behind(problem, batches * problem.batch) <= tail:
            return batches
    return None


def _share_behind(problem: Problem, requests: int) -> float:
    """Share of arrivals with at least ``requests`` ahead of them, at most."""
    mean = problem.rate_per_s * problem.full_s
    counts = np.arange(requests)
    here = pmf(mean, requests)
    alone_s = float(service_time.service_s(problem.service, 1))
    bias = problem.full_s / alone_s
    behind = np.minimum(1.0, bias * problem.decay ** (requests - counts))
    return float(here @ behind + max(0.0, 1 - here.sum()))
