"""T_fixed and t_req from measured batches (S11 step 1): two fits, one judgement.

Least maximum relative error is the default: over 397 published profiles plain least squares gave a
negative T_fixed in 15 and twice the worst error. R^2 is reported and gates nothing: lines with
R^2 above 0.98 are often 20 % wrong at small batches, and a flat curve has a low one and a good fit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sojourn.errors import FitRefused
from sojourn.facts.fit import ServiceTimeFit
from sojourn.facts.service_time import LinearServiceTime
from sojourn.model.domain import FloatArray, positive

DENSE_TOLERANCE = 0.10
OTHER_TOLERANCE = 0.20
INVALID_ABOVE = 0.15

Line = tuple[float, float]


def fit(
    batches: npt.ArrayLike,
    seconds: npt.ArrayLike,
    *,
    tolerance: float = DENSE_TOLERANCE,
    scv: float = 0.0,
) -> ServiceTimeFit:
    """The line of least maximum relative error with T_fixed, t_req >= 0, judged.

    Args:
        batches: measured batch sizes, (n,), at least two different ones.
        seconds: what such a batch took, (n,).
        tolerance: relative error to call the law linear; 0.10 for dense models, 0.20 for others.
        scv: squared coefficient of variation to put on the law.

    Raises:
        FitRefused: the batches do not vary, or the time falls with the batch beyond what a line
            with non-negative parts can follow.
        ModelDomainError: a batch or a time that is not positive.

    Source: S11 of the theory; docs/explanation/queueing.md.
    """
    return _judged(least_relative_error, batches, seconds, tolerance, scv)


def fit_least_squares(
    batches: npt.ArrayLike,
    seconds: npt.ArrayLike,
    *,
    tolerance: float = DENSE_TOLERANCE,
    scv: float = 0.0,
) -> ServiceTimeFit:
    """The line of least squared error with T_fixed, t_req >= 0, judged; arguments as ``fit``."""
    return _judged(least_squares, batches, seconds, tolerance, scv)


def least_squares(batches: FloatArray, seconds: FloatArray) -> Line:
    """(T_fixed, t_req) minimising sum (T - T_fixed - t_req B)^2 with neither below 0."""
    spread = batches - batches.mean()
    slope = float(spread @ seconds / (spread @ spread))
    fixed = float(seconds.mean() - slope * batches.mean())
    if slope < 0:
        return float(seconds.mean()), 0.0
    if fixed < 0:
        return 0.0, float(batches @ seconds / (batches @ batches))
    return fixed, slope


def least_relative_error(batches: FloatArray, seconds: FloatArray) -> Line:
    """(T_fixed, t_req) minimising max |T_fixed + t_req B - T| / T with neither below 0.

    For a given slope the best T_fixed is a closed form over pairs of points; what is left is convex
    in the slope, so a golden-section search finds it.
    """
    low, high = 0.0, float(2 * np.max(seconds / batches))
    ratio = (np.sqrt(5) - 1) / 2
    for _ in range(90):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if _error(batches, seconds, left) <= _error(batches, seconds, right):
            high = right
        else:
            low = left
    slopes = [0.0, (low + high) / 2]
    slope = min(slopes, key=lambda trial: _error(batches, seconds, trial))
    return _best_fixed(batches, seconds, slope), float(slope)


def _best_fixed(batches: FloatArray, seconds: FloatArray, slope: float) -> float:
    rest = seconds - slope * batches
    # |f - rest_i| / T_i <= e for all i; the binding pair is the one with the largest e.
    gaps = (rest[:, None] - rest) / (seconds[:, None] + seconds)
    highest = int(np.argmax(gaps.max(axis=1)))
    return float(max(0.0, rest[highest] - gaps.max() * seconds[highest]))


def _error(batches: FloatArray, seconds: FloatArray, slope: float) -> float:
    line = _best_fixed(batches, seconds, slope) + slope * batches
    return float(np.max(np.abs(line - seconds) / seconds))


def _judged(
    method: Callable[[FloatArray, FloatArray], Line],
    batches: npt.ArrayLike,
    seconds: npt.ArrayLike,
    tolerance: float,
    scv: float,
) -> ServiceTimeFit:
    sizes, times = positive("batch", batches), positive("batch time", seconds)
    if sizes.shape != times.shape or sizes.ndim != 1 or np.unique(sizes).size < 2:
        raise FitRefused(
            f"{np.unique(sizes).size} different batch size(s) measured, 2 or more needed"
        )
    fixed_s, per_request_s = method(sizes, times)
    errors = np.abs(fixed_s + per_request_s * sizes - times) / times
    worst = int(np.argmax(errors))
    _refuse_falling(sizes, times, float(errors[worst]), tolerance)
    residual = times - fixed_s - per_request_s * sizes
    spread = float(((times - times.mean()) ** 2).sum())
    return ServiceTimeFit(
        law=LinearServiceTime(fixed_s, per_request_s, scv),
        r_squared=1 - float(residual @ residual) / spread if spread > 0 else 1.0,
        max_relative_error=float(errors[worst]),
        worst_batch=float(sizes[worst]),
        smallest_batch=float(sizes.min()),
        largest_batch=float(sizes.max()),
        tolerance=tolerance,
        is_linear=bool(errors[worst] <= tolerance),
        is_valid=bool(errors[worst] <= max(INVALID_ABOVE, tolerance)),
    )


def _refuse_falling(sizes: FloatArray, times: FloatArray, error: float, tolerance: float) -> None:
    spread = sizes - sizes.mean()
    slope = float(spread @ times / (spread @ spread))
    if slope < 0 and error > tolerance:
        raise FitRefused(
            f"the time falls with the batch ({slope * 1e3:.3g} ms per request); "
            f"no line with t_req >= 0 is nearer than {error:.0%}"
        )
