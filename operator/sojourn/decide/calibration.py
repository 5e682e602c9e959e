"""Learning on line: the service time as the live engine shows it, bounded.

By Little's law the requests running divided by the rate they leave at is the time each spends in
the batch: every tick gives one pair (running a replica, seconds a request). A line through them
replaces the profile only when it is identifiable, and never by more than a factor of 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sojourn.decide.capacity import Serving
from sojourn.errors import SojournError
from sojourn.facts.calibration import Calibration
from sojourn.facts.reading import Known
from sojourn.facts.replica import ContinuousReplica
from sojourn.facts.service import Service
from sojourn.facts.service_time import IterationTime
from sojourn.facts.situation import ServiceSample, Signals, TargetState
from sojourn.model import fit

FEWEST_SAMPLES = 20
LEAST_SPREAD = 0.30
LARGEST_RESIDUAL = 0.15
LARGEST_FACTOR = 2.0
STEP = 0.05
"""Factors move in steps: each new one costs a fresh solution of the queue."""


def sample(signals: Signals, target: TargetState, now_s: float) -> ServiceSample | None:
    """The pair of this tick, or None where it would mislead: unknown, idle, or pods in motion."""
    rate, running = signals.rate_per_s, signals.running
    if not isinstance(rate, Known) or not isinstance(running, Known) or rate.lower_bound:
        return None
    steady = target.ready_replicas == target.spec_replicas > 0 and not target.rollout_running
    if not steady or rate.value <= 0 or running.value <= 0:
        return None
    if isinstance(signals.waiting, Known) and signals.waiting.value > 0.1 * running.value:
        return None  # a growing queue: requests leave slower than they come
    return ServiceSample(now_s, running.value / target.ready_replicas, running.value / rate.value)


def calibrate(service: Service, samples: Sequence[ServiceSample]) -> Calibration | None:
    """The factors of the live line over the profile's; None when they cannot be told."""
    replica = service.replica
    if not isinstance(replica, ContinuousReplica) or len(samples) < FEWEST_SAMPLES:
        return None
    running = np.array([s.running for s in samples])
    seconds = np.array([s.service_s for s in samples])
    if running.max() < (1 + LEAST_SPREAD) * running.min():
        return None
    try:
        line = fit.fit(running, seconds, tolerance=LARGEST_RESIDUAL)
    except SojournError:
        return None
    if line.max_relative_error > LARGEST_RESIDUAL:
        return None
    steps = replica.output.mean
    profile = replica.iteration
    prompt_s = profile.per_prompt_token_s * replica.prompt_tokens
    return Calibration(
        _factor(line.law.fixed_s - prompt_s, profile.fixed_s * steps),
        _factor(line.law.per_request_s, profile.per_request_s * steps),
        len(samples),
        line.max_relative_error,
    )


def calibrated(serving: Serving, found: Calibration | None) -> Serving:
    """The service with its line scaled; the same object when nothing was found."""
    replica = serving.service.replica
    if found is None or not isinstance(replica, ContinuousReplica):
        return serving
    iteration = IterationTime(
        fixed_s=replica.iteration.fixed_s * found.fixed_factor,
        per_request_s=replica.iteration.per_request_s * found.per_request_factor,
        per_prompt_token_s=replica.iteration.per_prompt_token_s,
        per_context_token_s=replica.iteration.per_context_token_s,
    )
    scaled = replace(replica, iteration=iteration)
    return replace(serving, service=replace(serving.service, replica=scaled))


def _factor(measured_s: float, profile_s: float) -> float:
    """Measured over profile in steps of 5 %, within 1/2 and 2; 1 where the profile has no part."""
    if profile_s <= 0 or measured_s <= 0:
        return 1.0
    ratio = min(LARGEST_FACTOR, max(1 / LARGEST_FACTOR, measured_s / profile_s))
    return round(ratio / STEP) * STEP
