"""The M/M/1 queue: the hockey stick 1 / (1 - rho) (S14)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sojourn.model.domain import FloatArray, fraction, non_negative


def slowdown(rho: npt.ArrayLike) -> FloatArray:
    """E[T] / E[S] = 1 / (1 - rho), any shape; inf at load 1 and above.

    Raises:
        ModelDomainError: a negative or NaN load.

    Source: S14 of the theory.

    >>> slowdown([0.5, 0.9]).round(6).tolist()
    [2.0, 10.0]
    """
    load = non_negative("load", rho)
    return np.asarray(np.where(load < 1, 1 / np.where(load < 1, 1 - load, 1.0), np.inf))


def latency_mean_s(rho: npt.ArrayLike, service_s: npt.ArrayLike) -> FloatArray:
    """E[T] = E[S] / (1 - rho), seconds."""
    return np.asarray(np.asarray(service_s, dtype=float) * slowdown(rho))


def latency_quantile_s(
    rho: npt.ArrayLike, service_s: npt.ArrayLike, probability: npt.ArrayLike
) -> FloatArray:
    """-ln(1 - q) E[S] / (1 - rho), seconds: the sojourn time of an M/M/1 queue is exponential."""
    levels = fraction("percentile", probability)
    return np.asarray(-np.log1p(-levels) * latency_mean_s(rho, service_s))


def in_system_mean(rho: npt.ArrayLike) -> FloatArray:
    """E[N] = rho / (1 - rho), requests."""
    return np.asarray(np.asarray(rho, dtype=float) * slowdown(rho))
