"""M/D/1 waiting time: exact and stable at any load.

The classical alternating series loses all its digits once rho x exceeds about 20. Here everything
is a sum of positive terms: the queue at service boundaries from its embedded chain in
level-crossing form, then a Poisson mixture inside a service.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sojourn.model import poisson
from sojourn.model.domain import FloatArray, non_negative


def mean_wait_s(rho: npt.ArrayLike, service_s: npt.ArrayLike) -> FloatArray:
    """E[W] = s rho / (2 (1 - rho)) (Pollaczek-Khinchine); inf at load 1 and above."""
    load = non_negative("load", rho)
    with np.errstate(divide="ignore", invalid="ignore"):
        wait_s = np.asarray(service_s) * load / (2 * (1 - load))
    return np.asarray(np.where(load < 1, wait_s, np.inf))


def queue_cdf(rho: float, size: int) -> FloatArray:
    """Q[i] = P(waiting <= i) just after a service boundary, i = 0..size-1, for load rho < 1.

    p_{i+1} a_0 = p_0 P(A > i) + sum_{j=1..i} p_j P(A > i - j + 1), A ~ Poisson(rho), p_0 = 1 - rho;
    Q[i] = sum_{j <= i+1} p_j. Once the ratio of successive p is constant the rest is geometric.

    Source: docs/explanation/queueing.md; Franx, Oper. Res. Lett. 29 (2001).
    """
    reach = 40
    arrivals = poisson.pmf(rho, reach + 2)
    above = np.cumsum(arrivals[::-1])[::-1] - arrivals  # P(A > i)
    p = np.zeros(size + 2)
    p[0] = 1 - rho
    for i in range(size + 1):
        first = p[0] * above[i] if i < reach else 0.0
        lo = max(1, i - reach + 1)
        p[i + 1] = (first + p[lo : i + 1] @ above[i - lo + 1 : 0 : -1]) / arrivals[0]
    return np.minimum(np.cumsum(p)[1 : size + 1], 1.0)


def wait_cdf(rho: float, x: npt.ArrayLike) -> FloatArray:
    """P(W <= x s) of an M/D/1 queue at load rho, x in service times, any shape; 0 for x < 0.

    With x = k + y, 0 <= y < 1: P(W <= x s) = sum_j Q[k-j] Pois(j; rho (1-y)), j = 0..k.

    >>> float(1 - wait_cdf(0.5, 1.0).round(6))
    0.175639
    """
    points = np.asarray(x, dtype=float)
    if rho >= 1:
        return np.zeros(points.shape)
    whole = np.floor(np.maximum(points, 0.0))
    queue = queue_cdf(rho, int(whole.max(initial=0.0)) + 1)
    reach = min(queue.size, 40)
    weights = poisson.pmf(rho * (1 - (np.maximum(points, 0.0) - whole)), reach)
    index = whole[..., None].astype(int) - np.arange(reach)
    values = np.where(index >= 0, queue[np.maximum(index, 0)], 0.0)
    return np.asarray(np.where(points < 0, 0.0, (values * weights).sum(axis=-1)))
