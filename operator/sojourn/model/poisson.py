"""Poisson and negative binomial counts, always through logarithms.

n! and x^n overflow before their quotient does; a mean of 0 has its own branch.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sojourn.model.domain import FloatArray


@lru_cache(maxsize=1)
def _log_factorials() -> list[FloatArray]:
    return [_sum_of_logs(1024)]


def _sum_of_logs(size: int) -> FloatArray:
    return np.concatenate(([0.0], np.cumsum(np.log(np.arange(1.0, size)))))


def log_factorials(size: int) -> FloatArray:
    """Ln n! for n = 0..size-1, float array (size,)."""
    table = _log_factorials()
    if table[0].size < size:
        table[0] = _sum_of_logs(2 * size)
    return table[0][:size]


def pmf(mean: npt.ArrayLike, size: int) -> FloatArray:
    """P(N = n), n = 0..size-1, on a new last axis: shape of ``mean`` + (size,)."""
    means = np.asarray(mean, dtype=float)[..., None]
    counts = np.arange(size)
    safe = np.where(means > 0, means, 1.0)
    law = np.exp(counts * np.log(safe) - safe - log_factorials(size))
    return np.asarray(np.where(means > 0, law, counts == 0))


def tail(mean: float, least: int) -> float:
    """P(N >= least), without cancellation when it is small."""
    if least <= 0:
        return 1.0
    if mean >= least:
        return float(max(0.0, 1 - pmf(mean, least).sum()))
    extra = 60 + int(8 * np.sqrt(least))
    counts = np.arange(least, least + extra)
    if mean == 0:
        return 0.0
    logs = counts * np.log(mean) - mean - log_factorials(least + extra)[least:]
    return float(np.exp(logs).sum())
