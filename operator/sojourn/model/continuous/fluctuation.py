"""How much the time of many steps varies, in linear response around the mean.

On the clock of steps, a step lasts X = h(n) + P A with A prompts; n decoding requests are those who
arrived within their output's length; and arrivals come at rate lambda X. In frequency:

    X = (b F + P) (lambda X + noise) + b leaving,   F(w) = E[(1 - e^{-iwL})/(iw)]

so the spectrum of X, and from it the variance of a sum of l steps, follow for any law of the
outputs. It corrects the spread that the classes of ``decoding`` give, which holds for geometric
outputs and mild prompts; fixed outputs under many prompts vary up to a third more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sojourn.model.continuous.lengths import LengthNodes
from sojourn.model.domain import FloatArray

ComplexArray = npt.NDArray[np.complex128]

# Frequencies in units of 1 / E[L]: slow enough for a thousand lifetimes, fast enough for a step.
_SLOW, _FAST, _POINTS = 1e-3, 1e4, 120
_LENGTHS = 10


@dataclass(frozen=True)
class Flow:
    """What the linear response needs, per step: numbers, or columns (k, 1) of k replicas.

    Attributes:
        rate_per_s: arrivals.
        dispersion: their index of dispersion.
        gap_s: mean step, prompts included.
        per_request_s: b, what a decoding request adds to a step.
        prompt_s: P.
    """

    rate_per_s: float | FloatArray
    dispersion: float | FloatArray
    gap_s: float | FloatArray
    per_request_s: float | FloatArray
    prompt_s: float | FloatArray


def frequencies(points: int) -> FloatArray:
    """Where the response is taken, times E[L]: a geometric series, (points,)."""
    return np.geomspace(_SLOW, _FAST, points)


def response(scaled: FloatArray, later: FloatArray, weights: FloatArray) -> ComplexArray:
    """F(w) / E[L] of outputs after their first token, (..., w).

    Args:
        scaled: frequencies times E[L], (w,).
        later: tokens after the first one, in units of E[L], (..., m).
        weights: of each, (..., m).
    """
    half = scaled[:, None] * (later / 2)[..., None, :]
    # 1 - e^-ix = i sin x + 2 sin^2 (x / 2), and sin x from half of it too: real arithmetic.
    sine, shares = np.sin(half), weights[..., None]
    real, imaginary = (sine * np.cos(half)) @ shares, (sine * sine) @ shares
    return np.asarray(2 * (real - 1j * imaginary)[..., 0] / scaled)


def spectrum(
    scaled: FloatArray, kernel: ComplexArray, mean: float | FloatArray, flow: Flow
) -> FloatArray:
    """Of the step times, shape of ``kernel`` (..., w); ``mean`` is E[L], a column for many."""
    b, prompt_s = flow.per_request_s, flow.prompt_s
    arrivals = flow.rate_per_s * flow.gap_s
    inside = mean * kernel
    leaving = 2 * arrivals * mean**2 * ((1 - kernel) / (1j * scaled)).real
    leaving = np.maximum(leaving - arrivals * np.abs(inside) ** 2, 0.0)
    noise = np.abs(b * inside + prompt_s) ** 2 * arrivals * flow.dispersion + b**2 * leaving
    feedback = np.abs(1 - flow.rate_per_s * (prompt_s + b * inside)) ** 2
    return np.asarray(noise / np.maximum(feedback, 1e-12))


def window(scaled: FloatArray, lengths: FloatArray, mean: float | FloatArray) -> FloatArray:
    """Weights of the spectrum in the variance of the time of so many steps, (..., lengths, w)."""
    turns = scaled * (lengths / mean)[..., None]
    # Beyond ten turns the cosine is faster than the grid and averages out.
    found = 2 * (1 - np.cos(np.minimum(turns, 1e3)) * np.exp(-((turns / 10) ** 2)))
    # d(ln w): the grid is even in logarithms; both signs of w.
    found *= np.asarray(mean)[..., None] / scaled * np.log(scaled[1] / scaled[0]) / np.pi
    found[..., [0, -1]] /= 2
    return np.asarray(found)


@lru_cache(maxsize=256)
def _response(output: LengthNodes) -> tuple[FloatArray, ComplexArray]:
    """Frequencies times E[L], and ``response`` there."""
    scaled, later = frequencies(_POINTS), output.tokens - 1
    return scaled, response(scaled, later / float(later @ output.weights), output.weights)


def variance_s2(output: LengthNodes, flow: Flow, lengths: FloatArray) -> FloatArray:
    """Variance of the time ``lengths`` steps take, shape of ``lengths``, in square seconds."""
    scaled, kernel = _response(output)
    mean = float((output.tokens - 1) @ output.weights)
    weights = _window(output, tuple(lengths.tolist()))
    return np.asarray(weights @ spectrum(scaled, kernel, mean, flow))


@lru_cache(maxsize=256)
def _window(output: LengthNodes, lengths: tuple[float, ...]) -> FloatArray:
    """``window`` of a law, kept."""
    scaled, _ = _response(output)
    mean = float((output.tokens - 1) @ output.weights)
    return window(scaled, np.array(lengths), mean)


@lru_cache(maxsize=256)
def sample_lengths(output: LengthNodes) -> FloatArray:
    """A few numbers of later tokens that span the law's, rising, at least 1."""
    later = np.maximum(output.tokens - 1, 1.0)
    low, high = float(later.min()), float(later.max())
    if high <= low * 1.001:
        return np.array([low])
    return np.geomspace(low, high, _LENGTHS)
