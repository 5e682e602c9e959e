"""From the validated custom resource to facts: seconds, bytes, requests per second, fractions."""

from __future__ import annotations

from sojourn.api.v1alpha1.demand import MetricsSpec, SloSpec, TokensSpec, TrafficSpec
from sojourn.api.v1alpha1.engine import EngineSpec, MaxBatchRefSpec
from sojourn.api.v1alpha1.model import (
    ArchitectureSpec,
    GpuSpec,
    LatentAttention,
    ModelSpec,
    SlidingWindow,
)
from sojourn.api.v1alpha1.profile import ContinuousSpec, ServingProfileSpec
from sojourn.api.v1alpha1.scaling import BehaviorSpec, ScalingRulesSpec, ScalingSpec
from sojourn.api.v1alpha1.service import InferenceServiceSpec
from sojourn.facts import declaration as facts
from sojourn.facts.declaration import Declaration, ObjectRef
from sojourn.facts.profile import Profile, ProfilePoint
from sojourn.facts.replica import Routing
from sojourn.facts.service_time import IterationTime, LinearServiceTime
from sojourn.units import parse_duration_s, parse_quantity


def declaration(
    spec: InferenceServiceSpec, ref: ObjectRef, *, bypass: str | None, paused: bool
) -> Declaration:
    """The facts of one InferenceService."""
    target, law = spec.scale_target_ref, spec.service_time
    return Declaration(
        ref=ref,
        model=_model(spec.model),
        gpu=_gpu(spec.gpu),
        slo=_slo(spec.slo),
        target=facts.TargetRef(target.name, target.api_version, target.kind),
        engine=_engine(spec.engine),
        traffic=_traffic(spec.traffic),
        scaling=_scaling(spec.scaling),
        metrics=_metrics(spec.metrics),
        service_time=_line(law.fixed, law.per_request, parse_quantity(law.scv)) if law else None,
        profile_ref=spec.profile_ref.name if spec.profile_ref else None,
        bypass=bypass,
        paused=paused,
    )


def profile(spec: ServingProfileSpec, ref: ObjectRef) -> Profile:
    """The facts of one ServingProfile."""
    points = sorted(spec.points or [], key=lambda point: point.batch)
    is_line = spec.fixed is not None and spec.per_request is not None
    return Profile(
        ref=ref,
        model=spec.model,
        gpu_type=spec.gpu.type,
        tensor_parallel=spec.gpu.tensor_parallel,
        engine=spec.engine,
        prompt_tokens=spec.prompt_tokens,
        output_tokens=spec.output_tokens,
        points=tuple(ProfilePoint(p.batch, parse_duration_s(p.latency)) for p in points),
        linear=_line(spec.fixed, spec.per_request) if is_line else None,
        iteration=_steps(spec.continuous) if spec.continuous else None,
    )


def _line(fixed: str | None, per_request: str | None, scv: float = 0.0) -> LinearServiceTime:
    return LinearServiceTime(parse_duration_s(fixed), parse_duration_s(per_request), scv)


def _steps(spec: ContinuousSpec) -> IterationTime:
    return IterationTime(
        fixed_s=parse_duration_s(spec.iteration_fixed),
        per_request_s=parse_duration_s(spec.iteration_per_request),
        per_prompt_token_s=parse_duration_s(spec.prefill_per_token),
    )


def _model(spec: ModelSpec) -> facts.DeclaredModel:
    return facts.DeclaredModel(
        name=spec.name,
        architecture=_architecture(spec.architecture) if spec.architecture else None,
        precision=spec.precision,
        kv_precision=spec.kv_cache_precision,
        max_length_tokens=spec.max_length,
    )


def _architecture(spec: ArchitectureSpec) -> facts.DeclaredArchitecture:
    return facts.DeclaredArchitecture(
        layers=spec.layers,
        hidden=spec.hidden_size,
        attention_heads=spec.attention_heads,
        kv_heads=spec.key_value_heads,
        head_dim=spec.head_dim,
        parameters=_number(spec.parameters),
        vocabulary=spec.vocabulary,
        sliding_window=_window(spec.sliding_window) if spec.sliding_window else None,
        latent_attention=_latent(spec.latent_attention) if spec.latent_attention else None,
        recurrent_layers=spec.recurrent_layers,
    )


def _window(spec: SlidingWindow) -> facts.SlidingWindow:
    return facts.SlidingWindow(spec.tokens, spec.every_nth_layer_full)


def _latent(spec: LatentAttention) -> facts.LatentAttention:
    return facts.LatentAttention(spec.kv_lora_rank, spec.rope_head_dim)


def _gpu(spec: GpuSpec) -> facts.DeclaredGpu:
    share = spec.memory_utilization
    return facts.DeclaredGpu(
        type=spec.type,
        memory_bytes=_number(spec.memory),
        tensor_parallel=spec.tensor_parallel,
        pipeline_parallel=spec.pipeline_parallel,
        data_parallel=spec.data_parallel,
        memory_utilisation=share / 100 if share is not None else None,
    )


def _engine(spec: EngineSpec) -> facts.DeclaredEngine:
    size, reference = spec.max_batch_size, spec.max_batch_ref or MaxBatchRefSpec()
    return facts.DeclaredEngine(
        name=spec.name,
        version=spec.version,
        batching=spec.batching,
        min_batch=size.min if size else 1,
        max_batch=size.max if size else None,
        max_batch_wait_s=_seconds(spec.max_batch_wait),
        queue_capacity=spec.queue_capacity,
        kv_layout=spec.kv_layout,
        max_batched_tokens=spec.max_batched_tokens,
        max_batch_ref=facts.MaxBatchRef(reference.mode, reference.container, reference.env),
    )


def _slo(spec: SloSpec) -> facts.Slo:
    return facts.Slo(
        latency_s=_seconds(spec.latency),
        first_token_s=_seconds(spec.time_to_first_token),
        output_token_s=_seconds(spec.inter_token_latency),
        probability=parse_quantity(spec.percentile) / 100,
    )


def _traffic(spec: TrafficSpec) -> facts.Traffic:
    return facts.Traffic(
        rate_per_s=_number(spec.rate),
        peak_rate_per_s=_number(spec.peak_rate),
        prompt=_tokens(spec.prompt_tokens),
        output=_tokens(spec.output_tokens),
        routing=Routing(spec.routing),
    )


def _tokens(spec: TokensSpec | None) -> facts.DeclaredTokens | None:
    return facts.DeclaredTokens(spec.mean, spec.p99) if spec else None


def _scaling(spec: ScalingSpec | None) -> facts.Scaling:
    if spec is None:
        # Without bounds nothing may be written: a limit that is absent is never "unlimited",
        # and a maximum of 1 must not take replicas from a running service.
        return facts.Scaling(mode=facts.Mode.RECOMMEND)
    return facts.Scaling(
        min_replicas=spec.min_replicas,
        max_replicas=spec.max_replicas,
        mode=spec.mode,
        actuation=spec.actuation,
        target_utilisation=spec.target_utilization_percent / 100,
        objective=spec.objective,
        tail_rule=spec.tail_rule,
        batch_policy=spec.max_batch_policy,
        behaviour=_behaviour(spec.behavior),
        cold_start_s=_seconds(spec.cold_start),
        priority=spec.priority,
    )


def _behaviour(spec: BehaviorSpec | None) -> facts.Behaviour:
    if spec is None:
        return facts.Behaviour()
    return facts.Behaviour(
        up=_rules(spec.scale_up, facts.DEFAULT_UP) if spec.scale_up else None,
        down=_rules(spec.scale_down, facts.DEFAULT_DOWN) if spec.scale_down else None,
    )


def _rules(spec: ScalingRulesSpec, default: facts.ScalingRules) -> facts.ScalingRules:
    """Rules with what is left out taken from the defaults of the direction."""
    window_s = spec.stabilization_window_seconds
    declared = tuple(
        facts.ScalingPolicy(policy.type, policy.value, float(policy.period_seconds))
        for policy in spec.policies or ()
    )
    return facts.ScalingRules(
        stabilization_s=default.stabilization_s if window_s is None else float(window_s),
        policies=declared or default.policies,
        select=spec.select_policy,
        tolerance=default.tolerance if spec.tolerance is None else parse_quantity(spec.tolerance),
    )


def _metrics(spec: MetricsSpec | None) -> facts.MetricsSource:
    if spec is None:
        return facts.MetricsSource()
    return facts.MetricsSource(
        selector=tuple(sorted(spec.selector.items())),
        arrival_rate_query=spec.arrival_rate_query or None,
    )


def _seconds(duration: str | None) -> float | None:
    return None if duration is None else parse_duration_s(duration)


def _number(quantity: int | str | None) -> float | None:
    return None if quantity is None else parse_quantity(quantity)
