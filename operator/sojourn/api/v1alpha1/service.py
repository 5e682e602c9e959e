"""``InferenceService``: the spec as a whole."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sojourn.api.v1alpha1.base import Part, Rule
from sojourn.api.v1alpha1.demand import (
    MetricsSpec,
    ProfileRefSpec,
    ServiceTimeSpec,
    SloSpec,
    TrafficSpec,
)
from sojourn.api.v1alpha1.engine import EngineSpec
from sojourn.api.v1alpha1.model import GpuSpec, ModelSpec
from sojourn.api.v1alpha1.scalars import ObjectName
from sojourn.api.v1alpha1.scaling import ScalingSpec


class TargetRefSpec(Part):
    """The workload that is scaled: anything with a scale subresource."""

    api_version: Annotated[str, Field(min_length=1, max_length=253)] = Field(
        "apps/v1", description="API group and version of the workload. Default apps/v1."
    )
    kind: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        "Deployment", description="Kind of the workload. Default Deployment."
    )
    name: ObjectName = Field(
        description="Name of the workload, in the namespace of the InferenceService. Required.",
        examples=["chat"],
    )


class InferenceServiceSpec(Part):
    """What is served, on what, how fast it must be, and what may be changed to keep it so."""

    model: ModelSpec = Field(description="The model that is served. Required.")
    gpu: GpuSpec = Field(description="The GPUs of one replica. Required.")
    engine: EngineSpec = Field(
        EngineSpec(), description="The inference engine and how it batches. Default: vllm."
    )
    slo: SloSpec = Field(description="The service level objective: at least one latency. Required.")
    traffic: TrafficSpec = Field(
        TrafficSpec(),
        description="Expected load; what is observed replaces it when known."
        " Default: what is observed.",
    )
    service_time: ServiceTimeSpec | None = Field(
        None,
        description="Measured time of a batch. Excludes profileRef. Default: from profileRef, else"
        " estimated from model and GPU.",
    )
    profile_ref: ProfileRefSpec | None = Field(
        None,
        description="ServingProfile with the measured service time. Excludes serviceTime."
        " Default: none.",
    )
    scale_target_ref: TargetRefSpec = Field(
        description="The workload that is scaled. Immutable. Required."
    )
    scaling: ScalingSpec | None = Field(
        None,
        description="Bounds and manner of scaling. Default: nothing is written; the replicas"
        " needed are reported (mode Recommend, 1 replica).",
    )
    metrics: MetricsSpec | None = Field(
        None, description="Where live signals are found. Default: by namespace and pod."
    )
    rules = (
        Rule(
            "!(has(self.serviceTime) && has(self.profileRef))",
            "serviceTime and profileRef exclude each other: keep one",
            lambda s: s.service_time is None or s.profile_ref is None,
            "profileRef",
        ),
        Rule(
            "!has(self.scaling) || self.scaling.minReplicas > 0 || (has(self.metrics)"
            " && has(self.metrics.arrivalRateQuery) && size(self.metrics.arrivalRateQuery) > 0)",
            "minReplicas 0 needs a wake source, because a service without pods reports no"
            " requests: set metrics.arrivalRateQuery or minReplicas: 1",
            lambda s: s.scaling is None or s.scaling.min_replicas > 0 or _has_wake_source(s),
            "scaling.minReplicas",
        ),
        Rule(
            "self.scaleTargetRef == oldSelf.scaleTargetRef",
            "scaleTargetRef is immutable: delete this InferenceService and create one for the new"
            " target; the target itself is left as it is",
            None,
            "scaleTargetRef",
        ),
    )


def _has_wake_source(spec: InferenceServiceSpec) -> bool:
    return spec.metrics is not None and bool(spec.metrics.arrival_rate_query)
