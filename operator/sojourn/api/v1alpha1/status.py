"""Statuses of both kinds: the schema of what the operator writes and people read."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.config import JsonDict

from sojourn.api.v1alpha1.base import Part
from sojourn.facts.finding import Verdict
from sojourn.facts.service import Source

Count = Annotated[int, Field(ge=0)]
ShortText = Annotated[str, Field(max_length=128)]
Text = Annotated[str, Field(max_length=1024)]
Timestamp = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]
"""RFC 3339, UTC."""

MOST_CHANGES = 5
MOST_FINDINGS = 16
MOST_EFFECTIVE = 40
_ATOMIC: JsonDict = {"x-kubernetes-list-type": "atomic"}


class ConditionStatus(Part):
    """One condition, by the conventions of Kubernetes."""

    type: ShortText = Field(description="Name of the condition.")
    status: Literal["True", "False", "Unknown"] = Field(
        description="True, False, or Unknown where it cannot be judged."
    )
    reason: ShortText = Field(description="CamelCase reason; docs/reference/reasons.md lists all.")
    message: Text = Field("", description="What is so, by how much, what to do.")
    last_transition_time: Timestamp = Field(description="When status last changed.")
    observed_generation: Count | None = Field(
        None, description="Generation of the spec the condition was judged on."
    )


class ReplicasStatus(Part):
    """Replicas of the target."""

    current: Count | None = Field(None, description="Replicas the target's scale asks for.")
    ready: Count | None = Field(None, description="Replicas that serve.")
    desired: Count | None = Field(None, description="Replicas decided on.")


class MaxBatchStatus(Part):
    """Max batch of the engine, in requests."""

    current: Count | None = Field(None, description="Max batch the pods run with.")
    desired: Count | None = Field(None, description="Max batch decided on.")
    changing: bool | None = Field(None, description="A change is being rolled out.")


class RateStatus(Part):
    """Offered load. A value, a true zero and no knowledge are three different states."""

    state: Literal["Known", "Zero", "Unknown"] = Field(
        description="Known: a value. Zero: pods were asked and got no requests. Unknown: no value,"
        " replicas are held."
    )
    value: ShortText | None = Field(None, description="Requests per second, as a quantity.")
    source: ShortText | None = Field(None, description="Where the value comes from.")
    at: Timestamp | None = Field(None, description="When the value held.")
    reason: ShortText | None = Field(None, description="Why the rate is Unknown.")
    message: Text | None = Field(None, description="The same in words.")


class PredictedStatus(Part):
    """Latency by the model; waiting, batching and service add up to the mean."""

    p50: ShortText | None = Field(None, description="Median latency, as a duration.")
    p99: ShortText | None = Field(None, description="99th percentile, as a duration.")
    waiting: ShortText | None = Field(None, description="Mean wait for a busy server.")
    batching: ShortText | None = Field(None, description="Mean wait for the batch to fill.")
    service: ShortText | None = Field(None, description="Mean time in service.")


class MeasuredStatus(Part):
    """Latency as the engine reports it."""

    p50: ShortText | None = Field(None, description="Median latency, as a duration.")
    p99: ShortText | None = Field(None, description="99th percentile, as a duration.")


class LatencyStatus(Part):
    """End-to-end latency at the operating point."""

    predicted: PredictedStatus | None = Field(None, description="By the model.")
    measured: MeasuredStatus | None = Field(None, description="As the engine reports it.")


class LittlesLawStatus(Part):
    """Requests in the system against rate x latency: a check of every measurement."""

    predicted_in_system: ShortText | None = Field(
        None, description="Requests in the system by the model, all replicas, as a quantity."
    )
    measured_in_system: ShortText | None = Field(
        None, description="Requests waiting or in service now, all replicas, as a quantity."
    )
    agrees: bool | None = Field(None, description="Measured rate, latency and requests agree.")


class MemoryStatus(Part):
    """GPU memory of one replica."""

    verdict: ShortText = Field(description="Fits, TooClose or WontStart.")
    weights_per_gpu: ShortText | None = Field(
        None, alias="weightsPerGPU", description="Weights on the fullest GPU."
    )
    kv_per_gpu: ShortText | None = Field(
        None, alias="kvPerGPU", description="Memory left for the KV cache on that GPU."
    )
    kv_bytes_per_token: Count | None = Field(
        None, description="Bytes of KV cache one token takes on a GPU."
    )
    kv_tokens: Count | None = Field(None, description="Tokens the KV cache of a replica holds.")
    max_concurrent: Count | None = Field(
        None, description="Requests of maxLength that fit together."
    )


class LimitsStatus(Part):
    """Bounds of the serving constraint at the last decision."""

    min_batch: Count | None = Field(None, description="Least batch that carries the load.")
    max_batch_for_slo: Count | None = Field(
        None, alias="maxBatchForSLO", description="Largest batch that keeps the SLO."
    )
    max_batch_for_memory: Count | None = Field(
        None, description="Requests that fit in KV memory at the design length."
    )
    rate_per_replica: ShortText | None = Field(
        None, description="Requests per second one replica takes within the SLO."
    )
    max_stable_rate: ShortText | None = Field(
        None, description="Requests per second that maxReplicas carry before the queue grows."
    )
    binding: ShortText | None = Field(None, description="Which bound limits a replica's rate.")


class SettingStatus(Part):
    """Replicas and max batch."""

    replicas: Count | None = Field(None, description="Replicas.")
    max_batch: Count | None = Field(None, description="Max batch, in requests.")


class ChangeStatus(Part):
    """One change that was decided."""

    at: Timestamp = Field(description="When it was decided.")
    row: ShortText = Field(description="Row of the decision table that fired.")
    from_: SettingStatus = Field(alias="from", description="Before.")
    to: SettingStatus = Field(description="After.")
    message: Text = Field("", description="The numbers on both sides of the comparison.")


class DecisionStatus(ChangeStatus):
    """The latest decision, a change or not."""

    raw: SettingStatus | None = Field(None, description="Before behaviour, bounds and quota.")
    limited_by: Annotated[list[ShortText], Field(max_length=16)] = Field(
        [], description="What changed the raw decision.", json_schema_extra=_ATOMIC
    )


class EffectiveStatus(Part):
    """One input as it was used."""

    value: ShortText = Field(description="The value.")
    source: Annotated[Source, Field(strict=False)] = Field(description="Where it came from.")


class FindingStatus(Part):
    """One thing admission would say today."""

    reason: ShortText = Field(description="CamelCase reason; docs/reference/reasons.md lists all.")
    verdict: Annotated[Verdict, Field(strict=False)] = Field(
        description="REJECT: admission would deny. WARN: worth mending. NOTE: explains."
    )
    field: ShortText = Field("", description="Field of the object it is about.")
    message: Text = Field("", description="What is wrong, by how much, what to do.")


class InferenceServiceStatus(Part):
    """What the operator saw, decided and did."""

    controller: ShortText | None = Field(
        None,
        description="Namespace and lease of the installation that wrote this status.",
    )
    observed_generation: Count | None = Field(
        None, description="Generation of the spec that was last decided on."
    )
    replicas: ReplicasStatus | None = Field(None, description="Replicas of the target.")
    max_batch: MaxBatchStatus | None = Field(None, description="Max batch of the engine.")
    rate: RateStatus | None = Field(None, description="Offered requests per second.")
    utilization_percent: Count | None = Field(
        None,
        description="Load in percent of what the replicas can serve; above 100 the queue grows.",
    )
    regime: ShortText | None = Field(
        None,
        description="Where max batch stands: Unstable, StabilityThreshold, LatencyKnee or"
        " DiminishingReturns; Dynamic batching only.",
    )
    latency: LatencyStatus | None = Field(None, description="End-to-end latency.")
    littles_law: LittlesLawStatus | None = Field(None, description="Check of the measurements.")
    memory: MemoryStatus | None = Field(None, description="GPU memory of one replica.")
    limits: LimitsStatus | None = Field(None, description="Bounds of the serving constraint.")
    limited_by: ShortText | None = Field(
        None, description="What limited the last decision, else the bound of a replica's rate."
    )
    last_decision: DecisionStatus | None = Field(None, description="The latest decision.")
    history: Annotated[list[ChangeStatus], Field(max_length=MOST_CHANGES)] = Field(
        [], description="The latest changes, newest first.", json_schema_extra=_ATOMIC
    )
    effective: Annotated[dict[str, EffectiveStatus], Field(max_length=MOST_EFFECTIVE)] = Field(
        {}, description="Every input that was used, by name, with its source."
    )
    findings: Annotated[list[FindingStatus], Field(max_length=MOST_FINDINGS)] = Field(
        [], description="What admission would say today.", json_schema_extra=_ATOMIC
    )
    conditions: Annotated[list[ConditionStatus], Field(max_length=32)] = Field(
        [],
        description="Ready, AbleToScale, ScalingActive, ScalingLimited, MemoryFits, Stable,"
        " SLOAttainable, MetricsAvailable, Calibrated, Conflict.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )


class RangeStatus(Part):
    """Batches that were measured."""

    min: Count = Field(description="Least batch measured.")
    max: Count = Field(description="Largest batch measured.")


class ServingProfileStatus(Part):
    """The line fitted to the points."""

    observed_generation: Count | None = Field(
        None, description="Generation of the spec that was fitted."
    )
    fixed: ShortText | None = Field(None, description="T_fixed, as a duration.")
    per_request: ShortText | None = Field(None, description="t_req, as a duration.")
    r_squared: ShortText | None = Field(
        None, description="Share of the variance explained, as a quantity."
    )
    max_relative_error_percent: Count | None = Field(
        None, description="Largest deviation of a point from the line, in percent."
    )
    range: RangeStatus | None = Field(None, description="Batches that were measured.")
    conditions: Annotated[list[ConditionStatus], Field(max_length=8)] = Field(
        [],
        description="Valid: False above 15 percent largest relative error.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
