"""Round robin before servers that take one request at a time, exactly.

Each replica gets every c-th request, so gaps are Erlang-c: a GI/G/1 queue. The wait is the maximum
of a random walk with steps S - A, and Spitzer's identity gives its transform from the walk's
positive parts, E z^W = exp(sum_n (1/n) (E z^(S_n)^+ - 1)). On a grid that is three Fourier
transforms: the series is -ln(1 - phi), and its positive part is read off in the time domain.

Source: Spitzer, Trans. AMS 82 (1956); the grid form is cepstral factorisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sojourn.model.domain import FloatArray
from sojourn.model.dynamic import counts

_POINTS = 2**15


@dataclass(frozen=True)
class Waits:
    """Wait and response of one replica.

    Attributes:
        mean_wait_s: E[W].
        quantiles_s: of the response time, as asked.
    """

    mean_wait_s: float
    quantiles_s: tuple[float, ...]


def waits(
    rate_per_s: float, service_s: float, scv: float, replicas: int, levels: Sequence[float]
) -> Waits:
    """Law of the wait at one replica that gets every ``replicas``-th Poisson arrival.

    Args:
        rate_per_s: rate of one replica, more than 0, load below 1.
        service_s: mean service.
        scv: CV^2 of the service, gamma law; 0 is fixed.
        replicas: c, phases of the gap between arrivals.
        levels: quantiles of the response wanted.
    """
    load = rate_per_s * service_s
    # The heavy-traffic decay of a GI/G/1 wait, for the length of the grid.
    decay_s = service_s * (load * scv + 1 / replicas / load + 0.05) / (2 * (1 - load))
    gap_s = (1 + 9 / np.sqrt(replicas)) / rate_per_s
    longest_s = 16 * decay_s + gap_s + service_s * (2 + 14 * max(scv, np.sqrt(scv)))
    step_s = 2 * longest_s / _POINTS
    edges = step_s * np.arange(_POINTS // 2 + 1)
    service = _service(edges, service_s, scv)
    gap = _at_edges(np.diff(1 - counts.gamma_tail(replicas, replicas * rate_per_s * edges)))
    step = np.fft.fft(service, _POINTS) * np.conj(np.fft.fft(gap, _POINTS))
    series = np.fft.ifft(_log_ratio(step)).real
    series[0] = 0.0
    series[_POINTS // 2 :] = 0.0
    spectrum = np.exp(np.fft.fft(series) - series.sum())
    wait = np.maximum(np.fft.ifft(spectrum).real[: edges.size], 0.0)
    wait /= wait.sum()
    if scv == 0:
        below, at_s = np.cumsum(wait), edges + service_s
        quantiles = [_quantile_s(level, below - wait / 2, at_s) for level in levels]
    else:
        response = np.fft.ifft(spectrum * np.fft.fft(service, _POINTS)).real[: edges.size]
        below = np.cumsum(response) - response / 2
        quantiles = [_quantile_s(level, below, edges) for level in levels]
    return Waits(float(wait @ edges), tuple(quantiles))


def _log_ratio(step: npt.NDArray[np.complex128]) -> npt.NDArray[np.complex128]:
    """-ln of (1 - phi) / (1 - one grid step down).

    A walk that only steps down has no positive part, so dividing by it changes nothing that is
    read, and takes away the singularity at frequency 0 that would wrap around the grid.
    """
    down = np.exp(2j * np.pi * np.arange(_POINTS) / _POINTS)
    drift = -(np.fft.ifft(step).real @ _signed_points())
    ratio = np.full(_POINTS, -np.log(drift), dtype=complex)
    ratio[1:] = np.log(1 - down[1:]) - np.log(1 - step[1:])
    return ratio


def _signed_points() -> FloatArray:
    points = np.arange(_POINTS, dtype=float)
    return np.asarray(np.where(points < _POINTS // 2, points, points - _POINTS))


def _service(edges: FloatArray, service_s: float, scv: float) -> FloatArray:
    if scv > 0:
        return _at_edges(np.diff(counts.service_cdf(edges, np.array([service_s]), scv)[0]))
    mass = np.zeros(edges.size)
    place = service_s / edges[1]
    whole = int(place)
    mass[whole], mass[whole + 1] = 1 - (place - whole), place - whole
    return mass


def _at_edges(cells: FloatArray) -> FloatArray:
    padded = np.concatenate(([0.0], cells, [0.0]))
    return np.asarray((padded[1:] + padded[:-1]) / 2)


def _quantile_s(level: float, below: FloatArray, at_s: FloatArray) -> float:
    return float(np.interp(level, np.maximum.accumulate(below), at_s))
