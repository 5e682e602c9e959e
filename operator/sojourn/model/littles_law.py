"""Little's law, Q = lambda T: a check on every measurement (S10)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sojourn.model.domain import FloatArray, non_negative


def in_system(rate_per_s: npt.ArrayLike, latency_s: npt.ArrayLike) -> FloatArray:
    """Mean number in the system, Q = lambda E[T]; broadcasts.

    Raises:
        ModelDomainError: a negative or NaN argument.

    Source: S10 of the theory.
    """
    return np.asarray(non_negative("rate", rate_per_s) * non_negative("latency", latency_s))


def waiting(
    rate_per_s: npt.ArrayLike, queue_wait_s: npt.ArrayLike, batch_wait_s: npt.ArrayLike
) -> FloatArray:
    """Mean number not yet in service: lambda (E[W] + E[T_batch])."""
    held_s = non_negative("queue wait", queue_wait_s) + non_negative("batch wait", batch_wait_s)
    return in_system(rate_per_s, held_s)


def in_service(rate_per_s: npt.ArrayLike, service_s: npt.ArrayLike) -> FloatArray:
    """Mean number in service: lambda E[T_svc], E[T_svc] weighted by requests."""
    return in_system(rate_per_s, service_s)


def disagreement(
    measured_in_system: npt.ArrayLike, rate_per_s: npt.ArrayLike, latency_s: npt.ArrayLike
) -> FloatArray:
    """Relative gap between a measured number in system and lambda T, signed; 0 where both are 0.

    Averages over the same window must agree whatever the queue does. A gap beyond sampling noise
    means that one of the three readings is not what its name says.
    """
    expected = in_system(rate_per_s, latency_s)
    measured = non_negative("in system", measured_in_system)
    scale = np.maximum(expected, measured)
    return np.asarray(np.where(scale > 0, (measured - expected) / np.where(scale > 0, scale, 1), 0))
