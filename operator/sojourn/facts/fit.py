"""A service-time law drawn through measurements, and how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass

from sojourn.facts.service_time import LinearServiceTime


@dataclass(frozen=True)
class ServiceTimeFit:
    """T_fixed and t_req fitted to measured batches.

    Attributes:
        law: the fitted line.
        r_squared: share of the variance explained; reported, never a gate (a flat curve has a low
            one and a good fit).
        max_relative_error: largest |fitted - measured| / measured.
        worst_batch: the measured batch with that error.
        smallest_batch: least batch measured.
        largest_batch: largest batch measured.
        tolerance: what max_relative_error was held against (0.10 dense, 0.20 other).
        is_linear: the error is within the tolerance.
        is_valid: the error is at most 15 %, or within the tolerance.
    """

    law: LinearServiceTime
    r_squared: float
    max_relative_error: float
    worst_batch: float
    smallest_batch: float
    largest_batch: float
    tolerance: float
    is_linear: bool
    is_valid: bool

    def extrapolates(self, batch: float) -> bool:
        """Whether ``batch`` is beyond twice the measured range, where errors of 20 % are usual."""
        return batch > 2 * self.largest_batch or batch < self.smallest_batch / 2
