"""A service played event by event beside what the model predicts.

The event machines know no formula of the model: what both say is what both found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from sojourn.facts.replica import ContinuousReplica, OperatingPoint, Replica
from sojourn.facts.sojourn import Latency, Sojourn
from sojourn.simulate import queues
from sojourn.simulate.estimate import Estimate, LatencyEstimate
from sojourn.simulate.queues import QueueEstimate


@dataclass(frozen=True)
class Figure:
    """One quantity: simulated with the half-width of its 95 % interval, and predicted."""

    name: str
    simulated: Estimate
    predicted_s: float

    @property
    def difference(self) -> float | None:
        """Predicted over simulated, less 1; None where there is nothing to compare."""
        if not math.isfinite(self.predicted_s) or not self.simulated.value:
            return None
        return self.predicted_s / self.simulated.value - 1


def play(
    point: OperatingPoint,
    requests: int,
    levels: tuple[float, ...],
    seed: int,
    told: Callable[[float], None],
) -> QueueEstimate:
    """Play ``requests`` Poisson arrivals at a point.

    Args:
        told: called now and then with the share played, 0 to 1.

    Raises:
        ModelDomainError: a routing the event machine does not know.
    """
    run = queues.Run(requests, levels, progress=told)
    continuous = isinstance(point.replica, ContinuousReplica)
    machine = queues.continuous if continuous else queues.dynamic
    return machine(point, run, np.random.default_rng(seed))


def figures(played: QueueEstimate, predicted: Sojourn) -> Iterator[Figure]:
    """Means and quantiles of what was played, beside the prediction."""
    yield from _of("latency", played.latency, predicted.latency)
    yield from _of("first token", played.first_token, predicted.time_to_first_token)
    yield from _of("output token", played.output_token, predicted.time_per_output_token)


def _of(name: str, seen: LatencyEstimate | None, predicted: Latency | None) -> Iterator[Figure]:
    if seen is None or predicted is None:
        return
    yield Figure(f"{name}, mean", seen.mean, predicted.mean_s)
    for level, estimate in seen.quantiles:
        title = f"P{round(100 * level, 4):g}"
        yield Figure(f"{name}, {title}", estimate, predicted.quantile_s(level))


def default_requests(replica: Replica) -> int:
    """Requests that take some seconds: continuous batches are played step by step."""
    return 40_000 if isinstance(replica, ContinuousReplica) else 200_000
