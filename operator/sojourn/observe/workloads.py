"""Workloads as observation keeps them: of every kind the replicas, of a group its pods."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sojourn.observe.bodies import Body, Identity, condition, devices_of, identity_of, unix_s
from sojourn.observe.selectors import Labels, pod_labels_of, selector_of

OUR_SCALE_MANAGER = "sojourn-scale"
"""Field manager under which ``act`` writes replicas."""

OUR_BATCH_MANAGER = "sojourn-batch"
"""Field manager under which ``act`` writes max batch."""

GROUPS = "LeaderWorkerSet"
"""The kind whose replica is a group of pods: a leader and its workers."""

DEFAULT_GRACE_S = 30.0
"""What Kubernetes grants when a template says nothing."""

_CONTAINER_FIELDS = ("name", "image", "command", "args", "env")


@dataclass(frozen=True)
class Template:
    """One pod template of a workload.

    Attributes:
        path: where it is below ``spec``, fields joined by dots.
        containers: name, image, command, args and env of its containers.
        pods: pods of one replica that are made from it.
        devices: extended resources one of them asks for, by resource name.
        grace_s: how long one may go on after it was told to stop.
    """

    path: str
    containers: tuple[Mapping[str, Any], ...]
    pods: int
    devices: Mapping[str, float]
    grace_s: float


@dataclass(frozen=True)
class Workload:
    """A Deployment, StatefulSet, ReplicaSet or LeaderWorkerSet.

    Attributes:
        replicas: what its spec asks for: pods, or groups of them.
        rollout_running: pods of an older template are still there, or the change is not seen yet.
        failure: why the controller cannot create pods; empty when it can.
        templates: the one that runs the engine's server first; none for a ReplicaSet.
        rollout_unavailable: replicas that may be out of service while a new template rolls out.
        rollout_manual: why a new template does not roll out by itself; empty when it does.
        priority_class: of its pods; empty without one.
        replicas_manager: who, other than us, last owned the replicas.
        batch_written_at_s: when max batch was last written by us, whichever process; None if never.
        selector: labels by which it finds its pods.
        pod_labels: labels of the pods it makes.
        memo: answers derived from this version of the object.
    """

    identity: Identity
    replicas: int
    ready_replicas: int
    rollout_running: bool
    failure: str
    templates: tuple[Template, ...]
    rollout_unavailable: int = 0
    rollout_manual: str = ""
    priority_class: str = ""
    replicas_manager: str = ""
    batch_written_at_s: float | None = None
    selector: Labels = frozenset()
    pod_labels: Labels = frozenset()
    memo: dict[object, Any] = field(default_factory=dict, compare=False)

    @property
    def containers(self) -> tuple[Mapping[str, Any], ...]:
        """Containers of the pod that runs the engine's server."""
        return self.templates[0].containers if self.templates else ()

    @property
    def grace_s(self) -> float:
        """How long the pod that serves may go on after it was told to stop."""
        return self.templates[0].grace_s if self.templates else DEFAULT_GRACE_S

    @cached_property
    def pods(self) -> int:
        """Pods of one replica."""
        return sum(template.pods for template in self.templates) or 1

    @cached_property
    def devices(self) -> Mapping[str, float]:
        """Extended resources one replica asks for, over all its pods."""
        total: dict[str, float] = {}
        for template in self.templates:
            for name, amount in template.devices.items():
                total[name] = total.get(name, 0.0) + amount * template.pods
        return total


def workload(kind: str, body: Body) -> Workload:
    """What is kept of a workload of a kind that is watched."""
    metadata, spec = body.get("metadata") or {}, body.get("spec") or {}
    status = body.get("status") or {}
    count = _one_unless_said(spec.get("replicas"))
    failure = condition(status, "ReplicaFailure")
    own = spec if kind != "ReplicaSet" else {}  # its Deployment stands for it
    groups = kind == GROUPS
    return Workload(
        identity=identity_of(kind, body),
        replicas=count,
        ready_replicas=int(status.get("readyReplicas") or 0),
        rollout_running=(_groups_roll if groups else _pods_roll)(kind, body),
        failure=_failure_text(failure) if failure.get("status") == "True" else "",
        templates=_group_templates(spec) if groups else _templates(kind, spec),
        rollout_unavailable=_unavailable(kind, spec, count),
        rollout_manual=_manual(identity_of(kind, body), spec),
        priority_class=str(_pod_spec(kind, spec).get("priorityClassName") or ""),
        replicas_manager=_replicas_manager(metadata),
        batch_written_at_s=_batch_written_at_s(metadata),
        selector=selector_of(own),
        pod_labels=pod_labels_of(own),
    )


def _one_unless_said(amount: Any) -> int:
    """Replicas, or pods of a group: a spec that says nothing means one."""
    return 1 if amount is None else int(amount)


def _manual(identity: Identity, spec: Body) -> str:
    """Why a changed template waits for somebody, or is taken back by whoever renders it."""
    kind = identity.kind
    if identity.owner_kind and kind != "ReplicaSet":
        owner = f"{identity.owner_kind} {identity.owner_name}"
        return f"the {kind}'s template is {owner}'s, which takes changes back"
    if kind == "Deployment":
        return "the Deployment is paused" if spec.get("paused") else ""
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return f"the {kind}'s update strategy is OnDelete"
    partition = (strategy.get("rollingUpdate") or {}).get("partition")
    return f"the {kind} rolls out down to partition {partition} only" if partition else ""


def _pod_spec(kind: str, spec: Body) -> Body:
    """Spec of the pods, of a group the workers'."""
    if kind == GROUPS:
        spec = {"template": (spec.get("leaderWorkerTemplate") or {}).get("workerTemplate")}
    found: Body = (spec.get("template") or {}).get("spec") or {}
    return found


def _templates(kind: str, spec: Body) -> tuple[Template, ...]:
    if kind == "ReplicaSet":  # thousands of them, and what runs is its Deployment's template
        return ()
    return (_template("template", spec.get("template") or {}, 1),)


def _group_templates(spec: Body) -> tuple[Template, ...]:
    """The leader's and the workers': without one of its own the leader is made from theirs."""
    parts = spec.get("leaderWorkerTemplate") or {}
    size = _one_unless_said(parts.get("size"))
    leader, worker = parts.get("leaderTemplate"), parts.get("workerTemplate") or {}
    below = "leaderWorkerTemplate"
    if not leader:
        return (_template(f"{below}.workerTemplate", worker, size),)
    own = _template(f"{below}.leaderTemplate", leader, 1)
    if size <= 1:
        return (own,)
    return (own, _template(f"{below}.workerTemplate", worker, size - 1))


def _template(path: str, template: Body, pods: int) -> Template:
    spec = template.get("spec") or {}
    containers = spec.get("containers") or []
    return Template(
        path=path,
        containers=tuple({f: c[f] for f in _CONTAINER_FIELDS if f in c} for c in containers),
        pods=pods,
        devices=devices_of(containers),
        grace_s=float(spec.get("terminationGracePeriodSeconds") or DEFAULT_GRACE_S),
    )


def _replicas_manager(metadata: Body) -> str:
    for entry in metadata.get("managedFields") or ():
        owned = ((entry.get("fieldsV1") or {}).get("f:spec")) or {}
        if "f:replicas" in owned and entry.get("manager") != OUR_SCALE_MANAGER:
            return sys.intern(str(entry.get("manager") or ""))
    return ""


def _batch_written_at_s(metadata: Body) -> float | None:
    """Time of our field manager's entry: it changes with the value and outlives every process."""
    for entry in metadata.get("managedFields") or ():
        if entry.get("manager") == OUR_BATCH_MANAGER:
            return unix_s(entry.get("time"))
    return None


def _unavailable(kind: str, spec: Body, replicas: int) -> int:
    """Replicas a rollout may take out of service: percents round down, as the Deployment's do."""
    strategy, rolling = _rollout(kind, spec)
    if strategy.get("type") == "Recreate":
        return replicas
    # StatefulSets and groups are replaced one at a time in place; a Deployment's default is 25 %.
    limit = rolling.get("maxUnavailable", "25%" if kind == "Deployment" else 1)
    text = str(limit)
    if not text.rstrip("%").isdigit():
        return replicas
    number = int(text.rstrip("%"))
    return min(replicas, replicas * number // 100 if text.endswith("%") else number)


def _rollout(kind: str, spec: Body) -> tuple[Body, Body]:
    """The strategy of a rollout, and how it rolls: each kind has names of its own for them."""
    if kind == GROUPS:
        strategy = spec.get("rolloutStrategy") or {}
        return strategy, strategy.get("rollingUpdateConfiguration") or {}
    strategy = spec.get("strategy" if kind == "Deployment" else "updateStrategy") or {}
    return strategy, strategy.get("rollingUpdate") or {}


def _pods_roll(kind: str, body: Body) -> bool:
    """The change is not seen yet, or pods of an older template are still there."""
    if kind == "ReplicaSet":
        return False
    status = body.get("status") or {}
    if int(status.get("observedGeneration") or 0) < _generation(body):
        return True
    if kind == "StatefulSet" and status.get("currentRevision") == status.get("updateRevision"):
        return False
    return _older_remain(status)


def _groups_roll(_kind: str, body: Body) -> bool:
    """Groups of an older template are still there, or a partition keeps some of them for good."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    _, rolling = _rollout(GROUPS, spec)
    seen = status.get("observedGeneration")  # releases before it do not say
    return (
        (seen is not None and int(seen) < _generation(body))
        or bool(rolling.get("partition"))
        or condition(status, "UpdateInProgress").get("status") == "True"
        or _older_remain(status)
    )


def _generation(body: Body) -> int:
    return int((body.get("metadata") or {}).get("generation") or 0)


def _older_remain(status: Body) -> bool:
    """Whether replicas of an older template are still there."""
    return int(status.get("replicas") or 0) > int(status.get("updatedReplicas") or 0)


def _failure_text(condition: Body) -> str:
    return f"{condition.get('reason') or 'ReplicaFailure'}: {condition.get('message') or ''}"
