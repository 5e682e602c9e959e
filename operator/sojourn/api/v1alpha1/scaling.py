"""``spec.scaling``: what the operator may do, and how fast."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sojourn.api.v1alpha1.base import Part, Rule
from sojourn.api.v1alpha1.scalars import Pause, Tolerance
from sojourn.facts.declaration import Actuation, BatchPolicy, Mode, Objective, TailRule


class ScalingPolicySpec(Part):
    """One limit of the speed of scaling, as in autoscaling/v2."""

    type: Literal["Pods", "Percent"] = Field(
        description="Pods: a number of replicas. Percent: of the replicas at the start of the"
        " period. Required.",
        examples=["Pods"],
    )
    value: Annotated[int, Field(ge=1, le=100_000)] = Field(
        description="Most replicas, or percent of them, changed within a period. Required.",
        examples=[4],
    )
    period_seconds: Annotated[int, Field(ge=1, le=1800)] = Field(
        description="Length of the period in seconds, 1 to 1800. Required.", examples=[15]
    )


class ScalingRulesSpec(Part):
    """Rules of one direction, as in autoscaling/v2."""

    stabilization_window_seconds: Annotated[int, Field(ge=0, le=3600)] | None = Field(
        None,
        description="Seconds over which past recommendations are considered, 0 to 3600."
        " Default 0 up, 300 down.",
        examples=[300],
    )
    select_policy: Literal["Max", "Min", "Disabled"] = Field(
        "Max",
        description="Which policy counts when several are given; Disabled forbids the direction."
        " Default Max.",
        examples=["Max"],
    )
    policies: Annotated[list[ScalingPolicySpec], Field(min_length=1, max_length=8)] | None = Field(
        None,
        description="Limits of the speed. Default: 100 percent or 4 pods in 15 s up, 100 percent"
        " in 15 s down.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    tolerance: Tolerance | None = Field(
        None,
        description="Relative deviation that is left alone, as a quantity from 0 to 1."
        ' Default "0" up, "0.1" down.',
        examples=["0.1"],
    )


class BehaviorSpec(Part):
    """Speed of scaling in both directions, as the behavior of an autoscaling/v2 HPA."""

    scale_up: ScalingRulesSpec | None = Field(
        None, description="Rules of adding replicas. Default: as autoscaling/v2."
    )
    scale_down: ScalingRulesSpec | None = Field(
        None, description="Rules of removing replicas. Default: as autoscaling/v2."
    )


class ScalingSpec(Part):
    """Bounds and manner of scaling."""

    mode: Annotated[Mode, Field(strict=False)] = Field(
        Mode.AUTO,
        description="Auto: decide and write. Recommend: decide and report, write nothing."
        " Off: do nothing. Default Auto.",
        examples=["Auto"],
    )
    actuation: Annotated[Actuation, Field(strict=False)] = Field(
        Actuation.DIRECT,
        description="Direct: the operator writes the scale. Metric: it publishes"
        " sojourn_desired_replicas for an HPA or KEDA, which writes. Default Direct.",
        examples=["Direct"],
    )
    min_replicas: Annotated[int, Field(ge=0, le=100_000)] = Field(
        1,
        description="Least replicas. 0 is allowed only with metrics.arrivalRateQuery, because"
        " a service without pods reports no requests. Default 1.",
        examples=[1],
    )
    max_replicas: Annotated[int, Field(ge=1, le=100_000)] = Field(
        description="Most replicas; admission judges stability with it. Required.",
        examples=[8],
    )
    target_utilization_percent: Annotated[int, Field(ge=51, le=84)] = Field(
        75,
        description="Load to size for, in percent of what the replicas can serve, 51 to 84;"
        " the decision table acts below 50 and above 85. Default 75.",
        examples=[75],
    )
    objective: Annotated[Objective, Field(strict=False)] = Field(
        Objective.MAX_BATCH,
        description="MaxBatch: the largest batch that keeps the SLO. MinLatency: the batch with"
        " the least mean latency. Default MaxBatch.",
        examples=["MaxBatch"],
    )
    tail_rule: Annotated[TailRule, Field(strict=False)] = Field(
        TailRule.EXACT,
        description="How the percentile is computed. Exact: from the queueing model. Exponential:"
        " 4.6 x the mean at P99. Gaussian: mean + 2.33 standard deviations at P99. Measured: as"
        " observed. Default Exact.",
        examples=["Exact"],
    )
    max_batch_policy: Annotated[BatchPolicy, Field(strict=False)] = Field(
        BatchPolicy.ROLLOUT,
        description="Rollout: max batch changes by a rolling update, rarely. Live: without"
        " restart, for engines that can. Fixed: never. Default Rollout.",
        examples=["Rollout"],
    )
    behavior: BehaviorSpec | None = Field(
        None, description="Speed of scaling, as in an autoscaling/v2 HPA. Default: the HPA's."
    )
    cold_start: Pause | None = Field(
        None,
        description="Time from asking for a replica until it serves, as a duration."
        " Default: observed, else from the catalogue.",
        examples=["240s"],
    )
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = Field(
        0,
        description="Which service gets the GPUs when a namespace's quota is short: the higher"
        " number first. Default 0.",
        examples=[0],
    )
    rules = (
        Rule(
            "self.minReplicas <= self.maxReplicas",
            "minReplicas exceeds maxReplicas: lower minReplicas or raise maxReplicas",
            lambda s: s.min_replicas <= s.max_replicas,
            "minReplicas",
        ),
    )
