"""Service time of a replica: declared, else measured, else estimated from model and GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sojourn.decide.lengths import Lengths
from sojourn.facts.declaration import Batching, Declaration
from sojourn.facts.memory import Footprint
from sojourn.facts.profile import Profile
from sojourn.facts.service import Source
from sojourn.facts.service_time import (
    BatchServiceTime,
    IterationTime,
    LinearServiceTime,
    MeasuredServiceTime,
    TokenLengths,
)
from sojourn.model import fit, roofline
from sojourn.units import format_duration


@dataclass(frozen=True)
class ServiceTimes:
    """The law of a replica's time, its source, and how it reads."""

    batch: BatchServiceTime | None
    iteration: IterationTime | None
    source: Source
    text: str


@dataclass(frozen=True)
class Inputs:
    """What a service time may be taken from."""

    declaration: Declaration
    profile: Profile | None
    footprint: Footprint
    lengths: Lengths
    batching: Batching


def service_times(inputs: Inputs) -> ServiceTimes:
    """The first source that knows: serviceTime, the profile, the roofline estimate.

    Raises:
        FitRefused: the profile's points do not allow a line.
        ModelDomainError: a number outside its domain.
    """
    declared = inputs.declaration.service_time
    if declared is not None:
        return _linear(inputs, declared, Source.DECLARED)
    if inputs.profile is not None:
        return _profiled(inputs, inputs.profile)
    # Half the output is there on average while a request decodes.
    context_tokens = inputs.lengths.prompt_tokens + inputs.lengths.output.mean / 2
    estimate = roofline.estimate(inputs.footprint, context_tokens)
    return replace(_iteration(inputs, estimate.iteration, Source.ESTIMATED), text=estimate.text)


def _profiled(inputs: Inputs, profile: Profile) -> ServiceTimes:
    if profile.iteration is not None:
        return _iteration(inputs, profile.iteration, Source.PROFILE)
    if profile.linear is not None:
        return _linear(inputs, profile.linear, Source.PROFILE)
    batches = [point.batch for point in profile.points]
    seconds = [point.latency_s for point in profile.points]
    if inputs.batching is Batching.CONTINUOUS:
        return _linear(inputs, fit.fit(batches, seconds).law, Source.PROFILE)
    law = MeasuredServiceTime(tuple(batches), tuple(seconds))
    text = f"{len(batches)} measured points, B = {batches[0]} to {batches[-1]}"
    return ServiceTimes(law, None, Source.PROFILE, text)


def _linear(inputs: Inputs, law: LinearServiceTime, source: Source) -> ServiceTimes:
    text = f"{format_duration(law.fixed_s)} + {format_duration(law.per_request_s)} B"
    if inputs.batching is Batching.DYNAMIC:
        return ServiceTimes(law, None, source, text)
    # T_svc(n) is the time of one request when n run together: its output tokens share it.
    steps = inputs.lengths.output.mean
    iteration = IterationTime(law.fixed_s / steps, law.per_request_s / steps)
    return ServiceTimes(None, iteration, source, f"{text} a request of {steps:g} tokens")


def _iteration(inputs: Inputs, iteration: IterationTime, source: Source) -> ServiceTimes:
    text = (
        f"{format_duration(iteration.fixed_s)} + {format_duration(iteration.per_request_s)} n a "
        f"step, {format_duration(iteration.per_prompt_token_s)} a prompt token"
    )
    if inputs.batching is Batching.CONTINUOUS:
        return ServiceTimes(None, iteration, source, text)
    law = batch_law(iteration, inputs.lengths.prompt_tokens, inputs.lengths.output)
    return ServiceTimes(law, None, source, text)


def batch_law(
    iteration: IterationTime, prompt_tokens: float, output: TokenLengths
) -> LinearServiceTime:
    """Time of a batch that starts and ends together: a prefill, then one step a token."""
    steps = output.mean
    return LinearServiceTime(
        fixed_s=steps * iteration.fixed_s,
        per_request_s=steps * iteration.per_request_s
        + prompt_tokens * iteration.per_prompt_token_s,
    )
