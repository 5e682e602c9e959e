"""The design rate: what a replica asked for now will meet when it is ready.

Three parts: the rate now, its trend over the time a new replica takes, and how bursty the
arrivals are. The past peak is not among them: stabilisation remembers it, once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from sojourn.decide import bursts
from sojourn.facts.situation import Past, RateSample
from sojourn.units import format_rate

FEWEST_FOR_TREND = 4
LARGEST_GROWTH = 2.0
"""Over ten minutes measured rates step up by at most about 2x in 99 % of cases."""

SIGNIFICANCE = 2.0
"""Standard errors a slope must have: Poisson noise alone gives slopes both ways."""


@dataclass(frozen=True)
class DesignRate:
    """The rate to size for, and its parts.

    Attributes:
        rate_per_s: rate now plus its trend over the horizon.
        now_per_s: rate of the last window.
        trend_per_s2: rise per second; 0 when falling, flat or not significant.
        burstiness: z, index of dispersion of counts; 1 is Poisson, also when not known.
    """

    rate_per_s: float
    now_per_s: float
    trend_per_s2: float = 0.0
    burstiness: float = 1.0

    @property
    def text(self) -> str:
        """How it reads in a message: empty when the rate now is all there is."""
        said = []
        if self.rate_per_s > self.now_per_s * (1 + 1e-9):
            now, sized = format_rate(self.now_per_s), format_rate(self.rate_per_s)
            said.append(f"{now} and rising, sized for {sized}")
        if self.burstiness > 1:
            # On the grid: a message that followed every estimate would be written every tick.
            z = bursts.of_one(self.burstiness, 1)
            said.append(f"arrivals vary {z:g} times as much as Poisson's")
        return "; ".join(said)


def design_rate(now_per_s: float, past: Past, window_s: float, horizon_s: float) -> DesignRate:
    """The design rate of one service.

    Args:
        now_per_s: offered rate of the last window.
        window_s: window of each rate sample.
        horizon_s: time until a replica asked for now serves: cold start and a tick.
    """
    counts = bursts.windows(past.rates, window_s)
    slope = _slope(past.rates, window_s, _dispersion(counts))
    grown = min(now_per_s + slope * horizon_s, LARGEST_GROWTH * now_per_s)
    return DesignRate(max(now_per_s, grown), now_per_s, slope, bursts.peakedness(counts))


def _slope(rates: tuple[RateSample, ...], window_s: float, dispersion: float) -> float:
    """Rise per second over the last windows by least squares; 0 unless it is significant."""
    if not rates:
        return 0.0
    span_s = FEWEST_FOR_TREND * window_s
    recent = [r for r in rates if rates[-1].at_s - r.at_s <= span_s]
    if len(recent) < FEWEST_FOR_TREND or recent[-1].at_s - recent[0].at_s < window_s:
        return 0.0
    slope, mean_rate, spread = _least_squares(recent)
    # Overlapping windows repeat their arrivals: as many independent ones as fit in the span.
    independent = max(2.0, (recent[-1].at_s - recent[0].at_s) / window_s + 1)
    noise = math.sqrt(dispersion * max(mean_rate, 1 / window_s) / window_s)
    error = noise / math.sqrt(spread / len(recent) * independent)
    if slope <= SIGNIFICANCE * error:
        return 0.0
    # A step that is over rises no more: the last window's own rise bounds what is carried on.
    begin = next(r for r in recent if recent[-1].at_s - r.at_s <= window_s)
    lately = (recent[-1].rate_per_s - begin.rate_per_s) / window_s
    return min(slope, max(0.0, lately))


def _least_squares(samples: list[RateSample]) -> tuple[float, float, float]:
    """Rise per second, mean rate per second, and the times' summed squared distance, s^2."""
    mean_at = sum(r.at_s for r in samples) / len(samples)
    mean_rate = sum(r.rate_per_s for r in samples) / len(samples)
    spread = sum((r.at_s - mean_at) ** 2 for r in samples)
    slope = sum((r.at_s - mean_at) * (r.rate_per_s - mean_rate) for r in samples) / spread
    return slope, mean_rate, spread


def _dispersion(counts: list[float]) -> float:
    """Index of dispersion of the counts, at least 1, steps of the rate among it; 1 of none.

    Half the mean squared step from window to window, over the mean: drift of the rate, which is
    not burstiness, hardly counts in it.
    """
    if not counts:
        return 1.0
    steps = [(b - a) ** 2 for a, b in pairwise(counts)]
    mean = sum(counts) / len(counts)
    return max(1.0, sum(steps) / len(steps) / 2 / mean)
