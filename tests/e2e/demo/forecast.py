"""What the model says of a service at any point: the operator's own code, asked from outside."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sojourn.catalogue import Catalogue
from sojourn.controller.registry import Registry
from sojourn.decide.capacity import Serving
from sojourn.decide.table import Live, evaluate
from sojourn.facts.policy import Policy
from sojourn.facts.replica import OperatingPoint

PROBABILITY = 0.99


class Forecast:
    """The model of one InferenceService.

    Args:
        body: the object as the API server holds it.
        profiles: ServingProfiles of its namespace.

    Raises:
        ValueError: the object cannot be resolved.
    """

    def __init__(self, body: Mapping[str, Any], profiles: Sequence[Mapping[str, Any]] = ()) -> None:
        registry = Registry(Catalogue())
        for profile in profiles:
            registry.put_profile(profile)
        registry.put(body, 0.0)
        metadata = body["metadata"]
        entry = registry.get((metadata["namespace"], metadata["name"]))
        if entry is None or entry.serving is None:
            raise ValueError(f"{metadata['name']} cannot be resolved")
        self.serving: Serving = entry.serving
        self.slo_s = self.serving.service.goal.latency_s or float("inf")
        self.min_replicas = self.serving.service.declaration.scaling.min_replicas
        self.max_replicas = self.serving.service.declaration.scaling.max_replicas
        self._p99 = lru_cache(maxsize=4096)(self._solved)

    def utilisation(self, rate_per_s: float, replicas: int, batch: int) -> float:
        """Load rho."""
        return self.serving.utilisation(rate_per_s, replicas, batch)

    def p99_s(self, rate_per_s: float, replicas: int, batch: int) -> float:
        """P99 of the sojourn time; inf where the queue grows without bound."""
        if replicas == 0 or self.utilisation(rate_per_s, replicas, batch) >= 1:
            return float("inf")
        # Whole percents of a rate are as exact as anything measured here, and far fewer.
        return self._p99(float(f"{rate_per_s / replicas:.2g}"), batch)

    def wanted(self, rate_per_s: float, replicas: int, batch: int) -> int:
        """Replicas the decision table asks for at this point, within the bounds."""
        row = evaluate(Live(self.serving, Policy(), rate_per_s, replicas, batch))
        return min(self.max_replicas, max(self.min_replicas, row.replicas))

    def needed(self, rate_per_s: float, batch: int) -> int:
        """Least replicas within target utilisation and SLO, within the bounds."""
        needed = Live(self.serving, Policy(), rate_per_s, 1, batch).needed
        return min(self.max_replicas, max(self.min_replicas, needed))

    def _solved(self, rate_per_replica_per_s: float, batch: int) -> float:
        if rate_per_replica_per_s <= 0:
            return float("nan")
        point = OperatingPoint(self.serving.replica(batch), rate_per_replica_per_s)
        return self.serving.queue.sojourn(point, (PROBABILITY,)).latency.quantile_s(PROBABILITY)
