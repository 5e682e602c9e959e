"""Replicas that share requests otherwise than at random: round robin and least loaded.

No cheap exact form exists, so a quantile is interpolated between what random splitting gives and
what
perfectly even arrivals would: Q = Q0 + kappa (Q_random - Q0).

Source: docs/explanation/queueing.md P99 against simulation: round robin of batches median 2 %,
worst 6 %; least loaded median 5 %, worst 14 %. Round robin of single requests is ``even_split``'s.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from sojourn.facts.replica import DynamicReplica, OperatingPoint, Routing
from sojourn.facts.sojourn import Latency, Sojourn
from sojourn.model import service_time
from sojourn.model.domain import FloatArray
from sojourn.model.dynamic import counts

_BATCHES = 400
_WARM_UP = 60

# Levels at which the quantile function is averaged into a mean.
_LEVELS = (np.arange(100) + 0.5) / 100


def interpolated(point: OperatingPoint, random: Sojourn, grid: Sojourn) -> Sojourn:
    """The answer of ``random`` with its latency moved towards that of even arrivals.

    Args:
        point: replicas with round robin or least loaded routing, load below 1 or a finite queue.
        random: the answer of random splitting, with the quantiles that are wanted.
        grid: the same with quantiles at ``mean_levels()``.
    """
    replica = point.replica
    assert isinstance(replica, DynamicReplica)
    rate = point.rate_per_s / point.replicas
    weight = kappa(replica, rate, point.replicas, point.routing)
    even, lag = _EvenArrivals(replica, rate), _lag(point)
    quantiles = tuple(
        (level, lag * _between(even.quantile_s(level), seconds, weight))
        for level, seconds in random.latency.quantiles_s
    )
    floor_s = [min(seconds, even.quantile_s(level)) for level, seconds in grid.latency.quantiles_s]
    random_s = [seconds for _, seconds in grid.latency.quantiles_s]
    saved_s = (1 - weight) * float(np.mean(random_s) - np.mean(floor_s))
    mean_s = max(random.service_s, lag * (random.latency.mean_s - saved_s))
    waits_s = random.queue_wait_s + random.batch_wait_s
    kept = (mean_s - random.service_s) / waits_s if waits_s > 0 else 1.0
    notes: tuple[str, ...] = (
        f"{point.routing}: percentiles interpolated, may be {_doubt(point.routing)} off",
    )
    if random.blocking > 0:
        notes += (f"{point.routing}: blocking is that of random splitting, an upper bound",)
    return replace(
        random,
        latency=Latency(mean_s, quantiles),
        queue_wait_s=random.queue_wait_s * kept,
        batch_wait_s=random.batch_wait_s * kept,
        in_system=random.throughput_per_s * mean_s,
        warnings=random.warnings + notes,
    )


def mean_levels() -> tuple[float, ...]:
    """Probabilities at which ``interpolated`` needs the random answer for its mean."""
    return tuple(float(level) for level in _LEVELS)


def kappa(replica: DynamicReplica, rate_per_s: float, replicas: int, routing: Routing) -> float:
    """Share of the randomness that stays: 1 / c, more where the service itself varies."""
    if routing is Routing.LEAST_LOADED:
        return 1 / replicas
    scv = replica.service.scv
    mean = rate_per_s * float(service_time.service_s(replica.service, replica.max_batch))
    return (1 / replicas + scv * mean) / (1 + scv * mean)


def self_regulated_batch(replica: DynamicReplica, rate_per_s: float) -> float:
    """Batch that gathers in its own service, b = lambda s_b, between 1 and B."""
    size = float(replica.max_batch)
    for _ in range(200):
        served_s = float(service_time.service_s(replica.service, size))
        after = min(float(replica.max_batch), max(1.0, rate_per_s * served_s))
        if abs(after - size) < 1e-6:
            break
        size = after
    return size


def _between(even_s: float, random_s: float, weight: float) -> float:
    low_s = min(random_s, even_s)
    return low_s + weight * (random_s - low_s)


def _lag(point: OperatingPoint) -> float:
    """Least loaded counts requests, which says little of when a batch server is free: 1.05."""
    counts_mislead = point.replica.max_batch > 1 and point.routing is Routing.LEAST_LOADED
    return 1.05 if counts_mislead else 1.0


def _doubt(routing: Routing) -> str:
    return "6 %" if routing is Routing.ROUND_ROBIN else "14 %"


class _EvenArrivals:
    """One replica fed at exact intervals 1 / lambda1, and the ideal cycle of a batch server."""

    def __init__(self, replica: DynamicReplica, rate_per_s: float) -> None:
        self.replica, self.rate_per_s = replica, rate_per_s
        self.waits_s, self.services_s = _recursion(replica, rate_per_s)
        size = self_regulated_batch(replica, rate_per_s)
        self.cycle_s = float(service_time.service_s(replica.service, size))
        alone_s = float(service_time.service_s(replica.service, 1))
        self.beta = min(1.0, rate_per_s * alone_s)

    def quantile_s(self, level: float) -> float:
        """The larger of the periodic queue's and the ideal cycle's quantile."""
        periodic = self._periodic_s(level)
        if self.replica.max_batch == 1:
            return periodic
        late = max(0.0, (level - 1 + self.beta) / self.beta)
        return max(periodic, self.cycle_s * (1 + late))

    def _periodic_s(self, level: float) -> float:
        scv = self.replica.service.scv
        if scv < 1e-3:
            return float(np.quantile(self.waits_s + self.services_s, level))
        points, values = counts.unit_cdf(scv)
        low, high = 0.0, float((self.waits_s + self.services_s).max()) * float(points[-1])
        for _ in range(40):
            middle = (low + high) / 2
            unit = (middle - self.waits_s) / self.services_s
            share = float(np.interp(unit, points, values, left=0.0).mean())
            low, high = (middle, high) if share < level else (low, middle)
        return high


def _recursion(replica: DynamicReplica, rate_per_s: float) -> tuple[FloatArray, FloatArray]:
    """Waits and services of the requests of some hundred batches under even arrivals."""
    batch, wait_s = replica.max_batch, replica.max_wait_s
    table = service_time.service_s(replica.service, np.arange(batch + 1))
    first, free_s = 0, 0.0
    waits, services = [], []
    for turn in range(_BATCHES):
        full_s = (first + batch - 1) / rate_per_s
        start_s = max(free_s, min(full_s, first / rate_per_s + wait_s))
        here = math.floor(start_s * rate_per_s * (1 + 1e-12)) - first + 1
        taken = min(batch, max(1, here))
        if turn >= _WARM_UP:
            places = np.arange(first, first + taken, max(1, taken // 16))
            waits.append(start_s - places / rate_per_s)
            services.append(np.full(places.size, table[taken]))
        first += taken
        free_s = start_s + float(table[taken])
    return np.maximum(np.concatenate(waits), 0.0), np.concatenate(services)
