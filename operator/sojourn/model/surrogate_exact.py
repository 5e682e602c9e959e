"""The surrogate's own percentile, exactly: M/D/1 wait, plus the gathering of the batch, plus s.

The percentile rules of the book (exponential, Gaussian) guess a shape from moments; this one
convolves the laws the surrogate stands for. With a service time that varies, the M/G/1 wait is
stood in for by an M/D/1 wait of the same mean (stretched by 1 + CV^2).
"""

from __future__ import annotations

import math

import numpy as np

from sojourn.facts.service_time import BatchServiceTime
from sojourn.model import md1, poisson, service_time
from sojourn.model.domain import FloatArray
from sojourn.model.stability import STABLE_BELOW

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_NODES = (_NODES + 1) / 2
_WEIGHTS = _WEIGHTS / 2


# Waits whose probability is below this add nothing to a percentile anyone asks for.
_NEGLIGIBLE = 1e-13

# Panels (whole services) integrated at most: at load 0.999 the wait's 1e-13 point lies beyond.
_MOST_PANELS = 20_000


class _Wait:
    """W + T_batch of one operating point; the M/D/1 table is built once, read at every trial."""

    def __init__(self, rate_per_s: float, batch: int, scale_s: float, rho: float) -> None:
        self.rate_per_s, self.batch, self.scale_s, self.rho = rate_per_s, batch, scale_s, rho
        # The M/D/1 tail decays as exp(-2 (1 - rho) x / rho) at least, near load 1 exactly so.
        reach = -math.log(_NEGLIGIBLE) * rho / (2 * (1 - rho)) + 8
        panels = min(_MOST_PANELS, math.ceil(reach))
        self.points = np.arange(panels)[:, None] + _NODES
        self.tail_at = 1 - md1.wait_cdf(rho, self.points)

    def tail(self, seconds: float) -> float:
        """P(W + T_batch > seconds) = P(T_batch > t) + sum over T_batch = u of P(W > t - u)."""
        x = seconds / self.scale_s
        whole = min(math.floor(x), self.points.shape[0])
        # The wait's law has kinks at whole services: integrate panel by panel between them.
        full = self._gather_density(seconds - self.scale_s * self.points[:whole])
        inner = float((full * self.tail_at[:whole] * _WEIGHTS).sum()) * self.scale_s
        if whole < self.points.shape[0]:
            last = whole + (x - whole) * _NODES
            edge = self._gather_density(seconds - self.scale_s * last)
            late = 1 - md1.wait_cdf(self.rho, last)
            inner += float((edge * late * _WEIGHTS).sum()) * self.scale_s * (x - whole)
        at_once = float(1 - md1.wait_cdf(self.rho, min(x, _MOST_PANELS))) / self.batch
        return self._gather_tail(seconds) + at_once + inner

    def _gather_density(self, seconds: FloatArray) -> FloatArray:
        """Density of T_batch beyond its atom 1/B at 0: (lambda/B) P(N(u) <= B - 2)."""
        if self.batch == 1:
            return np.zeros(seconds.shape)
        counts = poisson.pmf(self.rate_per_s * np.maximum(seconds, 0.0), self.batch - 1)
        return np.asarray(self.rate_per_s / self.batch * counts.sum(axis=-1))

    def _gather_tail(self, seconds: float) -> float:
        """P(T_batch > t) = (1/B) sum_n (B - 1 - n) P(N(t) = n), n <= B - 2."""
        counts = poisson.pmf(self.rate_per_s * seconds, self.batch - 1)
        return float(counts @ np.arange(self.batch - 1, 0, -1)) / self.batch


def quantile_s(rate_per_s: float, batch: int, law: BatchServiceTime, probability: float) -> float:
    """Seconds below which a share ``probability`` of the surrogate's sojourn times lies.

    Args:
        rate_per_s: lambda1, one replica's rate.
        batch: B, max batch.
        law: the service-time law; the wait is exact for scv 0.
        probability: 0.99 for P99.

    Returns:
        Seconds; inf at load 1 and above, or when a batch above 1 never fills (rate 0).
    """
    service_s = float(service_time.service_s(law, batch))
    rho = rate_per_s * service_s / batch
    if rho >= STABLE_BELOW or (rate_per_s == 0 and batch > 1):
        return math.inf
    if rate_per_s == 0:
        return service_s
    wait = _Wait(rate_per_s, batch, service_s * (1 + law.scv), rho)
    low, high = 0.0, service_s + batch / rate_per_s
    while wait.tail(high) > 1 - probability:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if wait.tail(middle) > 1 - probability else (low, middle)
    return service_s + high
