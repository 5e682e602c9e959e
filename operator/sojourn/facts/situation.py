"""Everything one decision may look at: gathered once, never asked for later."""

from __future__ import annotations

from dataclasses import dataclass, field

from sojourn.facts.calibration import Calibration
from sojourn.facts.gpu import GpuRoom
from sojourn.facts.reading import Reading, Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.replica import OperatingPoint
from sojourn.facts.service import Service
from sojourn.facts.sizing import ServingConstraint, Sizing
from sojourn.facts.sojourn import Sojourn


def _not_observed() -> Unknown:
    return Unknown(Reason.NOT_OBSERVED, "not observed yet")


@dataclass(frozen=True)
class Signals:
    """Measured signals of one service, over all its pods.

    Attributes:
        rate_per_s: requests offered per second: a gateway's count, or completions, refusals and
            growth of the in-flight count; ``lower_bound`` while a pod's window is not full.
        running, waiting: requests in batches and in queues, summed.
        kv_usage: fraction of the fullest pod's KV pool.
        latency_p50_s, latency_p99_s: end to end, interpolated within a histogram bucket.
        first_token_p99_s, output_token_p99_s: time to first token, time per output token.
        prompt_tokens, output_tokens: means of the requests that finished.
        preemptions_per_s: requests evicted from the KV pool.
        latency_p99_bucket_s: bounds of the bucket that holds the 99th percentile: the true value
            lies between; None if not known.
        retry_storm: what was made of the rate because refused requests come back; empty when it is
            as counted.
    """

    rate_per_s: Reading = field(default_factory=_not_observed)
    running: Reading = field(default_factory=_not_observed)
    waiting: Reading = field(default_factory=_not_observed)
    kv_usage: Reading = field(default_factory=_not_observed)
    latency_p50_s: Reading = field(default_factory=_not_observed)
    latency_p99_s: Reading = field(default_factory=_not_observed)
    first_token_p99_s: Reading = field(default_factory=_not_observed)
    output_token_p99_s: Reading = field(default_factory=_not_observed)
    prompt_tokens: Reading = field(default_factory=_not_observed)
    output_tokens: Reading = field(default_factory=_not_observed)
    preemptions_per_s: Reading = field(default_factory=_not_observed)
    latency_p99_bucket_s: tuple[float, float] | None = None
    retry_storm: str = ""


@dataclass(frozen=True)
class EnginePod:
    """A serving pod whose engine can be spoken to.

    Attributes:
        address: its IP address.
        incarnation: changes whenever the engine in it starts anew.
    """

    name: str
    address: str
    incarnation: str


@dataclass(frozen=True)
class TargetState:
    """The scaled workload as the cluster holds it.

    Attributes:
        spec_replicas: what the scale asks for now.
        ready_replicas: pods that serve.
        pods_pending: pods asked for and not ready.
        max_batch: value of the max-batch environment variable; None if not set.
        batch_referenced: an argument of the container refers to that variable.
        container: name of the container that holds it; None if not found.
        rollout_running: a template change is being rolled out.
        other_owners: HPAs, ScaledObjects and InferenceServices that scale the same target.
        youngest_ready_at_s: start of the youngest serving pod; None if none serves.
        pods_terminating: pods on their way out, no longer counted as ready.
        overlapping: other workloads whose selector or pods its own shares.
        finishing_until_s: when the last of them must have gone, Unix seconds; None if not known.
        blocked: why pods asked for do not come: ``Unschedulable``, ``SchedulingGated`` or
            ``FailedCreate``, with the cluster's message; empty when nothing blocks.
        trouble: what keeps a pod that was placed from serving, such as a crash loop.
        rollout_unavailable: pods that may be out of service while a new template rolls out.
        rollout_manual: why a new template does not roll out by itself; empty when it does.
        engine_version: from the container's image tag; None if the tag has none.
        flags: what the container says about the engine: (role, value, source).
        replicas_manager: who, other than us, last owned the replicas; empty when nobody does.
        batch_written_at_s: when any process of ours last wrote max batch; None if none did.
        engine_pods: serving pods, where max batch is changed without a restart; else empty.
        quota_unknown: why the namespace's quotas cannot be read; empty when they can.
        batch_templates: paths below ``spec`` of the pod templates that refer to the variable.
    """

    spec_replicas: int = 0
    ready_replicas: int = 0
    pods_pending: int = 0
    max_batch: int | None = None
    batch_referenced: bool = False
    container: str | None = None
    rollout_running: bool = False
    other_owners: tuple[str, ...] = ()
    youngest_ready_at_s: float | None = None
    pods_terminating: int = 0
    blocked: str = ""
    trouble: str = ""
    rollout_unavailable: int = 0
    rollout_manual: str = ""
    engine_version: str | None = None
    flags: tuple[tuple[str, str, str], ...] = ()
    replicas_manager: str = ""
    batch_written_at_s: float | None = None
    engine_pods: tuple[EnginePod, ...] = ()
    quota_unknown: str = ""
    finishing_until_s: float | None = None
    overlapping: tuple[str, ...] = ()
    batch_templates: tuple[str, ...] = ("template",)


@dataclass(frozen=True)
class TargetPods:
    """What admission asks about the pods of a target.

    Attributes:
        grace_s: how long one may go on when told to stop; None if not known.
        overlapping: other workloads whose selector or pods the target's own shares.
    """

    grace_s: float | None = None
    overlapping: tuple[str, ...] = ()


def _target_not_observed() -> Unknown:
    return Unknown(Reason.NOT_OBSERVED, "the target has not been observed yet")


@dataclass(frozen=True)
class Observation:
    """What one tick has seen of one service.

    Attributes:
        target: the workload; Unknown when it is missing, forbidden or not yet seen.
        quota_replicas: replicas that quotas allow; None when none is known to bind.
        gpus: room on the cluster's GPUs of the service's type; None when not known.
    """

    signals: Signals = field(default_factory=Signals)
    target: TargetState | Unknown = field(default_factory=_target_not_observed)
    quota_replicas: int | None = None
    gpus: GpuRoom | None = None


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A past raw answer of sizing, remembered for stabilisation."""

    at_s: float
    replicas: int


@dataclass(frozen=True, slots=True)
class RateSample:
    """The offered rate of one window, by the time the window ended."""

    at_s: float
    rate_per_s: float


@dataclass(frozen=True, slots=True)
class ServiceSample:
    """One tick's view of the service time: requests running a replica, seconds each takes."""

    at_s: float
    running: float
    service_s: float


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    """A past write of the scale: the change in replicas and when."""

    at_s: float
    change: int


@dataclass(frozen=True)
class Figures:
    """Costly answers of an earlier tick, and what they answer.

    Attributes:
        asked: point and percentiles of ``predicted``.
        constraint: of ``sizing``.
    """

    asked: tuple[OperatingPoint, tuple[float, ...]] | None = None
    predicted: Sojourn | None = None
    constraint: ServingConstraint | None = None
    sizing: Sizing | None = None


@dataclass(frozen=True)
class Past:
    """What earlier ticks left behind.

    Attributes:
        since_s: when this process began to watch the service; before it, nothing is known.
        decided_at_s: the last tick that was no hold; the first of all where each was one.
        unbroken_since_s: since when rates have been known without a gap, each of its window; None
            as long as ``since_s``.
        recommendations: raw recommendations, oldest first.
        scale_events: writes of the scale, oldest first.
        rates: known rates, oldest first.
        service_samples: the live engine's pairs of concurrency and time, oldest first.
        batch_changed_at_s: last change of max batch; None if none is known.
        batch_wanted_since_s: since when another max batch has been wanted.
        replicas: what the scale asked for after the last tick, with what we wrote; None before.
        reverted_at_s: when somebody else had set back what we wrote, oldest first.
        live_batch: max batch every pod was given while it ran; None if none was.
        figures: costly answers of the last tick.
        live_refused_at_s: when an engine last did not take one; None if all did since.
    """

    since_s: float
    recommendations: tuple[Recommendation, ...] = ()
    scale_events: tuple[ScaleEvent, ...] = ()
    rates: tuple[RateSample, ...] = ()
    service_samples: tuple[ServiceSample, ...] = ()
    batch_changed_at_s: float | None = None
    batch_wanted_since_s: float | None = None
    replicas: int | None = None
    reverted_at_s: tuple[float, ...] = ()
    live_batch: int | None = None
    live_refused_at_s: float | None = None
    decided_at_s: float | None = None
    unbroken_since_s: float | None = None
    figures: Figures = field(default_factory=Figures)


@dataclass(frozen=True)
class Situation:
    """One service at one tick.

    Attributes:
        target: the workload; Unknown when it is missing or cannot be read.
        quota_replicas: replicas that quotas allow; None when none is known to bind.
        gpus: room on the cluster's GPUs of the service's type; None when not known.
        calibration: the live engine against its profile; None when it cannot be told.
        may_solve: costly figures may be solved anew; else the last ones are shown.
        may_begin: a service that was never solved may be; else it is held until a later tick.
    """

    service: Service
    now_s: float
    signals: Signals
    target: TargetState | Unknown
    past: Past
    quota_replicas: int | None = None
    gpus: GpuRoom | None = None
    calibration: Calibration | None = None
    may_solve: bool = True
    may_begin: bool = True
