"""Poisson and negative binomial counts, always through logarithms; streams split at random.

n! and x^n overflow before their quotient does; a mean of 0 has its own branch.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sojourn.model.domain import FloatArray

IntArray = npt.NDArray[np.int64]

# Counts up to here are all kept; beyond, steps grow with the spread of a law with that mean.
_EVERY_COUNT_UP_TO = 250


def thinned(dispersion: float, streams: int) -> float:
    """Index of dispersion of one of the ``streams`` into which a stream is split at random.

    A thinned stream keeps 1/c of its excess over Poisson.
    """
    return 1 + (dispersion - 1) / streams


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
    return at(mean, np.arange(size))


def at(mean: npt.ArrayLike, counts: IntArray) -> FloatArray:
    """P(N = n) for each n of ``counts``, on a new last axis: shape of ``mean`` + (len(counts),)."""
    means = np.asarray(mean, dtype=float)[..., None]
    safe = np.where(means > 0, means, 1.0)
    factorials = log_factorials(int(counts.max(initial=0)) + 1)[counts]
    law = np.exp(counts * np.log(safe) - safe - factorials)
    return np.asarray(np.where(means > 0, law, counts == 0))


def lattice(last: int) -> IntArray:
    """Counts 0..last, the large ones in steps over which a Poisson law is next to straight."""
    points = [*range(min(last, _EVERY_COUNT_UP_TO) + 1)]
    while points[-1] < last:
        step = math.floor(math.sqrt(1 + 0.018 * points[-1]))
        points.append(min(last, points[-1] + step))
    return np.array(points)


def on_lattice(values: FloatArray, points: IntArray) -> FloatArray:
    """Carry values of the counts 0, 1, .. along the first axis to a lattice, means kept.

    Args:
        values: shape (n, ...).
        points: lattice from 0 to n - 1.

    Returns:
        Shape (len(points), ...): the sum of values x f(count) is that of these x f(point) for a
        function f that is straight between points.
    """
    if points.size == values.shape[0]:
        return values
    gaps = np.append(np.diff(points), 1)
    part = (np.arange(values.shape[0]) - np.repeat(points, gaps)) / np.repeat(gaps, gaps)
    upper = values * part.reshape(-1, *(1,) * (values.ndim - 1))
    moved = np.add.reduceat(upper, points, axis=0)
    carried = np.add.reduceat(values - upper, points, axis=0)
    carried[1:] += moved[:-1]
    return np.asarray(carried)


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
