"""Law of the oldest request's time to a free server, from the law at dispatch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sojourn.model import poisson
from sojourn.model.domain import FloatArray
from sojourn.model.dynamic import cells, counts
from sojourn.model.dynamic.chain import Chain
from sojourn.model.dynamic.first_order import residual_cdf
from sojourn.model.dynamic.oldest import LastRound, Oldest
from sojourn.model.dynamic.problem import Problem
from sojourn.model.poisson import IntArray

Spectrum = npt.NDArray[np.complex128]

# Cells of the longest service, of the mean of a batch of one, of X as a rule and at most, and of a
# service at least.
_CELLS = 1024
_CELLS_FIXED = 256
_CELLS_ALONE = 4
_MANY_CELLS = 4096
_MOST_CELLS = 65_536
_FEWEST_CELLS = 32

# Ages told apart in the last round of a queue.
_GROUPS = 12
_TAIL_GROUPS = 2

# Shares of cycles beyond which a service, and the queue, are not looked at.
_LONGEST = 1e-8
_FARTHEST = 1e-6


@dataclass(frozen=True, eq=False)
class _Service:
    """The full batch's service on the cells.

    Attributes:
        edges_s: cell edges up to the longest service, (n + 1,).
        mass: the service time as mass at the edges, (n + 1,).
        met: P(a first arrival meets that residual at most), per cycle, (n + 1,).
    """

    problem: Problem
    edges_s: FloatArray
    mass: FloatArray
    met: FloatArray

    @property
    def cells(self) -> int:
        """Cells of the longest service."""
        return self.edges_s.size - 1

    @property
    def width_s(self) -> float:
        """Width of a cell."""
        return float(self.edges_s[1])

    @property
    def reach(self) -> int:
        """Counts of arrivals in the longest service worth keeping."""
        mean = self.problem.rate_per_s * float(self.edges_s[-1])
        return int(mean + 9 * math.sqrt(mean) + 24)

    def spectrum(self, length: int) -> Spectrum:
        """Fourier transform of the mass, to be multiplied with that of laws in cells."""
        if self.problem.scv == 0:
            turn = np.exp(-2j * np.pi * np.arange(length // 2 + 1) / length)
            return np.asarray(turn**self.cells)
        return np.asarray(np.fft.rfft(self.mass, length))


def oldest(problem: Problem, chain: Chain) -> Oldest:
    """The law of X and of ages, from the stationary law at dispatch."""
    longest_s = _longest_service_s(problem, chain)
    end_s = longest_s + _queue_s(problem, chain)
    per_service = _cells(problem, longest_s, end_s)
    edges = np.linspace(0, longest_s, per_service + 1)
    law = (np.arange(per_service + 1) == per_service) * 1.0
    if problem.scv > 0:
        law = counts.service_at(edges, problem.full_s, problem.scv)
    service = _Service(
        problem, edges, law / max(float(law.sum()), 1e-300), residual_cdf(problem, chain, edges)
    )
    (turns, residuals), ratio = _placed(chain, service)
    many = math.ceil(per_service * end_s / longest_s) + 1
    ages, left = _served((turns, residuals), ratio, service, many)
    # The chain knows how often somebody is left over; cells only say for how long.
    known = float(chain.mass[chain.present > problem.batch].sum())
    scale = known / max(float(left.sum()), 1e-300)
    last = None
    if _thinned(problem, turns):
        last = _last_round(service, int(turns[-1]), scale * residuals[:, -1], many)
        residuals[:, -1] = 0.0
        _, left = _served((turns, residuals), ratio, service, many)
    met = np.concatenate((service.met, np.full(many - per_service, service.met[-1])))
    edges = np.asarray(service.width_s * np.arange(many + 1), dtype=float)
    bends = problem.bends_s
    between = residual_cdf(problem, chain, bends) if bends.size else bends
    return Oldest(edges, met, scale * left, scale * ages, (bends, between), last)


def _cells(problem: Problem, longest_s: float, end_s: float) -> int:
    """Cells of the longest service: fine for it and for a batch of one, not too many in all."""
    alone_s = float(problem.seconds(1)) / _CELLS_ALONE
    width_s = min(longest_s / (_CELLS if problem.scv > 0 else _CELLS_FIXED), alone_s)
    many = min(max(_MANY_CELLS, end_s / alone_s), _MOST_CELLS)
    return max(_FEWEST_CELLS, int(longest_s / max(width_s, end_s / many)))


def _thinned(problem: Problem, turns: IntArray) -> bool:
    """Whether the last turn has no room for a whole batch."""
    if problem.places is None or problem.places % problem.batch == 0:
        return False
    return bool(turns.size == turns[-1] == problem.places // problem.batch)


def _last_round(service: _Service, turn: int, residuals: FloatArray, many: int) -> LastRound:
    """The requests at place q B + 1, q the last turn, by age at the next dispatch."""
    problem = service.problem
    assert problem.places is not None
    room = problem.places - turn * problem.batch
    ages_s, spread_s, mass = _grouped(service, residuals)
    law = poisson.pmf(problem.rate_per_s * ages_s, room)
    law[:, -1] = np.maximum(1 - law[:, :-1].sum(axis=1), 0.0)
    length = cells.transform_size(many)
    later = np.maximum(np.fft.irfft(service.spectrum(length) ** turn, length)[: many + 1], 0.0)
    edges = np.asarray(service.width_s * np.arange(many + 1), dtype=float)
    return LastRound(
        ages_s, spread_s, mass[:, None] * law, edges, later / max(float(later.sum()), 1e-300)
    )


def _grouped(service: _Service, mass: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Residuals in groups: mean, width if they were uniform in it, and mass."""
    total = max(float(mass.sum()), 1e-300)
    share = (np.cumsum(mass) - mass / 2) / total
    # Groups of like mass, and finer ones in the tail.
    key = _GROUPS * share - _TAIL_GROUPS * np.log(np.maximum(1 - share, 1e-6))
    _, group = np.unique(key.astype(int), return_inverse=True)
    middle_s = (service.edges_s[:-1] + service.edges_s[1:]) / 2
    weight = np.maximum(np.bincount(group, mass), 1e-300)
    mean_s = np.bincount(group, mass * middle_s) / weight
    off_s = middle_s - mean_s[group]
    square = np.bincount(group, mass * off_s**2) / weight + service.width_s**2 / 12
    heavy = weight > 1e-14
    return mean_s[heavy], np.sqrt(12 * square[heavy]), weight[heavy]


def _served(
    placed: tuple[IntArray, FloatArray], ratio: float, service: _Service, many: int
) -> tuple[FloatArray, FloatArray]:
    """Residuals by turn, with the full batches of their turn added: ages, and X; both (many,)."""
    turns, residuals = placed
    length = cells.transform_size(many)
    one = service.spectrum(length)
    # The last turn goes on as a geometric sequence.
    total = np.fft.rfft(residuals[:, -1], length) / (1 - ratio * one)
    for at in range(turns.size - 2, -1, -1):
        gap = turns[at + 1] - turns[at]
        total = total * (one if gap == 1 else one**gap) + np.fft.rfft(residuals[:, at], length)
    both = np.fft.irfft(np.stack((total, total * one)), length, axis=1)[:, :many]
    return np.maximum(both[0], 0.0), np.maximum(both[1], 0.0)


def _placed(chain: Chain, service: _Service) -> tuple[tuple[IntArray, FloatArray], float]:
    """Arrivals per cycle at place q B + 1 by (cell of the residual, q), and the ratio of more q.

    After a batch that left nobody the first arrival met x and this one comes q B - 1 arrivals
    later; after one that left m behind it comes when q B - m have come since the dispatch.
    """
    problem, reach = service.problem, service.reach
    behind = _behind(problem, chain, reach)
    rounds, ratio = math.ceil((behind.size + reach) / problem.batch), 0.0
    if problem.places is not None:
        rounds = (problem.places - 1) // problem.batch
    if math.isfinite(chain.geometric_from):
        rounds = math.ceil((chain.geometric_from + reach) / problem.batch) + 1
        ratio = problem.decay**problem.batch
    if rounds < 1:
        return (np.ones(1, dtype=np.int64), np.zeros((service.cells, 1))), 0.0
    turns = 1 + np.arange(rounds)
    found = _alone(service, turns * problem.batch - 1)
    if behind.size > 1:
        index = turns * problem.batch - np.arange(reach + 1)[:, None]
        inside = (index > 0) & (index < behind.size)
        found += _later(service, np.where(inside, behind[np.clip(index, 0, behind.size - 1)], 0.0))
    kept = poisson.lattice(rounds - 1)
    return (turns[kept], poisson.on_lattice(found.T, kept).T), ratio


def _alone(service: _Service, others: IntArray) -> FloatArray:
    """With so many between, after a first arrival that met a residual: (cells, len(others))."""
    rate, width_s, size = service.problem.rate_per_s, service.width_s, service.cells
    between = poisson.at(rate * (width_s * cells.distances(size)), others)
    smooth = between.copy()
    smooth[1:-1] = (between[:-2] + 10 * between[1:-1] + between[2:]) / 12
    smooth[0] /= 2  # pairs within one cell
    first = np.maximum(np.diff(service.met), 0.0)
    return rate * width_s * cells.correlated(first, smooth)


def _later(service: _Service, law: FloatArray) -> FloatArray:
    """With j since the dispatch, j of mass ``law``, (reach + 1, turns): (cells, turns)."""
    points = poisson.lattice(law.shape[0] - 1)
    # The chance that the arrival after j others comes in a cell is a difference of P(N <= j).
    up_to = poisson.on_lattice(np.cumsum(law[::-1], axis=0)[::-1], points)
    came = poisson.at(service.problem.rate_per_s * service.edges_s, points) @ up_to
    return cells.correlated(service.mass[1:], -np.diff(came, axis=0))


def _behind(problem: Problem, chain: Chain, reach: int) -> FloatArray:
    """P(m stay behind), m = 0.. as whole numbers, 0 without mass."""
    over = chain.present > problem.batch
    if math.isfinite(chain.geometric_from):
        over &= chain.present <= chain.geometric_from + reach + 3 * problem.batch
    left, mass = chain.present[over] - problem.batch, chain.mass[over]
    if left.size == 0:
        return np.zeros(1)
    points = np.concatenate(([0.0], left))
    if left.size + 1 == int(left[-1]) + 1:
        return np.concatenate(([0.0], mass))
    # States in steps stand for those around them; only the last place of a finite queue does not.
    density = np.concatenate(([0.0], mass[:-1] / ((points[2:] - points[:-2]) / 2), [0.0]))
    law = np.interp(np.arange(int(left[-1]) + 1), points, density)
    law[-1] += mass[-1]
    return np.asarray(law)


def _queue_s(problem: Problem, chain: Chain) -> float:
    """Time that full batches take before the oldest left over, which next to none exceeds."""
    last = int(np.searchsorted(np.cumsum(chain.mass), 1 - _FARTHEST))
    left = max(0.0, float(chain.present[min(last, chain.present.size - 1)]) - problem.batch)
    rounds = math.ceil(left / problem.batch)
    served_s = problem.full_s * (rounds + 5 * math.sqrt(problem.scv * rounds))
    return max(left / problem.rate_per_s, served_s)


def _longest_service_s(problem: Problem, chain: Chain) -> float:
    """Service time exceeded once in 10^8 cycles; s_B if it is fixed and any is left over."""
    if problem.scv == 0 and chain.present[-1] > problem.batch:
        return problem.full_s
    if problem.scv == 0:
        seen = np.cumsum(chain.mass[::-1])[::-1] > _LONGEST
        return float(problem.seconds(chain.present[seen]).max())
    seconds = problem.seconds(chain.taken(problem.batch))
    means_s, which = np.unique(seconds, return_inverse=True)
    weights = np.bincount(which, chain.mass)
    points, _ = counts.unit_cdf(problem.scv)
    trial_s = np.linspace(0, float(seconds.max() * points[-1]), 1000)
    heavy = weights > _LONGEST
    above = weights[heavy] @ (1 - counts.service_cdf(trial_s, means_s[heavy], problem.scv))
    return float(trial_s[np.flatnonzero(above > _LONGEST)[-1]])
