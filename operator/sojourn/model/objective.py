"""Choosing a batch from curves over batch sizes (S5, S11 step 5, S13).

Arrays are over candidate batches, shape (n,), in increasing order of batch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sojourn.facts.service_time import BatchServiceTime
from sojourn.model import service_time, stability, surrogate
from sojourn.model.domain import BoolArray, FloatArray


def least_latency_batch(
    batches: npt.ArrayLike, latency_s: npt.ArrayLike, *, flat: float = 0.0
) -> int | None:
    """B* = argmin E[T(B)] among finite latencies; the smallest of equals; None if all are infinite.

    Args:
        batches: int array (n,).
        latency_s: float array (n,), inf where unstable, so that mu_eff(B) >= lambda holds (S5).
        flat: relative difference that counts as equal (numerical noise of a percentile).
    """
    sizes, values = np.asarray(batches), np.asarray(latency_s, dtype=float)
    if values.size == 0 or not np.isfinite(values).any():
        return None
    return int(sizes[np.argmax(values <= np.min(values) * (1 + flat))])


def largest_batch_within(
    batches: npt.ArrayLike, latency_s: npt.ArrayLike, goal_s: float
) -> int | None:
    """Largest candidate whose latency (a percentile, usually) is at or below a goal; None if none.

    Source: S11 step 5 of the theory.
    """
    sizes = np.asarray(batches)[np.asarray(latency_s) <= goal_s]
    return int(sizes.max()) if sizes.size else None


def surrogate_best_batch(rate_per_s: float, law: BatchServiceTime, largest: int) -> int | None:
    """B* of the book: argmin over stable B <= largest of the surrogate's E[T]; None if unstable.

    Source: S5 of the theory.
    """
    sizes = np.arange(1, largest + 1)
    return least_latency_batch(sizes, surrogate.latency_mean_s(rate_per_s, sizes, law))


def doubling_gain(law: BatchServiceTime, batches: npt.ArrayLike) -> FloatArray:
    """What doubling a batch adds to the rate: mu_eff(2B) / mu_eff(B) - 1, from 0 to 1.

    Source: S13 of the theory.
    """
    sizes = np.asarray(batches, dtype=float)
    doubled = service_time.capacity_per_s(law, 2 * sizes)
    return np.asarray(doubled / service_time.capacity_per_s(law, sizes) - 1)


def diminishing_from(
    law: BatchServiceTime, batches: npt.ArrayLike, gain: float = 0.2
) -> int | None:
    """First candidate whose doubling buys at most ``gain``; None if all still buy more.

    Source: S13 of the theory: "doubling B buys 10 to 20 %".
    """
    sizes = np.asarray(batches)
    poor = doubling_gain(law, sizes) <= gain
    return int(sizes[np.argmax(poor)]) if poor.any() else None


def pareto_front(throughput_per_s: npt.ArrayLike, latency_s: npt.ArrayLike) -> BoolArray:
    """Mask (n,) of points no other point beats in both throughput and latency.

    Source: S13 of the theory.
    """
    rates = np.asarray(throughput_per_s, dtype=float)
    seconds = np.asarray(latency_s, dtype=float)
    at_least = (rates[:, None] >= rates) & (seconds[:, None] <= seconds)
    better = at_least & ((rates[:, None] > rates) | (seconds[:, None] < seconds))
    return np.asarray(~better.any(axis=0) & np.isfinite(seconds))


def knee(throughput_per_s: npt.ArrayLike, latency_s: npt.ArrayLike) -> int | None:
    """Index of the curve's knee: the point furthest below the chord of a Pareto front.

    Both axes are scaled to the front's own range first, so units do not matter. None with fewer
    than three finite points on the front.

    Source: S13 of the theory.
    """
    rates = np.asarray(throughput_per_s, dtype=float)
    seconds = np.asarray(latency_s, dtype=float)
    front = np.flatnonzero(pareto_front(rates, seconds))
    if front.size < 3:
        return None
    order = front[np.argsort(rates[front])]
    x = (rates[order] - rates[order[0]]) / np.ptp(rates[order])
    y = (seconds[order] - seconds[order[0]]) / np.ptp(seconds[order])
    return int(order[np.argmax(x - y)])


def stable_batches(rate_per_s: float, law: BatchServiceTime, batches: npt.ArrayLike) -> BoolArray:
    """Mask of candidates with mu_eff(B) > lambda1, strictly."""
    load = stability.utilisation(rate_per_s, 1, batches, law)
    return np.asarray(load < stability.STABLE_BELOW)
