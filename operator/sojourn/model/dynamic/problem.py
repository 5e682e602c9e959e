"""The inputs of the dynamic-batching analysis, with what follows from them at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sojourn.facts.service_time import BatchServiceTime
from sojourn.model import service_time
from sojourn.model.domain import FloatArray

# A service time that varies less than this has no effect beyond the analysis' own error.
_DETERMINISTIC_BELOW = 1e-3

# Batch sizes whose service time is a place where the law of the residual may bend.
_MOST_BENDS = 128


@dataclass(frozen=True)
class Problem:
    """One replica.

    Attributes:
        rate_per_s: lambda1, more than 0.
        service: batch service time.
        batch: B.
        wait_s: T, longest the oldest waiting request waits for companions; inf is "until full".
        places: K >= B waiting places, or None.
    """

    rate_per_s: float
    service: BatchServiceTime
    batch: int
    wait_s: float
    places: int | None

    @property
    def scv(self) -> float:
        """CV^2 of the batch's time, 0 when it is too small to matter."""
        return noticed_scv(self.service)

    def seconds(self, sizes: npt.ArrayLike) -> FloatArray:
        """s_b for batch sizes, any shape."""
        return service_time.service_s(self.service, sizes)

    @cached_property
    def full_s(self) -> float:
        """s_B."""
        return float(self.seconds(self.batch))

    @cached_property
    def load(self) -> float:
        """lambda1 s_B / B."""
        return self.rate_per_s * self.full_s / self.batch

    @property
    def waits(self) -> bool:
        """Whether the batcher ever waits: a timer matters only for batches above 1."""
        return self.wait_s > 0 and self.batch > 1

    @cached_property
    def bends_s(self) -> FloatArray:
        """Times at which the law of a fixed service's residual bends, rising.

        At each s_b, which no residual of a batch of b exceeds, and gently just before s_B.
        """
        if self.scv > 0:
            return np.zeros(0)
        gently = self.full_s - np.array([8.0, 4.0, 2.0, 1.0, 0.5]) / self.rate_per_s
        sizes = np.unique(np.round(np.linspace(1, self.batch, min(self.batch, _MOST_BENDS))))
        return np.unique(np.concatenate((gently[gently > 0], self.seconds(sizes))))

    @property
    def certain_s(self) -> float:
        """Time after its first request at which a batch has filled for certain."""
        k = self.batch - 1
        return (k + 9 * math.sqrt(k) + 30) / self.rate_per_s

    @property
    def leftovers_expire(self) -> bool:
        """Whether a request left over by a full batch always has waited T when the batch ends."""
        return not self.waits or (self.scv == 0 and self.wait_s <= self.full_s)

    @cached_property
    def decay(self) -> float:
        """Ratio eta = 1/z of the queue's geometric tail, E exp(lambda S (z - 1)) = z^B, z > 1."""
        return math.exp(-steepness(self.rate_per_s * self.full_s, self.batch, self.scv))

    @cached_property
    def usual_batch(self) -> tuple[float, float]:
        """Mean and standard deviation of the number at dispatch if B did not bind.

        The fixed point of n = 1 + lambda max(s_n, T) from above, and the spread of the linear
        recursion around it; both only size the state space.
        """
        n = float(self.batch)
        for _ in range(200):
            served = max(float(self.seconds(n)), min(self.wait_s, 1e12))
            after = min(float(self.batch), 1 + self.rate_per_s * served)
            if abs(after - n) < 1e-3:
                break
            n = after
        slope = self.rate_per_s * float(self.seconds(n + 1) - self.seconds(n))
        mean = self.rate_per_s * float(self.seconds(n))
        variance = (n + self.scv * mean**2) / max(1e-3, 1 - min(slope, 1.0) ** 2)
        return n, math.sqrt(variance)


def noticed_scv(law: BatchServiceTime) -> float:
    """CV^2 of a batch's time, 0 when it is too small to matter."""
    return law.scv if law.scv >= _DETERMINISTIC_BELOW else 0.0


def steepness(mean: float, batch: int, scv: float, turns: int = 1) -> float:
    """-ln eta > 0, by which the logarithm of a queue's law falls with every request.

    In w = ln z the root of B w - log E exp(c mean (e^(w / c) - 1) G), which is concave and 0 at 0.

    Args:
        mean: arrivals in a full batch's service, below B.
        batch: B.
        scv: CV^2 of the service, 0 where it is too small to matter.
        turns: c, if every c-th point of a Poisson process arrives.
    """

    def root(w: float) -> float:
        grown = turns * mean * math.expm1(w / turns) if w < 700 else math.inf
        if scv == 0:
            return batch * w - grown
        if scv * grown >= 1:
            return -math.inf
        return batch * w + math.log1p(-scv * grown) / scv

    high = 1e-6
    while root(high) > 0:
        high *= 2
    low = high / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if root(middle) > 0 else (low, middle)
    return (low + high) / 2


def tail_power(slope: float, scv: float) -> float:
    """Power alpha by which the law of n falls when each batch brings slope x G as many again.

    E (slope G)^alpha = 1, the exponent of products of such factors (Kesten, 1973); inf if they
    cannot grow.
    """
    if slope <= 0 or scv == 0:
        return math.inf
    shape = 1 / scv
    low, high = 0.0, 1.0
    while _growth(high, slope, shape) < 0:
        low, high = high, 2 * high
        if high > 1e3:
            return math.inf
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _growth(middle, slope, shape) < 0 else (low, middle)
    return high


def _growth(power: float, slope: float, shape: float) -> float:
    moment = math.lgamma(shape + power) - math.lgamma(shape) - power * math.log(shape)
    return moment + power * math.log(slope)


def spread(mean: float, scv: float) -> float:
    """Standard deviation of the arrivals during a service with that mean count."""
    return math.sqrt(mean * (1 + scv * mean))


def lagrange(points: FloatArray, x: FloatArray) -> FloatArray:
    """Weights (len(x), len(points)) that carry mass at x to points, keeping moments up to cubic.

    Points must be increasing; each x uses its four nearest ones.
    """
    weights = np.zeros((x.size, points.size))
    width = min(4, points.size)
    start = np.clip(np.searchsorted(points, x) - width // 2, 0, points.size - width)
    stencil = start[:, None] + np.arange(width)
    near = points[stencil]
    for i in range(width):
        others = [k for k in range(width) if k != i]
        factor = (x[:, None] - near[:, others]) / (near[:, i : i + 1] - near[:, others])
        weights[np.arange(x.size), stencil[:, i]] = factor.prod(axis=1)
    return weights
