"""Decoding in the draft: its law by class and output length, and the shares later than a goal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sojourn.model.continuous import fluctuation
from sojourn.model.continuous.decoding import GROWTH, RARELY_FULL
from sojourn.model.continuous.draft import tails
from sojourn.model.continuous.draft.engines import FREQUENCIES, SAMPLES, Engines
from sojourn.model.continuous.draft.first_token import QUEUE_SHARES, First
from sojourn.model.continuous.draft.inside import CLASS_SHARES, Inside, own_step_s
from sojourn.model.continuous.population import departures_scv
from sojourn.model.domain import FloatArray


@dataclass(frozen=True, eq=False)
class Law:
    """Decoding seconds = base + scale x prompts, by class (the last is full) and length.

    Then moved to Little's mean and the linear response's spread, length by length.

    Attributes:
        shares: of the classes, (k, g + 1).
        base_s: (k, g + 1, m).
        scale_s: (k, 1, m).
        prompts: mean number, (k, g + 1, m).
        dispersion: variance over mean of it, (k, g + 1, m).
        mean_s: over the classes before the move, (k, 1, m).
        ratio, factor: of the mean and of what is apart from it, (k, 1, m).
    """

    shares: FloatArray
    base_s: FloatArray
    scale_s: FloatArray
    prompts: FloatArray
    dispersion: FloatArray
    mean_s: FloatArray
    ratio: FloatArray
    factor: FloatArray

    @property
    def moved_s(self) -> FloatArray:
        """Mean by class and length, (k, g + 1, m)."""
        apart = self.base_s + self.scale_s * self.prompts - self.mean_s
        return self.ratio * self.mean_s + self.factor * apart

    @property
    def variance_s2(self) -> FloatArray:
        """Variance by class and length, (k, g + 1, m)."""
        return (self.factor * self.scale_s) ** 2 * self.prompts * self.dispersion


def decode(some: Engines, found: Inside, first: First) -> Law:
    """As ``decoding.decode``, classes and lengths fewer."""
    step_s, gap_s = _pace(some, found)
    crowd_s = some.steps_s(found.running)
    relaxation = (1 - found.phi) * some.fixed_s / (some.mean * crowd_s**2)
    later = some.later
    y = np.maximum(relaxation * later * gap_s, 1e-4)
    regress = np.sqrt(2 * (y - 1 + np.exp(-y))) / y
    full_s = some.full_step_s
    own_s = np.minimum(some.steps_s(1 + found.classes), full_s)
    own_s = np.concatenate((own_s, full_s), axis=1)
    steps_s = later * step_s
    steps_s = steps_s[:, None] + (later * regress)[:, None] * (own_s - step_s)[:, :, None]
    entered = own_step_s(some, found, own_s)[:, :, None]
    prompts = found.rate_per_s[:, :, None] / (1 - found.phi)[:, :, None] * (steps_s + entered)
    dispersion = np.empty(prompts.shape)
    dispersion[:] = (found.dispersion / (1 - found.phi) ** 2)[:, :, None]
    # A full batch: places, not arrivals, decide who enters.
    prompts[:, -1] = later * np.minimum(some.entering, (some.batch - 1) / some.mean)
    turned = departures_scv(some.scv, later / some.mean)
    dispersion[:, -1] = np.clip(turned, 1e-3, 1.0)

    calm = np.minimum(1.0, GROWTH * np.maximum(0.0, 1 - found.load))
    growth_s = later * some.per_request_s / 2 * np.minimum(1.0, some.mean / (later + 1)) * calm
    scale_s = (some.prompt_s + growth_s)[:, None]
    base_s = steps_s - growth_s[:, None] * prompts
    total_s = base_s + scale_s * prompts
    shares = found.weights.sum(axis=1, keepdims=True) * CLASS_SHARES
    shares = np.concatenate((shares, found.full), axis=1)
    weights = shares[:, :, None]
    mean_s = (weights * total_s).sum(axis=1, keepdims=True)
    spread = scale_s**2 * prompts * dispersion + (total_s - mean_s) ** 2
    square = (weights * spread).sum(axis=1)

    trust = np.exp(-((found.full / RARELY_FULL) ** 2))
    little_s = found.in_system / found.rate_per_s - first.mean_s
    usual_s = (some.shares * mean_s[:, 0]).sum(axis=1, keepdims=True)
    ratio = 1 + trust * (np.clip(little_s / usual_s, 0.9, 1.1) - 1)
    wanted = _response_s(some, found, step_s, gap_s)
    wide = np.clip(wanted / np.sqrt(np.maximum(square, tails.TINY)), 0.5, 2.0)
    factor = 1 + trust * (wide - 1)
    return Law(
        shares, base_s, scale_s, prompts, dispersion, mean_s, ratio[:, None], factor[:, None]
    )


def token_late(some: Engines, law: Law, goal_s: FloatArray) -> FloatArray:
    """Share of requests of two tokens or more that take longer than ``goal_s`` a token, (k, 1)."""
    seconds = (goal_s * some.later)[:, None]
    unmoved = (seconds - law.ratio * law.mean_s) / law.factor + law.mean_s
    late = tails.counts(
        (unmoved - law.base_s) / np.maximum(law.scale_s, 1e-15), law.prompts, law.dispersion
    )
    late = np.where(goal_s <= some.fixed_s, 1.0, (late * law.shares[:, :, None]).sum(axis=1))
    weights = some.shares * (some.later > 0)
    total = np.maximum(weights.sum(axis=1, keepdims=True), tails.TINY)
    return np.asarray((late * weights).sum(axis=1, keepdims=True) / total)


def latency_late(some: Engines, law: Law, first: First, goal_s: FloatArray) -> FloatArray:
    """Share of requests that take longer than ``goal_s`` end to end, (k, 1)."""
    mean_s = law.moved_s
    # A node stands for neighbouring lengths too: without their spread the share would be a stair.
    per_token_s = mean_s / np.maximum(some.later, 1e-9)[:, None]
    variance = law.variance_s2 + (some.width[:, None] * per_token_s) ** 2 / 12
    variance = np.maximum(variance, tails.TINY)
    left_s = (goal_s - first.free_s)[:, :, None] - mean_s[:, :-1]
    free = (tails.normal(left_s / np.sqrt(variance[:, :-1])) * some.shares[:, None]).sum(axis=2)
    left_s = (goal_s - first.own_s - first.wait_s)[:, :, None] - mean_s[:, -1:]
    spread = np.sqrt(variance[:, -1:] + first.wait_variance[:, :, None])
    full = (tails.normal(left_s / spread) * some.shares[:, None]).sum(axis=2)
    late = (free * law.shares[:, :-1]).sum(axis=1, keepdims=True)
    late += law.shares[:, -1:] * (full * QUEUE_SHARES).sum(axis=1, keepdims=True)
    return np.asarray(late)


def _pace(some: Engines, found: Inside) -> tuple[FloatArray, FloatArray]:
    """Mean step without and with prompts, weighted by tokens, (k, 1) each."""
    others = found.decoding * (1 - 1 / np.maximum(found.counts, 1.0))
    step_s = np.minimum(some.steps_s(1 + np.maximum(others, 0.0)), some.full_step_s)
    making = found.weights * found.counts
    full, free = found.full * some.batch, making.sum(axis=1, keepdims=True)
    full_gap_s = some.full_step_s + some.prompt_s * some.entering
    tokens = (making / step_s).sum(axis=1, keepdims=True) * (1 - found.phi) + full / full_gap_s
    steps = free * (1 - found.phi) + full * some.full_step_s / full_gap_s
    nobody = free + full < 1e-12
    alone_s = some.fixed_s + some.per_request_s
    tokens = np.maximum(tokens, tails.TINY)
    return (
        np.asarray(np.where(nobody, alone_s, steps / tokens)),
        np.asarray(np.where(nobody, alone_s, (free + full) / tokens)),
    )


def _response_s(some: Engines, found: Inside, step_s: FloatArray, gap_s: FloatArray) -> FloatArray:
    """Standard deviation of the decoding time of each length by ``fluctuation``, (k, m)."""
    rate, prompt_s = found.rate_per_s, some.prompt_s
    flow = fluctuation.Flow(rate, found.dispersion, gap_s, some.per_request_s, prompt_s)
    spectrum = fluctuation.spectrum(FREQUENCIES, some.kernel, some.mean - 1, flow)
    variance = (some.window @ spectrum[:, :, None])[:, :, 0]
    started = prompt_s**2 * rate * own_step_s(some, found, step_s) / (1 - found.phi) ** 3
    known = np.sqrt(np.maximum(variance, 0.0) + started)
    # Straight between the sample lengths, which are a geometric series.
    low = np.log(some.samples[:, :1])
    step = np.log(some.samples[:, -1:] / some.samples[:, :1]) / (SAMPLES - 1)
    place = (np.log(np.maximum(some.later, 1e-9)) - low) / step
    at = np.clip(place, 0, SAMPLES - 2).astype(np.int64)
    rows = np.arange(at.shape[0])[:, None]
    start, end = some.samples[rows, at], some.samples[rows, at + 1]
    part = np.clip((some.later - start) / (end - start), 0.0, 1.0)
    return np.asarray(known[rows, at] * (1 - part) + known[rows, at + 1] * part)
