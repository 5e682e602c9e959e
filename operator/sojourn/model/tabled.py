"""lambda1* of dynamic batching from the dimensionless table: thousands of services at once.

Covers linear service times with CV^2 up to 1, an unbounded queue, max batch up to 256, a window no
longer than the service and percentiles from 50 to 99.9; ``covered`` says which. Everything else is
the exact model's. The table is read with a margin, so that the exact percentile at the rate found
stays within the SLO.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import numpy as np
import numpy.typing as npt

from sojourn.model import dimensionless
from sojourn.model.domain import BoolArray, FloatArray

# The table's own error in a percentile (99th percentile of it, measured by the slow test): the SLO
# is read as this much tighter.
MARGIN = 0.01

_BATCHES = np.array(dimensionless.BATCHES, dtype=float)
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
    goal = np.where(known, goal_s, 1.0) * (1 - MARGIN) / full_s
    floor_s = wait_s + one[0] + one[1]
    shape = _Shape(one[0] / full_s, np.minimum(wait_s / full_s, 1.0), np.minimum(scv, 1.0))
    load = np.zeros(sizes.shape)
    if known.any():
        load = _largest_load(shape, sizes, goal, floor_s / full_s, probability)
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
    shape = _Shape(
        _column(services.fixed_s, sizes) / full_s,
        np.minimum(wait_s / full_s, 1.0),
        np.minimum(scv, 1.0),
    )
    floor_s = wait_s + _column(services.fixed_s, sizes) + _column(services.per_request_s, sizes)
    seconds = full_s * _percentile(shape, sizes, load, floor_s / full_s, probability)
    return np.asarray(np.where(known, np.where(load < 1, seconds, np.inf), np.nan)[:, 0])


def _percentile(
    shape: _Shape, sizes: FloatArray, load: FloatArray, floor: FloatArray, probability: float
) -> FloatArray:
    below, part = _neighbours(sizes)
    table = _at_level(probability)
    found = np.zeros((2, *sizes.shape))
    for index, batch in enumerate(dimensionless.BATCHES):
        for side in (0, 1):
            here = (np.minimum(below + side, _BATCHES.size - 1) == index) & (
                (part > 0) | (side == 0)
            )
            if not here.any():
                continue
            curves = shape.weights(here) @ table[index].reshape(-1, table.shape[-1])
            curves = np.concatenate((floor[here][:, None], curves), axis=1)
            grid = np.concatenate(([0.0], dimensionless.loads(batch)))
            scaled = (1 - grid) * np.maximum(curves, floor[here][:, None])
            at = np.minimum(load[here], 1.0)
            weights = _linear(grid, at)
            found[side][here] = (scaled * weights).sum(axis=1) / np.maximum(1 - at, 1e-12)
    return np.asarray(np.where(part > 0, (1 - part) * found[0] + part * found[1], found[0]))


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
        return np.asarray(stored["quantiles"], dtype=float)


@dataclass(frozen=True, eq=False)
class _Shape:
    """Dimensionless parameters, all (n, m)."""

    fixed: FloatArray
    wait: FloatArray
    scv: FloatArray

    def weights(self, chosen: BoolArray) -> FloatArray:
        """Interpolation weights over (fixed share, window, CV^2), flattened: (k, 36)."""
        fixed = _lagrange(np.array(dimensionless.FIXED_SHARES), self.fixed[chosen])
        wait = _linear(np.array(dimensionless.WAITS), self.wait[chosen])
        spread = _lagrange(_SPREADS, np.sqrt(self.scv[chosen]))
        product = fixed[:, :, None, None] * wait[:, None, :, None] * spread[:, None, None, :]
        return product.reshape(product.shape[0], -1)


def _largest_load(
    shape: _Shape, sizes: FloatArray, goal: FloatArray, floor: FloatArray, probability: float
) -> FloatArray:
    """Load at which the percentile reaches the goal, between the two tabled batches around B."""
    below, part = _neighbours(sizes)
    above = np.minimum(below + 1, _BATCHES.size - 1)
    low = np.zeros(sizes.shape)
    high = np.zeros(sizes.shape)
    table = _at_level(probability)
    for index, batch in enumerate(dimensionless.BATCHES):
        for found, here in ((low, below == index), (high, (above == index) & (part > 0))):
            if here.any():
                curves = shape.weights(here) @ table[index].reshape(-1, table.shape[-1])
                loads = dimensionless.loads(batch)
                found[here] = _crossing(curves, loads, goal[here], floor[here])
    high = np.where(part > 0, high, low)
    # Equal loads at different batches differ by about a power of B: interpolate in logarithms.
    mixed = np.exp((1 - part) * np.log(low + 1e-300) + part * np.log(high + 1e-300))
    return np.asarray(np.where((low > 0) & (high > 0), mixed, 0.0))


def _crossing(
    curves: FloatArray, loads: FloatArray, goal: FloatArray, floor: FloatArray
) -> FloatArray:
    """Load at which each rising curve (k, loads) passes its goal (k,); 0 below the floor."""
    rising = np.maximum.accumulate(np.maximum(curves, floor[:, None]), axis=1)
    rising = np.concatenate((floor[:, None], rising), axis=1)
    grid = np.concatenate(([0.0], loads))
    index = (rising <= goal[:, None]).sum(axis=1)
    left = np.clip(index - 1, 0, grid.size - 2)
    rows = np.arange(left.size)
    from_load, to_load = grid[left], grid[left + 1]
    # (1 - load) x percentile is nearly straight between nodes, also close to load 1.
    start = (1 - from_load) * rising[rows, left]
    slope = ((1 - to_load) * rising[rows, left + 1] - start) / (to_load - from_load)
    crossing = (goal - start + slope * from_load) / (slope + goal)
    inside = np.clip(crossing, from_load, to_load)
    reached = np.where(index >= grid.size, np.inf, inside)
    return np.asarray(np.where(index == 0, 0.0, reached))


@lru_cache(maxsize=64)
def _at_level(probability: float) -> FloatArray:
    """The table at one percentile, linear in -ln(1 - q) between tabled ones."""
    table = available()
    assert table is not None
    levels = -np.log1p(-np.array(dimensionless.LEVELS))
    weights = _linear(levels, np.array([-np.log1p(-probability)]))[0]
    return np.asarray(table @ weights)


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
