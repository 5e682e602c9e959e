"""Laws as a few weighted nodes, and quantiles of many weighted atoms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist

import numpy as np

from sojourn.model.domain import FloatArray

# Atoms are sorted only inside the histogram bin that holds the quantile.
_BINS = 2048
_SORT_DIRECTLY = 6000

# Bins of a law that is condensed to a few cells.
_CONDENSED_BINS = 256


def quantiles(values: FloatArray, weights: FloatArray, levels: Sequence[float]) -> list[float]:
    """Quantiles of weighted atoms, linear between the middles of neighbouring atoms.

    Args:
        values: float array (n,), any order.
        weights: float array (n,), not negative.
        levels: probabilities, each strictly between 0 and 1.
    """
    if values.size <= _SORT_DIRECTLY:
        return _sorted_quantiles(values, weights, [level * weights.sum() for level in levels])
    low, high = float(values.min()), float(values.max())
    if not high > low:
        return [low for _ in levels]
    bins = np.minimum(((values - low) * (_BINS / (high - low))).astype(np.int64), _BINS - 1)
    cumulative = np.cumsum(np.bincount(bins, weights, _BINS))
    used = np.nonzero(np.bincount(bins, minlength=_BINS))[0]
    found = []
    for level in levels:
        target = level * cumulative[-1]
        at = int(np.searchsorted(cumulative[used], target))
        # The neighbours that hold atoms too: the quantile may lie between two bins.
        first, last = used[max(at - 1, 0)], used[min(at + 1, used.size - 1)]
        inside = (bins >= first) & (bins <= last)
        before = cumulative[first - 1] if first else 0.0
        found += _sorted_quantiles(values[inside], weights[inside], [target - before])
    return found


def _sorted_quantiles(
    values: FloatArray, weights: FloatArray, masses: Sequence[float]
) -> list[float]:
    rising, middles = in_order(values, weights)
    return [float(x) for x in np.interp(masses, middles, rising)]


def in_order(values: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The values rising, and the weight below the middle of each, (n,)."""
    order = np.argsort(values)
    sorted_weights = weights[order]
    return values[order], np.cumsum(sorted_weights) - sorted_weights / 2


def condense_many(laws: Sequence[tuple[FloatArray, FloatArray]], edges: FloatArray) -> FloatArray:
    """Conditional means of the cells of several laws, their atoms binned instead of sorted.

    Args:
        laws: values and weights of each, its arrays of one length.
        edges: probabilities from 0 to 1, (k + 1,).

    Returns:
        float array (laws, k); the mean of each law is exact.
    """
    sizes = np.array([weights.size for _, weights in laws])
    values = np.concatenate([one for one, _ in laws])
    weights = np.concatenate([one for _, one in laws])
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    low = np.minimum.reduceat(values, starts)
    width = np.maximum(np.maximum.reduceat(values, starts) - low, 1e-300)
    bins = (values - np.repeat(low, sizes)) * np.repeat(_CONDENSED_BINS / width, sizes)
    key = np.minimum(bins.astype(np.int64), _CONDENSED_BINS - 1)
    key += np.repeat(np.arange(sizes.size) * _CONDENSED_BINS, sizes)
    shape, total = (sizes.size, _CONDENSED_BINS), sizes.size * _CONDENSED_BINS
    mass, moment = (
        np.asarray(np.bincount(key, one, total), dtype=float).reshape(shape)
        for one in (weights, weights * values)
    )
    return means_between(mass, moment, edges)


def means_between(mass: FloatArray, moment: FloatArray, edges: FloatArray) -> FloatArray:
    """Conditional means of the cells of probability between ``edges``, one row a law.

    Args:
        mass: of each value, rising, (laws, n).
        moment: mass times value, (laws, n).
        edges: probabilities from 0 to 1, (k + 1,).

    Returns:
        float array (laws, k). A value that straddles an edge is shared between both cells, so the
        mean stays exact.
    """
    cumulative, moments = np.cumsum(mass, axis=1), np.cumsum(moment, axis=1)
    total = np.maximum(cumulative[:, -1:], 1e-300)
    wanted, rows = edges[1:-1] * total, np.arange(total.size)[:, None]
    k = np.minimum((cumulative[:, None] < wanted[..., None]).sum(-1), mass.shape[1] - 1)
    beyond = (cumulative[rows, k] - wanted) / np.maximum(mass[rows, k], 1e-300)
    ends = np.zeros(rows.shape), moments[rows, k] - beyond * moment[rows, k], moments[:, -1:]
    return np.asarray(np.diff(np.concatenate(ends, axis=1), axis=1) / (np.diff(edges) * total))


def split(weights: FloatArray, edges: FloatArray) -> list[slice]:
    """Neighbouring states in one slice per probability cell; empty cells are left out."""
    cumulative = np.cumsum(weights)
    cuts = np.searchsorted(cumulative, edges[1:-1] * cumulative[-1]) + 1
    bounds = np.unique(np.concatenate(([0], np.minimum(cuts, weights.size), [weights.size])))
    return [slice(int(a), int(b)) for a, b in pairwise(bounds)]


@lru_cache(maxsize=64)
def tail_edges(body: int, tail: int, rarest: float = 1e-3) -> FloatArray:
    """Edges of cells, probabilities from 0 to 1, (body + tail + 1,).

    Args:
        body: equal cells up to 0.9.
        tail: ever smaller ones beyond.
        rarest: probability of the last one.
    """
    return np.concatenate(
        [np.linspace(0, 0.9, body + 1), 1 - np.geomspace(0.1, rarest, tail)[1:], [1.0]]
    )


@lru_cache(maxsize=64)
def normal_nodes(body: int, tail: int) -> tuple[FloatArray, FloatArray]:
    """Nodes of the standard normal law: quantiles of cell middles, finer beyond the 90th.

    Returns:
        nodes (body + tail,) with mean 0 and variance 1, and their weights.
    """
    edges = tail_edges(body, tail)
    weights = np.diff(edges)
    middles = ((edges[1:] + edges[:-1]) / 2).tolist()
    nodes = np.array([NormalDist().inv_cdf(level) for level in middles])
    nodes -= nodes @ weights
    nodes /= math.sqrt(float((nodes**2) @ weights))
    return nodes, weights


def gamma_quantiles(mean: FloatArray, variance: FloatArray, normal: FloatArray) -> FloatArray:
    """Gamma quantiles at normal scores, by Wilson and Hilferty's cube root.

    Args:
        mean, variance: broadcastable against ``normal``.

    Source: Wilson, Hilferty, PNAS 17 (1931); within 1 % of the quantile for shapes above 1.
    """
    tiny = 1e-300
    inverse_shape = np.minimum(variance / np.maximum(mean**2, tiny), 9.0)
    root = 1 - inverse_shape / 9 + normal * np.sqrt(inverse_shape) / 3
    return np.asarray(mean * np.maximum(root, 0.0) ** 3)
