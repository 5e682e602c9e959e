"""Law of the number waiting while every place of the batch is taken: a truncated geometric."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sojourn.model.domain import FloatArray

_LOG_HUGE = 700.0


@dataclass(frozen=True)
class Waiting:
    """P(i wait) proportional to ratio^i, i = 0..most.

    Attributes:
        ratio: theta; above 1 in overload, where only ``most`` bounds the queue.
        most: largest i; None is unbounded and needs ratio < 1.
    """

    ratio: float
    most: int | None

    def log_total(self) -> float:
        """Ln of the sum of ratio^i, without overflow for any ratio and ``most``."""
        if self.most is None:
            return -math.log1p(-self.ratio)
        if self.ratio > 1:
            return self.most * math.log(self.ratio) + self._from_above().log_total()
        count = self.most + 1
        if self._is_flat:
            return math.log(count)
        return math.log(-math.expm1(count * math.log(self.ratio))) - math.log1p(-self.ratio)

    def mean(self) -> float:
        """E[i]."""
        if self.most is None:
            return self.ratio / (1 - self.ratio)
        if self.ratio > 1:
            return self.most - self._from_above().mean()
        count = self.most + 1
        if abs(self.ratio - 1) * count < 1e-3:
            # First terms around the uniform law, where the closed form cancels.
            return self.most / 2 + (self.ratio - 1) * (count * count - 1) / 12
        log_tail = -count * math.log(self.ratio)
        cut = count / math.expm1(log_tail) if log_tail < _LOG_HUGE else 0.0
        return self.ratio / (1 - self.ratio) - cut

    def quantiles(self, levels: FloatArray) -> FloatArray:
        """Whole i at probabilities ``levels`` (0 <= level < 1), same shape."""
        if self.most is not None and self.ratio > 1:
            return np.maximum(self.most - self._from_above().quantiles(1 - levels), 0.0)
        if self.most is not None and self._is_flat:
            return np.floor(levels * (self.most + 1))
        log_ratio = math.log(self.ratio)
        if self.most is None:
            return np.floor(np.log1p(-levels) / log_ratio)
        inside = levels * math.expm1((self.most + 1) * log_ratio)
        with np.errstate(divide="ignore"):  # level 1 is the last state
            return np.minimum(np.floor(np.log1p(inside) / log_ratio), self.most)

    @property
    def _is_flat(self) -> bool:
        return self.most is not None and abs(self.ratio - 1) * (self.most + 1) < 1e-6

    def _from_above(self) -> Waiting:
        """Law of most - i: the same with the inverse ratio."""
        return Waiting(1 / self.ratio, self.most)
