"""Where requests of a cycle are written down: (wait, size of the batch they are served in, mass).

Every entry is a uniform law on [start, start + width], or an atom of width 0. A uniform law's CDF
is two ramps, so a sum of millions of them is one histogram of ramp starts, summed up twice: exact
at the bin edges, with no sampling of positions inside an interval.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sojourn.model.domain import FloatArray
from sojourn.model.dynamic import counts
from sojourn.model.dynamic.problem import Problem

_BINS = 4096

# Sizes are gathered in at most so many groups before the service time is added (gamma law only).
_GROUPS = 48

# Entries lighter than this share of a request cannot be seen in any percentile.
_WEIGHTLESS = 1e-13


@dataclass
class Ledger:
    """Entries of one cycle, in seconds; arrays of one length each."""

    start_s: list[FloatArray] = field(default_factory=list)
    width_s: list[FloatArray] = field(default_factory=list)
    mass: list[FloatArray] = field(default_factory=list)
    size: list[FloatArray] = field(default_factory=list)
    rounds: list[FloatArray] = field(default_factory=list)

    def add(
        self,
        start_s: npt.ArrayLike,
        width_s: npt.ArrayLike,
        mass: npt.ArrayLike,
        size: npt.ArrayLike,
        rounds: npt.ArrayLike = 0.0,
    ) -> None:
        """Write entries down, broadcasting; ``rounds`` full batches run before their own."""
        shaped = np.broadcast_arrays(start_s, width_s, np.asarray(mass, float), size, rounds)
        keep = shaped[2].ravel() > _WEIGHTLESS
        lists = (self.start_s, self.width_s, self.mass, self.size, self.rounds)
        for kept, values in zip(lists, shaped, strict=True):
            kept.append(values.ravel()[keep].astype(float))


@dataclass(frozen=True, eq=False)
class Law:
    """Law of the response time: P(T <= edges), and the mass that made it."""

    edges_s: FloatArray
    cdf: FloatArray
    mass: float

    def quantile_s(self, level: float) -> float:
        """Seconds below which a share ``level`` lies; the last edge if that is beyond the grid."""
        at = int(np.searchsorted(self.cdf, level))
        if at == 0:
            return float(self.edges_s[0])
        if at >= self.cdf.size:
            return float(self.edges_s[-1])
        low, high = self.cdf[at - 1], self.cdf[at]
        share = (level - low) / (high - low)
        return float(self.edges_s[at - 1] + share * (self.edges_s[at] - self.edges_s[at - 1]))


def law(problem: Problem, ledger: Ledger, longest_s: float) -> Law:
    """The response time: wait, rounds of full batches, and the own batch's service."""
    start = np.concatenate(ledger.start_s)
    width = np.concatenate(ledger.width_s)
    mass = np.concatenate(ledger.mass)
    size = np.concatenate(ledger.size)
    rounds = np.concatenate(ledger.rounds)
    if problem.scv == 0:
        start = start + rounds * problem.full_s + problem.seconds(size)
        edges = np.linspace(0, float((start + width).max()) * 1.001, _BINS + 1)
        cdf = _ramps(start, width, mass, edges[1], _BINS + 1)
    else:
        edges = np.linspace(0, longest_s, _BINS // 2 + 1)
        cdf = _with_service(problem, (start, width, mass, size, rounds), edges)
    total = float(mass.sum())
    return Law(edges, np.clip(np.maximum.accumulate(cdf / total), 0.0, 1.0), total)


def _ramps(
    start: FloatArray, width: FloatArray, mass: FloatArray, step: float, size: int
) -> FloatArray:
    """Summed CDF of uniform laws at 0, step, 2 step, ...: shape (size,)."""
    # An atom is a uniform law one bin wide, centred: a jump cannot be drawn more sharply.
    wide = np.maximum(width, step)
    first = np.maximum(start - (wide - width) / 2, 0.0) / step
    slope = mass / wide
    knots = np.concatenate((first, first + wide / step))
    weights = np.concatenate((slope, -slope))
    whole = np.minimum(knots.astype(np.int64), size)
    part = np.where(whole < size, knots - whole, 0.0)
    bends = np.bincount(whole, weights * (1 - part), size + 2)
    bends += np.bincount(whole + 1, weights * part, size + 2)
    return np.concatenate(([0.0], np.cumsum(np.cumsum(bends[: size - 1])))) * step


Entries = tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]


def _with_service(problem: Problem, entries: Entries, edges: FloatArray) -> FloatArray:
    """CDF at the edges when service times vary: waits by group, convolved with gamma services."""
    start, width, mass, size, rounds = entries
    later = rounds > 0
    length = 2 * (edges.size - 1)
    spectrum = np.zeros(length // 2 + 1, dtype=complex)
    representatives = np.unique(np.round(np.linspace(1, problem.batch, _GROUPS)))
    for group, share in _grouped(size[~later], mass[~later], representatives):
        chosen = share > 0
        waits = _points(start[~later][chosen], width[~later][chosen], share[chosen], edges)
        service = _service_mass(problem, representatives[group], edges)
        spectrum += np.fft.rfft(waits, length) * np.fft.rfft(service, length)
    full = np.fft.rfft(_service_mass(problem, float(problem.batch), edges), length)
    for turn in np.unique(rounds[later]):
        chosen = rounds == turn
        waits = _points(start[chosen], width[chosen], mass[chosen], edges)
        spectrum += np.fft.rfft(waits, length) * full ** (turn + 1)
    points = np.fft.irfft(spectrum, length)[: edges.size]
    # Half of what ends at an edge is below it.
    return np.asarray(np.cumsum(points) - points / 2)


def _points(
    start: FloatArray, width: FloatArray, mass: FloatArray, edges: FloatArray
) -> FloatArray:
    """Entries as mass at the edges, means kept: (len(edges),)."""
    atom = width == 0
    spread = ~atom
    points = np.zeros(edges.size)
    if spread.any():
        below = _ramps(start[spread], width[spread], mass[spread], edges[1], edges.size)
        points += _at_edges(np.diff(below))
    if atom.any():
        knots = start[atom] / edges[1]
        whole = np.minimum(knots.astype(np.int64), edges.size - 2)
        part = np.clip(knots - whole, 0.0, 1.0)
        points += np.bincount(whole, mass[atom] * (1 - part), edges.size)
        points += np.bincount(whole + 1, mass[atom] * part, edges.size)
    return points


def _at_edges(cell_mass: FloatArray) -> FloatArray:
    """Mass of cells carried to their two edges, half each, which keeps the mean: (n + 1,)."""
    padded = np.concatenate(([0.0], cell_mass, [0.0]))
    return np.asarray((padded[1:] + padded[:-1]) / 2)


def _grouped(
    size: FloatArray, mass: FloatArray, representatives: FloatArray
) -> list[tuple[int, FloatArray]]:
    """Mass of every entry carried to the two nearest representatives, group by group."""
    if representatives.size == 1:
        return [(0, mass)]
    right = np.clip(np.searchsorted(representatives, size), 1, representatives.size - 1)
    left = right - 1
    part = (size - representatives[left]) / (representatives[right] - representatives[left])
    shares = []
    for group in range(representatives.size):
        share = np.where(left == group, mass * (1 - part), 0.0)
        share = share + np.where(right == group, mass * part, 0.0)
        if share.any():
            shares.append((group, share))
    return shares


def _service_mass(problem: Problem, size: float, edges: FloatArray) -> FloatArray:
    mean_s = problem.seconds(np.array([size]))
    return _at_edges(np.diff(counts.service_cdf(edges, mean_s, problem.scv)[0]))
