"""The book's surrogate behind the QueueModel protocol, for comparison with the exact one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sojourn.errors import ModelDomainError
from sojourn.facts.replica import DynamicReplica, OperatingPoint, Replica
from sojourn.facts.service_time import BatchServiceTime
from sojourn.facts.sojourn import Latency, LatencyGoal, ReplicaRate, Sojourn
from sojourn.model import max_rate, service_time, stability, surrogate, surrogate_exact, window
from sojourn.model.domain import counting, non_negative


class SurrogateTail(StrEnum):
    """How the surrogate's percentile is made from its moments or its law."""

    EXPONENTIAL = "Exponential"
    GAUSSIAN = "Gaussian"
    EXACT = "SurrogateExact"


@dataclass(frozen=True)
class SurrogateModel:
    """M/G/1 super-requests (S6): every replica gets lambda / c whatever the routing.

    Attributes:
        tail: the percentile rule.
    """

    tail: SurrogateTail = SurrogateTail.EXPONENTIAL

    @property
    def name(self) -> str:
        """Surrogate, with its percentile rule."""
        return f"Surrogate/{self.tail}"

    def sojourn(self, point: OperatingPoint, probabilities: Sequence[float]) -> Sojourn:
        """The surrogate's answer; queue capacity is ignored, max_wait_s 0 means "until full"."""
        replica = dynamic(point.replica)
        counting("replicas", point.replicas)
        rate_per_s = float(non_negative("rate", point.rate_per_s)) / point.replicas
        law, batch = replica.service, replica.max_batch
        load = float(stability.utilisation(rate_per_s, 1, batch, law))
        gathers_s = gather_s(rate_per_s, replica)
        wait_s = float(surrogate.queue_wait_s(rate_per_s, batch, law))
        service_s = float(service_time.service_s(law, batch))
        mean_s = wait_s + gathers_s + service_s
        quantiles = tuple((q, self.quantile_s(rate_per_s, replica, q)) for q in probabilities)
        return Sojourn(
            model=self.name,
            utilisation=load,
            busy_fraction=min(1.0, load),
            latency=Latency(mean_s, quantiles),
            queue_wait_s=wait_s,
            batch_wait_s=gathers_s,
            service_s=service_s,
            mean_batch=float(batch),
            blocking=0.0,
            throughput_per_s=min(rate_per_s, batch / service_s) * point.replicas,
            in_system=point.rate_per_s * mean_s if point.rate_per_s > 0 else 0.0,
            warnings=("first-order model of the book: conservative by a factor of 1 to 4",),
        )

    def quantile_s(self, rate_per_s: float, replica: DynamicReplica, level: float) -> float:
        """Seconds at ``level`` of one replica at ``rate_per_s``, by the tail rule."""
        law, batch = replica.service, replica.max_batch
        if self.tail is SurrogateTail.EXACT:
            return surrogate_exact.quantile_s(rate_per_s, batch, law, level)
        service_s = float(service_time.service_s(law, batch))
        wait_s = float(surrogate.queue_wait_s(rate_per_s, batch, law))
        mean_s = wait_s + gather_s(rate_per_s, replica) + service_s
        if self.tail is SurrogateTail.EXPONENTIAL or not math.isfinite(mean_s):
            return float(surrogate.exponential_quantile_s(mean_s, level))
        std_s = surrogate.latency_std_s(rate_per_s, batch, law)
        return float(surrogate.gaussian_quantile_s(mean_s, std_s, level))

    def max_rate(
        self,
        replica: Replica,
        goal: LatencyGoal,
        dispersion: float = 1.0,  # noqa: ARG002
    ) -> ReplicaRate:
        """lambda1* of the surrogate, which knows Poisson arrivals only."""
        one = dynamic(replica)
        limit = load_limit_per_s(one.service, one.max_batch, goal)
        if not max_rate.asks_latency(goal):
            return ReplicaRate(limit, "Utilisation", 0.0, reachable=True)

        def at(rate_per_s: float) -> max_rate.Excess:
            point = OperatingPoint(one, rate_per_s)
            return max_rate.excess(self.sojourn(point, (goal.probability,)), goal)

        return max_rate.largest_rate(at, limit)


def load_limit_per_s(law: BatchServiceTime, batch: int, goal: LatencyGoal) -> float:
    """The rate at which one replica's load is goal.max_utilisation."""
    counting("max batch", batch)
    return goal.max_utilisation * float(service_time.capacity_per_s(law, batch))


def gather_s(rate_per_s: float, replica: DynamicReplica) -> float:
    """E[T_batch]: the window when one is declared, else the book's always-full batch."""
    if replica.max_wait_s > 0:
        return float(window.batch_wait_s(rate_per_s, replica.max_batch, replica.max_wait_s))
    return float(surrogate.batch_wait_s(rate_per_s, replica.max_batch))


def dynamic(replica: Replica) -> DynamicReplica:
    """The replica, if it forms batches that start and end together.

    Raises:
        ModelDomainError: it is a continuous-batching one.
    """
    if isinstance(replica, DynamicReplica):
        return replica
    raise ModelDomainError("replica", type(replica).__name__, "one with dynamic batching")
