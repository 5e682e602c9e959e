"""The oldest request of a batch: how long after its arrival the server gets free for it.

Let X be that time: 0 if the server was idle, a residual service if nobody was left over, a residual
and q full batches if the request came at place q B + 1. Whoever comes after it is a Poisson stream
that X knows nothing of, so the size of its batch, its start and everybody's wait follow from the
law of X and the window, whatever T and the law of the service. Only where a queue has no room for
a whole batch behind the request can losses thin that stream before it matters: ``LastRound``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sojourn.model import poisson
from sojourn.model.domain import FloatArray
from sojourn.model.dynamic.problem import Problem
from sojourn.model.poisson import IntArray

# Ages that are told apart below T, and as many past it.
_AGES = 192


@dataclass(frozen=True, eq=False)
class LastRound:
    """Oldest requests at place q B + 1 of a queue with K < (q + 1) B places.

    Only r = K - q B of their batch find a place before the next batch starts; after it there is
    room again. Seen from that start: c of the batch are there, the oldest of a known age, and the
    server gets free for them q full batches later.

    Attributes:
        ages_s: mean age of each group at that start, (i,).
        spread_s: width of each group as if ages were uniform in it, (i,).
        mass: per cycle, by (group, c - 1), (i, r).
        edges_s: equally spaced times from 0, (n + 1,).
        later: P(q full batches take so long), at the edges, adding up to 1, (n + 1,).
    """

    ages_s: FloatArray
    spread_s: FloatArray
    mass: FloatArray
    edges_s: FloatArray
    later: FloatArray

    def free_by(self, seconds: FloatArray) -> FloatArray:
        """P(q full batches take at most so long), same shape."""
        return np.interp(seconds, self.edges_s, self._below)

    @cached_property
    def _below(self) -> FloatArray:
        return np.cumsum(self.later)


@dataclass(frozen=True, eq=False)
class Oldest:
    """Law of X, and of the age at dispatch of the oldest left over: per cycle, in equal cells.

    Attributes:
        edges_s: cell edges from 0, (n + 1,).
        met: P(X <= edge, nobody left over), (n + 1,); at 0 the share that found the server idle.
        left: P(X in cell, left over), (n,).
        ages: P(age in cell, somebody left over), (n,).
        bends: times between edges, and ``met`` at them, where that is far from straight.
        last: those that came when the queue had no room for a whole batch any more, if any; they
            are not in ``left``.
    """

    edges_s: FloatArray
    met: FloatArray
    left: FloatArray
    ages: FloatArray
    bends: tuple[FloatArray, FloatArray]
    last: LastRound | None = None

    @property
    def width_s(self) -> float:
        """Width of a cell."""
        return float(self.edges_s[1])

    @cached_property
    def middle_s(self) -> FloatArray:
        """Middles of the cells, (n,)."""
        return (self.edges_s[:-1] + self.edges_s[1:]) / 2

    @cached_property
    def mass(self) -> FloatArray:
        """P(X in cell), (n,), without those that found the server idle."""
        return np.maximum(np.diff(self.met), 0.0) + self.left

    @cached_property
    def _left_below(self) -> FloatArray:
        return np.concatenate(([0.0], np.cumsum(self.left)))

    def left_by(self, seconds: FloatArray) -> FloatArray:
        """P(X <= seconds, left over), same shape."""
        return np.interp(seconds, self.edges_s, self._left_below)

    def free_by(self, seconds: FloatArray) -> FloatArray:
        """P(X <= seconds), same shape."""
        return np.interp(seconds, *self._met_by) + self.left_by(seconds)

    @cached_property
    def _met_by(self) -> tuple[FloatArray, FloatArray]:
        """Edges and bends in their order, and ``met`` at them."""
        times, first = np.unique(np.concatenate((self.edges_s, self.bends[0])), return_index=True)
        return times, np.concatenate((self.met, self.bends[1]))[first]

    def young(self, problem: Problem, behind: IntArray) -> tuple[FloatArray, FloatArray]:
        """Ages below T, (n,), and their shares given that so many stay behind, (len(behind), n).

        The others came in the oldest's age: with an age a there are m with Pois(m - 1; lambda a).
        """
        others = behind - 1
        end_s = float(self.edges_s[-1])
        past_s = min(problem.wait_s, end_s)
        ages_s, mass = self._aged(0.0, past_s)
        law = mass * self._seen(problem, ages_s, others)
        older_s, older = self._aged(past_s, max(past_s, min(end_s, problem.certain_s)))
        total = law.sum(axis=1) + self._seen(problem, older_s, others) @ older
        return ages_s, law / np.where(total > 0, total, 1.0)[:, None]

    def _aged(self, start_s: float, end_s: float) -> tuple[FloatArray, FloatArray]:
        """Ages between two, and the mass that each stands for."""
        times = np.linspace(start_s, end_s, _AGES + 1)
        below = np.interp(times, self.edges_s, self._ages_below)
        return (times[1:] + times[:-1]) / 2, np.diff(below)

    @cached_property
    def _ages_below(self) -> FloatArray:
        return np.concatenate(([0.0], np.cumsum(self.ages)))

    @staticmethod
    def _seen(problem: Problem, ages_s: FloatArray, others: IntArray) -> FloatArray:
        """P(so many came within an age and found a place), (len(others), len(ages_s))."""
        law = poisson.at(problem.rate_per_s * ages_s, others).T
        if problem.places is not None:
            # The largest number left over stands for all above: they found no place.
            room = problem.places - problem.batch - 1
            fewer = poisson.pmf(problem.rate_per_s * ages_s, max(room, 0)).sum(axis=1)
            law[others == room] = np.maximum(1 - fewer, 0.0)
        return np.asarray(law)
