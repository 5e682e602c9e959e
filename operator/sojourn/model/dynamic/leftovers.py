"""Requests at a place p > B: they see q = (p - 1) div B full batches before their own."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from sojourn.model import poisson
from sojourn.model.domain import FloatArray
from sojourn.model.dynamic.cells import Cells
from sojourn.model.dynamic.ledger import Ledger
from sojourn.model.dynamic.problem import Problem

# A batch is full for certain when fewer than B - 1 arrivals in its waiting time are this rare.
_CERTAIN = 1e-6

# Mass of a round that cannot be seen in any percentile.
_NEGLIGIBLE = 1e-10

# Nodes of the sum of q gamma services: the waits before a partial batch.
_NODES = 6


def collect(grid: Cells, alone: FloatArray, later: FloatArray, ledger: Ledger) -> None:
    """Write down everybody left over, from both kinds of cycle, once, at arrival."""
    problem = grid.problem
    places = np.zeros((alone.shape[0], max(alone.shape[1], later.shape[1])))
    places[:, : alone.shape[1]] += alone
    if grid.behind_mass.size > 1:
        places[:, : later.shape[1]] += later
    if problem.places is not None:
        places[:, problem.places + 1 :] = 0.0  # lost, not served
    behind = places[:, problem.batch + 1 :]
    heavy = np.flatnonzero(behind.sum(axis=0) > 1e-15)
    if heavy.size == 0:
        return
    rounds = -(-(int(heavy[-1]) + 1) // problem.batch)
    if grid.places_known < np.inf:
        # Whole rounds within the known places; the last of them starts a geometric sequence.
        rounds = min(rounds, int(grid.places_known // problem.batch) - 1)
    padded = np.zeros((behind.shape[0], rounds * problem.batch))
    kept = min(behind.shape[1], padded.shape[1])
    padded[:, :kept] = behind[:, :kept]
    by_round = padded.reshape(behind.shape[0], rounds, problem.batch)
    unsure = _uncertain_rounds(grid, rounds)
    for q in range(1, unsure + 1):
        _own_batch(grid, by_round[:, q - 1], q, ledger)
    sure = by_round[:, unsure:].sum(axis=2)
    if grid.places_known < np.inf and sure.shape[1] and sure[:, -1].sum() > _NEGLIGIBLE:
        ratio = problem.decay**problem.batch
        if problem.scv > 0:
            ledger.ratio = ratio
        else:
            sure = _continued(sure, ratio)
    turns = np.arange(unsure + 1, unsure + 1 + sure.shape[1])
    ledger.add(grid.edges_s[:-1, None], grid.width_s, sure, problem.batch, turns)


def _continued(sure: FloatArray, ratio: float) -> FloatArray:
    """Rounds (cell, q) followed by the geometric sequence that their last one starts."""
    last = sure[:, -1:]
    weight = float(last.sum())
    terms = min(100_000, math.ceil(math.log(_NEGLIGIBLE / weight) / math.log(ratio)))
    return np.concatenate((sure, last * ratio ** np.arange(1, terms + 1)), axis=1)


def _uncertain_rounds(grid: Cells, rounds: int) -> int:
    """Rounds after which the own batch may still start with less than B."""
    problem = grid.problem
    if problem.batch == 1:
        return 0
    for q in range(1, rounds + 1):
        waits, weights = _round_waits(grid, q)
        missing = poisson.pmf(problem.rate_per_s * waits, problem.batch - 1).sum(axis=1)
        if float(weights @ missing) < _CERTAIN:
            return q - 1
    return rounds


def _own_batch(grid: Cells, mass: FloatArray, q: int, ledger: Ledger) -> None:
    """Rank r of the own batch has mass (cell, r - 1); arrivals while it waits fill the rest."""
    problem = grid.problem
    batch, rate = problem.batch, problem.rate_per_s
    waits, weights = _round_waits(grid, q)
    certain = np.zeros(mass.shape[0])
    for wait_s, weight in zip(waits, weights, strict=True):
        expired, fresh = _split_by_timer(grid, mass, wait_s)
        sizes = _sizes(expired, rate * (grid.middle_s + wait_s), batch)
        start = grid.edges_s[:-1, None] + wait_s
        ledger.add(start, grid.width_s, weight * sizes, np.arange(1, batch))
        certain += weight * np.maximum(expired.sum(axis=1) - sizes.sum(axis=1), 0.0)
        for rank in np.flatnonzero(fresh.sum(axis=0) > 1e-14) + 1:
            own = weight * fresh[:, rank - 1]
            certain += _with_timer(grid, own, float(wait_s), int(rank), ledger)
    ledger.add(grid.edges_s[:-1], grid.width_s, certain, batch, q)


def _timer_s(problem: Problem, rank: npt.ArrayLike) -> FloatArray:
    """Wait of the request of rank r at which its batch's oldest has waited T.

    The oldest came on average (r - 1) / lambda before it.
    """
    if not problem.waits:
        return np.zeros(np.shape(rank))
    return np.maximum(0.0, problem.wait_s - (np.asarray(rank) - 1) / problem.rate_per_s)


def _split_by_timer(grid: Cells, mass: FloatArray, wait_s: float) -> tuple[FloatArray, FloatArray]:
    """Mass whose batch's timer has run out when the server gets free, and mass whose has not."""
    limits = _timer_s(grid.problem, np.arange(1, mass.shape[1] + 1))
    over = (grid.middle_s + wait_s)[:, None] >= limits
    return np.where(over, mass, 0.0), np.where(over, 0.0, mass)


def _with_timer(
    grid: Cells, own: FloatArray, wait_s: float, rank: int, ledger: Ledger
) -> FloatArray:
    """A batch not full after ``wait_s`` goes on waiting till it fills or its oldest has waited T.

    Fill time tau is when the (B - rank)-th arrival after the request comes, whatever happened at
    the server. Returns what is full when the server gets free, by cell.
    """
    problem = grid.problem
    batch, rate, missing = problem.batch, problem.rate_per_s, problem.batch - rank
    limit_s = float(_timer_s(problem, rank))
    horizon_s = (missing + 9 * math.sqrt(missing) + 30) / rate
    inner = grid.edges_s + wait_s
    inner = inner[inner < limit_s]
    outer = np.linspace(inner[-1], min(limit_s, max(horizon_s, inner[-1])), 25)
    times = np.unique(np.concatenate((inner, outer)))
    unfilled = poisson.pmf(rate * times, missing).sum(axis=1)
    middle = (times[1:] + times[:-1]) / 2
    reached = np.cumsum(own)[np.minimum(np.arange(middle.size), own.size - 1)]
    # In the cell in which the server gets free, half of the fills come after it.
    reached[: own.size] -= own[: reached.size] / 2
    ledger.add(times[:-1], np.diff(times), np.maximum(-np.diff(unfilled), 0.0) * reached, batch)
    if limit_s < horizon_s:
        arrived = poisson.pmf(rate * limit_s, missing)
        # The oldest's lead is a sum of rank - 1 gaps: spread the end of its timer likewise.
        spread_s = min(2 * math.sqrt(3 * (rank - 1)) / rate, 2 * (problem.wait_s - limit_s))
        start_s = max(0.0, limit_s - spread_s / 2)
        ledger.add(start_s, spread_s, own.sum() * arrived, rank + np.arange(missing))
    before = np.interp(grid.middle_s + wait_s, times, unfilled)
    return np.asarray(own * (1 - before))


def _sizes(mass: FloatArray, means: FloatArray, batch: int) -> FloatArray:
    """Mass by (cell, size - 1) of batches that start with less than B: rank plus arrivals."""
    arrivals = poisson.pmf(means, batch)
    length = 2 * batch
    moved = np.fft.rfft(mass, length, axis=1) * np.fft.rfft(arrivals, length, axis=1)
    return np.maximum(np.fft.irfft(moved, length, axis=1)[:, : batch - 1], 0.0)


def _round_waits(grid: Cells, q: int) -> tuple[FloatArray, FloatArray]:
    """Time of q full batches: one value, or Gauss nodes of a gamma law."""
    problem = grid.problem
    if problem.scv == 0:
        return np.array([q * problem.full_s]), np.ones(1)
    nodes, weights = gamma_nodes(q / problem.scv, _NODES)
    return nodes * problem.full_s * problem.scv, weights


def gamma_nodes(shape: float, size: int) -> tuple[FloatArray, FloatArray]:
    """Gauss nodes and weights of a gamma law with that shape, scale 1, from its Jacobi matrix."""
    order = np.arange(size)
    off = np.sqrt(order[1:] * (order[1:] + shape - 1))
    jacobi = np.diag(2 * order + shape) + np.diag(off, 1) + np.diag(off, -1)
    nodes, vectors = np.linalg.eigh(jacobi)
    return nodes, vectors[0] ** 2
