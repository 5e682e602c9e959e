"""Waits of every request of a cycle, case by case (docs/explanation/queueing.md)."""

from __future__ import annotations

import math

import numpy as np

from sojourn.model import poisson
from sojourn.model.domain import FloatArray
from sojourn.model.dynamic import leftovers, transitions
from sojourn.model.dynamic.cells import Cells, cells
from sojourn.model.dynamic.chain import Chain
from sojourn.model.dynamic.counts import service_cdf, unit_cdf
from sojourn.model.dynamic.first_order import residual_cdf
from sojourn.model.dynamic.ledger import Law, Ledger, law
from sojourn.model.dynamic.problem import Problem

_WINDOW_CELLS = 96


def response(problem: Problem, chain: Chain) -> Law:
    """Law of the response time of accepted requests; its mass should be E[B]."""
    grid = cells(problem, chain)
    ledger = Ledger()
    if problem.waits:
        _window(problem, chain, ledger)
    else:
        ledger.add(0.0, 0.0, grid.free[0], 1.0)
    _met_service(grid, ledger)
    alone, later = grid.alone_places(), grid.later_places()
    filled_at_end(grid, alone, ledger)
    if grid.behind_mass.size > 1:
        filled_at_end(grid, later, ledger)
        _joined_leftovers(grid, ledger)
    leftovers.collect(grid, alone, later, ledger)
    return law(problem, ledger, _longest_s(problem, chain))


def _window(problem: Problem, chain: Chain, ledger: Ledger) -> None:
    """The server was free before the window ended: it filled at t, or timed out with n others."""
    k, rate = problem.batch - 1, problem.rate_per_s
    horizon_s = (k + 9 * math.sqrt(k) + 30) / rate
    end_s = min(problem.wait_s, horizon_s)
    bends = [problem.full_s] if problem.full_s < end_s else []
    times = np.unique(np.concatenate((np.linspace(0, end_s, _WINDOW_CELLS + 1), bends)))
    middle = (times[1:] + times[:-1]) / 2
    free = _free(problem, chain, np.concatenate((middle, [end_s])))
    counted = poisson.pmf(rate * times, k)
    filled = free[:-1] * np.maximum(np.diff(1 - counted.sum(axis=1)), 0.0)
    ledger.add(times[:-1], np.diff(times), filled, problem.batch)
    ledger.add(0.0, 0.0, filled.sum(), problem.batch)
    ledger.add(0.0, middle, (k - 1) * filled, problem.batch)
    if problem.wait_s <= horizon_s:
        others = np.arange(k)
        timed_out = free[-1] * poisson.pmf(rate * problem.wait_s, k)
        ledger.add(problem.wait_s, 0.0, timed_out, others + 1)
        ledger.add(0.0, problem.wait_s, others * timed_out, others + 1)


def _free(problem: Problem, chain: Chain, seconds: FloatArray) -> FloatArray:
    if problem.scv == 0:
        return residual_cdf(problem, chain, seconds)
    points, _ = unit_cdf(problem.scv)
    fine = np.linspace(0, points[-1] * problem.full_s, 1500)
    return np.interp(seconds, fine, residual_cdf(problem, chain, fine))


def _met_service(grid: Cells, ledger: Ledger) -> None:
    """The first arrival met a residual x > T: with i < k others a partial batch starts at x.

    The first arrival of a batch that is full by then waits x too, whatever T.
    """
    problem = grid.problem
    k, rate = problem.batch - 1, problem.rate_per_s
    wait_s = problem.wait_s if problem.waits else 0.0
    if k > 0 and wait_s < grid.edges_s[-1]:
        edges = np.unique(np.concatenate(([wait_s], grid.edges_s[grid.edges_s > wait_s])))
        free = grid.free if wait_s == 0 else _free(problem, grid.chain, edges)
        first = np.maximum(np.diff(free), 0.0)
        middle = (edges[1:] + edges[:-1]) / 2
        others = np.arange(min(k, grid.reach))
        mass = first[:, None] * poisson.pmf(rate * middle, others.size)
        ledger.add(edges[:-1, None], np.diff(edges)[:, None], mass, others + 1)
        ledger.add(0.0, middle[:, None], mass * others, others + 1)
    full = 1 - poisson.pmf(rate * grid.middle_s, k).sum(axis=1)
    mass = grid.first * np.maximum(full, 0.0)
    ledger.add(grid.edges_s[:-1], grid.width_s, mass, problem.batch)


def filled_at_end(grid: Cells, places: FloatArray, ledger: Ledger) -> None:
    """Places 2..B of a batch that is full when the service ends: they wait the residual."""
    batch, rate = grid.problem.batch, grid.problem.rate_per_s
    near = places[:, : batch + 1]
    short = batch - np.arange(near.shape[1])  # arrivals still missing for a full batch
    counted = np.cumsum(poisson.pmf(rate * grid.middle_s, batch), axis=1)
    fewer = np.where(short > 0, counted[:, np.maximum(short - 1, 0)], 0.0)
    mass = (near * np.maximum(1 - fewer, 0.0)).sum(axis=1)
    ledger.add(grid.edges_s[:-1], grid.width_s, mass, batch)


def _joined_leftovers(grid: Cells, ledger: Ledger) -> None:
    """Arrivals that join m < B left-overs in a batch that is not full when the service ends."""
    problem = grid.problem
    behind = grid.behind_mass[: problem.batch]
    if problem.leftovers_expire:
        _join_at(grid, behind, ledger)
        return
    for m in np.flatnonzero(behind):
        timer_s = transitions.timer_left_s(problem, float(m))
        alone = np.zeros(m + 1)
        alone[m] = behind[m]
        if timer_s <= 0 or (problem.scv == 0 and timer_s <= problem.full_s):
            _join_at(grid, alone, ledger)
        else:
            _join_with_timer(grid, int(m), float(behind[m]), timer_s, ledger)


def _join_at(grid: Cells, behind: FloatArray, ledger: Ledger) -> None:
    """No timer runs any more: the batch starts when the service ends, arrivals U(0, S) before."""
    problem = grid.problem
    services, weights = _service_cells(grid)
    size = min(problem.batch, grid.reach + behind.size)
    arrivals = poisson.pmf(problem.rate_per_s * services, size) * np.arange(size)
    length = size + behind.size
    moved = np.fft.rfft(arrivals, length, axis=1) * np.fft.rfft(behind, length)
    joined = np.maximum(np.fft.irfft(moved, length, axis=1)[:, : problem.batch], 0.0)
    ledger.add(0.0, services[:, None], weights[:, None] * joined, np.arange(joined.shape[1]))


def _join_with_timer(grid: Cells, behind: int, mass: float, timer_s: float, ledger: Ledger) -> None:
    """The oldest left-over's timer may outlast the service: until then arrivals join."""
    problem, rate = grid.problem, grid.problem.rate_per_s
    batch, room = problem.batch, problem.batch - behind
    others = np.arange(room)
    services, weights = _service_cells(grid)
    over = services > timer_s
    late = weights[over] @ (poisson.pmf(rate * services[over], room) * others)
    if over.any():
        mean_s = float(services[over] @ weights[over] / weights[over].sum())
        ledger.add(0.0, mean_s, mass * late, behind + others)
    ended = float(weights[~over].sum())
    gathered = poisson.pmf(min(rate * timer_s, 1e9), room)
    ledger.add(0.0, timer_s, mass * ended * gathered * others, behind + others)
    end_s = min(timer_s, (room + 9 * math.sqrt(room) + 30) / rate)
    start_s = problem.full_s if problem.scv == 0 else 0.0
    if start_s >= end_s:
        return
    times = np.linspace(start_s, end_s, 25)
    middle = (times[1:] + times[:-1]) / 2
    idle = service_cdf(middle, np.array([problem.full_s]), problem.scv)[0]
    filled = idle * np.maximum(-np.diff(poisson.pmf(rate * times, room).sum(axis=1)), 0.0)
    ledger.add(0.0, 0.0, mass * filled.sum(), batch)
    ledger.add(0.0, middle, mass * filled * (room - 1), batch)


def _service_cells(grid: Cells) -> tuple[FloatArray, FloatArray]:
    """Full-batch service times and their weights."""
    problem = grid.problem
    if problem.scv == 0:
        return np.array([problem.full_s]), np.ones(1)
    mean_s = np.array([problem.full_s])
    weights = np.diff(service_cdf(grid.edges_s, mean_s, problem.scv)[0])
    return grid.middle_s, weights / weights.sum()


def _longest_s(problem: Problem, chain: Chain) -> float:
    """A response time that next to nobody exceeds, for the grid of the law."""
    below = np.cumsum(chain.mass)
    present = chain.present[min(chain.present.size - 1, int(np.searchsorted(below, 1 - 1e-6)))]
    points, values = unit_cdf(problem.scv) if problem.scv > 0 else (np.ones(1), np.ones(1))
    stretch = float(points[min(points.size - 1, int(np.searchsorted(values, 1 - 1e-6)))])
    window_s = 0.0
    if problem.waits:
        window_s = min(problem.wait_s, 2 * problem.batch / problem.rate_per_s)
    rounds = max(0.0, float(present) / problem.batch - 1)
    return problem.full_s * (rounds + 2 * stretch) + window_s
