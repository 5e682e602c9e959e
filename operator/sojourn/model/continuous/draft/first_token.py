"""Time to first token in the draft: its mean by class, and the share later than a goal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sojourn.model.continuous import cells
from sojourn.model.continuous.draft import tails
from sojourn.model.continuous.draft.engines import Engines
from sojourn.model.continuous.draft.inside import CLASS_SHARES, Inside, own_step_s
from sojourn.model.continuous.first_token import OVERSHOOT, departures
from sojourn.model.continuous.steps import step_seen_s
from sojourn.model.domain import FloatArray

# Cells of the queue that an arrival at a full batch finds, and parts of the step it falls into.
_QUEUE_EDGES = cells.tail_edges(7, 8)
_QUEUE_MIDDLES = (_QUEUE_EDGES[1:] + _QUEUE_EDGES[:-1]) / 2
QUEUE_SHARES = np.diff(_QUEUE_EDGES)
_RESIDUALS = (np.arange(6) + 0.5) / 6


@dataclass(frozen=True, eq=False)
class First:
    """Means of the time to first token, and the waits behind a full batch.

    Attributes:
        free_s: by class with a place free, (k, g).
        own_s: own step in a full batch, (k, 1).
        wait_s, wait_variance: of each cell of the queue, QUEUE_SHARES of them, (k, w).
        mean_s: over all arrivals, (k, 1).
    """

    free_s: FloatArray
    own_s: FloatArray
    wait_s: FloatArray
    wait_variance: FloatArray
    mean_s: FloatArray


def first(some: Engines, found: Inside) -> First:
    """Means by class; waits as ``first_token`` of the whole model has them."""
    step_s = some.steps_s(found.classes)
    rest_s = step_seen_s(step_s, some.prompt_s, found.phi) / 2
    free_s = rest_s + own_step_s(some, found, step_s)
    own_s = some.full_step_s + some.prompt_s * (1 + some.entering)
    ahead = np.floor(np.log1p(-_QUEUE_MIDDLES) / np.log(np.maximum(found.theta, 1e-12))) + 1
    ahead = ahead + OVERSHOOT * (found.burst - 1)
    capacity_per_s = some.capacity_per_s
    mean, variance = departures(ahead, some.prompt_s * capacity_per_s, some.scv, ahead / some.batch)
    wait_s = mean / capacity_per_s
    free = found.weights.sum(axis=1, keepdims=True) - found.idle
    mean_s = found.idle * (some.fixed_s + some.prompt_s)
    mean_s = mean_s + free * (free_s * CLASS_SHARES).sum(axis=1, keepdims=True)
    mean_s += found.full * ((wait_s * QUEUE_SHARES).sum(axis=1, keepdims=True) + own_s)
    return First(free_s, own_s, wait_s, variance / capacity_per_s**2, mean_s)


def late(some: Engines, found: Inside, means: First, goal_s: FloatArray) -> FloatArray:
    """Share of arrivals whose first token comes after ``goal_s`` (k, 1), the same shape."""
    own_variance = some.prompt_s**2 * some.entering
    queued = tails.gamma(goal_s - means.own_s, means.wait_s, means.wait_variance + own_variance)
    at_once = found.idle * (some.fixed_s + some.prompt_s > goal_s)
    busy = np.maximum(1 - found.idle, 1e-9)
    free = np.maximum(found.weights.sum(axis=1, keepdims=True) - found.idle, 0.0)
    # Prompts run only while somebody is there.
    crowded = np.minimum(1.0, _free_late(some, found, goal_s) / busy)
    behind = found.full * (queued * QUEUE_SHARES).sum(axis=1, keepdims=True)
    return np.asarray(at_once + free * crowded + behind)


def _free_late(some: Engines, found: Inside, goal_s: FloatArray) -> FloatArray:
    """The rest of the running step, the own one, and the prompts of both."""
    step_s = some.steps_s(found.classes)
    length_s, prompts, variance = _seen(some, found, step_s)
    step_s, length_s, prompts, variance = (
        one[:, :, None] for one in (step_s, length_s, prompts, variance)
    )
    rate, prompt_s = found.rate_per_s[:, :, None], some.prompt_s[:, :, None]
    empty_s = (1 + _RESIDUALS) * step_s
    joined = rate * length_s
    mean = _RESIDUALS * prompts + joined
    spread = (_RESIDUALS + rate * prompt_s) ** 2 * variance + joined
    room = (goal_s[:, :, None] - empty_s) / np.maximum(prompt_s, 1e-12) - 1
    dispersion = np.maximum(spread / np.maximum(mean, tails.TINY), 1.0)
    over = tails.counts(room, mean, dispersion)
    over = np.where(prompt_s > 0, over, empty_s > goal_s[:, :, None]).mean(axis=2)
    return np.asarray((over * CLASS_SHARES).sum(axis=1, keepdims=True))


def _seen(
    some: Engines, found: Inside, step_s: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean length of the step an arrival falls into, the prompts in it and their variance, (k, g).

    Prompts per step branch; whoever arrives sees long steps more often.
    """
    mean = found.rate_per_s * step_s / (1 - found.phi)
    variance = mean / (1 - found.phi**2)
    prompts = step_s * mean + some.prompt_s * (mean * mean + variance)
    prompts = prompts / (step_s + some.prompt_s * mean)
    return step_s + some.prompt_s * prompts, prompts, variance
