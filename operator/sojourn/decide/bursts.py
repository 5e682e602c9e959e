"""How bursty the arrivals of a service are, as far as its windows tell, and what one replica sees.

z is the index of dispersion of counts, variance over mean; a Poisson stream has 1. It is estimated
from few windows and enters the number of replicas, so it must not follow noise, nor a change of the
rate: half an hour of windows says only that arrivals are *not* Poisson, and how much, roughly.
"""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import fmean

from sojourn.facts.situation import RateSample
from sojourn.model import poisson

FEWEST_WINDOWS = 20
"""Windows that must be known before burstiness is believed (docs/explanation/decision.md)."""

FEWEST_ARRIVALS = 100.0

_LEFT_OUT = 0.15
_KEPT_SHARE = 0.5205
"""Mean of a squared standard normal below its 85th percentile: what the mean of the steps that are
kept is to the mean of all."""

LEAST_BELIEVED = 3.0
"""Twenty windows of a Poisson stream read above it once in a thousand times."""

STEPS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)
"""Grid of z, so that what the model answered is found again; above the last no load limit protects
a percentile, and more replicas would not either (docs/benchmarks.md, "Burstiness")."""


def windows(rates: tuple[RateSample, ...], window_s: float) -> list[float]:
    """Arrivals in windows that do not overlap, oldest first; none where they are too few to tell.

    O(samples).

    Args:
        rates: samples of the offered rate, oldest first.
        window_s: the window each covers.
    """
    counts: list[float] = []
    last_at_s = -math.inf
    for sample in rates:
        if sample.at_s - last_at_s >= window_s * (1 - 1e-6):
            counts.append(sample.rate_per_s * window_s)
            last_at_s = sample.at_s
    enough = len(counts) >= FEWEST_WINDOWS and sum(counts) >= FEWEST_ARRIVALS
    return counts if enough else []


def peakedness(counts: list[float]) -> float:
    """Z of arrivals in such windows, at least 1; 1 where none are known or Poisson may be it.

    From the squared steps from window to window, the largest 15 % of them left out: a step of the
    load is a change of the rate, which the decision follows by itself, and no burst.
    """
    if not counts:
        return 1.0
    steps = sorted((b - a) ** 2 for a, b in pairwise(counts))
    kept = steps[: len(steps) - round(_LEFT_OUT * len(steps))]
    z = fmean(kept) / _KEPT_SHARE / 2 / fmean(counts)
    return z if z >= LEAST_BELIEVED else 1.0


def of_one(z: float, replicas: int) -> float:
    """Z of what one of ``replicas`` gets of a stream split at random, on the grid, rounded down."""
    one = poisson.thinned(z, max(1, replicas))
    return max(step for step in STEPS if step <= max(1.0, one))
