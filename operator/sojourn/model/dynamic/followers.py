"""Waits of everybody in a batch, from the law of its oldest request.

With X the time after which the server is free for the oldest: a batch full by then starts at X; one
that is not starts at X if that is past the window, and else when it fills or the window ends.
"""

from __future__ import annotations

import math

import numpy as np

from sojourn.model import poisson
from sojourn.model.domain import FloatArray
from sojourn.model.dynamic import cells, last_round
from sojourn.model.dynamic.gathering import gathered
from sojourn.model.dynamic.ledger import Ledger
from sojourn.model.dynamic.oldest import Oldest
from sojourn.model.dynamic.problem import Problem

# Cells of X until a batch is full for certain: their width in standard deviations of the count that
# fills one at most, and so many at least, but for cells that are wider themselves.
_SHARE = 0.25
_CELLS, _CELLS_FIXED = 1024, 256


def collect(problem: Problem, oldest: Oldest, ledger: Ledger) -> None:
    """Write down everybody of one cycle's batch."""
    if problem.waits:
        gathered(problem, oldest.free_by, ledger)
    else:
        ledger.add(0.0, 0.0, oldest.met[0], 1.0)
    edges = _edges(problem, oldest) if problem.batch > 1 else oldest.edges_s
    mass = np.maximum(np.diff(oldest.free_by(edges)), 0.0)
    short = _partial(problem, edges, mass, ledger) if problem.batch > 1 else np.zeros(mass.size)
    full = mass * np.maximum(1 - short, 0.0)
    ledger.add(edges[:-1], np.diff(edges), full, problem.batch)
    if problem.batch > 1:
        _behind_full(problem, oldest, float(full.sum()), ledger)
    if oldest.last is not None:
        last_round.collect(problem, oldest.last, ledger)


def _edges(problem: Problem, oldest: Oldest) -> FloatArray:
    """Cells of X, finer where a batch may not be full, with an edge at the end of the window."""
    end_s = min(problem.certain_s, float(oldest.edges_s[-1]))
    cells = _CELLS_FIXED if problem.scv == 0 else _CELLS
    spread_s = math.sqrt(problem.batch - 1) / problem.rate_per_s
    many = math.ceil(max(end_s / (_SHARE * spread_s), min(cells, end_s / oldest.width_s)))
    window = [problem.wait_s] if problem.waits and problem.wait_s < end_s else []
    inside = problem.bends_s[problem.bends_s < end_s]
    beyond = oldest.edges_s[oldest.edges_s > end_s]
    return np.unique(np.concatenate((np.linspace(0, end_s, many + 1), window, inside, beyond)))


def _partial(problem: Problem, edges: FloatArray, mass: FloatArray, ledger: Ledger) -> FloatArray:
    """X is past the window and not B are there: the oldest waits X, the others U(0, X).

    Returns:
        P(not B are there at X), whatever the window, by cell.
    """
    k, rate = problem.batch - 1, problem.rate_per_s
    near = edges[:-1] < problem.certain_s
    many = int(near.sum())
    middle, width = (edges[1:] + edges[:-1])[:many] / 2, np.diff(edges)[:many]
    others = poisson.lattice(k - 1)
    at_edges = poisson.at(rate * edges[: many + 1], others)
    # Simpson's rule: the mean over the cell.
    law = (at_edges[:-1] + 4 * poisson.at(rate * middle, others) + at_edges[1:]) / 6
    law = law * poisson.on_lattice(np.ones(k), others)
    late = edges[:many] >= problem.wait_s
    found = mass[:many][late, None] * law[late]
    ledger.add(edges[:many][late, None], width[late, None], found, others + 1)
    ledger.add(0.0, middle[late, None], found * others, others + 1)
    return np.concatenate((law.sum(axis=1), np.zeros(mass.size - many)))


def _behind_full(problem: Problem, oldest: Oldest, batches: float, ledger: Ledger) -> None:
    """The k = B - 1 others of batches that are full after X.

    One that came u after the oldest is among them if fewer than k came before it and enough after
    it: P(N(u) < k) - P(N(x) < k - 1).
    """
    k, rate, mass, width_s = problem.batch - 1, problem.rate_per_s, oldest.mass, oldest.width_s
    room = _fewer(rate * (width_s * cells.distances(mass.size)), k)
    room[0] /= 2  # pairs within one cell
    short = mass * _fewer(rate * oldest.middle_s, k - 1)
    came = cells.correlated(mass, room) - np.cumsum(short[::-1])[::-1] + short / 2
    came = np.maximum(came, 0.0)
    share = k * batches / max(float(came.sum()), 1e-300)
    ledger.add(oldest.edges_s[:-1], width_s, share * came, problem.batch)


def _fewer(means: FloatArray, k: int) -> FloatArray:
    """P(N < k) for each mean, where it is not next to 0."""
    found = np.zeros(means.size)
    if k > 0:
        points = poisson.lattice(k - 1)
        near = means < k + 9 * math.sqrt(k) + 30
        stands_for = poisson.on_lattice(np.ones(k), points)
        found[near] = np.minimum(poisson.at(means[near], points) @ stands_for, 1.0)
    return found
