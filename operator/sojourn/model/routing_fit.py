"""What simulation adds to the interpolation of round robin and least loaded before batch servers.

ln(simulated / interpolated), as a smooth function of what describes a fleet, regressed on some
hundred simulated fleets (``benchmarks.queueing_design``, fitted by ``benchmarks.queueing_fit``;
both say how). A Gaussian process of mean 0: its weights fade with the distance from the points, so
far from them nothing is corrected, and ``near`` says how far that is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import numpy as np

from sojourn.facts.replica import DynamicReplica, OperatingPoint, Routing
from sojourn.model import service_time
from sojourn.model.domain import FloatArray

# Levels whose quantiles are corrected; others by interpolation in -ln(1 - level).
LEVELS = (0.5, 0.9, 0.95, 0.99, 0.999)

# Likeness to the nearest simulated fleet from which a correction is trusted, and below which not.
ALIKE, _STRANGE = 0.85, 0.5

LEAST_BATCH = 3
_LEAST_LOAD, _MOST_LOAD = 0.2, 0.975
_MOST_REPLICAS, _MOST_BATCH = 32, 64
_MOST_WINDOW, _MOST_SCV = 1.1, 0.35


@dataclass(frozen=True)
class Shape:
    """Latencies that describe a fleet, seconds.

    Attributes:
        cycle_s: service of the batch that gathers in its own service.
        gathered: that batch.
        beta: lambda1 s_1, at most 1.
        random_s: P50 and P99 under random splitting.
        even_s: the same under even arrivals, no longer than ``random_s``.
        mean_batch: under random splitting.
    """

    cycle_s: float
    gathered: float
    beta: float
    random_s: tuple[float, float]
    even_s: tuple[float, float]
    mean_batch: float


@dataclass(frozen=True)
class Correction:
    """Factors on the interpolated values.

    Attributes:
        mean: on the mean.
        quantiles: on the quantiles asked for.
        near: 0 to 1: how alike the nearest simulated fleet is.
    """

    mean: float
    quantiles: tuple[float, ...]
    near: float


@dataclass(frozen=True, eq=False)
class _Fit:
    """Points (n, d) in units of the lengths (d,), weights (n, 1 + levels)."""

    centre: FloatArray
    lengths: FloatArray
    points: FloatArray
    weights: FloatArray


def covers(point: OperatingPoint) -> bool:
    """Whether a fleet lies within the simulated ones."""
    replica = point.replica
    assert isinstance(replica, DynamicReplica)
    full_s = float(service_time.service_s(replica.service, replica.max_batch))
    load = point.rate_per_s / point.replicas * full_s / replica.max_batch
    return (
        LEAST_BATCH <= replica.max_batch <= _MOST_BATCH
        and point.replicas <= _MOST_REPLICAS
        and _LEAST_LOAD <= load <= _MOST_LOAD
        and replica.service.scv <= _MOST_SCV
        and replica.max_wait_s <= _MOST_WINDOW * full_s
    )


def features(point: OperatingPoint, shape: Shape) -> FloatArray:
    """The numbers the correction depends on, all without a unit, float array (d,)."""
    replica = point.replica
    assert isinstance(replica, DynamicReplica)
    full_s = float(service_time.service_s(replica.service, replica.max_batch))
    alone_s = float(service_time.service_s(replica.service, 1))
    per_request_s = (full_s - alone_s) / max(1, replica.max_batch - 1)
    cycle_s = shape.cycle_s
    return np.array(
        [
            point.rate_per_s / point.replicas * full_s / replica.max_batch,
            1 / point.replicas,
            1 - replica.max_batch * per_request_s / full_s,
            math.log(replica.max_batch),
            replica.max_wait_s / full_s,
            math.sqrt(replica.service.scv),
            cycle_s / full_s,
            math.log(shape.gathered),
            shape.beta,
            math.log(shape.mean_batch),
            *(math.log(seconds / cycle_s) for seconds in shape.random_s),
            *(math.log(seconds / cycle_s) for seconds in shape.even_s),
        ]
    )


def correction(routing: Routing, found: FloatArray, levels: Sequence[float]) -> Correction:
    """Factors at ``levels`` for a fleet with these features."""
    fit = _fit(routing)
    likeness = kernel((found - fit.centre)[None, :] / fit.lengths, fit.points)[0]
    near = float(likeness.max())
    faith = min(1.0, max(0.0, (near - _STRANGE) / (ALIKE - _STRANGE)))
    logs = faith * (likeness @ fit.weights)
    depth = -np.log1p(-np.asarray(LEVELS))
    wanted = -np.log1p(-np.asarray(levels, dtype=float))
    return Correction(
        mean=float(np.exp(logs[0])),
        quantiles=tuple(float(one) for one in np.exp(np.interp(wanted, depth, logs[1:]))),
        near=near,
    )


def kernel(these: FloatArray, those: FloatArray) -> FloatArray:
    """Matern 5/2 of points in units of the lengths, (n, d) and (m, d) to (n, m)."""
    squares = (these**2).sum(1)[:, None] + (those**2).sum(1)[None, :] - 2 * these @ those.T
    r = np.sqrt(5 * np.maximum(squares, 0.0))
    return np.asarray((1 + r + r * r / 3) * np.exp(-r))


@lru_cache(maxsize=len(Routing))
def _fit(routing: Routing) -> _Fit:
    path = resources.files("sojourn.model") / "data" / "routing.npz"
    with path.open("rb") as file, np.load(file) as stored:
        names = ("centre", "lengths", "points", "weights")
        return _Fit(*(stored[f"{routing}_{name}"].astype(float) for name in names))
