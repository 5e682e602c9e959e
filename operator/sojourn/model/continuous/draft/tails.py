"""Upper tails as array formulas: normal, gamma, and counts with a given dispersion."""

from __future__ import annotations

import numpy as np

from sojourn.model.domain import FloatArray

TINY = 1e-300
_FURTHEST = 30.0
_POLYNOMIAL = (1.330274429, -1.821255978, 1.781477937, -0.356563782, 0.319381530)


def normal(z: FloatArray) -> FloatArray:
    """P(Z > z), within 7.5e-8.

    Source: Abramowitz, Stegun (1964), 26.2.17.
    """
    away = np.minimum(np.abs(z), _FURTHEST)
    t = 1 / (1 + 0.2316419 * away)
    series = np.full(t.shape, _POLYNOMIAL[0])
    for factor in _POLYNOMIAL[1:]:
        series *= t
        series += factor
    beyond = np.exp(-away * away / 2) * 0.3989422804 * t * series
    return np.asarray(np.where(z >= 0, beyond, 1 - beyond))


def gamma(x: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
    """P(X > x) of a gamma law; arguments broadcast.

    Source: Wilson, Hilferty, PNAS 17 (1931).
    """
    inverse = np.clip(variance / np.maximum(mean * mean, TINY), 1e-9, 9.0) / 9
    root = np.cbrt(np.maximum(x, 0.0) / np.maximum(mean, TINY))
    z = (root - (1 - inverse)) / np.sqrt(inverse)
    return np.asarray(np.where(x <= 0, 1.0, normal(z)))


def counts(x: FloatArray, mean: FloatArray, dispersion: FloatArray) -> FloatArray:
    """P(K > x) of counts with variance = dispersion * mean, smooth between whole numbers.

    A Poisson number of clusters of ``dispersion`` each: P(Poisson(m) >= n) = P(Gamma(n) <= m), the
    latter by Wilson and Hilferty.
    """
    clusters = np.maximum(mean / dispersion, 1e-12)
    least = np.maximum(x / dispersion + 0.5, 1e-9)
    z = 3 * np.sqrt(least) * (1 - 1 / (9 * least) - np.cbrt(clusters / least))
    return np.asarray(np.where(x <= -0.5 * dispersion, 1.0, normal(z)))
