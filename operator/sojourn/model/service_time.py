"""How long a batch takes, and the rate that gives (S2).

Every function takes the law first and arrays of batch sizes, and returns arrays of the same shape.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from sojourn.errors import ModelDomainError
from sojourn.facts.service_time import BatchServiceTime, LinearServiceTime, MeasuredServiceTime
from sojourn.model.domain import FloatArray, positive


def service_s(law: BatchServiceTime, batches: npt.ArrayLike) -> FloatArray:
    """Mean seconds of a batch: T_svc(B) = T_fixed + t_req B, or the measured points' polyline.

    Outside the measured points the time is never guessed shorter than seen: below the first point
    it stays at the first point, beyond the last it follows the last segment (a single point grows
    in proportion to B, as if batching bought nothing).

    Args:
        law: the service-time law.
        batches: batch sizes, any shape; fractions are allowed (mean batches).

    Raises:
        ModelDomainError: the law has negative, NaN or unordered parts.

    Source: S2 of the theory; docs/explanation/queueing.md.
    """
    sizes = np.asarray(batches, dtype=float)
    if isinstance(law, LinearServiceTime):
        _check_linear(law)
        return np.asarray(law.fixed_s + law.per_request_s * sizes)
    return _measured_s(law, sizes)


def capacity_per_s(law: BatchServiceTime, batches: npt.ArrayLike) -> FloatArray:
    """Requests per second of one replica running full batches: mu_eff(B) = B / T_svc(B).

    Source: S2 of the theory.
    """
    sizes = np.asarray(batches, dtype=float)
    return np.asarray(sizes / positive("service time", service_s(law, sizes)))


def capacity_limit_per_s(law: BatchServiceTime) -> float:
    """Requests per second no batch size exceeds: 1 / t_req, inf when t_req is 0.

    For measured points the largest of the points' own rates and the limit of the last segment.

    Source: S2 of the theory, limit of B / T_svc(B).
    """
    if isinstance(law, LinearServiceTime):
        _check_linear(law)
        return math.inf if law.per_request_s == 0 else 1 / law.per_request_s
    slope = last_slope_s(law)
    beyond = math.inf if slope == 0 else 1 / slope
    return max(beyond, float(np.max(capacity_per_s(law, law.batches))))


def last_slope_s(law: MeasuredServiceTime) -> float:
    """Seconds each request adds beyond the last measured batch."""
    if len(law.batches) == 1:
        return law.batch_s[0] / law.batches[0]
    return (law.batch_s[-1] - law.batch_s[-2]) / (law.batches[-1] - law.batches[-2])


def _check_linear(law: LinearServiceTime) -> None:
    if not (law.fixed_s >= 0 and law.per_request_s >= 0 and law.scv >= 0):
        worst = min(law.fixed_s, law.per_request_s, law.scv)
        raise ModelDomainError("service time", worst, "0 or more in fixed, perRequest and scv")
    if law.fixed_s + law.per_request_s <= 0:
        raise ModelDomainError("service time", 0.0, "more than 0")


def _measured_s(law: MeasuredServiceTime, sizes: FloatArray) -> FloatArray:
    points = np.asarray(law.batches, dtype=float)
    seconds = np.asarray(law.batch_s, dtype=float)
    if points.size == 0 or points.size != seconds.size:
        raise ModelDomainError("measured batches", float(points.size), "as many as their times")
    if not (np.all(seconds > 0) and np.all(np.diff(seconds) >= 0) and law.scv >= 0):
        raise ModelDomainError("measured times", float(seconds.min()), "positive, non-decreasing")
    if not (points[0] >= 1 and np.all(np.diff(points) > 0)):
        raise ModelDomainError("measured batches", float(points[0]), "increasing from 1 or more")
    beyond = np.maximum(sizes - points[-1], 0.0) * last_slope_s(law)
    return np.asarray(np.interp(sizes, points, seconds) + beyond)
