"""Time to first token under round robin, where a replica's arrivals keep their distance.

What an arrival sees is not what a random time sees: the request before it came a whole turn ago.
The running step therefore rarely holds a prompt. Counted are the points of the Poisson process of
which every c-th goes to the replica, backwards and forwards from the arrival.
"""

from __future__ import annotations

import numpy as np

from sojourn.model import poisson
from sojourn.model.continuous import counts
from sojourn.model.continuous.arrivals import Arrivals
from sojourn.model.continuous.machine import Machine
from sojourn.model.continuous.steps import Atoms
from sojourn.model.domain import FloatArray

_RESIDUALS = 12
_MOST_PROMPTS = 6
_MOST_PHI = 0.9


def first_token(machine: Machine, stream: Arrivals, step_s: float, phi: float) -> Atoms:
    """First-token times of arrivals that find a busy replica with a free place.

    Args:
        step_s: h, a step without prompts.
        phi: share of time spent on prompts.
    """
    turns = min(stream.turns, counts.MOST_TURNS)
    points_per_s = stream.rate_per_s * turns
    before_s = step_s / (1 - min(phi, _MOST_PHI))
    longest_s = max(before_s, step_s + machine.prompt_s * _MOST_PROMPTS)
    size = counts.size_for(points_per_s * longest_s)
    number = np.arange(size)
    values, weights = [], []
    for rest in (np.arange(_RESIDUALS) + 0.5) / _RESIDUALS:
        for prompts in range(_MOST_PROMPTS):
            length_s = step_s + machine.prompt_s * prompts
            since = poisson.pmf(points_per_s * (1 - rest) * length_s, size)
            before = poisson.pmf(points_per_s * before_s, size)
            # Prompts of the running step arrived in the step before it.
            arrived = (number[:, None] + number[None, :]) // turns - number[:, None] // turns
            likely = since * ((arrived == prompts) @ before)
            ahead = _by_turn(likely, turns)
            behind = _by_turn(poisson.pmf(points_per_s * rest * length_s, size), turns)
            companions = np.arange(ahead.size)
            value = (
                rest * length_s
                + step_s
                + machine.prompt_s * (1 + companions[:, None] + companions[None, :])
            )
            values.append(value.ravel())
            weights.append(length_s * (ahead[:, None] * behind[None, :]).ravel())
    mass = np.concatenate(weights)
    kept = mass > 1e-9 * mass.sum()
    return Atoms(np.concatenate(values)[kept], mass[kept] / mass[kept].sum())


def _by_turn(points: FloatArray, turns: int) -> FloatArray:
    """Law of the requests among ``points`` of the process counted from an arrival."""
    padded = np.append(points, np.zeros(-points.size % turns))
    return np.asarray(padded.reshape(-1, turns).sum(1))
