"""What a long run says about a latency: means and percentiles with intervals from batch means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

BATCHES = 20
_STUDENT_95 = 2.093
"""97.5th percentile of Student's t with 19 degrees of freedom."""


@dataclass(frozen=True)
class Estimate:
    """A number and half the width of its 95 % interval."""

    value: float
    half_width: float

    def holds(self, other: float, slack: float = 0.0) -> bool:
        """Whether ``other`` lies within the interval, widened by a relative ``slack``."""
        return abs(other - self.value) <= self.half_width + slack * abs(self.value)


@dataclass(frozen=True)
class LatencyEstimate:
    """A latency in seconds.

    Attributes:
        mean: its mean.
        quantiles: pairs (probability, estimate).
    """

    mean: Estimate
    quantiles: tuple[tuple[float, Estimate], ...]

    def quantile(self, probability: float) -> Estimate:
        """The estimate at a probability that was asked for.

        Raises:
            KeyError: it was not.
        """
        return dict(self.quantiles)[probability]


def estimate(seconds: FloatArray, levels: Sequence[float]) -> LatencyEstimate:
    """Mean and quantiles of observations in their order of arrival, float array (n,).

    The run is cut into 20 batches; their spread gives the intervals. Batches must be much longer
    than the correlation of the queue, which the caller's choice of n sees to.
    """
    pieces = np.array_split(seconds, BATCHES)
    means = np.array([piece.mean() for piece in pieces])
    by_level = np.array([np.quantile(piece, levels) for piece in pieces])
    overall = np.quantile(seconds, levels)
    return LatencyEstimate(
        Estimate(float(seconds.mean()), _half_width(means)),
        tuple(
            (level, Estimate(float(overall[i]), _half_width(by_level[:, i])))
            for i, level in enumerate(levels)
        ),
    )


def _half_width(values: FloatArray) -> float:
    return float(_STUDENT_95 * values.std(ddof=1) / np.sqrt(values.size))
