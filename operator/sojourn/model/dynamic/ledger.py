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

    def add(
        self,
        start_s: npt.ArrayLike,
        width_s: npt.ArrayLike,
        mass: npt.ArrayLike,
        size: npt.ArrayLike,
    ) -> None:
        """Write entries down, broadcasting."""
        shaped = np.broadcast_arrays(start_s, width_s, np.asarray(mass, float), size)
        keep = shaped[2].ravel() > _WEIGHTLESS
        lists = (self.start_s, self.width_s, self.mass, self.size)
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
    """The response time: the wait and the own batch's service."""
    start = np.concatenate(ledger.start_s)
    width = np.concatenate(ledger.width_s)
    mass = np.concatenate(ledger.mass)
    size = np.concatenate(ledger.size)
    if problem.scv == 0:
        start = start + problem.seconds(size)
        edges = np.linspace(0, float((start + width).max()) * 1.001, _BINS + 1)
        cdf = _ramps(start, width, mass, edges[1], _BINS + 1)
    else:
        edges = np.linspace(0, longest_s, _BINS // 2 + 1)
        cdf = _with_service(problem, (start, width, mass, size), edges)
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


Entries = tuple[FloatArray, FloatArray, FloatArray, FloatArray]


def _with_service(problem: Problem, entries: Entries, edges: FloatArray) -> FloatArray:
    """CDF at the edges when service times vary: waits by group, convolved with gamma services."""
    start, width, mass, size = entries
    length = 2 * (edges.size - 1)
    sizes = np.unique(np.round(np.linspace(1, problem.batch, _GROUPS)))
    left, part = _nearest(size, sizes)
    groups = np.concatenate((left, np.minimum(left + 1, sizes.size - 1)))
    waits = _points(
        np.tile(start, 2),
        np.tile(width, 2),
        np.concatenate((mass * (1 - part), mass * part)),
        (groups, sizes.size),
        edges,
    )
    services = _service_mass(problem, sizes, edges)
    spectrum = (np.fft.rfft(waits, length) * np.fft.rfft(services, length)).sum(axis=0)
    points = np.fft.irfft(spectrum, length)[: edges.size]
    # Half of what ends at an edge is below it.
    return np.asarray(np.cumsum(points) - points / 2)


def _nearest(size: FloatArray, sizes: FloatArray) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """Index of the next smaller of ``sizes`` and the share that belongs to the next larger."""
    left = np.clip(np.searchsorted(sizes, size, side="right") - 1, 0, max(0, sizes.size - 2))
    right = np.minimum(left + 1, sizes.size - 1)
    gap = np.maximum(sizes[right] - sizes[left], 1e-9)
    return left, np.clip((size - sizes[left]) / gap, 0.0, 1.0)


def _points(
    start: FloatArray,
    width: FloatArray,
    mass: FloatArray,
    groups: tuple[npt.NDArray[np.int64], int],
    edges: FloatArray,
) -> FloatArray:
    """Entries as mass at the edges by group, means kept: (groups, len(edges))."""
    group, many = groups
    step, size = edges[1], edges.size
    atom = width < step / 4
    wide = np.where(atom, step, width)
    points = np.zeros((many, size + 2))
    slope = np.where(atom, 0.0, mass / wide)
    bends = _split((start / step, slope, group), points.shape)
    bends -= _split(((start + width) / step, slope, group), points.shape)
    below = np.cumsum(np.cumsum(bends, axis=1), axis=1)[:, :size] * step
    cells = np.diff(below, axis=1, prepend=0.0)  # cells[i] lies between edges i and i + 1
    points[:, :size] += cells / 2
    points[:, 1 : size + 1] += cells / 2
    points += _split((start[atom] / step, mass[atom], group[atom]), points.shape)
    return points[:, :size]


def _split(
    knots: tuple[FloatArray, FloatArray, npt.NDArray[np.int64]], shape: tuple[int, ...]
) -> FloatArray:
    """Weights at fractional places put on the two whole ones around, by group."""
    place, weight, group = knots
    last = shape[1] - 2
    whole = np.minimum(place.astype(np.int64), last)
    part = np.where(whole < last, place - whole, 0.0)
    index = group * shape[1] + whole
    total = shape[0] * shape[1]
    flat = np.bincount(index, weight * (1 - part), total)
    flat += np.bincount(index + 1, weight * part, total)
    return np.asarray(flat, dtype=float).reshape(shape)


def _service_mass(problem: Problem, sizes: FloatArray, edges: FloatArray) -> FloatArray:
    """Service time of batches of those sizes as mass at the edges: (len(sizes), len(edges))."""
    below = counts.service_cdf(edges, problem.seconds(sizes), problem.scv)
    cells = np.diff(below, axis=1)
    points = np.zeros(below.shape)
    points[:, :-1] += cells / 2
    points[:, 1:] += cells / 2
    return points
