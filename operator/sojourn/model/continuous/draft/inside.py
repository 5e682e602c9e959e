"""Numbers inside a replica, in cells: ``population`` for many points, queue unbounded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sojourn.model.continuous.cells import means_between
from sojourn.model.continuous.draft.engines import Engines
from sojourn.model.continuous.draft.tails import TINY
from sojourn.model.continuous.population import bursts_at_limit, queue_scv
from sojourn.model.continuous.steps import step_seen_s
from sojourn.model.domain import FloatArray

_CELLS = 64
CLASS_EDGES = np.array([0.0, 0.4, 0.75, 0.92, 0.985, 1.0])
CLASS_SHARES = np.diff(CLASS_EDGES)


@dataclass(frozen=True, eq=False)
class Inside:
    """What an arrival finds: columns (k, 1) unless stated.

    Attributes:
        rate_per_s: lambda1.
        dispersion: of the arrivals.
        counts: middle of each cell below the limit, (k, j).
        weights: probability of each, (k, j).
        decoding: how many of them decode, (k, j).
        classes: mean number decoding in each class of arrivals that find a place, (k, g).
        full: probability of no free place.
        idle: probability of nobody.
        theta: ratio of the queue's geometric law.
        phi: share of time for prompts.
        burst: variance of the number inside over Poisson's.
        load: lambda1 / D_B.
        running, in_system: means.
    """

    rate_per_s: FloatArray
    dispersion: FloatArray
    counts: FloatArray
    weights: FloatArray
    decoding: FloatArray
    classes: FloatArray
    full: FloatArray
    idle: FloatArray
    theta: FloatArray
    phi: FloatArray
    burst: FloatArray
    load: FloatArray
    running: FloatArray
    in_system: FloatArray


def inside(some: Engines, rate_per_s: FloatArray, dispersion: FloatArray) -> Inside:
    """Solve the chain of every row at a load below 1."""
    phi, load = rate_per_s * some.prompt_s, rate_per_s / some.capacity_per_s
    stride = np.maximum(1.0, some.batch / _CELLS)
    cells = int(min(_CELLS, some.batch.max()))
    counts = np.arange(cells) * stride + (stride - 1) / 2
    decoding, stay_s = _stays(some, rate_per_s, counts, phi)
    burst = np.maximum(1 + (dispersion / (1 - phi) ** 2 - 1) * some.overlap, 1.0)
    logs, log_limit = _log_weights(some, rate_per_s, (counts, stride, stay_s), burst)

    v = queue_scv(some.scv, some.departure_scv, some.batch, load)
    exponent = 2 / np.maximum(dispersion + v, 0.02)
    theta = load**exponent
    sigma = (theta - 1) / (load - 1) * bursts_at_limit(some.overlap, burst)
    log_full = log_limit - np.log(some.capacity_per_s) + np.log(sigma) - np.log1p(-theta)
    logs = np.where(counts < some.batch, logs + np.log(stride), -np.inf)
    highest = np.maximum(logs.max(axis=1, keepdims=True), log_full)
    weights, full = np.exp(logs - highest), np.exp(log_full - highest)
    total = weights.sum(axis=1, keepdims=True) + full
    weights, full = weights / total, full / total
    running = (weights * counts).sum(axis=1, keepdims=True) + full * some.batch
    return Inside(
        rate_per_s=rate_per_s,
        dispersion=dispersion,
        counts=counts,
        weights=weights,
        decoding=decoding,
        classes=means_between(weights, weights * decoding, CLASS_EDGES),
        full=full,
        # A cell of several numbers hides the empty replica: state 0 has weight 1 in the logs.
        idle=np.exp(-highest) / total,
        theta=theta,
        phi=phi,
        burst=burst,
        load=load,
        running=running,
        in_system=running + full * theta / (1 - theta),
    )


def own_step_s(some: Engines, found: Inside, step_s: FloatArray) -> FloatArray:
    """Mean step of the own prompt, shape of ``step_s``."""
    joined = found.rate_per_s * step_seen_s(step_s, some.prompt_s, found.phi)
    return step_s + some.prompt_s * (1 + joined)


def _stays(
    some: Engines, rate_per_s: FloatArray, counts: FloatArray, phi: FloatArray
) -> tuple[FloatArray, FloatArray]:
    later, prompt_s = some.mean - 1, some.prompt_s
    share = np.broadcast_to(later / some.mean, counts.shape)
    stay_s = np.ones(counts.shape)
    waits = 1 - 1 / np.maximum(counts, 1.0)
    for _ in range(3):
        step_s = some.steps_s(counts * share)
        seen_s = step_seen_s(step_s, prompt_s, phi)
        own_s = step_s + prompt_s * (1 + rate_per_s * seen_s)
        decode_s = later * step_s / (1 - phi)
        stay_s = waits * seen_s / 2 + own_s / (1 - phi) + decode_s
        share = decode_s / stay_s
    return counts * share, stay_s


def _log_weights(
    some: Engines,
    rate_per_s: FloatArray,
    cells: tuple[FloatArray, FloatArray, FloatArray],
    burst: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Ln of the weight of the number in the middle of each cell, and ln of the flow into the limit.

    The product over numbers of ``population`` goes from middle to middle in one factor, that of the
    number at the edge between them.
    """
    counts, stride, stay_s = cells
    q = (burst - 1) / burst
    clusters = rate_per_s * (1 - q)
    part = (stride + 1) / (2 * stride)
    log_stay = np.log(stay_s)
    edges = np.arange(1, counts.shape[1]) * stride
    at_edges = np.exp(log_stay[:, :-1] * (1 - part) + log_stay[:, 1:] * part) / edges
    # Half a cell before the first middle and after the last one.
    half = (stride - 1) / 2
    begin = half * np.log(clusters * stay_s[:, :1] / ((stride + 1) / 4) + q)
    steps = stride * np.log(clusters * at_edges + q)
    carried = begin + np.concatenate((np.zeros_like(begin), np.cumsum(steps, axis=1)), axis=1)
    ratio = clusters * stay_s / np.maximum(counts, TINY)
    logs = carried + np.where(counts > 0, np.log(ratio / (ratio + q)), 0.0)
    rows = np.arange(counts.shape[0])
    last = np.minimum(some.batch / stride + 1e-9, counts.shape[1]).astype(np.int64)[:, 0] - 1
    end_s, end = stay_s[rows, last][:, None], some.batch - (stride + 1) / 4
    flow = carried[rows, last][:, None] + half * np.log(clusters * end_s / end + q)
    return logs, flow + np.log(clusters)
