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


class _Wait:
    """W + T_batch of one operating point; the M/D/1 table is built once and read at every trial."""

    def __init__(self, rate_per_s: float, batch: int, scale_s: float, rho: float) -> None:
        self.rate_per_s, self.batch, self.scale_s, self.rho = rate_per_s, batch, scale_s, rho
        self.table = np.zeros((0, _NODES.size))

    def cdf(self, seconds: float) -> float:
        """P(W + T_batch <= seconds)."""
        if seconds < 0:
            return 0.0
        x = seconds / self.scale_s
        whole = math.floor(x)
        if self.batch == 1:
            return float(md1.wait_cdf(self.rho, x))
        if self.table.shape[0] < whole:
            steps = np.arange(max(whole + 8, 2 * self.table.shape[0]))
            self.table = md1.wait_cdf(self.rho, steps[:, None] + _NODES)
        # The wait's law has kinks at whole services: integrate panel by panel between them.
        panels = self._gather_density(seconds - self.scale_s * (np.arange(whole)[:, None] + _NODES))
        inner = float((panels * self.table[:whole] * _WEIGHTS).sum()) * self.scale_s
        rest = x - whole
        last = whole + rest * _NODES
        edge = self._gather_density(seconds - self.scale_s * last) * md1.wait_cdf(self.rho, last)
        partial = float((edge * _WEIGHTS).sum()) * self.scale_s * rest
        return float(md1.wait_cdf(self.rho, x)) / self.batch + inner + partial

    def _gather_density(self, seconds: FloatArray) -> FloatArray:
        """Density of T_batch beyond its atom 1/B at 0: (lambda/B) P(N(u) <= B - 2)."""
        counts = poisson.pmf(self.rate_per_s * np.maximum(seconds, 0.0), self.batch - 1)
        return np.asarray(self.rate_per_s / self.batch * counts.sum(axis=-1))


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
    high = service_s + batch / rate_per_s
    while wait.cdf(high) < probability:
        high *= 2
    low = 0.0
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        if wait.cdf(middle) < probability:
            low = middle
        else:
            high = middle
    return service_s + high
