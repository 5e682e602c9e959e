"""Laws on equal cells of time, added and taken apart by Fourier transform."""

from __future__ import annotations

import math

import numpy as np

from sojourn.model.domain import FloatArray


def transform_size(size: int) -> int:
    """Points of a transform in which laws on so many cells do not wrap around when added."""
    return 1 << math.ceil(math.log2(2 * size))


def distances(size: int) -> FloatArray:
    """Mean distances, in cells, of times that lie 0, 1, .. size - 1 cells apart, (size,)."""
    return np.concatenate(([1 / 3], np.arange(1.0, size)))


def correlated(law: FloatArray, apart: FloatArray) -> FloatArray:
    """Sum over d of law[i + d] apart[d], for each i: shape of ``apart``, (n, ...)."""
    length = transform_size(law.size)
    spectrum = np.fft.rfft(law, length).reshape(-1, *(1,) * (apart.ndim - 1))
    spectrum = spectrum * np.conj(np.fft.rfft(apart, length, axis=0))
    return np.maximum(np.fft.irfft(spectrum, length, axis=0)[: law.size], 0.0)
