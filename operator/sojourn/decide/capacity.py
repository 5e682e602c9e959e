"""What replicas of a service can take: asked of any queueing model, in requests per second.

Everything a replica does depends on lambda only through lambda / c, so one number a batch size,
lambda1*, answers "how many replicas" for every rate (docs/explanation/queueing.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache

from sojourn.facts.replica import Replica
from sojourn.facts.service import Service
from sojourn.facts.sojourn import LatencyGoal, ReplicaRate
from sojourn.model import sizing
from sojourn.model.protocol import QueueModel
from sojourn.model.stability import ROUNDING_SLACK

LARGEST_BATCH = 4096


@dataclass(frozen=True)
class Serving:
    """One service with the model that answers for it.

    Attributes:
        dispersion: z of the arrivals of one replica; 1 is Poisson.
        known: answers this object has given; a tick asks for the same few thousands of times.
    """

    service: Service
    queue: QueueModel
    dispersion: float = 1.0
    # Not of ``init``: a copy with another service must begin with no answers.
    known: dict[tuple[int, LatencyGoal], ReplicaRate] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )

    def replica(self, batch: int) -> Replica:
        """The replica with max batch ``batch``, within what KV memory holds."""
        limit = self.service.bounds.kv_limit
        held = batch if limit is None else max(1, min(batch, limit))
        return replace(self.service.replica, max_batch=held)

    def capacity_per_s(self, batch: int) -> float:
        """Rate at which one replica with that max batch has a load of 1."""
        return self._max_rate(batch, _load_only(1.0)).rate_per_s

    def within_goal(self, batch: int) -> ReplicaRate:
        """Lambda1*: largest rate of one replica within the SLO and the target utilisation."""
        return self._max_rate(batch, self.service.goal)

    def within_scaled_goal(self, batch: int, factor: float) -> ReplicaRate:
        """Lambda1* when every latency is ``factor`` times what the model says."""
        goal = self.service.goal
        scaled = replace(goal, latency_s=goal.latency_s and goal.latency_s / factor)
        return self._max_rate(batch, scaled)

    def within_slo(self, batch: int, utilisation: float) -> ReplicaRate:
        """Largest rate of one replica within the SLO, its load at most ``utilisation``."""
        goal = replace(self.service.goal, max_utilisation=utilisation)
        return self._max_rate(batch, goal)

    @property
    def begun(self) -> bool:
        """Lambda1* within the goal was solved at some batch: a further question is cheap."""
        return any(goal == self.service.goal for _, goal in self.known)

    @property
    def ranks(self) -> int:
        """Data-parallel ranks of one replica: each has its own queue, batch and KV pool."""
        return self.service.declaration.gpu.data_parallel

    def _max_rate(self, batch: int, goal: LatencyGoal) -> ReplicaRate:
        answer = self.known.get((batch, goal))
        if answer is None:
            answer = sizing.max_rate(self.queue, self.replica(batch), goal, self.dispersion)
            if self.ranks > 1:
                answer = replace(answer, rate_per_s=answer.rate_per_s * self.ranks)
            self.known[batch, goal] = answer
        return answer

    def utilisation(self, rate_per_s: float, replicas: int, batch: int) -> float:
        """Load rho of ``replicas`` at ``rate_per_s``; inf without replicas."""
        if replicas <= 0:
            return math.inf if rate_per_s > 0 else 0.0
        return rate_per_s / (replicas * self.capacity_per_s(batch))

    def least_batch(self, rate_per_s: float, replicas: int, utilisation: float) -> int | None:
        """Least max batch whose load is at most ``utilisation`` (below it at 1), or None.

        Capacity rises with the batch, so bisection is enough: O(log B) questions of the model.
        """
        strict = utilisation >= 1

        def carries(batch: int) -> bool:
            load = self.utilisation(rate_per_s, replicas, batch)
            return load < 1 - ROUNDING_SLACK if strict else load <= utilisation + ROUNDING_SLACK

        largest = self.service.bounds.kv_limit or LARGEST_BATCH
        if not carries(largest):
            return None
        low, high = 0, largest
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if carries(middle) else (middle, high)
        return high


def replicas_for(rate_per_s: float, rate_per_replica_per_s: float) -> int:
    """Least whole number of replicas that share a rate; 0 for no traffic.

    Ceil, not round: if 2.4 are needed, two run at a load of 1.2 and the queue never drains.
    """
    if rate_per_s <= 0:
        return 0
    if rate_per_replica_per_s <= 0:
        return MANY_REPLICAS
    needed = rate_per_s / rate_per_replica_per_s
    return min(MANY_REPLICAS, math.ceil(needed * (1 - ROUNDING_SLACK)))


MANY_REPLICAS = 1_000_000
"""Stands for "no number is enough"; every real bound is below it."""


@lru_cache(maxsize=64)
def _load_only(utilisation: float) -> LatencyGoal:
    return LatencyGoal(max_utilisation=utilisation, max_blocking=1.0)
