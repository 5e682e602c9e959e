"""A decision that leaves nothing to choose, and everything that explains it."""

from __future__ import annotations

from dataclasses import dataclass, field

from sojourn.facts.declaration import ObjectRef
from sojourn.facts.finding import Finding
from sojourn.facts.reading import Reading
from sojourn.facts.reasons import Reason
from sojourn.facts.service import Service
from sojourn.facts.situation import EnginePod, Figures
from sojourn.facts.sojourn import Sojourn


@dataclass(frozen=True)
class Setting:
    """Replicas and max batch; None is not known or not managed."""

    replicas: int | None
    max_batch: int | None


@dataclass(frozen=True)
class Clip:
    """One limit that changed the raw decision, with its number."""

    reason: Reason
    replicas: int
    text: str


@dataclass(frozen=True)
class Decision:
    """What was decided and why."""

    at_s: float
    row: Reason
    before: Setting
    after: Setting
    raw: Setting
    message: str
    limited_by: tuple[Clip, ...] = ()


@dataclass(frozen=True)
class Limits:
    """The bounds of the serving constraint at the decision (S17)."""

    min_batch: int | None = None
    max_batch_for_slo: int | None = None
    max_batch_for_memory: int | None = None
    rate_per_replica: float | None = None
    max_stable_rate: float | None = None
    binding: str | None = None


@dataclass(frozen=True)
class Condition:
    """A Kubernetes condition; ``status`` None is Unknown."""

    type: str
    status: bool | None
    reason: Reason
    message: str


@dataclass(frozen=True)
class Event:
    """A Kubernetes event about the service."""

    reason: Reason
    message: str
    warning: bool = False


@dataclass(frozen=True)
class Report:
    """What the status shows beside the decision.

    Attributes:
        in_system: requests waiting or in service, over all replicas.
        predicted: of one replica; None when the queue is unstable or the rate is not known.
        utilisation: load at the operating point, also where ``predicted`` is None; None takes
            that of ``predicted``.
        littles_law_agrees: measured requests in the system match rate x latency; None if not
            compared.
    """

    rate_per_s: Reading
    latency_p50_s: Reading
    latency_p99_s: Reading
    in_system: Reading
    predicted: Sojourn | None = None
    regime: str | None = None
    limits: Limits = field(default_factory=Limits)
    utilisation: float | None = None
    littles_law_agrees: bool | None = None


@dataclass(frozen=True)
class LiveBatch:
    """A max batch that running engines are to be given, and how they are reached.

    Attributes:
        engine: its name; it decides the interface.
        version: from the image tag or the spec; None when neither tells.
        port: of the engine's interface, from the engine's description.
        model: name of the model, for engines that serve several.
        pods: the serving pods.
    """

    max_batch: int
    engine: str
    version: str | None
    port: int | None
    model: str
    pipeline_parallel: int
    pods: tuple[EnginePod, ...]


@dataclass(frozen=True)
class Plan:
    """What ``act`` carries out for one service.

    Attributes:
        service: None when the object could not be read or resolved: then only status is written.
        write_replicas: the scale is to be written with ``decision.after.replicas``.
        write_max_batch: the variable is to be written with ``decision.after.max_batch``.
        live_max_batch: what running engines are to be given; None leaves them alone.
        container: name of the container whose variable holds max batch; None if not known.
        templates: paths below the target's ``spec`` of the pod templates that hold it.
        ready_replicas: replicas that serve, for the status.
        figures: costly answers, for the next tick; None leaves the last ones.
        unbroken_since_s: since when rates have been known without a gap; None while held.
        rollout_running: a change of max batch is being rolled out, for the status.
    """

    ref: ObjectRef
    service: Service | None
    decision: Decision
    report: Report
    conditions: tuple[Condition, ...]
    write_replicas: bool = False
    write_max_batch: bool = False
    live_max_batch: LiveBatch | None = None
    container: str | None = None
    templates: tuple[str, ...] = ("template",)
    ready_replicas: int | None = None
    findings: tuple[Finding, ...] = ()
    events: tuple[Event, ...] = ()
    rollout_running: bool = False
    figures: Figures | None = None
    unbroken_since_s: float | None = None
