"""Time to first token when the token budget spreads a burst of prompts over several steps.

The backlog of prompt tokens at the start of a step is a Markov chain: the step takes what the
budget allows, and the arrivals during it join. Solved on a grid of an eighth of a prompt (or of the
budget, if that is smaller); exact token counts decide how many steps the own prompt needs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sojourn.model.continuous import counts
from sojourn.model.continuous.arrivals import Arrivals
from sojourn.model.continuous.machine import Machine
from sojourn.model.continuous.steps import Atoms
from sojourn.model.domain import FloatArray

_GRID = 8
_MOST_STATES = 240
_RESIDUALS = 8

# The chain is followed from empty until a round of steps changes nothing.
_ROUND, _MOST_ROUNDS = 16, 120


@dataclass(frozen=True)
class _Grid:
    """Backlog in units of ``tokens``; a prompt is ``prompt`` units, a step takes ``step``."""

    tokens: float
    prompt: int
    step: int
    states: int


def _grid(machine: Machine, budget_tokens: float) -> _Grid:
    isl = machine.prompt_tokens
    per_budget = budget_tokens / isl
    if per_budget >= _GRID:
        return _Grid(isl, 1, min(int(per_budget), _MOST_STATES // 2), _MOST_STATES // 2)
    prompt = max(1, round(_GRID * max(1.0, 1 / per_budget)))
    prompt = min(prompt, _MOST_STATES // 4)
    tokens = isl / prompt
    step = max(1, int(budget_tokens / tokens + 1e-9))
    return _Grid(tokens, prompt, step, min(_MOST_STATES, max(8 * step, 12 * prompt)))


def first_token(
    machine: Machine, stream: Arrivals, step_s: float, decoding: float, busy: float
) -> Atoms:
    """First-token times of arrivals that find a free place and a busy replica.

    Args:
        step_s: h, a step without prompts.
        decoding: requests decoding, each of which takes a token of the budget.
        busy: probability that the replica is not empty, > 0: prompts run only then.
    """
    # A step always has some room for prompts, or none would ever start.
    budget = max(machine.budget_tokens - decoding, machine.budget_tokens / 4)
    grid = _grid(machine, budget)
    token_s = machine.prompt_s / machine.prompt_tokens
    backlog = np.arange(grid.states)
    taken = np.minimum(backlog, grid.step)
    lengths = step_s + token_s * grid.tokens * taken
    seen = _stationary(grid, stream, lengths) * lengths
    seen /= seen.sum()
    crowded = float(seen[1:].sum())
    lift = min(1 / busy, 1 / crowded) if crowded > 0 else 1.0
    seen[1:] *= lift
    seen[0] = max(0.0, 1 - crowded * lift)

    kept = np.nonzero(seen > 1e-6)[0]
    left = np.asarray((backlog - taken)[kept] * grid.tokens, dtype=float)
    return _own(machine, stream, (step_s, budget), (seen[kept], lengths[kept], left))


def _stationary(grid: _Grid, stream: Arrivals, lengths: FloatArray) -> FloatArray:
    """Law of the backlog at the start of a step, float array (states,)."""
    means = stream.rate_per_s * lengths
    size = min(counts.size_for(float(means.max())), grid.states // grid.prompt + 2)
    joined = counts.law(means, size, stream.turns)
    joined[:, -1] += 1 - joined.sum(1)
    backlog = np.arange(grid.states)
    rest = backlog - np.minimum(backlog, grid.step)
    moves = np.zeros((grid.states, grid.states))
    for k in range(size):
        np.add.at(
            moves, (backlog, np.minimum(rest + k * grid.prompt, grid.states - 1)), joined[:, k]
        )
    law = np.zeros(grid.states)
    law[0] = 1.0
    for _ in range(_MOST_ROUNDS):
        later = law
        for _ in range(_ROUND):
            later = later @ moves
        if np.abs(later - law).max() < 1e-9:
            break
        law = later
    return np.asarray(later / later.sum())


def _own(
    machine: Machine,
    stream: Arrivals,
    step: tuple[float, float],
    found: tuple[FloatArray, FloatArray, FloatArray],
) -> Atoms:
    """Follow one prompt through the steps after the one it arrives in.

    Who arrived before it in that step is served first; who came behind fills what its last step
    has left of the budget.
    """
    step_s, budget = step
    seen, lengths, left = found
    rate, turns, isl = stream.rate_per_s, stream.turns, machine.prompt_tokens
    token_s = machine.prompt_s / isl
    size = counts.size_for(rate * float(lengths.max()))
    number = np.arange(size)
    values, weights = [], []
    for rest in (np.arange(_RESIDUALS) + 0.5) / _RESIDUALS:
        ahead = counts.law(rate * (1 - rest) * lengths, size, turns, from_arrival=True)
        tokens = left[:, None] + (number[None, :] + 1) * isl
        steps = np.ceil(tokens / budget - 1e-9)
        ends_s = rest * lengths[:, None] + step_s * steps + token_s * tokens
        span_s = rest * lengths[:, None] + (steps - 1) * (step_s + token_s * budget)
        behind = counts.law(rate * span_s, size, turns, from_arrival=True)
        room = (steps * budget - tokens)[:, :, None]
        value = ends_s[:, :, None] + token_s * np.minimum(number * isl, room)
        weight = seen[:, None, None] * ahead[:, :, None] * behind
        kept = weight > min(1e-8, float(weight.max()) / 2)
        values.append(value[kept])
        weights.append(weight[kept])
    mass = np.concatenate(weights)
    return Atoms(np.concatenate(values), mass / mass.sum())
