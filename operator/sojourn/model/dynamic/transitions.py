"""Moves of the chain: from the number at one dispatch to the number at the next."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from sojourn.model import poisson
from sojourn.model.domain import FloatArray
from sojourn.model.dynamic import counts
from sojourn.model.dynamic.oldest import Oldest
from sojourn.model.dynamic.problem import Problem


def matrix(
    problem: Problem, grid: npt.NDArray[np.int64], oldest: Oldest | None, *, folded: bool
) -> FloatArray:
    """P(next = t | present = n) for n of the grid and t = 0 up to its last, shape (n, last + 1).

    Args:
        problem: the replica.
        grid: numbers present, increasing, from 1.
        oldest: ages of the oldest left over; without, its window has ended.
        folded: whether what would be beyond the last is counted there (a finite queue loses it).
    """
    batch, last = problem.batch, int(grid[-1])
    taken = np.minimum(grid, batch).astype(float)
    alone = int(np.searchsorted(grid, batch, side="right"))
    means = problem.rate_per_s * problem.seconds(taken[:alone])
    moves = np.zeros((grid.size, last + 1))
    moves[:alone] = counts.pmf(means, problem.scv, last + 1)
    if alone < grid.size:
        served = np.array([problem.rate_per_s * problem.full_s])
        during = counts.pmf(served, problem.scv, last + 1)[0]
        offset = np.arange(last + 1) - (grid[alone:, None] - batch)
        moves[alone:] = np.where(offset >= 0, during[np.maximum(offset, 0)], 0.0)
    if problem.waits:
        _gather_alone(problem, moves[:alone], taken[:alone])
        few = grid[alone:] - batch
        few = few[few < batch]
        if few.size and oldest is not None:
            _gather_leftovers(problem, moves[alone : alone + few.size], few, oldest)
    else:
        # Nobody came: the next arrival starts a batch of its own.
        moves[:, 1] += moves[:, 0]
    moves[:, 0] = 0.0
    if folded:
        moves[:, last] += np.maximum(0.0, 1 - moves.sum(axis=1))
    return moves


def tail_row(problem: Problem, last: int, step: float, ratio: float) -> FloatArray:
    """Moves of the whole geometric tail last, last + step, ... seen as one state."""
    served = np.array([problem.rate_per_s * problem.full_s])
    during = counts.pmf(served, problem.scv, last + 1)[0]
    row = np.zeros(last + 1)
    behind, weight = last - problem.batch, 1.0
    while behind <= last and weight > 1e-14:
        row[behind:] += weight * during[: last + 1 - behind]
        behind += int(step)
        weight *= ratio
    return row


def _gather_alone(problem: Problem, moves: FloatArray, taken: FloatArray) -> None:
    """After a batch that leaves nobody: the window opens at the first arrival, S or before.

    With S <= T the next batch is 1 + Poisson(lambda T). With S > T it is the arrivals in S, unless
    the first comes after S - T: then it is 1 + Poisson(lambda T) again.
    """
    batch, rate, wait_s = problem.batch, problem.rate_per_s, problem.wait_s
    size = min(batch, moves.shape[1] - 1)  # targets 1..size-1 are partial batches
    if math.isinf(wait_s) or rate * wait_s > 1e9:
        moves[:, 1:size] = 0.0
    else:
        window = poisson.pmf(rate * wait_s, size + 1)
        partial = _partial(problem, problem.seconds(taken), window, moves[:, 1:size])
        moves[:, 1:size] = partial
    beyond = moves[:, size + 1 :].sum(axis=1) if moves.shape[1] > size + 1 else 0.0
    over = _beyond(problem, problem.rate_per_s * problem.seconds(taken), moves.shape[1])
    moves[:, 0] = 0.0
    moves[:, size] = np.maximum(0.0, 1 - moves[:, 1:size].sum(axis=1) - beyond - over)


def _partial(
    problem: Problem, seconds: FloatArray, window: FloatArray, during: FloatArray
) -> FloatArray:
    """P(next batch is i + 1, nobody left), i = 0..k-1; ``during`` is P(J = i + 1)."""
    rate, wait_s = problem.rate_per_s, problem.wait_s
    k = during.shape[1]
    fresh = window[:k] - window[1 : k + 1]
    if problem.scv == 0:
        late = np.exp(-rate * np.maximum(seconds - wait_s, 0.0))[:, None]
        return np.asarray(np.where(seconds[:, None] <= wait_s, window[:k], during + late * fresh))
    shape = 1 / problem.scv
    beyond = counts.gamma_tail(shape, wait_s * shape / seconds)[:, None]
    x = wait_s * (rate + shape / seconds)
    base = counts.gamma_tail(shape, x)
    with np.errstate(divide="ignore"):
        logs = rate * wait_s - shape * np.log1p(rate * seconds / shape) + np.log(base)
    late = np.exp(np.minimum(logs, 0.0))[:, None]
    raised = raised_tails(shape, x, base, k + 1)[:, 1:]
    return np.asarray((1 - beyond) * window[:k] + during * raised + late * fresh)


def raised_tails(shape: float, x: FloatArray, base: FloatArray, size: int) -> FloatArray:
    """Q(a + i, x), i = 0..size-1, from Q(a, x): shape (len(x), size)."""
    steps = np.arange(size - 1)
    logs = (
        (shape + steps) * np.log(np.maximum(x, 1e-300))[:, None]
        - x[:, None]
        - (math.lgamma(shape + 1) + counts.log_rising(shape + 1, size - 1))
    )
    added = np.cumsum(np.exp(logs), axis=1)
    tails = np.concatenate((base[:, None], base[:, None] + added), axis=1)
    return np.asarray(np.minimum(1.0, tails))


def _gather_leftovers(
    problem: Problem, moves: FloatArray, behind: npt.NDArray[np.int64], oldest: Oldest
) -> None:
    """After a full batch that leaves m < B: the oldest's timer may outlast the service."""
    batch = problem.batch
    ages_s, shares = oldest.young(problem, behind)
    gathered, tails = _waited(problem, problem.wait_s - ages_s)
    served = np.array([problem.rate_per_s * problem.full_s])
    during = counts.pmf(served, problem.scv, batch)[0]
    ended = 1 - shares.sum(axis=1, keepdims=True)
    partial = shares @ gathered + during * (shares @ tails + ended)
    for row, left, law in zip(moves, behind, partial, strict=True):
        beyond = row[batch + 1 :].sum()
        lost = max(0.0, 1 - row.sum())
        row[left:batch] = law[: batch - left]
        row[batch] = max(0.0, 1 - row[left:batch].sum() - beyond - lost)


def _waited(problem: Problem, timer_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """With so much left of the timer, of i = 0..B-1 arrivals: (len(timer_s), B) each.

    P(S <= timer, i come in it), and P(S > timer | i come in S).
    """
    batch, rate = problem.batch, problem.rate_per_s
    gathered = poisson.pmf(np.minimum(rate * timer_s, 1e9), batch)
    if problem.scv == 0:
        ends_first = (timer_s > problem.full_s)[:, None]
        return gathered * ends_first, np.repeat(1.0 - ends_first, batch, axis=1)
    shape = 1 / problem.scv
    x = timer_s * (rate + shape / problem.full_s)
    tails = raised_tails(shape, x, counts.gamma_tail(shape, x), batch)
    ended = 1 - counts.gamma_tail(shape, timer_s * shape / problem.full_s)
    return gathered * ended[:, None], tails


def _beyond(problem: Problem, means: FloatArray, size: int) -> FloatArray:
    """P(J >= size) for each mean, (n,)."""
    return np.asarray(np.maximum(0.0, 1 - counts.pmf(means, problem.scv, size).sum(axis=1)))
