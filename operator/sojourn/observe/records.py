"""What is kept of a Kubernetes object: the few fields observation needs.

A pod of 8 kB becomes some hundred bytes, which is what lets one process hold 25,000 of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sojourn.errors import UnitError
from sojourn.observe.pods import Pod, workload_of
from sojourn.observe.selectors import Labels, pod_labels_of, selector_of
from sojourn.units import parse_quantity

Body = Mapping[str, Any]

OUR_SCALE_MANAGER = "sojourn-scale"
"""Field manager under which ``act`` writes replicas."""

DEFAULT_GRACE_S = 30.0
"""What Kubernetes grants when a template says nothing."""

_CONTAINER_FIELDS = ("name", "image", "command", "args", "env")


@dataclass(frozen=True)
class Identity:
    """Who an object is and who controls it; ``owner_uid`` is empty without a controller."""

    kind: str
    namespace: str
    name: str
    uid: str
    owner_uid: str = ""
    owner_kind: str = ""
    owner_name: str = ""


@dataclass(frozen=True)
class PodRecord:
    """A pod; ``finished`` when it has ended for good, ``workload`` what its name tells."""

    identity: Identity
    pod: Pod
    workload: str
    labels: tuple[str, ...]
    finished: bool


@dataclass(frozen=True)
class Workload:
    """A Deployment, StatefulSet or ReplicaSet.

    Attributes:
        replicas: what its spec asks for.
        rollout_running: pods of an older template are still there, or the change is not seen yet.
        failure: why the controller cannot create pods; empty when it can.
        containers: name, image, command, args and env of the template's containers.
        devices: extended resources one pod asks for, by resource name.
        rollout_unavailable: pods that may be out of service while a new template rolls out.
        replicas_manager: who, other than us, last owned the replicas.
        grace_s: how long a pod may go on after it was told to stop.
        selector: labels by which it finds its pods.
        pod_labels: labels of the pods it makes.
        memo: answers derived from this version of the object.
    """

    identity: Identity
    replicas: int
    ready_replicas: int
    rollout_running: bool
    failure: str
    containers: tuple[Mapping[str, Any], ...]
    devices: Mapping[str, float]
    rollout_unavailable: int = 0
    replicas_manager: str = ""
    grace_s: float = DEFAULT_GRACE_S
    selector: Labels = frozenset()
    pod_labels: Labels = frozenset()
    memo: dict[object, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Autoscaler:
    """An HPA: the target it scales, and how people know it."""

    identity: Identity
    target_kind: str
    target_name: str

    @property
    def shown(self) -> str:
        """``HorizontalPodAutoscaler x``, or the ScaledObject that made it."""
        if self.identity.owner_kind == "ScaledObject":
            return f"ScaledObject {self.identity.owner_name}"
        return f"HorizontalPodAutoscaler {self.identity.name}"


@dataclass(frozen=True)
class Quota:
    """A ResourceQuota's room, by resource name without ``requests.`` and ``limits.``."""

    identity: Identity
    free: Mapping[str, float]
    hard: Mapping[str, float]


@dataclass(frozen=True)
class Node:
    """A node's extended resources and the labels that tell its GPU."""

    identity: Identity
    allocatable: Mapping[str, float]
    products: tuple[str, ...]
    schedulable: bool


Record = PodRecord | Workload | Autoscaler | Quota | Node


def identity_of(kind: str, body: Body) -> Identity:
    """Who an object is."""
    metadata = body.get("metadata") or {}
    owners = metadata.get("ownerReferences") or ()
    owner: Body = next((o for o in owners if o.get("controller")), {})
    return Identity(
        kind=kind,
        # Interned: thousands of pods share their namespace and owners.
        namespace=sys.intern(str(metadata.get("namespace") or "")),
        name=str(metadata.get("name") or ""),
        uid=str(metadata.get("uid") or ""),
        owner_uid=sys.intern(str(owner.get("uid") or "")),
        owner_kind=sys.intern(str(owner.get("kind") or "")),
        owner_name=sys.intern(str(owner.get("name") or "")),
    )


def record_of(kind: str, body: Body) -> Record | None:
    """What is kept of an object; None for a kind nobody asked for."""
    match kind:
        case "Pod":
            return _pod(body)
        case "Deployment" | "StatefulSet" | "ReplicaSet":
            return _workload(kind, body)
        case "HorizontalPodAutoscaler":
            target = (body.get("spec") or {}).get("scaleTargetRef") or {}
            names = str(target.get("kind") or ""), str(target.get("name") or "")
            return Autoscaler(identity_of(kind, body), *names)
        case "ResourceQuota":
            return _quota(body)
        case "Node":
            return _node(body)
    return None


def _pod(body: Body) -> PodRecord:
    metadata, status = body.get("metadata") or {}, body.get("status") or {}
    identity = identity_of("Pod", body)
    pod = Pod(
        namespace=identity.namespace,
        name=identity.name,
        ready_at_s=_ready_at_s(status),
        terminating=bool(metadata.get("deletionTimestamp")),
        blocked=_blocked(status),
        address=str(status.get("podIP") or ""),
        incarnation=f"{identity.uid}/{_restarts(status)}",
        # The API server sets the time of deletion to the end of the pod's grace.
        gone_by_s=_unix_s(metadata.get("deletionTimestamp")),
    )
    labels = (metadata.get("labels") or {}).items()
    return PodRecord(
        identity=identity,
        pod=pod,
        workload=sys.intern(workload_of(identity.name)),
        labels=tuple(sys.intern(f"{key}={value}") for key, value in labels),
        finished=status.get("phase") in ("Succeeded", "Failed"),
    )


def _restarts(status: Body) -> int:
    return sum(int(c.get("restartCount") or 0) for c in status.get("containerStatuses") or ())


def _ready_at_s(status: Body) -> float | None:
    ready = _condition(status, "Ready")
    if ready.get("status") != "True":
        return None
    return _unix_s(ready.get("lastTransitionTime")) or 0.0


def _blocked(status: Body) -> str:
    scheduled = _condition(status, "PodScheduled")
    reason = scheduled.get("reason")
    if scheduled.get("status") == "False" and reason in ("Unschedulable", "SchedulingGated"):
        return f"{reason}: {scheduled.get('message') or 'no message'}"
    return ""


def _workload(kind: str, body: Body) -> Workload:
    metadata, spec = body.get("metadata") or {}, body.get("spec") or {}
    status = body.get("status") or {}
    template = ((spec.get("template") or {}).get("spec") or {}) if kind != "ReplicaSet" else {}
    containers = template.get("containers") or []
    failure = _condition(status, "ReplicaFailure")
    replicas = spec.get("replicas")
    own = spec if kind != "ReplicaSet" else {}  # its Deployment stands for it
    unseen = int(status.get("observedGeneration") or 0) < int(metadata.get("generation") or 0)
    count = 1 if replicas is None else int(replicas)
    return Workload(
        identity=identity_of(kind, body),
        replicas=count,
        ready_replicas=int(status.get("readyReplicas") or 0),
        rollout_running=kind != "ReplicaSet" and (unseen or _old_pods(kind, status)),
        failure=_failure_text(failure) if failure.get("status") == "True" else "",
        containers=tuple({f: c[f] for f in _CONTAINER_FIELDS if f in c} for c in containers),
        devices=_devices(containers),
        rollout_unavailable=_unavailable(kind, spec, count),
        replicas_manager=_replicas_manager(metadata),
        selector=selector_of(own),
        pod_labels=pod_labels_of(own),
        grace_s=float(template.get("terminationGracePeriodSeconds") or DEFAULT_GRACE_S),
    )


def _replicas_manager(metadata: Body) -> str:
    for entry in metadata.get("managedFields") or ():
        owned = ((entry.get("fieldsV1") or {}).get("f:spec")) or {}
        if "f:replicas" in owned and entry.get("manager") != OUR_SCALE_MANAGER:
            return sys.intern(str(entry.get("manager") or ""))
    return ""


def _unavailable(kind: str, spec: Body, replicas: int) -> int:
    """Pods a rollout may take out of service: percents round down, as the Deployment's do."""
    strategy = spec.get("strategy" if kind == "Deployment" else "updateStrategy") or {}
    if strategy.get("type") == "Recreate":
        return replicas
    rolling = strategy.get("rollingUpdate") or {}
    # A StatefulSet replaces one pod at a time in place; a Deployment's default is 25 %.
    limit = rolling.get("maxUnavailable", "25%" if kind == "Deployment" else 1)
    text = str(limit)
    if not text.rstrip("%").isdigit():
        return replicas
    number = int(text.rstrip("%"))
    return min(replicas, replicas * number // 100 if text.endswith("%") else number)


def _old_pods(kind: str, status: Body) -> bool:
    """Pods of an older template are still there."""
    if kind == "StatefulSet" and status.get("currentRevision") == status.get("updateRevision"):
        return False
    return int(status.get("replicas") or 0) > int(status.get("updatedReplicas") or 0)


def _failure_text(condition: Body) -> str:
    return f"{condition.get('reason') or 'ReplicaFailure'}: {condition.get('message') or ''}"


def _devices(containers: list[Any]) -> dict[str, float]:
    """Extended resources of a pod: GPUs, MIG slices and their like carry a domain."""
    total: dict[str, float] = {}
    for container in containers:
        resources = container.get("resources") or {}
        asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        for name, amount in _quantities(asked):
            if "/" in name:
                total[name] = total.get(name, 0.0) + amount
    return total


def _quota(body: Body) -> Quota:
    status, spec = body.get("status") or {}, body.get("spec") or {}
    hard = dict(_quantities(status.get("hard") or spec.get("hard") or {}))
    used = dict(_quantities(status.get("used") or {}))
    free: dict[str, float] = {}
    limit: dict[str, float] = {}
    for name, amount in hard.items():
        resource = name.removeprefix("requests.").removeprefix("limits.").removeprefix("count/")
        left = max(amount - used.get(name, 0.0), 0.0)
        free[resource] = min(free.get(resource, left), left)
        limit[resource] = min(limit.get(resource, amount), amount)
    return Quota(identity_of("ResourceQuota", body), free, limit)


def _node(body: Body) -> Node:
    metadata, spec = body.get("metadata") or {}, body.get("spec") or {}
    allocatable = _quantities((body.get("status") or {}).get("allocatable") or {})
    labels = metadata.get("labels") or {}
    return Node(
        identity=identity_of("Node", body),
        allocatable={name: amount for name, amount in allocatable if "/" in name},
        products=tuple(str(v) for k, v in labels.items() if k.endswith(("/gpu.product", "gpu"))),
        schedulable=not spec.get("unschedulable"),
    )


def _condition(status: Body, kind: str) -> Body:
    found: Body = next((c for c in status.get("conditions") or () if c.get("type") == kind), {})
    return found


def _quantities(amounts: Body) -> Iterator[tuple[str, float]]:
    for name, text in amounts.items():
        try:
            yield str(name), parse_quantity(text)
        except UnitError:
            continue


def _unix_s(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None
