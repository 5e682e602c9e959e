"""What every queueing model answers, so that decide may hold any of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sojourn.facts.replica import OperatingPoint, Replica
from sojourn.facts.sojourn import LatencyGoal, ReplicaRate, Sojourn


class QueueModel(Protocol):
    """A queueing model of identical replicas under Poisson arrivals."""

    @property
    def name(self) -> str:
        """Name shown in status and in ``Sojourn.model``."""
        ...

    def __hash__(self) -> int:
        """Models are values: equal ones share cached answers."""
        ...

    def sojourn(self, point: OperatingPoint, probabilities: Sequence[float]) -> Sojourn:
        """Latency, its parts and its quantiles at one operating point.

        A load of 1 or more on an unbounded queue gives inf, never an exception.

        Args:
            point: replicas, their total rate, routing.
            probabilities: quantiles wanted, each strictly between 0 and 1.

        Raises:
            ModelDomainError: a number outside the domain (negative or NaN rate, batch below 1).
        """
        ...

    def max_rate(self, replica: Replica, goal: LatencyGoal, dispersion: float = 1.0) -> ReplicaRate:
        """Largest rate one replica takes within a goal, lambda1*.

        Args:
            replica: one of them.
            goal: SLO and limits of load and loss.
            dispersion: I, index of dispersion of its arrivals; 1 is Poisson.

        A goal without any latency is one division: the rate at which the load is
        ``goal.max_utilisation``.

        Raises:
            ModelDomainError: a number outside the domain.
        """
        ...
