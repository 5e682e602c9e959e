"""The chain embedded at dispatch instants: stationary law of the number present.

State n = requests present when a batch starts: min(n, B) are taken, m = n - B stay behind when a
full batch leaves some. Beyond the last state of the grid the law is geometric with a known ratio,
so the state space stays small at any load. Far from the ends of a long finite queue, and for
batches in the hundreds, states are taken in steps, their mass split so that moments are kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sojourn.model.domain import FloatArray
from sojourn.model.dynamic import transitions
from sojourn.model.dynamic.oldest import Oldest
from sojourn.model.dynamic.problem import Problem, lagrange, spread

IntArray = npt.NDArray[np.int64]

# Mass beyond which the geometric tail is not unrolled.
_TAIL_MASS = 1e-9

# Up to here every state is kept; beyond, steps grow with the spread of the arrivals.
_EVERY_STATE_UP_TO = 250


@dataclass(frozen=True, eq=False)
class Chain:
    """Stationary law at dispatch instants.

    Attributes:
        present: numbers present at dispatch, increasing, (n,); the geometric tail is unrolled.
        mass: their probabilities, (n,), adding up to 1.
        geometric_from: number present from which the law is geometric; inf if nowhere.
    """

    present: FloatArray
    mass: FloatArray
    geometric_from: float = math.inf

    def taken(self, batch: int) -> FloatArray:
        """Size of the batch that starts in each state, (n,)."""
        return np.minimum(self.present, batch)

    def behind(self, batch: int) -> FloatArray:
        """Requests left behind in each state, (n,)."""
        return np.maximum(self.present - batch, 0)


def stationary(problem: Problem, oldest: Oldest | None = None) -> Chain:
    """The stationary law; the queue must be stable or finite.

    Args:
        problem: the replica.
        oldest: ages of the oldest left over; without, its window is taken to have ended.
    """
    grid, open_end = _grid(problem)
    last = int(grid[-1])
    moves = transitions.matrix(problem, grid, oldest, folded=not open_end)
    step = float(grid[-1] - grid[-2]) if grid.size > 1 else 1.0
    ratio = problem.decay**step if open_end else 0.0
    if open_end:
        moves[-1] = transitions.tail_row(problem, last, step, ratio)
    moves = moves @ _projection(problem, grid, last) if grid.size < last else moves[:, 1:]
    mass = _solve(moves, ratio)
    if not open_end:
        return Chain(grid.astype(float), mass)
    return _unrolled(grid, mass, step, ratio)


def _solve(moves: FloatArray, ratio: float) -> FloatArray:
    """The law pi = pi P, with the last state standing for a tail 1, ratio, ratio^2, ..."""
    size = moves.shape[0]
    if size == 1:
        return np.ones(1)
    system = moves.T - np.eye(size)
    weights = np.ones(size)
    weights[-1] = 1 / (1 - ratio)
    # The balance of the last state follows from the others; normalisation takes its place.
    system[-1] = weights
    right = np.zeros(size)
    right[-1] = 1.0
    mass = np.maximum(np.linalg.solve(system, right), 0.0)
    return np.asarray(mass / (mass @ weights))


def _unrolled(grid: IntArray, mass: FloatArray, step: float, ratio: float) -> Chain:
    if mass[-1] <= 0 or ratio <= 0:
        return Chain(grid.astype(float), mass / mass.sum())
    terms = math.log(_TAIL_MASS * (1 - ratio) / mass[-1]) / math.log(ratio)
    tail = np.arange(1, max(1, min(200_000, math.ceil(terms))) + 1)
    present = np.concatenate((grid, grid[-1] + step * tail)).astype(float)
    weights = np.concatenate((mass, mass[-1] * ratio**tail))
    return Chain(present, weights / weights.sum(), float(grid[-1]))


def _grid(problem: Problem) -> tuple[IntArray, bool]:
    """States kept, and whether a geometric tail follows the last."""
    usual, deviation = problem.usual_batch
    served = problem.rate_per_s * problem.full_s
    reach = usual + 9 * deviation + 20 * problem.scv * usual + 12
    if reach < problem.batch:
        return _stepped(math.ceil(reach)), False
    # With a gamma time the subdominant roots die sooner than with a fixed one.
    deviations = 10 if problem.scv == 0 else 6
    behind = math.ceil(30 + deviations * spread(served, problem.scv))
    if problem.places is not None:
        room = problem.places - problem.batch
        unfelt = problem.load < 1 and room * -math.log(problem.decay) > 27
        if room <= behind or not unfelt:
            inner = _between(room, math.sqrt(1 + 0.018 * spread(served, problem.scv) ** 2))
            below = _stepped(problem.batch)
            return np.concatenate((below, problem.batch + inner)), False
    coarse = math.floor(math.sqrt(1 + 0.018 * spread(served, problem.scv) ** 2))
    step = 1 if behind <= _EVERY_STATE_UP_TO else coarse
    points = [1]
    while points[-1] < behind or points[-1] - points[-2] < step:
        # Close to B, where windows still run, the law is steeper.
        points.append(points[-1] + min(step, 1 + points[-1] // 4))
    return np.concatenate((_stepped(problem.batch), problem.batch + np.array(points))), True


def _stepped(last: int) -> IntArray:
    """1..last, in steps that grow with the spread of a batch of that size."""
    if last <= _EVERY_STATE_UP_TO:
        return np.arange(1, last + 1)
    points = [1]
    while points[-1] < last:
        points.append(points[-1] + max(1, math.floor(math.sqrt(1 + 0.018 * points[-1]))))
    points[-1] = last
    return np.array(sorted(set(points)))


def _between(room: int, step: float) -> IntArray:
    """1..room, fine at both ends where the law bends."""
    if room <= _EVERY_STATE_UP_TO:
        return np.arange(1, room + 1)
    points = [1]
    while points[-1] < room:
        edge = min(points[-1], room - points[-1])
        near = min(math.floor(step), 1 + edge // 4)
        points.append(points[-1] + max(near, edge // 40))
    points[-1] = room
    return np.array(sorted(set(points)))


def _projection(problem: Problem, grid: IntArray, last: int) -> FloatArray:
    """(last + 1, n): every whole number's mass carried to the grid, up to B and beyond it apart."""
    whole = np.arange(last + 1)
    weights = np.zeros((last + 1, grid.size))
    kink = min(problem.batch, last)
    below, above = grid <= kink, grid > kink
    under = (whole >= 1) & (whole <= kink)
    points, numbers = grid.astype(float), whole.astype(float)
    weights[np.ix_(under, below)] = lagrange(points[below], numbers[under])
    over = whole > kink
    if over.any():
        weights[np.ix_(over, above)] = lagrange(points[above], numbers[over])
    return weights
