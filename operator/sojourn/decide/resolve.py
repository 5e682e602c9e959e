"""Resolve: a Declaration and the catalogue give a Service, or the Findings that forbid one.

Each effective value is listed with its source, so that nobody has to guess what was used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from sojourn.decide import lengths, service_times
from sojourn.decide.lengths import Lengths
from sojourn.decide.service_times import ServiceTimes
from sojourn.engines import Engine
from sojourn.engines import find as find_engine
from sojourn.errors import GpuUnknown, ModelUnknown, SojournError
from sojourn.facts.architecture import Architecture
from sojourn.facts.declaration import Batching, Declaration
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.gpu import Gpu
from sojourn.facts.memory import Footprint, MemoryAnswer
from sojourn.facts.profile import Profile
from sojourn.facts.reasons import Reason
from sojourn.facts.replica import ContinuousReplica, DynamicReplica, Replica
from sojourn.facts.service import BatchBounds, Effective, Service, Source
from sojourn.facts.sojourn import LatencyGoal
from sojourn.model import memory
from sojourn.units import format_duration, format_gib

DEFAULT_MAX_BATCH = 256
"""What vLLM starts with on most cards when nobody says (engines data)."""

T = TypeVar("T")


class Names(Protocol):
    """The catalogue as resolving needs it."""

    def model(self, name: str) -> Architecture:
        """The architecture of that name; raises ModelUnknown."""
        ...

    def gpu(self, name: str) -> Gpu:
        """The card of that name; raises GpuUnknown."""
        ...

    def cold_start_s(self, architecture: Architecture) -> tuple[float, str]:
        """Seconds until a new replica serves, and where they come from."""
        ...

    def inline(self, declaration: Declaration) -> Architecture:
        """The architecture described in the declaration itself."""
        ...


@dataclass(frozen=True)
class Resolved:
    """A service, or None with the findings that forbid it."""

    service: Service | None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class _Parts:
    declaration: Declaration
    architecture: Architecture
    gpu: Gpu
    engine: Engine
    footprint: Footprint
    profile: Profile | None

    @property
    def batching(self) -> Batching:
        return self.declaration.engine.batching or self.engine.batching


def resolve(declaration: Declaration, names: Names, profile: Profile | None = None) -> Resolved:
    """Resolve one declaration; every name that cannot be found is in the findings.

    Args:
        profile: the ServingProfile that ``profileRef`` names; None if it does not exist.
    """
    findings: list[Finding] = []

    def found(look_up: Callable[[], T], reason: Reason, field: str) -> T | None:
        try:
            return look_up()
        except SojournError as exc:
            findings.append(Finding(reason, Verdict.REJECT, field, str(exc)))
            return None

    architecture = found(
        lambda: _architecture(declaration, names), Reason.MODEL_UNKNOWN, "spec.model.name"
    )
    gpu = found(lambda: _gpu(declaration, names), Reason.GPU_UNKNOWN, "spec.gpu.type")
    engine = found(
        lambda: find_engine(declaration.engine.name), Reason.INVALID_OBJECT, "spec.engine.name"
    )
    if declaration.profile_ref is not None and profile is None:
        findings.append(_no_profile(declaration))
    if architecture is None or gpu is None or engine is None:
        return Resolved(None, tuple(findings))
    footprint = _footprint(declaration, architecture, gpu)
    parts = _Parts(declaration, architecture, gpu, engine, footprint, profile)
    service = found(lambda: _service(parts, names), Reason.INVALID_OBJECT, "spec")
    return Resolved(service, tuple(findings))


def _architecture(declaration: Declaration, names: Names) -> Architecture:
    if declaration.model.architecture is not None:
        return names.inline(declaration)
    try:
        return names.model(declaration.model.name)
    except ModelUnknown as exc:
        raise ModelUnknown(exc.name, exc.nearest) from None


def _gpu(declaration: Declaration, names: Names) -> Gpu:
    declared = declaration.gpu
    try:
        known = names.gpu(declared.type)
    except GpuUnknown:
        if declared.memory_bytes is None:
            raise
        return Gpu(declared.type, declared.memory_bytes)
    if declared.memory_bytes is None:
        return known
    return replace(known, memory_bytes=declared.memory_bytes, source="Declared")


def _no_profile(declaration: Declaration) -> Finding:
    message = (
        f"ServingProfile {declaration.profile_ref} does not exist in namespace "
        f"{declaration.ref.namespace}: the service time is estimated until it does."
    )
    return Finding(Reason.PROFILE_MISSING, Verdict.WARN, "spec.profileRef", message)


def _footprint(declaration: Declaration, architecture: Architecture, gpu: Gpu) -> Footprint:
    model, card, engine = declaration.model, declaration.gpu, declaration.engine
    return Footprint(
        architecture=architecture,
        gpu=gpu,
        tensor_parallel=card.tensor_parallel,
        pipeline_parallel=card.pipeline_parallel,
        data_parallel=card.data_parallel,
        engine=engine.name,
        engine_version=engine.version,
        precision=model.precision,
        kv_precision=model.kv_precision,
        memory_utilisation=card.memory_utilisation,
        max_length_tokens=model.max_length_tokens,
        # Undeclared, the engine would start for its own default; the operator keeps it to ours.
        max_batch=_largest_batch(declaration),
        max_batched_tokens=engine.max_batched_tokens,
        kv_layout=engine.kv_layout,
    )


def _service(parts: _Parts, names: Names) -> Service:
    declaration = parts.declaration
    sizes = lengths.lengths_of(declaration.traffic, parts.profile)
    answer = memory.answer(parts.footprint)
    design_tokens = min(float(answer.max_length_tokens), sizes.prompt_tokens + sizes.output.mean)
    bounds = _bounds(parts, answer, design_tokens)
    times = service_times.service_times(
        service_times.Inputs(declaration, parts.profile, parts.footprint, sizes, parts.batching)
    )
    cold_start_s, cold_source = _cold_start(parts, names)
    effective = _effective(parts, answer, sizes, times)
    return Service(
        declaration=declaration,
        architecture=parts.architecture,
        gpu=parts.gpu,
        footprint=parts.footprint,
        memory=answer,
        replica=_replica(parts, answer, sizes, times, bounds),
        bounds=bounds,
        goal=_goal(declaration),
        design_tokens=design_tokens,
        cold_start_s=cold_start_s,
        effective=(
            *effective,
            Effective("maxBatchSize", f"{bounds.minimum} to {bounds.maximum}", _max_source(parts)),
            Effective("coldStart", format_duration(cold_start_s), cold_source),
        ),
    )


def _bounds(parts: _Parts, answer: MemoryAnswer, design_tokens: float) -> BatchBounds:
    engine, maximum = parts.declaration.engine, _largest_batch(parts.declaration)
    fits = memory.requests_that_fit(parts.footprint, design_tokens, answer.kv_pool_bytes)
    return BatchBounds(engine.min_batch, maximum, max(1, fits))


def _largest_batch(declaration: Declaration) -> int:
    engine = declaration.engine
    return engine.max_batch or max(DEFAULT_MAX_BATCH, engine.min_batch)


def _max_source(parts: _Parts) -> Source:
    return Source.DEFAULT if parts.declaration.engine.max_batch is None else Source.DECLARED


def _replica(
    parts: _Parts, answer: MemoryAnswer, sizes: Lengths, times: ServiceTimes, bounds: BatchBounds
) -> Replica:
    engine = parts.declaration.engine
    if times.iteration is not None:
        # Prompt work is in the declared service time already, unless steps are known apart.
        apart = times.iteration.per_prompt_token_s > 0
        return ContinuousReplica(
            iteration=times.iteration,
            output=sizes.output,
            prompt_tokens=sizes.prompt_tokens if apart else 0.0,
            max_batch=bounds.maximum,
            queue_capacity=engine.queue_capacity,
            kv_tokens=max(1.0, answer.kv_tokens) if apart else None,
            max_batched_tokens=engine.max_batched_tokens if apart else None,
        )
    assert times.batch is not None  # one of the two laws is always there
    return DynamicReplica(
        service=times.batch,
        max_batch=bounds.maximum,
        max_wait_s=engine.max_batch_wait_s or 0.0,
        queue_capacity=engine.queue_capacity,
    )


def _goal(declaration: Declaration) -> LatencyGoal:
    slo = declaration.slo
    return LatencyGoal(
        probability=slo.probability,
        latency_s=slo.latency_s,
        first_token_s=slo.first_token_s,
        output_token_s=slo.output_token_s,
        max_utilisation=declaration.scaling.target_utilisation,
    )


def _cold_start(parts: _Parts, names: Names) -> tuple[float, Source]:
    declared = parts.declaration.scaling.cold_start_s
    if declared is not None:
        return declared, Source.DECLARED
    return names.cold_start_s(parts.architecture)[0], Source.CATALOGUE


def _effective(
    parts: _Parts, answer: MemoryAnswer, sizes: Lengths, times: ServiceTimes
) -> tuple[Effective, ...]:
    declaration = parts.declaration
    inline = declaration.model.architecture is not None
    precision = parts.footprint.precision
    return (
        Effective(
            "model", parts.architecture.name, Source.DECLARED if inline else Source.CATALOGUE
        ),
        Effective(
            "precision",
            precision or parts.architecture.precision,
            Source.DECLARED if precision else Source.CATALOGUE,
        ),
        Effective(
            "gpuMemory",
            format_gib(parts.gpu.memory_bytes),
            Source.CATALOGUE if declaration.gpu.memory_bytes is None else Source.DECLARED,
        ),
        Effective(
            "maxLength",
            str(answer.max_length_tokens),
            Source.CATALOGUE if declaration.model.max_length_tokens is None else Source.DECLARED,
        ),
        Effective(
            "batching",
            str(parts.batching),
            Source.DEFAULT if declaration.engine.batching is None else Source.DECLARED,
        ),
        Effective("serviceTime", times.text, times.source),
        Effective("tokens", f"{sizes.prompt_tokens:g} in, {sizes.output.mean:g} out", sizes.source),
    )
