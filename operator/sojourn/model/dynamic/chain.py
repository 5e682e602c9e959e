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

from sojourn.model import poisson
from sojourn.model.domain import FloatArray
from sojourn.model.dynamic import transitions
from sojourn.model.dynamic.oldest import Oldest
from sojourn.model.dynamic.problem import Problem, lagrange, spread, tail_power

IntArray = npt.NDArray[np.int64]

# Share of batches larger than any state kept, where not all are.
_REACHED = 1e-9

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


@dataclass(frozen=True, eq=False)
class Kernel:
    """Moves of the chain.

    Attributes:
        problem: the replica.
        grid: states, increasing, (n,).
        states: these, and those of the tail that numbers near the last are carried to.
        moves: P(next | state) if no timer of a left-over outlasts a service, (n, n).
        few: moves of the states B + 1 to 2 B - 1 to each whole number, which depend on ages.
        step: distance of the states of the geometric tail.
        ratio: of their masses; 0 if there is no tail.
    """

    problem: Problem
    grid: IntArray
    states: IntArray
    moves: FloatArray
    few: FloatArray
    step: int
    ratio: float

    def stationary(self, oldest: Oldest | None = None) -> Chain:
        """The stationary law.

        Args:
            oldest: ages of the oldest left over; without, its window is taken to have ended.
        """
        moves, batch = self.moves, self.problem.batch
        if oldest is not None and self.few.size:
            start = int(np.searchsorted(self.grid, batch, side="right"))
            behind = self.grid[start : start + self.few.shape[0]] - batch
            corrected = transitions.leftovers(self.problem, self.few, behind, oldest)
            moves = moves.copy()
            carried = _carried(corrected, self.states, batch)
            moves[start : start + behind.size] = carried[:, : self.grid.size]
        mass = _solve(moves, self.ratio)
        if self.ratio == 0:
            return Chain(self.grid.astype(float), mass)
        return _unrolled(self.grid, mass, self.step, self.ratio)


def kernel(problem: Problem) -> Kernel:
    """The moves; the queue must be stable or finite."""
    grid, open_end = _grid(problem)
    batch, last = problem.batch, int(grid[-1])
    below, behind = grid[grid <= batch], grid[grid > batch] - batch
    step = int(grid[-1] - grid[-2]) if open_end else 1
    # States of the tail that share their neighbours' mass with the last ones kept.
    states = np.append(grid, last + step * np.arange(1, 4 if step > 1 else 1))
    targets = _targets(states, batch)
    alone = transitions.alone(problem, below, targets)
    later = transitions.later(problem, behind, int(states[-1]))
    ratio = 0.0
    if open_end:
        ratio = problem.decay**step
        later[-1] = transitions.tail_row(problem, last, int(states[-1]), (step, ratio))
    else:
        # A finite queue loses what would be beyond its last place.
        for rows in (alone, later):
            rows[:, -1] += np.maximum(0.0, 1 - rows.sum(axis=1))
    moves = np.concatenate((_on_grid(alone, targets, states), _carried(later, states, batch)))
    few = later[behind < batch] if not problem.leftovers_expire else later[:0]
    return Kernel(problem, grid, states, moves[:, : grid.size], few, step, ratio)


def _on_grid(moves: FloatArray, targets: transitions.Targets, grid: IntArray) -> FloatArray:
    """Mass of the targets carried to the states; those up to B are states."""
    split = targets.partial + 1
    above = grid[split - 1 :]
    if above.size == targets.at.size - split:
        return moves[:, 1:]
    beyond = lagrange(above.astype(float), targets.at[split:].astype(float))
    return np.concatenate((moves[:, 1:split], moves[:, split:] @ beyond), axis=1)


def _carried(moves: FloatArray, grid: IntArray, batch: int) -> FloatArray:
    """Mass of every whole number carried to the states, those up to B and those beyond apart."""
    last = int(grid[-1])
    if grid.size == last:
        return moves[:, 1:]
    split = min(batch, last)
    parts = []
    for states, low, high in (
        (grid[grid <= split], 1, split),
        (grid[grid > split], split + 1, last),
    ):
        if states.size == high - low + 1:
            parts.append(moves[:, low : high + 1])
        else:
            weights = lagrange(states.astype(float), np.arange(low, high + 1.0))
            parts.append(moves[:, low : high + 1] @ weights)
    return np.concatenate(parts, axis=1)


def _targets(grid: IntArray, batch: int) -> transitions.Targets:
    """The states up to B; beyond them steps no coarser than the spread of a Poisson count."""
    below, above = grid[grid <= batch], grid[grid > batch]
    parts, widths = [np.zeros(1, dtype=np.int64), below], [np.ones(1), _widths(below - 1)]
    if above.size:
        beyond = _stepped(int(grid[-1]) - batch)
        parts.append(batch + beyond)
        widths.append(_widths(beyond - 1))
    return transitions.Targets(np.concatenate(parts), np.concatenate(widths), below.size)


def _widths(points: IntArray) -> FloatArray:
    """How many numbers each point of a lattice from 0 stands for."""
    return poisson.on_lattice(np.ones(int(points[-1]) + 1), points)


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


def _unrolled(grid: IntArray, mass: FloatArray, step: int, ratio: float) -> Chain:
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
    slope = problem.rate_per_s * float(problem.seconds(usual + 1) - problem.seconds(usual))
    reach = max(reach, usual * _REACHED ** (-1 / tail_power(slope, problem.scv)))
    if reach < problem.batch:
        return _stepped(math.ceil(reach)), False
    # With a gamma time the subdominant roots die sooner than with a fixed one.
    scatter = spread(served, problem.scv)
    behind = math.ceil(30 + (10 if problem.scv == 0 else 6) * scatter)
    step = 1 if behind <= _EVERY_STATE_UP_TO else math.floor(math.sqrt(1 + 0.018 * scatter**2))
    if step > 1:
        # States in steps leave more of an error where the tail takes over: let little be there.
        behind = math.ceil(30 + 12 * scatter)
    if problem.places is not None:
        room = problem.places - problem.batch
        unfelt = problem.load < 1 and room * -math.log(problem.decay) > 27
        if room <= behind or not unfelt:
            inner = _between(room, math.sqrt(1 + 0.018 * scatter**2))
            below = _stepped(problem.batch)
            return np.concatenate((below, problem.batch + inner)), False
    points = [1]
    while points[-1] < behind or points[-1] - points[-2] < step:
        # Close to B, where windows still run, the law is steeper.
        points.append(points[-1] + min(step, 1 + points[-1] // 4))
    return np.concatenate((_stepped(problem.batch), problem.batch + np.array(points))), True


def _stepped(last: int) -> IntArray:
    """1..last, in steps that grow with the spread of a count and shrink again towards the end."""
    if last <= _EVERY_STATE_UP_TO:
        return np.arange(1, last + 1)
    points = [1]
    while points[-1] < last:
        step = math.floor(math.sqrt(1 + 0.018 * points[-1]))
        points.append(points[-1] + min(step, 1 + (last - points[-1] - 1) // 4))
    return np.array(points)


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
