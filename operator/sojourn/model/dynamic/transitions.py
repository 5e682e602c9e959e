"""Moves of the chain: from the number at one dispatch to the number at the next."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sojourn.model import poisson
from sojourn.model.domain import FloatArray
from sojourn.model.dynamic import counts
from sojourn.model.dynamic.oldest import Oldest
from sojourn.model.dynamic.problem import Problem
from sojourn.model.poisson import IntArray


@dataclass(frozen=True, eq=False)
class Targets:
    """Numbers that moves are looked at, from 0 to the last state.

    Attributes:
        at: all of them, or so many that a law of counts is next to straight between, (t,).
        width: how many numbers each stands for, (t,).
        partial: how many of ``at`` are below a full batch, 0 among them.
    """

    at: IntArray
    width: FloatArray
    partial: int


def alone(problem: Problem, present: IntArray, targets: Targets) -> FloatArray:
    """P(next = t | present = n <= B), nobody left behind: (len(present), len(targets.at)).

    What would be beyond the last target is not in it.
    """
    seconds = problem.seconds(present)
    moves = counts.at(problem.rate_per_s * seconds, problem.scv, targets.at) * targets.width
    if problem.waits:
        _gather_alone(problem, moves, seconds, targets)
    else:
        # Nobody came: the next arrival starts a batch of its own.
        moves[:, 1] += moves[:, 0]
    moves[:, 0] = 0.0
    return np.asarray(moves)


def later(problem: Problem, behind: IntArray, last: int) -> FloatArray:
    """P(next = t | m left behind), t = 0..last, with windows that end before the service does.

    Shape (len(behind), last + 1); what would be beyond the last is not in it.
    """
    during = _during_full(problem, last + 1)
    offset = np.arange(last + 1) - behind[:, None]
    return np.where(offset >= 0, during[np.maximum(offset, 0)], 0.0)


def tail_row(problem: Problem, start: int, last: int, tail: tuple[int, float]) -> FloatArray:
    """Moves of a whole geometric tail seen as one state, to 0..last: (last + 1,).

    Args:
        problem: the replica.
        start: number present in the first state of the tail.
        last: largest target.
        tail: distance of its states, and ratio of their masses.
    """
    step, ratio = tail
    during = _during_full(problem, last + 1)
    row = np.zeros(last + 1)
    behind, weight = start - problem.batch, 1.0
    while behind <= last and weight > 1e-14:
        row[behind:] += weight * during[: last + 1 - behind]
        behind += step
        weight *= ratio
    return row


def _during_full(problem: Problem, size: int) -> FloatArray:
    """P(j arrivals in a full batch's service), j = 0..size-1."""
    served = np.array([problem.rate_per_s * problem.full_s])
    return np.asarray(counts.pmf(served, problem.scv, size)[0])


def _gather_alone(
    problem: Problem, moves: FloatArray, seconds: FloatArray, targets: Targets
) -> None:
    """After a batch that leaves nobody: the window opens at the first arrival, S or before.

    With S <= T the next batch is 1 + Poisson(lambda T). With S > T it is the arrivals in S, unless
    the first comes after S - T: then it is 1 + Poisson(lambda T) again.
    """
    few = slice(1, targets.partial)
    over = np.maximum(0.0, 1 - moves.sum(axis=1))
    if math.isinf(problem.wait_s) or problem.rate_per_s * problem.wait_s > 1e9:
        moves[:, few] = 0.0
    else:
        during = moves[:, few] / targets.width[few]
        moves[:, few] = targets.width[few] * _partial(problem, seconds, targets.at[few], during)
    beyond = moves[:, targets.partial + 1 :].sum(axis=1)
    moves[:, 0] = 0.0
    full = 1 - moves[:, few].sum(axis=1) - beyond - over
    moves[:, targets.partial] = np.maximum(0.0, full)


def _partial(
    problem: Problem, seconds: FloatArray, size: IntArray, during: FloatArray
) -> FloatArray:
    """P(next batch is of a size below B, nobody left); ``during`` is P(J = size)."""
    rate, wait_s = problem.rate_per_s, problem.wait_s
    window = poisson.at(rate * wait_s, size - 1)
    fresh = window - poisson.at(rate * wait_s, size)
    if problem.scv == 0:
        late = np.exp(-rate * np.maximum(seconds - wait_s, 0.0))[:, None]
        return np.asarray(np.where(seconds[:, None] <= wait_s, window, during + late * fresh))
    shape = 1 / problem.scv
    beyond = counts.gamma_tail(shape, wait_s * shape / seconds)[:, None]
    x = wait_s * (rate + shape / seconds)
    base = counts.gamma_tail(shape, x)
    with np.errstate(divide="ignore"):
        logs = rate * wait_s - shape * np.log1p(rate * seconds / shape) + np.log(base)
    late = np.exp(np.minimum(logs, 0.0))[:, None]
    raised = raised_tails(shape, x, base, problem.batch)[:, size]
    return np.asarray((1 - beyond) * window + during * raised + late * fresh)


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


def leftovers(problem: Problem, moves: FloatArray, behind: IntArray, oldest: Oldest) -> FloatArray:
    """Moves after a full batch that leaves m < B, whose oldest's timer may outlast the service.

    Args:
        problem: the replica.
        moves: the same if no timer did, (len(behind), last + 1).
        behind: m, from 1 to below B.
        oldest: ages of the oldest left over.
    """
    batch = problem.batch
    ages_s, shares = oldest.young(problem, behind)
    gathered, tails = _waited(problem, problem.wait_s - ages_s)
    ended = 1 - shares.sum(axis=1, keepdims=True)
    partial = shares @ gathered + _during_full(problem, batch) * (shares @ tails + ended)
    more = np.arange(batch) - behind[:, None]
    law = np.take_along_axis(partial, np.maximum(more, 0), axis=1)
    corrected = moves.copy()
    corrected[:, :batch] = np.where(more >= 0, law, 0.0)
    # What no longer starts short of a full batch starts when it is full.
    gained = moves[:, :batch].sum(axis=1) - corrected[:, :batch].sum(axis=1)
    corrected[:, batch] = np.maximum(0.0, moves[:, batch] + gained)
    return corrected


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
