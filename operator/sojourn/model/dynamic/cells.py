"""Cells of residual service time, and who arrives in them at which place of the queue."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sojourn.model import poisson
from sojourn.model.domain import FloatArray
from sojourn.model.dynamic import counts
from sojourn.model.dynamic.chain import Chain
from sojourn.model.dynamic.first_order import residual_cdf
from sojourn.model.dynamic.problem import Problem

_CELLS = 64
_CELLS_VARIABLE = 160
_CELLS_WILD = 400  # CV^2 above 1: much mass near 0 and a long tail
_LONGEST = 1e-8


@dataclass(frozen=True, eq=False)
class Cells:
    """Residual service w of the batch in service, in equal cells; and the stationary law.

    Attributes:
        problem: the replica.
        chain: law at dispatch.
        edges_s: cell edges from 0, (n + 1,).
        free: F at the edges, (n + 1,): measure of first arrivals that find at most that residual.
    """

    problem: Problem
    chain: Chain
    edges_s: FloatArray
    free: FloatArray

    @property
    def width_s(self) -> float:
        """Width of a cell."""
        return float(self.edges_s[1])

    @cached_property
    def middle_s(self) -> FloatArray:
        """Middles of the cells, (n,)."""
        return (self.edges_s[:-1] + self.edges_s[1:]) / 2

    @cached_property
    def first(self) -> FloatArray:
        """Mass per cycle of first arrivals that find a residual in each cell, (n,)."""
        return np.maximum(np.diff(self.free), 0.0)

    @cached_property
    def reach(self) -> int:
        """Counts of arrivals in the longest service worth keeping."""
        mean = self.problem.rate_per_s * float(self.edges_s[-1])
        return int(mean + 9 * np.sqrt(mean) + 24)

    @property
    def places_known(self) -> float:
        """Places up to which later_places is exact; from there rounds shrink by decay^B."""
        bend = self.chain.geometric_from - self.problem.batch + self.reach
        return bend + 2 * self.problem.batch

    @cached_property
    def behind_mass(self) -> FloatArray:
        """P(m stay behind), m = 0.. as whole numbers, m = 0 without mass.

        Cut where places behind are geometric for certain; ``places_known`` says up to which.
        """
        kept = self.chain.present <= self.problem.batch + self.places_known
        left = self.chain.behind(self.problem.batch)[kept].astype(int)
        mass = self.chain.mass[kept]
        size = int(left.max(initial=0)) + 1
        return np.bincount(left[left > 0], mass[left > 0], size).astype(float)

    def alone_places(self) -> FloatArray:
        """Arrivals per cycle by (cell of residual w, place p), after a batch that left nobody.

        Only those after the first arrival, which is at place 1. With the first at residual x, place
        p arrives at w when p - 2 came in between: lambda Pois(p - 2; lambda (x - w)). Shape
        (n, reach + 2), p = 0 and 1 empty.
        """
        return self._placed(self.first, 2)

    def later_places(self) -> FloatArray:
        """The same after a full batch that left m >= 1 behind: place m + 1 + arrivals so far.

        Shape (n, reach + behind + 1).
        """
        if self.problem.scv == 0:
            passed = self.problem.rate_per_s * (self.problem.full_s - self.middle_s)
            arrivals = poisson.pmf(np.maximum(passed, 0.0), self.reach)
            base = self.problem.rate_per_s * self.width_s * arrivals * (passed > 0)[:, None]
        else:
            mean_s = np.array([self.problem.full_s])
            law = np.diff(counts.service_cdf(self.edges_s, mean_s, self.problem.scv)[0])
            base = self._placed(law, 0)
        length = base.shape[1] + self.behind_mass.size
        moved = np.fft.rfft(base, length, axis=1) * np.fft.rfft(self.behind_mass, length)
        places = np.maximum(np.fft.irfft(moved, length, axis=1), 0.0)
        return np.concatenate((np.zeros((base.shape[0], 1)), places), axis=1)

    def _placed(self, law: FloatArray, offset: int) -> FloatArray:
        """Arrivals by (cell, offset + count) when the service, or its rest, has mass ``law``."""
        size = law.size
        # A pair of cells i <= i + d is d widths apart; within one cell a third, and half as often.
        apart_s = self.width_s * np.concatenate(([1 / 3], np.arange(1.0, size)))
        arrivals = poisson.pmf(self.problem.rate_per_s * apart_s, self.reach)
        arrivals[0] /= 2
        index = np.arange(size)[:, None] + np.arange(size)
        pairs = np.where(index < size, law[np.minimum(index, size - 1)], 0.0)
        placed = self.problem.rate_per_s * self.width_s * (pairs @ arrivals)
        return np.concatenate((np.zeros((size, offset)), placed), axis=1)


def cells(problem: Problem, chain: Chain) -> Cells:
    """Cells over every residual service time that occurs."""
    sizes = chain.taken(problem.batch)
    longest_s = _longest_service_s(problem, sizes, chain.mass)
    many = _CELLS if problem.scv == 0 else _CELLS_VARIABLE if problem.scv <= 1 else _CELLS_WILD
    edges = np.linspace(0, longest_s, many + 1)
    return Cells(problem, chain, edges, residual_cdf(problem, chain, edges))


def _longest_service_s(problem: Problem, sizes: FloatArray, mass: FloatArray) -> float:
    """Service time that is exceeded once in 10^8 cycles; s_B if a full batch leaves anybody."""
    seconds = problem.seconds(sizes)
    if problem.scv == 0:
        seen = np.cumsum(mass[::-1])[::-1] > _LONGEST
        return float(seconds[seen].max())
    points, values = counts.unit_cdf(problem.scv)
    trial_s = np.linspace(0, float(seconds.max() * points[-1]), 1000)
    above = np.zeros(trial_s.size)
    means_s, which = np.unique(seconds, return_inverse=True)
    weights = np.bincount(which, mass)
    heavy = weights > _LONGEST
    for mean_s, weight in zip(means_s[heavy], weights[heavy], strict=True):
        above += weight * (1 - np.interp(trial_s / mean_s, points, values))
    return float(trial_s[np.flatnonzero(above > _LONGEST)[-1]])
