"""lambda1* of dynamic batching from the dimensionless table: thousands of services at once.

Covers linear service times with CV^2 up to 1, an unbounded queue, max batch up to 256, a window no
longer than the service and percentiles from 50 to 99.9; ``covered`` says which. Everything else is
the exact model's. The table is read with a margin; where the answer must hold exactly,
``ExactModel.max_rate`` checks and corrects what it reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import numpy as np
import numpy.typing as npt

from sojourn.model import dimensionless
from sojourn.model.domain import BoolArray, FloatArray

# The table's percentile is 0.6 % off in the median and 3 % at the 90th percentile of random
# replicas, more often high than low: the SLO is read this much tighter.
MARGIN = 0.02

_BATCHES = np.array(dimensionless.BATCHES, dtype=float)
_MOST_LOAD = 0.97
_SPREADS = np.sqrt(np.array(dimensionless.SCVS))


@dataclass(frozen=True, eq=False)
class Services:
    """One replica of each service, all arrays of one shape (n,).

    Attributes:
        fixed_s: T_fixed.
        per_request_s: t_req.
        scv: CV^2 of the batch time.
        wait_s: T_max.
        goal_s: end-to-end SLO; inf if none.
        max_load: largest load.
    """

    fixed_s: FloatArray
    per_request_s: FloatArray
    scv: FloatArray
    wait_s: FloatArray
    goal_s: FloatArray
    max_load: FloatArray


@dataclass(frozen=True, eq=False)
class Rates:
    """Answers by (service, candidate), shape (n, m).

    Attributes:
        rate_per_s: lambda1*; 0 where the goal cannot be met, NaN where the table does not cover.
        load_bound: the load limit, not the SLO, bounds the rate.
        floor_s: latency as the rate goes to 0: T + s_1.
    """

    rate_per_s: FloatArray
    load_bound: BoolArray
    floor_s: FloatArray


def rates(services: Services, batches: npt.ArrayLike, probability: float) -> Rates:
    """lambda1* of every service at its candidate batches.

    Args:
        services: parameters, (n,).
        batches: candidates, (n, m), at least 1.
        probability: the SLO's percentile, the same for all.
    """
    sizes = np.asarray(batches, dtype=float)
    one = [_column(values, sizes) for values in (services.fixed_s, services.per_request_s)]
    full_s = one[0] + one[1] * sizes
    wait_s = np.where(sizes > 1, _column(services.wait_s, sizes), 0.0)
    goal_s, most = _column(services.goal_s, sizes), _column(services.max_load, sizes)
    scv = _column(services.scv, sizes)
    known = covered(sizes, wait_s / full_s, scv, most, probability)
    floor_s = wait_s + one[0] + one[1]
    load = np.zeros(sizes.shape)
    if known.any():
        shape = _Shape(sizes[known], (one[0] / full_s)[known], (wait_s / full_s)[known], scv[known])
        curve = _Curve(shape, probability)
        goal = (goal_s / full_s)[known] * (1 - MARGIN)
        load[known] = curve.crossing(np.minimum(goal, 1e6))
    load = np.where(np.isinf(goal_s), np.inf, load)
    rate = np.minimum(load, most) * sizes / full_s
    return Rates(np.where(known, rate, np.nan), load >= most, np.asarray(floor_s))


def quantiles_s(
    services: Services, batches: npt.ArrayLike, rate_per_s: npt.ArrayLike, probability: float
) -> FloatArray:
    """Percentile of every service at its live point: status values for a whole fleet.

    Args:
        services: parameters, (n,); goal_s and max_load are not looked at.
        batches: max batch in use, (n,).
        rate_per_s: rate of one replica, (n,).
        probability: the same for all.

    Returns:
        Seconds, (n,); inf at load 1 and above, NaN where the table does not cover.
    """
    sizes = np.asarray(batches, dtype=float)[:, None]
    full_s = _column(services.fixed_s, sizes) + _column(services.per_request_s, sizes) * sizes
    wait_s = np.where(sizes > 1, _column(services.wait_s, sizes), 0.0)
    scv = _column(services.scv, sizes)
    load = np.asarray(rate_per_s, dtype=float)[:, None] * full_s / sizes
    known = covered(sizes, wait_s / full_s, scv, np.zeros(sizes.shape), probability)
    found = np.full(sizes.shape, np.nan)
    if known.any():
        fixed = (_column(services.fixed_s, sizes) / full_s)[known]
        curve = _Curve(
            _Shape(sizes[known], fixed, (wait_s / full_s)[known], scv[known]), probability
        )
        found[known] = full_s[known] * curve.at(np.minimum(load[known], 1 - 1e-9))
    return np.asarray(np.where(known & (load >= 1), np.inf, found)[:, 0])


def _neighbours(sizes: FloatArray) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """Index of the tabled batch below each size, and the logarithmic share of the one above."""
    below = np.clip(np.searchsorted(_BATCHES, sizes, side="right") - 1, 0, _BATCHES.size - 1)
    above = np.minimum(below + 1, _BATCHES.size - 1)
    gap = np.log(_BATCHES[above] / _BATCHES[below])
    part = np.where(gap > 0, np.log(sizes / _BATCHES[below]) / np.where(gap > 0, gap, 1), 0.0)
    return below, np.clip(part, 0.0, 1.0)


def covered(
    sizes: FloatArray, wait: FloatArray, scv: FloatArray, most: FloatArray, probability: float
) -> BoolArray:
    """Where the table answers: B <= 256, T <= s_B, CV^2 <= 1, load limit <= 0.97."""
    levels = dimensionless.LEVELS
    if available() is None or not levels[0] <= probability <= levels[-1]:
        return np.zeros(sizes.shape, dtype=bool)
    inside = (sizes <= _BATCHES[-1]) & (wait <= 1) & (scv <= 1)
    return np.asarray(inside & (most <= 0.97))


@lru_cache(maxsize=1)
def available() -> FloatArray | None:
    """The table (batch, fixed share, window, CV^2, load, level); None if never built."""
    path = resources.files("sojourn.model") / "data" / "dynamic.npz"
    if not path.is_file():
        return None
    with path.open("rb") as file, np.load(file) as stored:
        table = np.asarray(stored["quantiles"], dtype=float)
    axes = (_BATCHES, dimensionless.FIXED_SHARES, dimensionless.WAITS, dimensionless.SCVS)
    shape = (
        *(len(axis) for axis in axes),
        dimensionless.LOADS_PER_BATCH,
        len(dimensionless.LEVELS),
    )
    # A table made for other axes is no table.
    return table if table.shape == shape else None


@dataclass(frozen=True, eq=False)
class _Shape:
    """Dimensionless parameters, all (k,): B, T_fixed / s_B, T / s_B, CV^2."""

    batch: FloatArray
    fixed: FloatArray
    wait: FloatArray
    scv: FloatArray

    def weights(self, chosen: BoolArray) -> FloatArray:
        """Interpolation weights over (fixed share, window, CV^2), flattened: (chosen, 72)."""
        fixed = _linear(np.sqrt(np.array(dimensionless.FIXED_SHARES)), np.sqrt(self.fixed[chosen]))
        wait = _linear(np.array(dimensionless.WAITS), self.wait[chosen])
        spread = _lagrange(_SPREADS, np.sqrt(self.scv[chosen]))
        product = fixed[:, :, None, None] * wait[:, None, :, None] * spread[:, None, None, :]
        return product.reshape(product.shape[0], -1)


def scale(batch: FloatArray, fixed: FloatArray, wait: FloatArray, load: FloatArray) -> FloatArray:
    """What a percentile is measured in: one service and one wait of a batch that regulates itself.

    The batch that gathers in its own service is b = lambda f / (1 - lambda (1 - f) / B) in units of
    s_B; a window gathers at least 1 + lambda T. Everything that bends sharply with the parameters
    is in here, so that the table's ratio to it is smooth. Arguments broadcast.
    """
    rate = load * batch
    gathered = rate * fixed / np.maximum(1 - load * (1 - fixed), 1e-9)
    window = np.minimum(wait, (batch - 1) / np.maximum(rate, 1e-300))
    taken = np.clip(np.maximum(gathered, 1 + rate * window), 1.0, batch)
    service = fixed + (1 - fixed) * taken / batch
    return np.asarray(service + np.maximum(service, window))


class _Curve:
    """Percentile against load of k services, from the ratios at the two tabled batches around B."""

    def __init__(self, shape: _Shape, probability: float) -> None:
        self.shape = shape
        below, part = _neighbours(shape.batch)
        self.part = part
        self.nodes = (below, np.minimum(below + 1, _BATCHES.size - 1))
        ratios = _ratios(probability)
        self.ratios = np.zeros((2, shape.batch.size, dimensionless.LOADS_PER_BATCH))
        for side in (0, 1):
            for index in np.unique(self.nodes[side]):
                here = self.nodes[side] == index
                table = ratios[index].reshape(-1, ratios.shape[-1])
                self.ratios[side][here] = shape.weights(here) @ table

    def at(self, load: FloatArray) -> FloatArray:
        """Percentile in units of s_B at one load each, (k,)."""
        shape = self.shape
        both = [self._ratio(side, load) for side in (0, 1)]
        ratio = ((1 - self.part) * both[0] + self.part * both[1]) / (1 - load)
        seconds = ratio * scale(shape.batch, shape.fixed, shape.wait, load)
        floor = shape.fixed + (1 - shape.fixed) / shape.batch + shape.wait
        return np.asarray(np.maximum(seconds, np.where(shape.batch > 1, floor, floor - shape.wait)))

    def crossing(self, goal: FloatArray) -> FloatArray:
        """Largest load whose percentile is at most ``goal``, (k,); 0 if none, inf from 0.97."""
        top = np.full(goal.shape, _MOST_LOAD)
        low, high = np.zeros(goal.shape), top
        for _ in range(20):
            middle = (low + high) / 2
            passes = self.at(middle) <= goal
            low, high = np.where(passes, middle, low), np.where(passes, high, middle)
        found = np.where(low > 1e-5, low, 0.0)
        return np.asarray(np.where(self.at(top) <= goal, np.inf, found))

    def _ratio(self, side: int, load: FloatArray) -> FloatArray:
        """(1 - load) x ratio, straight between tabled loads."""
        grid = _load_grid()[self.nodes[side]]
        left = np.clip((grid <= load[:, None]).sum(axis=1) - 1, 0, grid.shape[1] - 2)
        rows = np.arange(left.size)
        start, end = grid[rows, left], grid[rows, left + 1]
        share = np.clip((load - start) / (end - start), 0.0, 1.0)
        values = self.ratios[side]
        return np.asarray((1 - share) * values[rows, left] + share * values[rows, left + 1])


@lru_cache(maxsize=1)
def _load_grid() -> FloatArray:
    return np.stack([dimensionless.loads(batch) for batch in dimensionless.BATCHES])


@lru_cache(maxsize=64)
def _ratios(probability: float) -> FloatArray:
    """(1 - load) x percentile / scale at one level, linear in -ln(1 - q) between tabled ones."""
    table = available()
    assert table is not None
    levels = -np.log1p(-np.array(dimensionless.LEVELS))
    weights = _linear(levels, np.array([-np.log1p(-probability)]))[0]
    fixed = np.array(dimensionless.FIXED_SHARES)[None, :, None, None, None]
    wait = np.array(dimensionless.WAITS)[None, None, :, None, None]
    batch = _BATCHES[:, None, None, None, None]
    load = _load_grid()[:, None, None, None, :]
    wait = np.where(batch > 1, wait, 0.0)
    return np.asarray((1 - load) * (table @ weights) / scale(batch, fixed, wait, load))


def _linear(nodes: FloatArray, x: FloatArray) -> FloatArray:
    """Weights (k, len(nodes)) of piecewise linear interpolation."""
    left = np.clip(np.searchsorted(nodes, x, side="right") - 1, 0, nodes.size - 2)
    part = np.clip((x - nodes[left]) / (nodes[left + 1] - nodes[left]), 0.0, 1.0)
    weights = np.zeros((x.size, nodes.size))
    rows = np.arange(x.size)
    weights[rows, left] = 1 - part
    weights[rows, left + 1] += part
    return weights


def _lagrange(nodes: FloatArray, x: FloatArray) -> FloatArray:
    """Weights (k, len(nodes)) of the polynomial through all nodes."""
    weights = np.ones((x.size, nodes.size))
    for i, node in enumerate(nodes):
        for k, other in enumerate(nodes):
            if k != i:
                weights[:, i] *= (x - other) / (node - other)
    return weights


def _column(values: FloatArray, sizes: FloatArray) -> FloatArray:
    return np.broadcast_to(np.asarray(values, dtype=float)[:, None], sizes.shape)
