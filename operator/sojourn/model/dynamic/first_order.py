"""Means, busy share and loss from the chain alone: no distribution, no cancellation.

A cycle runs from one dispatch to the next. Everything is an expectation per cycle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sojourn.model import poisson
from sojourn.model.domain import FloatArray
from sojourn.model.dynamic import counts
from sojourn.model.dynamic.chain import Chain
from sojourn.model.dynamic.oldest import LastRound, Oldest
from sojourn.model.dynamic.problem import Problem

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)

# Counts from which a sum takes only a lattice of them.
_SHORT_SUM = 4096


@dataclass(frozen=True, eq=False)
class FirstOrder:
    """Expectations per cycle and what follows.

    Attributes:
        mean_batch: E[B], requests of a batch.
        cycle_s: mean cycle.
        busy_s: mean service of a cycle.
        waiting_busy: area of the waiting requests while the server works, request-seconds.
        waiting_idle: the same while it is free and the batcher waits.
        served_s: sum of the service times of a cycle's requests.
        lost: arrivals lost per cycle.
        defect: relative defect of E[B] = lambda cycle - lost, the self-check.
    """

    mean_batch: float
    cycle_s: float
    busy_s: float
    waiting_busy: float
    waiting_idle: float
    served_s: float
    lost: float
    defect: float


def residual_cdf(problem: Problem, chain: Chain, seconds: FloatArray) -> FloatArray:
    """F(t), per cycle: a first arrival, nobody left over, finds at most t of service to go.

    F(t) = sum_b v0[b] E exp(-lambda (s_b G - t)^+). For gamma times the law of S is taken piecewise
    uniform between the points of ``seconds``, which must then be equally spaced from 0.

    Returns:
        Shape of ``seconds``.
    """
    alone = chain.present <= problem.batch
    mass, mean_s = chain.mass[alone], problem.seconds(chain.present[alone])
    rate = problem.rate_per_s
    if problem.scv == 0:
        late_s = np.maximum(mean_s[:, None] - seconds, 0.0)
        return np.asarray(mass @ np.exp(-rate * late_s))
    below = mass @ counts.service_cdf(seconds, mean_s, problem.scv)
    step = float(seconds[1])
    cells = np.diff(below, append=mass.sum()) * -math.expm1(-rate * step) / (rate * step)
    free = below + _discounted(cells, rate * step)
    # At 0 there is a closed form, which keeps the idle time exact however coarse the points.
    free[0] = found_idle(problem, chain)
    return np.asarray(np.maximum.accumulate(free))


def found_idle(problem: Problem, chain: Chain) -> float:
    """F(0): nobody is left over and nobody comes before the service ends."""
    alone = chain.present <= problem.batch
    means = problem.rate_per_s * problem.seconds(chain.present[alone])
    return float(chain.mass[alone] @ counts.pmf(means, problem.scv, 1)[:, 0])


def _discounted(values: FloatArray, decay: float) -> FloatArray:
    """Sum over j >= i of values[j] exp(-decay (j - i)), for each i, in blocks."""
    block = 64
    gaps = np.arange(block)[None, :] - np.arange(block)[:, None]
    weights = np.where(gaps >= 0, np.exp(-decay * np.maximum(gaps, 0)), 0.0)
    ahead = np.exp(-decay * (block - np.arange(block)))
    padded = np.concatenate((values, np.zeros(-values.size % block))).reshape(-1, block)
    sums = padded @ weights.T
    later = 0.0
    for i in range(sums.shape[0] - 1, -1, -1):
        sums[i] += ahead * later
        later = sums[i, 0]
    return np.asarray(sums.ravel()[: values.size])


def first_order(problem: Problem, chain: Chain, oldest: Oldest | None) -> FirstOrder:
    """All expectations of a cycle.

    Args:
        problem: the replica.
        chain: law at dispatch.
        oldest: law of the oldest's time to a free server; needed if its timer can outlast it.
    """
    taken, behind = chain.taken(problem.batch), chain.behind(problem.batch)
    seconds = problem.seconds(taken)
    mean_batch = float(chain.mass @ taken)
    busy_s = float(chain.mass @ seconds)
    waiting_busy, lost = _busy_area_and_loss(problem, chain, behind, seconds)
    idle_s, waiting_idle = _idle_and_window(problem, chain, oldest)
    cycle_s = busy_s + idle_s
    flow = problem.rate_per_s * cycle_s
    return FirstOrder(
        mean_batch=mean_batch,
        cycle_s=float(cycle_s),
        busy_s=busy_s,
        waiting_busy=float(waiting_busy),
        waiting_idle=float(waiting_idle),
        served_s=float(chain.mass @ (taken * seconds)),
        lost=float(lost),
        defect=float(abs(mean_batch - flow + lost) / mean_batch),
    )


def _busy_area_and_loss(
    problem: Problem, chain: Chain, behind: FloatArray, seconds: FloatArray
) -> tuple[float, float]:
    means = problem.rate_per_s * seconds
    if problem.places is None:
        # Area of m + N(y) over a service: m s + lambda E[S^2] / 2.
        area = behind * seconds + means * seconds * (1 + problem.scv) / 2
        return float(chain.mass @ area), 0.0
    total_area, lost = 0.0, 0.0
    for start in range(0, means.size, 256):
        part = slice(start, start + 256)
        one, two = _finite(problem, means[part], behind[part])
        total_area += float(chain.mass[part] @ one)
        lost += float(chain.mass[part] @ two)
    return total_area, lost


def _finite(
    problem: Problem, means: FloatArray, behind: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Area of min(m + N(y), K) over a service, and arrivals lost in it, for each state.

    The time a service spends at exactly i arrivals is P(J > i) / lambda for any law of S, so both
    are sums of tails of J.
    """
    assert problem.places is not None
    top = float(means.max())
    deviation = np.sqrt(top * (1 + problem.scv * top))
    size = int(top + 12 * deviation + 40 * problem.scv * top + 60)
    # Short enough sums take every count.
    points = np.arange(size) if size < _SHORT_SUM else poisson.lattice(size - 1)
    ends = np.concatenate(([0.0], (points[1:] + points[:-1] + 1) / 2, [size]))
    width = np.diff(ends)  # counts that each stands for, its own in the middle
    law = counts.at(means, problem.scv, points)
    above = np.cumsum((law * width)[:, ::-1], axis=1)[:, ::-1]
    more = above - law * (points + 1 - ends[:-1])  # P(J > i)
    queue = behind[:, None] + points
    area = (np.minimum(queue, problem.places) * more) @ width / problem.rate_per_s
    full = np.clip((behind[:, None] + ends[1:] - problem.places), 0.0, width)
    return area, (more * full).sum(axis=1)


def _idle_and_window(problem: Problem, chain: Chain, oldest: Oldest | None) -> tuple[float, float]:
    """Mean idle time of a cycle, and the area of waiting requests in it."""
    idle_s = found_idle(problem, chain) / problem.rate_per_s
    if not problem.waits:
        return idle_s, 0.0
    points, weights = _window_nodes(problem)
    if oldest is None:
        free = residual_cdf(problem, chain, points)
    elif problem.scv == 0:
        free = residual_cdf(problem, chain, points) + oldest.left_by(points)
    else:
        free = oldest.free_by(points)
    # The window stays open while fewer than B - 1 followed the oldest.
    arrived = poisson.pmf(problem.rate_per_s * points, problem.batch - 1)
    idle_s += float(weights @ (free * arrived.sum(axis=1)))
    area = float(weights @ (free * (arrived @ np.arange(1, problem.batch))))
    if oldest is not None and oldest.last is not None:
        more_idle_s, more_area = _last_windows(problem, oldest.last)
        return idle_s + more_idle_s, area + more_area
    return idle_s, area


def _last_windows(problem: Problem, last: LastRound) -> tuple[float, float]:
    """Idle time and waiting area of windows that opened when the queue was next to full."""
    idle_s, area = 0.0, 0.0
    there = np.arange(1, last.mass.shape[1] + 1)
    for age_s, mass in zip(last.ages_s, last.mass, strict=True):
        end_s = min(problem.wait_s - float(age_s), problem.certain_s)
        if end_s <= 0:
            continue
        points, weights = _panels(0.0, end_s, 8)
        arrived = poisson.pmf(problem.rate_per_s * points, problem.batch)
        open_share = np.cumsum(arrived, axis=1)[:, problem.batch - 1 - there]
        others = np.cumsum(arrived * np.arange(problem.batch), axis=1)[:, problem.batch - 1 - there]
        free = weights * last.free_by(points)
        idle_s += float(free @ open_share @ mass)
        area += float(free @ (open_share * there + others) @ mass)
    return idle_s, area


def _window_nodes(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """Quadrature over the window; beyond the horizon it has filled for certain."""
    end_s = min(problem.wait_s, problem.certain_s)
    turn_s = problem.full_s
    if 0 < turn_s < end_s:
        # F has its bends at the service times, all of them at or below s_B.
        low, high = _panels(0.0, turn_s, 40), _panels(turn_s, end_s, 24)
        return np.concatenate((low[0], high[0])), np.concatenate((low[1], high[1]))
    return _panels(0.0, end_s, 40)


def _panels(start_s: float, end_s: float, panels: int) -> tuple[FloatArray, FloatArray]:
    width = (end_s - start_s) / panels
    left = start_s + width * np.arange(panels)
    points = left[:, None] + width * (_NODES + 1) / 2
    weights = np.broadcast_to(_WEIGHTS * width / 2, points.shape)
    return points.ravel(), weights.ravel()
