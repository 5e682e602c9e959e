"""Waits of a batch whose first requests found the queue next to full (``oldest.LastRound``).

Each of the c requests there when the batch before starts waits its age and then what the batch
waits; who joins later waits part of that. Ages and joining times are drawn uniform with the right
mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sojourn.model import poisson
from sojourn.model.domain import FloatArray
from sojourn.model.dynamic import cells
from sojourn.model.dynamic.ledger import Ledger
from sojourn.model.dynamic.oldest import LastRound
from sojourn.model.dynamic.problem import Problem

# Groups of the time that q full batches take, before a batch is full for certain and after.
_NEAR, _FAR = 48, 128
_WINDOW_CELLS = 24


@dataclass(frozen=True, eq=False)
class _There:
    """The c requests that are there at the start, for one group of ages of the oldest.

    Attributes:
        problem: the replica.
        law: P(c), c = 1..r, per cycle, (r,).
        age_s: age of the oldest.
        spread_s: width of the group of ages.
    """

    problem: Problem
    law: FloatArray
    age_s: float
    spread_s: float

    @cached_property
    def counted(self) -> FloatArray:
        """Per cycle by c: the oldest, the others while there is room, the others at r: (3, r)."""
        others = self.law * np.arange(self.law.size)
        full = np.arange(self.law.size) == self.law.size - 1
        return np.stack((self.law, others * ~full, others * full))

    @cached_property
    def first_s(self) -> float:
        """Twice the mean arrival after the oldest of the r - 1 that were first to find a place."""
        k, mean = self.law.size - 1, self.problem.rate_per_s * self.age_s
        if k == 0:
            return self.age_s
        share = poisson.tail(mean, k + 1) / max(poisson.tail(mean, k), 1e-300)
        return min(self.age_s, (k + 1) / self.problem.rate_per_s * share)

    def wait(
        self,
        ledger: Ledger,
        more: tuple[FloatArray, FloatArray],
        law: FloatArray,
        size: npt.ArrayLike,
    ) -> None:
        """They wait ``more`` (start, width) beyond their age: ``law`` is (3, more, size)."""
        start, width = (one[:, None] for one in more)
        parts = ((self.age_s, self.spread_s), (self.age_s / 2, self.age_s))
        last = (self.age_s - self.first_s / 2, self.first_s)
        for (mean_s, spread_s), mass in zip((*parts, last), law, strict=True):
            wide = np.hypot(width, spread_s)
            middle = start + width / 2 + mean_s
            ledger.add(np.maximum(middle - wide / 2, 0.0), wide, mass, size)


def collect(problem: Problem, last: LastRound, ledger: Ledger) -> None:
    """Write down everybody of such batches."""
    low, high, mass = _times(problem, last)
    middle = (low + high) / 2
    arrivals = poisson.pmf(problem.rate_per_s * middle, problem.batch)
    below = np.concatenate((np.zeros((mass.size, 1)), np.cumsum(arrivals, axis=1)), axis=1)
    enough = np.maximum(1 - below, 0.0) * mass[:, None]  # P(N >= n), n = 0..B
    for age_s, spread_s, law in zip(last.ages_s, last.spread_s, last.mass, strict=True):
        there = _There(problem, law, float(age_s), float(spread_s))
        timer_s = max(0.0, problem.wait_s - there.age_s) if problem.waits else 0.0
        late = mass * np.clip((high - timer_s) / (high - low), 0.0, 1.0)
        near = late > 0
        if near.any():
            start = np.maximum(low, timer_s)[near]
            came = arrivals[near] * late[near, None]
            _partial(there, (start, high[near] - start), came, ledger)
        _full(there, (low, high - low), enough, ledger)
        if timer_s > 0:
            _window(there, last, timer_s, ledger)


def _times(problem: Problem, last: LastRound) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Groups of the time that q full batches take: start, end and mass, (n,) each."""
    end_s = float(last.edges_s[-1])
    certain_s = min(problem.certain_s, end_s)
    near = last.edges_s * (_NEAR / certain_s)
    far = _NEAR + (last.edges_s - certain_s) * (_FAR / max(end_s - certain_s, certain_s))
    kept = last.later > 1e-12
    group = np.where(last.edges_s < certain_s, near, far).astype(int)[kept]
    _, index = np.unique(group, return_inverse=True)
    seconds, weight = last.edges_s[kept], last.later[kept]
    mass = np.bincount(index, weight).astype(float)
    mean_s = np.bincount(index, weight * seconds) / mass
    square = np.bincount(index, weight * (seconds - mean_s[index]) ** 2) / mass
    half_s = np.minimum(np.sqrt(3 * square) + 1e-9 * end_s, mean_s)
    return mean_s - half_s, mean_s + half_s, mass


def _partial(
    there: _There, more: tuple[FloatArray, FloatArray], came: FloatArray, ledger: Ledger
) -> None:
    """The batch starts with less than B after ``more``, in which so many came: (more, B)."""
    size = np.arange(1, there.problem.batch)
    there.wait(ledger, more, _joined(there.counted, came), size)
    joined = _joined(there.law[None], came * np.arange(came.shape[1]))[0]
    ledger.add(0.0, (more[0] + more[1] / 2)[:, None], joined, size)


def _joined(there: FloatArray, came: FloatArray) -> FloatArray:
    """Mass of batches of 1..B - 1: (rows of there, rows of came, B - 1)."""
    batch = came.shape[1]
    length = cells.transform_size(batch)
    one, two = np.fft.rfft(there, length, axis=1), np.fft.rfft(came, length, axis=1)
    sizes = np.fft.irfft(one[:, None] * two, length, axis=2)[:, :, : batch - 1]
    return np.maximum(sizes, 0.0)


def _full(
    there: _There, more: tuple[FloatArray, FloatArray], enough: FloatArray, ledger: Ledger
) -> None:
    """The batch is full after ``more``, in which ``enough`` came: (more, B + 1).

    Of who came in it the first B - c are in the batch.
    """
    problem = there.problem
    missing = problem.batch - np.arange(1, there.law.size + 1)
    full = np.array([problem.batch])
    there.wait(ledger, more, (there.counted @ enough[:, missing].T)[..., None], full)
    joined = enough[:, missing] @ (there.law * missing)
    # The last of them came at a sum of gaps, the others uniformly before it.
    sums = enough[:, missing + 1] @ (there.law * missing * (missing + 1)) / (2 * problem.rate_per_s)
    middle = more[0] + more[1] / 2
    came_s = np.minimum(sums / np.maximum(joined, 1e-300), middle)
    half = np.minimum(came_s, middle - came_s)
    ledger.add(middle - came_s - half, 2 * half, joined, problem.batch)


def _window(there: _There, last: LastRound, timer_s: float, ledger: Ledger) -> None:
    """The server is free before the oldest's window ends."""
    problem, batch = there.problem, there.problem.batch
    end_s = min(timer_s, problem.certain_s)
    times = np.linspace(0, end_s, _WINDOW_CELLS + 1)
    middle = (times[1:] + times[:-1]) / 2
    arrivals = poisson.pmf(problem.rate_per_s * times, batch)
    missing = batch - np.arange(1, there.law.size + 1)
    short = np.cumsum(arrivals, axis=1)[:, missing - 1]
    filled = np.maximum(-np.diff(short, axis=0), 0.0) * last.free_by(middle)[:, None]
    law = (there.counted @ filled.T)[..., None]
    there.wait(ledger, (times[:-1], np.diff(times)), law, np.array([batch]))
    ledger.add(0.0, 0.0, float((filled @ there.law).sum()), batch)
    ledger.add(0.0, middle, filled @ (there.law * (missing - 1)), batch)
    if timer_s <= problem.certain_s:
        came = last.free_by(np.array([timer_s])) * arrivals[-1:]
        _partial(there, (np.array([timer_s]), np.zeros(1)), came, ledger)
