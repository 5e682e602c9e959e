"""Arrivals during a service: Poisson for a fixed time, negative binomial for a gamma time."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from sojourn.model import poisson
from sojourn.model.domain import FloatArray
from sojourn.model.poisson import IntArray


def pmf(mean: FloatArray, scv: float, size: int) -> FloatArray:
    """P(J = j), j = 0..size-1, J the arrivals in a service with mean count ``mean``.

    Args:
        mean: lambda s, shape (n,).
        scv: CV^2 of the service time.
        size: how many counts.

    Returns:
        Shape (n, size).
    """
    return at(mean, scv, np.arange(size))


def at(mean: FloatArray, scv: float, wanted: IntArray) -> FloatArray:
    """P(J = j) for each j of ``wanted``: shape (n, len(wanted))."""
    if scv == 0:
        return poisson.at(mean, wanted)
    size = int(wanted.max(initial=0)) + 1
    grown = scv * np.maximum(mean, 1e-300)[:, None]
    logs = wanted * np.log(grown / (1 + grown)) - np.log1p(grown) / scv
    rising = log_rising(1 / scv, size) - poisson.log_factorials(size)
    return np.asarray(np.exp(logs + rising[wanted]))


def log_rising(start: float, size: int) -> FloatArray:
    """Logarithm of start (start+1) ... (start+j-1), j = 0..size-1."""
    return np.concatenate(([0.0], np.cumsum(np.log(start + np.arange(size - 1)))))


def gamma_tail(shape: float, x: FloatArray) -> FloatArray:
    """Q(a, x), the upper tail of a gamma law with shape a and scale 1, same shape as x.

    Series below the mean, continued fraction above; both are sums of terms of one sign.
    """
    points = np.asarray(x, dtype=float)
    with np.errstate(divide="ignore"):
        front = np.exp(shape * np.log(points) - points - math.lgamma(shape + 1))
    below = points < shape + 1
    low, high = np.where(below, points, 0.0), np.where(below, shape + 2, points)
    total, term = np.ones(points.shape), np.ones(points.shape)
    for n in range(1, 5000):
        term = term * low / (shape + n)
        total = total + term
        if term.max(initial=0.0) < 1e-15 * total.max(initial=1.0):
            break
    upper = front * shape * _fraction(shape, high)
    return np.asarray(np.clip(np.where(below, 1 - front * total, upper), 0.0, 1.0))


def _fraction(shape: float, x: FloatArray) -> FloatArray:
    """Lentz's continued fraction of Gamma(a, x) / (x^a e^-x), x > a + 1."""
    tiny = 1e-300
    b = x + 1 - shape
    c = np.full(x.shape, 1 / tiny)
    d = 1 / b
    value = d
    for i in range(1, 5000):
        a = -i * (i - shape)
        b = b + 2
        d = a * d + b
        d = 1 / np.where(np.abs(d) < tiny, tiny, d)
        c = b + a / c
        c = np.where(np.abs(c) < tiny, tiny, c)
        value = value * d * c
        if np.max(np.abs(d * c - 1), initial=0.0) < 1e-14:
            break
    return np.asarray(value)


@lru_cache(maxsize=256)
def unit_cdf(scv: float) -> tuple[FloatArray, FloatArray]:
    """Points and P(G <= point) of the gamma law with mean 1, dense enough for interpolation."""
    top = 1.0
    while gamma_tail(1 / scv, np.array([top / scv]))[0] > 1e-12:
        top *= 1.25
    # Quadratic spacing: for CV^2 above 1 the density is infinite at 0.
    points = top * np.linspace(0, 1, 3000) ** 2
    return points, 1 - gamma_tail(1 / scv, points / scv)


@lru_cache(maxsize=256)
def unit_first_moment(scv: float) -> FloatArray:
    """E[G; G <= point] at the points of ``unit_cdf``."""
    points, _ = unit_cdf(scv)
    return np.asarray(1 - gamma_tail(1 / scv + 1, points / scv))


def service_at(edges_s: FloatArray, mean_s: float, scv: float) -> FloatArray:
    """The service time as mass at equally spaced edges from 0, its mean kept: shape of edges."""
    points, values = unit_cdf(scv)
    mass = np.diff(np.interp(edges_s / mean_s, points, values))
    moment_s = mean_s * np.diff(np.interp(edges_s / mean_s, points, unit_first_moment(scv)))
    upper = np.clip((moment_s - mass * edges_s[:-1]) / edges_s[1], 0.0, mass)
    return np.append(mass - upper, 0.0) + np.concatenate(([0.0], upper))


def service_cdf(seconds: FloatArray, mean_s: FloatArray, scv: float) -> FloatArray:
    """P(S <= seconds) for each mean: shape (len(mean_s), len(seconds)); a step for CV^2 = 0."""
    if scv == 0:
        return np.asarray((seconds >= mean_s[:, None]) * 1.0)
    points, values = unit_cdf(scv)
    return np.interp(seconds / mean_s[:, None], points, values, left=0.0, right=1.0)
