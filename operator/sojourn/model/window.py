"""The batching window opened by its first request (S4): mean batch and mean wait for it.

A batch closes when it holds B requests or when its first request has waited T. N, the arrivals
within the window, is Poisson with mean lambda T.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from sojourn.model import poisson
from sojourn.model.domain import FloatArray, counting, non_negative


def mean_batch(
    rate_per_s: npt.ArrayLike, max_batch: npt.ArrayLike, max_wait_s: npt.ArrayLike
) -> FloatArray:
    """E[B] = sum_{n<k} (n+1) P(N=n) + B P(N>=k), k = B - 1, broadcast over the arguments.

    Raises:
        ModelDomainError: a negative or NaN argument, a batch that is not a whole number from 1.

    Source: S4 of the theory.
    """
    return _broadcast(_mean_batch, rate_per_s, max_batch, max_wait_s)


def batch_wait_s(
    rate_per_s: npt.ArrayLike, max_batch: npt.ArrayLike, max_wait_s: npt.ArrayLike
) -> FloatArray:
    """E[T_batch], seconds a request waits for its batch; full and timed-out batches by requests.

    E[T_batch] E[B] = B (k / 2 lambda) P(N >= k+1) + sum_{n<k} (n+1) P(N=n) (T/2) (1 + 1/(n+1)).
    The first term is B times half the mean time to the k-th arrival *on* its coming within T, which
    needs neither an integral nor a division by P(N >= k). T -> inf gives (B-1)/(2 lambda); B = 1
    or T = 0 gives 0; max_wait_s may be inf.

    Raises:
        ModelDomainError: a negative or NaN argument, a batch that is not a whole number from 1.

    Source: S4 of the theory; docs/explanation/queueing.md
    """
    return _broadcast(_batch_wait_s, rate_per_s, max_batch, max_wait_s)


def _mean_batch(rate_per_s: float, batch: int, wait_s: float) -> float:
    if batch == 1 or wait_s == 0 or rate_per_s == 0:
        return 1.0
    if math.isinf(wait_s):
        return float(batch)
    counts = poisson.pmf(rate_per_s * wait_s, batch - 1)
    timed_out = float(np.arange(1, batch) @ counts[: batch - 1])
    return timed_out + batch * poisson.tail(rate_per_s * wait_s, batch - 1)


def _batch_wait_s(rate_per_s: float, batch: int, wait_s: float) -> float:
    if batch == 1 or wait_s == 0:
        return 0.0
    k = batch - 1
    if rate_per_s == 0:
        return wait_s
    if math.isinf(wait_s):
        return k / (2 * rate_per_s)
    mean = rate_per_s * wait_s
    full = batch * k / (2 * rate_per_s) * poisson.tail(mean, k + 1)
    timed_out = wait_s / 2 * float(np.arange(2, batch + 1) @ poisson.pmf(mean, k)[:k])
    return (full + timed_out) / _mean_batch(rate_per_s, batch, wait_s)


def _broadcast(
    formula: object, rate_per_s: npt.ArrayLike, max_batch: npt.ArrayLike, max_wait_s: npt.ArrayLike
) -> FloatArray:
    rates, batches, waits = np.broadcast_arrays(
        non_negative("rate", rate_per_s),
        counting("max batch", max_batch),
        non_negative("max wait", max_wait_s),
    )
    assert callable(formula)
    values = [
        formula(float(rate), int(batch), float(wait))
        for rate, batch, wait in zip(rates.flat, batches.flat, waits.flat, strict=True)
    ]
    return np.asarray(values, dtype=float).reshape(rates.shape)
