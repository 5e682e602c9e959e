"""Counts of arrivals in a step: Poisson, or every c-th point of a Poisson process."""

from __future__ import annotations

import numpy as np

from sojourn.model import poisson
from sojourn.model.continuous import cells
from sojourn.model.domain import FloatArray

# Beyond this, every c-th point is as good as equally spaced.
MOST_TURNS = 12


def law(means: FloatArray, size: int, turns: int = 1, *, from_arrival: bool = False) -> FloatArray:
    """P(count = k), k = 0..size-1, on a new last axis: shape of ``means`` + (size,).

    Args:
        means: expected counts.
        size: how many counts; the mass beyond is left out.
        turns: 1 for a Poisson process; c when only every c-th of its points counts.
        from_arrival: the interval begins at a point that counts, instead of anywhere.
    """
    if turns == 1:
        return poisson.pmf(means, size)
    turns = min(turns, MOST_TURNS)
    points = poisson.pmf(np.asarray(means) * turns, size * turns)
    positions = np.arange(size * turns)[:, None]
    counted = np.arange(size)[None, :]
    if from_arrival:
        share = positions // turns == counted
    else:
        # The phase is uniform, so k points are counted out of N with a triangular weight.
        share = np.maximum(0.0, 1 - np.abs(positions - counted * turns) / turns)
    return np.asarray(points @ share)


def size_for(mean: float) -> int:
    """Counts that hold all but about 1e-7 of a Poisson law."""
    return int(mean + 6 * np.sqrt(mean + 1) + 4)


# Below this mean a generalised Poisson law is taken as it is, above by its first three moments.
_DISCRETE_UP_TO = 15.0


def borel_nodes(means: FloatArray, phi: float, body: int, tail: int) -> FloatArray:
    """Standardised nodes of generalised Poisson counts, one a cell of ``cells.tail_edges``.

    Args:
        means: expected counts, float array (m,).
        phi: feedback, 0 <= phi < 1; the variance is mean / (1 - phi)^2, 0 gives Poisson.

    Returns:
        (count - mean) / standard deviation of each cell, float array (m, body + tail).

    Source: Consul, Jain, Technometrics 15 (1973): skewness (1 + 2 phi) / (sqrt(mean) (1 - phi)).
    """
    z, _ = cells.normal_nodes(body, tail)
    found = np.broadcast_to(z, (means.size, z.size)).copy()
    few = (means > 0) & (means <= _DISCRETE_UP_TO)
    if few.any():
        sd = np.sqrt(means[few])[:, None] / (1 - phi)
        edges = cells.tail_edges(body, tail)
        found[few] = (_conditional_means(means[few], phi, edges) - means[few][:, None]) / sd
    many = means > _DISCRETE_UP_TO
    if many.any():
        root_shape = 2 * np.sqrt(means[many])[:, None] * (1 - phi) / (1 + 2 * phi)
        shape = root_shape**2
        found[many] = (cells.gamma_quantiles(shape, shape, z[None, :]) - shape) / root_shape
    return found


def _conditional_means(means: FloatArray, phi: float, edges: FloatArray) -> FloatArray:
    """Mean count within each cell of probability, float array (m, k)."""
    spread = np.sqrt(float(means.max())) / (1 - phi)
    size = int(float(means.max()) + (8 + 12 * phi) * spread + 10)
    number = np.arange(size, dtype=float)
    theta = (means * (1 - phi))[:, None]
    rates = theta + number * phi
    logs = np.log(theta) + (number - 1) * np.log(rates) - rates - poisson.log_factorials(size)
    law = np.exp(logs)
    return cells.means_between(law, law * number, edges)
