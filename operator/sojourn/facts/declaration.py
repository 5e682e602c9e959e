"""What a user declared in an InferenceService, in seconds, bytes and fractions.

``api`` reads the custom resource into this; ``decide`` resolves it with the catalogue into a
Service. None means "not declared": the resolver says what it used instead and from where.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from sojourn.facts.replica import Routing
from sojourn.facts.service_time import LinearServiceTime


class Batching(StrEnum):
    """How an engine forms batches."""

    CONTINUOUS = "Continuous"
    DYNAMIC = "Dynamic"


class KvLayout(StrEnum):
    """How an engine lays out the KV cache."""

    PAGED = "Paged"
    CONTIGUOUS = "Contiguous"


class Objective(StrEnum):
    """Which batch of the feasible interval to run."""

    MAX_BATCH = "MaxBatch"
    MIN_LATENCY = "MinLatency"


class TailRule(StrEnum):
    """How the percentile is computed."""

    EXACT = "Exact"
    EXPONENTIAL = "Exponential"
    GAUSSIAN = "Gaussian"
    MEASURED = "Measured"


class Mode(StrEnum):
    """What the operator may write."""

    AUTO = "Auto"
    RECOMMEND = "Recommend"
    OFF = "Off"


class Actuation(StrEnum):
    """Who writes the scale: the operator, or an HPA fed with its metric."""

    DIRECT = "Direct"
    METRIC = "Metric"


class BatchPolicy(StrEnum):
    """How max batch may be changed on a live service."""

    ROLLOUT = "Rollout"
    LIVE = "Live"
    FIXED = "Fixed"


class BatchRefMode(StrEnum):
    """Where max batch is written."""

    ENV = "Env"
    ARGS = "Args"
    CONFIG_FILE = "ConfigFile"
    LIVE = "Live"
    NONE = "None"


@dataclass(frozen=True)
class ObjectRef:
    """Identity of one custom resource."""

    namespace: str
    name: str
    uid: str = ""
    generation: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """``(namespace, name)``, unique among live objects."""
        return self.namespace, self.name


@dataclass(frozen=True)
class TargetRef:
    """The workload that is scaled: anything with a scale subresource."""

    name: str
    api_version: str = "apps/v1"
    kind: str = "Deployment"


@dataclass(frozen=True)
class SlidingWindow:
    """Layers that keep only the last tokens; every n-th layer keeps all."""

    tokens: int
    every_nth_layer_full: int | None = None


@dataclass(frozen=True)
class LatentAttention:
    """Compressed KV (multi-head latent attention)."""

    kv_lora_rank: int
    rope_head_dim: int


@dataclass(frozen=True)
class DeclaredArchitecture:
    """A model described inline."""

    layers: int
    hidden: int
    attention_heads: int
    kv_heads: int | None = None
    head_dim: int | None = None
    parameters: float | None = None
    vocabulary: int | None = None
    sliding_window: SlidingWindow | None = None
    latent_attention: LatentAttention | None = None
    recurrent_layers: int = 0


@dataclass(frozen=True)
class DeclaredModel:
    """``spec.model``."""

    name: str
    architecture: DeclaredArchitecture | None = None
    precision: str | None = None
    kv_precision: str = "auto"
    max_length_tokens: int | None = None


@dataclass(frozen=True)
class DeclaredGpu:
    """``spec.gpu``."""

    type: str
    memory_bytes: float | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    memory_utilisation: float | None = None

    @property
    def per_replica(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel


@dataclass(frozen=True)
class MaxBatchRef:
    """Where max batch is written (``spec.engine.maxBatchRef``)."""

    mode: BatchRefMode = BatchRefMode.ENV
    container: str | None = None
    env: str = "SOJOURN_MAX_BATCH"


@dataclass(frozen=True)
class DeclaredEngine:
    """``spec.engine``."""

    name: str = "vllm"
    version: str | None = None
    batching: Batching | None = None
    min_batch: int = 1
    max_batch: int | None = None
    max_batch_wait_s: float | None = None
    queue_capacity: int | None = None
    kv_layout: KvLayout = KvLayout.PAGED
    max_batched_tokens: int | None = None
    max_batch_ref: MaxBatchRef = field(default_factory=MaxBatchRef)


@dataclass(frozen=True)
class Slo:
    """``spec.slo``: seconds at a percentile; at least one of the three is set."""

    latency_s: float | None = None
    first_token_s: float | None = None
    output_token_s: float | None = None
    probability: float = 0.99


@dataclass(frozen=True)
class DeclaredTokens:
    """Mean and P99 tokens of a request."""

    mean: float
    p99: float | None = None


@dataclass(frozen=True)
class Traffic:
    """``spec.traffic``."""

    rate_per_s: float | None = None
    peak_rate_per_s: float | None = None
    prompt: DeclaredTokens | None = None
    output: DeclaredTokens | None = None
    routing: Routing = Routing.RANDOM


@dataclass(frozen=True)
class ScalingPolicy:
    """One HPA policy: at most ``value`` pods or percent within a period."""

    type: str
    value: int
    period_s: float


@dataclass(frozen=True)
class ScalingRules:
    """HPA autoscaling/v2 rules of one direction."""

    stabilization_s: float
    policies: tuple[ScalingPolicy, ...]
    select: str = "Max"
    tolerance: float = 0.1


DEFAULT_UP = ScalingRules(
    stabilization_s=0.0,
    policies=(ScalingPolicy("Percent", 100, 15.0), ScalingPolicy("Pods", 4, 15.0)),
    tolerance=0.0,
)
"""The HPA's scale-up defaults, but no tolerance: an SLO missed by 5 % is missed."""

DEFAULT_DOWN = ScalingRules(
    stabilization_s=300.0, policies=(ScalingPolicy("Percent", 100, 15.0),), tolerance=0.1
)
"""The HPA's scale-down defaults."""


@dataclass(frozen=True)
class Behaviour:
    """HPA autoscaling/v2 behaviour; None takes the HPA's default of that direction."""

    up: ScalingRules | None = None
    down: ScalingRules | None = None


@dataclass(frozen=True)
class Scaling:
    """``spec.scaling``."""

    min_replicas: int = 1
    max_replicas: int = 1
    mode: Mode = Mode.AUTO
    actuation: Actuation = Actuation.DIRECT
    target_utilisation: float = 0.75
    objective: Objective = Objective.MAX_BATCH
    tail_rule: TailRule = TailRule.EXACT
    batch_policy: BatchPolicy = BatchPolicy.ROLLOUT
    behaviour: Behaviour = field(default_factory=Behaviour)
    cold_start_s: float | None = None
    priority: int = 0


@dataclass(frozen=True)
class MetricsSource:
    """``spec.metrics``: overrides of labels and of the arrival-rate query."""

    selector: tuple[tuple[str, str], ...] = ()
    arrival_rate_query: str | None = None


@dataclass(frozen=True)
class Declaration:
    """One InferenceService as its author wrote it, defaults of the schema filled in."""

    ref: ObjectRef
    model: DeclaredModel
    gpu: DeclaredGpu
    slo: Slo
    target: TargetRef
    engine: DeclaredEngine = field(default_factory=DeclaredEngine)
    traffic: Traffic = field(default_factory=Traffic)
    scaling: Scaling = field(default_factory=Scaling)
    metrics: MetricsSource = field(default_factory=MetricsSource)
    service_time: LinearServiceTime | None = None
    profile_ref: str | None = None
    bypass: str | None = None
    paused: bool = False
