"""What admission looks at: a resolved service and the load it is judged by."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from sojourn.decide.capacity import Serving
from sojourn.facts.gpu import Gpu
from sojourn.facts.service import Service
from sojourn.facts.situation import TargetPods


@dataclass(frozen=True)
class JudgedRate:
    """The rate stability is judged at, and where it came from."""

    rate_per_s: float
    source: str


@dataclass(frozen=True)
class Proposal:
    """A service somebody wants stored.

    Attributes:
        serving: the resolved service with its queueing model.
        observed_rate_per_s: live rate, used when nothing is declared; None if unknown.
        other_owners: who else scales the target.
        gpus: the catalogue's cards, for "a GPU type that would fit".
        pods: what is known of the target's pods.
    """

    serving: Serving
    observed_rate_per_s: float | None = None
    other_owners: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    pods: TargetPods = field(default_factory=TargetPods)

    @property
    def service(self) -> Service:
        """The service proposed."""
        return self.serving.service

    @property
    def max_replicas(self) -> int:
        """Most replicas the spec allows."""
        return self.service.declaration.scaling.max_replicas

    @cached_property
    def judged(self) -> JudgedRate | None:
        """Peak if declared, else the declared rate, else the live one, else nothing."""
        traffic = self.service.declaration.traffic
        if traffic.peak_rate_per_s is not None:
            return JudgedRate(traffic.peak_rate_per_s, "spec.traffic.peakRate")
        if traffic.rate_per_s is not None:
            return JudgedRate(traffic.rate_per_s, "spec.traffic.rate")
        if self.observed_rate_per_s:
            return JudgedRate(self.observed_rate_per_s, "the observed rate")
        return None

    @cached_property
    def best_batch(self) -> int:
        """The admissible max batch with the most capacity: capacity rises with the batch."""
        bounds = self.service.bounds
        return bounds.maximum if bounds.kv_limit is None else min(bounds.maximum, bounds.kv_limit)

    @cached_property
    def utilisation(self) -> float:
        """Load at the judged rate with every replica and the best batch; 0 if not judged."""
        if self.judged is None:
            return 0.0
        rate = self.judged.rate_per_s
        return self.serving.utilisation(rate, self.max_replicas, self.best_batch)
