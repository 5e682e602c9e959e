"""Load, the least batch that carries it, and the book's four regimes (S8, S9).

Load is lambda1 T_svc(B) / B: the share of its capacity a replica is asked for *if it runs full
batches*. It is not the share of time the server is busy: a server that starts small batches
whenever it can is busy all the time at a load of 0.36.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import numpy.typing as npt

from sojourn.facts.service_time import BatchServiceTime, LinearServiceTime, MeasuredServiceTime
from sojourn.model import service_time, surrogate
from sojourn.model.domain import FloatArray, counting, non_negative, positive

# A load this close to 1 is 1 but for rounding (docs/explanation/queueing.md).
STABLE_BELOW = 1 - 1e-9

# A quotient this close (relative) above a whole number is that number: ceil must not add one.
ROUNDING_SLACK = 1e-9

# The decision table's lower threshold: above it the queue, not the batch, makes the latency.
THRESHOLD_LOAD = 0.5

# E[T] this far above the least one means that the batch waits longer than the queue saves.
KNEE_TOLERANCE = 0.25


class Regime(StrEnum):
    """Where a batch size stands, from too small to too large."""

    UNSTABLE = "Unstable"
    STABILITY_THRESHOLD = "StabilityThreshold"
    LATENCY_KNEE = "LatencyKnee"
    DIMINISHING_RETURNS = "DiminishingReturns"


def utilisation(
    rate_per_s: npt.ArrayLike,
    replicas: npt.ArrayLike,
    batches: npt.ArrayLike,
    law: BatchServiceTime,
) -> FloatArray:
    """Load rho = (lambda / c) T_svc(B) / B, broadcast over the three arrays; 1 or more is unstable.

    Args:
        rate_per_s: lambda, the service's offered rate over all replicas.
        replicas: c, sharing the rate evenly.
        batches: B, max batch.
        law: the service-time law.

    Raises:
        ModelDomainError: a negative or NaN rate, replicas or batch not a whole number from 1.

    Source: S8 of the theory.

    >>> from sojourn.facts.service_time import LinearServiceTime
    >>> float(utilisation(100.0, 1, 8, LinearServiceTime(0.050, 0.0005)).round(3))
    0.675
    """
    per_replica = non_negative("rate", rate_per_s) / counting("replicas", replicas)
    sizes = counting("max batch", batches)
    return np.asarray(per_replica * service_time.service_s(law, sizes) / sizes)


def min_batch(
    rate_per_s: npt.ArrayLike, law: BatchServiceTime, target_utilisation: float
) -> FloatArray:
    """Least whole batch that keeps one replica at or below a target load; inf where none does.

    B_min = lambda T_fixed / (rho - lambda t_req), from lambda (T_fixed + t_req B) / B <= rho.

    Args:
        rate_per_s: lambda1, the rate of one replica, any shape.
        law: the service-time law.
        target_utilisation: rho, 0.7 to 0.8 is usual.

    Raises:
        ModelDomainError: a negative or NaN rate, a target not above 0.

    Source: S8 of the theory.

    >>> from sojourn.facts.service_time import LinearServiceTime
    >>> float(min_batch(100.0, LinearServiceTime(0.050, 0.0005), 0.75))
    8.0
    """
    rates = non_negative("rate", rate_per_s)
    target = float(positive("target utilisation", target_utilisation))
    if isinstance(law, LinearServiceTime):
        return _ceil(_linear_min_batch(rates, law.fixed_s, law.per_request_s, target))
    return _measured_min_batch(rates, law, target)


def min_batch_exact(rate_per_s: npt.ArrayLike, law: LinearServiceTime, target: float) -> FloatArray:
    """B_min before it is rounded up (S8), inf where no batch is large enough."""
    return _linear_min_batch(
        non_negative("rate", rate_per_s), law.fixed_s, law.per_request_s, target
    )


def least_stable_batch(rate_per_s: npt.ArrayLike, law: BatchServiceTime) -> FloatArray:
    """Least whole batch with mu_eff(B) > lambda1, strictly; inf where none is.

    A batch at exactly B_min(1) has load 1 and a queue without bound, so it does not count.

    Source: S5 and S8 of the theory.

    >>> from sojourn.facts.service_time import LinearServiceTime
    >>> float(least_stable_batch(100.0, LinearServiceTime(0.050, 0.0005)))
    6.0
    """
    # A target just below STABLE_BELOW absorbs the rounding slack of min_batch.
    return min_batch(rate_per_s, law, 1 - 4e-9)


def regime(
    rate_per_s: float, law: BatchServiceTime, batch: int, *, threshold: float = THRESHOLD_LOAD
) -> Regime:
    """The book's regime of a batch size at one replica's rate.

    Unstable: load 1 or more. StabilityThreshold: stable, load above ``threshold``. LatencyKnee:
    mean latency of the surrogate within 25 % of the least any smaller batch gives.
    DiminishingReturns: beyond, where a larger batch adds throughput nobody asks for and latency
    everybody pays.

    Source: S9 of the theory, GPT-3 at 100 requests/s: 4, 8, 16 and 32 are the four regimes.
    """
    load = float(utilisation(rate_per_s, 1, batch, law))
    if load >= STABLE_BELOW:
        return Regime.UNSTABLE
    if load > threshold:
        return Regime.STABILITY_THRESHOLD
    sizes = np.arange(1, batch + 1)
    latency_s = surrogate.latency_mean_s(rate_per_s, sizes, law)
    if latency_s[-1] <= (1 + KNEE_TOLERANCE) * float(np.min(latency_s)):
        return Regime.LATENCY_KNEE
    return Regime.DIMINISHING_RETURNS


def _linear_min_batch(
    rates: FloatArray, fixed_s: float, per_request_s: float, target: float
) -> FloatArray:
    room = target - rates * per_request_s
    needed = rates * fixed_s
    with np.errstate(divide="ignore", invalid="ignore"):
        batch = np.where(room > 0, needed / np.where(room > 0, room, 1.0), np.inf)
    return np.asarray(np.where((room <= 0) & (rates == 0), 0.0, batch))


def _ceil(batches: FloatArray) -> FloatArray:
    return np.asarray(np.maximum(1.0, np.ceil(batches * (1 - ROUNDING_SLACK))))


def _measured_min_batch(rates: FloatArray, law: MeasuredServiceTime, target: float) -> FloatArray:
    sizes = np.arange(1, law.batches[-1] + 1, dtype=float)
    capacity = service_time.capacity_per_s(law, sizes) * target * (1 + ROUNDING_SLACK)
    # The running maximum makes the rates of a law with bumps searchable: the first size whose rate
    # is enough is the first whose running maximum is.
    first = np.searchsorted(np.maximum.accumulate(capacity), rates, side="left")
    slope = service_time.last_slope_s(law)
    beyond = _ceil(
        _linear_min_batch(rates, law.batch_s[-1] - slope * law.batches[-1], slope, target)
    )
    # A falling rate beyond the last point (a steep last segment) can make the line's answer too
    # small to be beyond it: then no size there is enough.
    beyond = np.where(beyond > law.batches[-1], beyond, np.inf)
    inside = first < sizes.size
    return np.asarray(np.where(inside, sizes[np.minimum(first, sizes.size - 1)], beyond))
