"""The analysis put together, with its self-checks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from sojourn.model.dynamic import chain, distribution, first_order, places
from sojourn.model.dynamic.ledger import Law
from sojourn.model.dynamic.oldest import Oldest
from sojourn.model.dynamic.problem import Problem
from sojourn.model.stability import STABLE_BELOW

# Relative defects above which an answer is flagged: flow balance, and mass of the distribution.
FLOW_DEFECT = 1e-3
MASS_DEFECT = 1e-2

# Each round takes the error of the ages to about a thousandth: the last leaves 1e-7 of E[B].
_SETTLINGS = 4
_SETTLED = 1e-4

# From this load on an error of 1 % in the service time is one of 20 % or more in the percentile.
TOO_CLOSE = 0.95


@dataclass(frozen=True)
class Solved:
    """Means at once, the distribution when asked.

    Attributes:
        problem: what was solved; stable or finite.
        stationary: the chain's law.
        means: expectations per cycle.
        oldest: law of the oldest's time to a free server where a timer can outlast that.
    """

    problem: Problem
    stationary: chain.Chain
    means: first_order.FirstOrder
    oldest: Oldest | None

    @cached_property
    def law(self) -> Law:
        """Law of the response time."""
        return distribution.response(self.problem, self.stationary, self.oldest)

    @property
    def queue_wait_s(self) -> float:
        """E[W], waited while no server is free."""
        return self.means.waiting_busy / self.means.mean_batch

    @property
    def batch_wait_s(self) -> float:
        """E[T_batch], waited while the server is free."""
        return self.means.waiting_idle / self.means.mean_batch

    @property
    def service_s(self) -> float:
        """E[T_svc] of the batch a request is in: weighted by requests, not by batches."""
        return self.means.served_s / self.means.mean_batch

    @property
    def mean_s(self) -> float:
        """E[T]; the three parts add up to it."""
        return self.queue_wait_s + self.batch_wait_s + self.service_s

    @property
    def blocking(self) -> float:
        """Share of arrivals lost, from the flow itself and not as 1 - throughput / lambda."""
        return self.means.lost / (self.problem.rate_per_s * self.means.cycle_s)

    @property
    def busy_fraction(self) -> float:
        """Share of time the server works."""
        return min(1.0, self.means.busy_s / self.means.cycle_s)

    @property
    def throughput_per_s(self) -> float:
        """Requests served per second."""
        return self.means.mean_batch / self.means.cycle_s

    def doubts(self, *, percentiles: bool) -> tuple[str, ...]:
        """Self-checks that failed, and regimes in which the answer is only indicative."""
        found = []
        if self.means.defect > FLOW_DEFECT:
            found.append(f"flow balance off by {self.means.defect:.1%}: treat as indicative")
        if percentiles:
            defect = abs(self.law.mass / self.means.mean_batch - 1)
            if not math.isfinite(defect) or defect > MASS_DEFECT:
                found.append(f"probability mass off by {defect:.1%}: percentiles indicative")
        if self.problem.load > TOO_CLOSE and self.problem.places is None:
            found.append(
                f"load {self.problem.load:.3f} is too close to 1 to call: an error of 1 % in the "
                f"service time moves the percentile by {0.01 / (1 - self.problem.load):.0%}"
            )
        return tuple(found)


def is_stable(problem: Problem) -> bool:
    """Whether the queue has a stationary law."""
    return problem.places is not None or problem.load < STABLE_BELOW


def solve(problem: Problem) -> Solved:
    """Solve a stable or finite queue with a positive rate."""
    if problem.leftovers_expire:
        stationary, oldest = chain.kernel(problem).stationary(), None
    else:
        stationary, oldest = _settled(problem)
    means = first_order.first_order(problem, stationary, oldest)
    return Solved(problem, stationary, means, oldest)


def _settled(problem: Problem) -> tuple[chain.Chain, Oldest]:
    """The chain's law and the ages it depends on, which depend on it."""
    kernel = chain.kernel(problem)
    stationary = kernel.stationary()
    oldest = places.oldest(problem, stationary)
    mean = stationary.mass @ stationary.taken(problem.batch)
    for _ in range(_SETTLINGS):
        before = mean
        stationary = kernel.stationary(oldest)
        oldest = places.oldest(problem, stationary)
        mean = stationary.mass @ stationary.taken(problem.batch)
        if abs(mean - before) < _SETTLED * mean:
            break
    return stationary, oldest
