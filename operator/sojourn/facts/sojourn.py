"""What a queueing model answers about one operating point."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Latency:
    """Mean and quantiles of one latency, in seconds.

    Attributes:
        mean_s: the mean; inf when the queue grows without bound.
        quantiles_s: pairs (probability in 0..1, seconds), by rising probability.
    """

    mean_s: float
    quantiles_s: tuple[tuple[float, float], ...] = ()

    def quantile_s(self, probability: float) -> float:
        """Seconds at ``probability``, which must be one the model was asked for.

        Raises:
            KeyError: that quantile was not computed.
        """
        for known, seconds in self.quantiles_s:
            if math.isclose(known, probability, abs_tol=1e-9):
                return seconds
        raise KeyError(f"quantile {probability} was not computed")


@dataclass(frozen=True)
class Sojourn:
    """A model's answer at one operating point of one replica (seconds, requests per second).

    Attributes:
        model: name of the model that answered.
        utilisation: load rho = lambda1 T_svc(B) / B; not the busy fraction.
        busy_fraction: share of time the server works.
        latency: end to end, of accepted requests.
        queue_wait_s: mean wait while the server is busy, E[W].
        batch_wait_s: mean wait for the batch to fill, E[T_batch].
        service_s: mean service time of a request's batch, E[T_svc]; the three add up to the mean.
        mean_batch: E[B], requests of a batch (dynamic) or running together (continuous).
        blocking: share of arrivals lost to a full queue.
        throughput_per_s: requests served.
        in_system: mean number waiting or in service.
        time_to_first_token: continuous batching only.
        time_per_output_token: a request's mean inter-token latency; continuous batching only.
        warnings: why the answer is only indicative; empty when it is not.
    """

    model: str
    utilisation: float
    busy_fraction: float
    latency: Latency
    queue_wait_s: float
    batch_wait_s: float
    service_s: float
    mean_batch: float
    blocking: float
    throughput_per_s: float
    in_system: float
    time_to_first_token: Latency | None = None
    time_per_output_token: Latency | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class LatencyGoal:
    """What a replica may be asked to keep: the SLO and the limits of load and loss.

    Attributes:
        probability: the SLO's percentile as a fraction, 0.99 for P99.
        latency_s: end to end; None if not asked.
        first_token_s: time to first token; None if not asked.
        output_token_s: time per output token; None if not asked.
        max_utilisation: largest load, rho_target.
        max_blocking: largest share of lost requests.
    """

    probability: float = 0.99
    latency_s: float | None = None
    first_token_s: float | None = None
    output_token_s: float | None = None
    max_utilisation: float = 0.75
    max_blocking: float = 0.01


@dataclass(frozen=True)
class ReplicaRate:
    """The largest rate one replica takes within a goal (lambda1*).

    Attributes:
        rate_per_s: lambda1*, requests per second; 0 when the goal cannot be met at any rate.
        binding: ``Utilisation``, ``Latency``, ``FirstToken``, ``OutputToken`` or ``Blocking``.
        floor_s: the SLO metric's value as the rate goes to 0: below it no SLO is reachable.
        reachable: False when the floor is above the goal.
        from_rate_per_s: least rate that meets the goal: 0 when latency rises with the rate; more
            when it first falls, because a batch waits for companions that do not come.
    """

    rate_per_s: float
    binding: str
    floor_s: float
    reachable: bool
    from_rate_per_s: float = 0.0
