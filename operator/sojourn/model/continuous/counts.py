"""Counts of arrivals in a step: Poisson, or every c-th point of a Poisson process."""

from __future__ import annotations

import numpy as np

from sojourn.model import poisson
from sojourn.model.domain import FloatArray

# Beyond this, every c-th point is as good as equally spaced.
_MOST_TURNS = 12


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
    turns = min(turns, _MOST_TURNS)
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
