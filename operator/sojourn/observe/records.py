"""What is kept of a Kubernetes object: the few fields observation needs.

A pod of 8 kB becomes some hundred bytes, which is what lets one process hold 25,000 of them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from sojourn.observe import gpus, workloads
from sojourn.observe.bodies import (
    Body,
    Identity,
    condition,
    devices_of,
    identity_of,
    quantities,
    unix_s,
)
from sojourn.observe.gpus import Claim, Node, Slice
from sojourn.observe.pods import Pod, workload_of
from sojourn.observe.workloads import Workload


@dataclass(frozen=True)
class PodRecord:
    """A pod; ``finished`` when it has ended for good, ``workload`` what its name tells.

    ``devices`` are extended resources it holds on its node, with their amounts.
    """

    identity: Identity
    pod: Pod
    workload: str
    labels: tuple[str, ...]
    finished: bool
    devices: tuple[tuple[str, float], ...] = ()


_NEVER_SERVING = ("Terminating", "BestEffort", "CrossNamespacePodAffinity")
"""Scopes of a quota that leave out pods without a deadline, with devices and of one namespace."""


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
    """A ResourceQuota's room, by resource name without ``requests.`` and ``limits.``.

    ``scopes`` are its scopes, operators and values: the pods it does not cover it does not limit.
    """

    identity: Identity
    free: Mapping[str, float]
    hard: Mapping[str, float]
    scopes: tuple[tuple[str, str, frozenset[str]], ...] = ()

    def covers(self, priority_class: str) -> bool:
        """Whether pods that serve are counted: they end at no deadline and ask for devices."""
        for scope, operator, values in self.scopes:
            if scope in _NEVER_SERVING:
                return False
            inside = {
                "In": priority_class in values,
                "NotIn": priority_class not in values,
                "Exists": bool(priority_class),
                "DoesNotExist": not priority_class,
            }
            if scope == "PriorityClass" and not inside.get(operator, True):
                return False
        return True


Record = PodRecord | Workload | Autoscaler | Quota | Node | Slice | Claim


def record_of(kind: str, body: Body) -> Record | None:
    """What is kept of an object; None for a kind nobody asked for."""
    match kind:
        case "Pod":
            return _pod(body)
        case "Deployment" | "StatefulSet" | "ReplicaSet" | workloads.GROUPS:
            return workloads.workload(kind, body)
        case "HorizontalPodAutoscaler":
            return _autoscaler(body)
        case "ResourceQuota":
            return _quota(body)
        case "Node":
            return gpus.node(body)
        case "ResourceSlice":
            return gpus.resource_slice(body)
        case "ResourceClaim":
            return gpus.claim(body)
    return None


def _autoscaler(body: Body) -> Autoscaler:
    target = (body.get("spec") or {}).get("scaleTargetRef") or {}
    return Autoscaler(
        identity_of("HorizontalPodAutoscaler", body),
        target_kind=str(target.get("kind") or ""),
        target_name=str(target.get("name") or ""),
    )


def _pod(body: Body) -> PodRecord:
    metadata, status = body.get("metadata") or {}, body.get("status") or {}
    spec = body.get("spec") or {}
    identity = identity_of("Pod", body)
    pod = Pod(
        namespace=identity.namespace,
        name=identity.name,
        ready_at_s=_ready_at_s(status),
        terminating=bool(metadata.get("deletionTimestamp")),
        blocked=_blocked(status),
        trouble=_trouble(status),
        address=str(status.get("podIP") or ""),
        incarnation=f"{identity.uid}/{_restarts(status)}",
        # The API server sets the time of deletion to the end of the pod's grace.
        gone_by_s=unix_s(metadata.get("deletionTimestamp")),
        node=sys.intern(str(spec.get("nodeName") or "")),
    )
    labels = (metadata.get("labels") or {}).items()
    return PodRecord(
        identity=identity,
        pod=pod,
        workload=sys.intern(workload_of(identity.name)),
        labels=tuple(sys.intern(f"{key}={value}") for key, value in labels),
        finished=status.get("phase") in ("Succeeded", "Failed"),
        devices=_one_copy(tuple(devices_of(spec.get("containers") or ()).items())),
    )


@lru_cache(maxsize=4096)
def _one_copy(devices: tuple[tuple[str, float], ...]) -> tuple[tuple[str, float], ...]:
    """The pods of a cluster ask for a few different lists of devices between them."""
    return devices


def _restarts(status: Body) -> int:
    return sum(int(c.get("restartCount") or 0) for c in status.get("containerStatuses") or ())


def _ready_at_s(status: Body) -> float | None:
    ready = condition(status, "Ready")
    if ready.get("status") != "True":
        return None
    return unix_s(ready.get("lastTransitionTime")) or 0.0


def _trouble(status: Body) -> str:
    """Why a container does not run, and how it ended last; empty while one merely starts."""
    for kind in ("initContainerStatuses", "containerStatuses"):
        for one in status.get(kind) or ():
            waiting = (one.get("state") or {}).get("waiting") or {}
            reason = str(waiting.get("reason") or "")
            if reason in ("", "ContainerCreating", "PodInitializing"):
                continue
            return f"{one.get('name')} is in {reason}{_last_end(one)}"
    return ""


def _last_end(container: Body) -> str:
    """How a container ended last, to follow what it is in; empty when it did not."""
    ended = (container.get("lastState") or {}).get("terminated") or {}
    last = f", last {ended['reason']}" if ended.get("reason") else ""
    code = f" (exit code {ended['exitCode']})" if "exitCode" in ended else ""
    return f"{last}{code}"


def _blocked(status: Body) -> str:
    scheduled = condition(status, "PodScheduled")
    reason = scheduled.get("reason")
    if scheduled.get("status") == "False" and reason in ("Unschedulable", "SchedulingGated"):
        return f"{reason}: {scheduled.get('message') or 'no message'}"
    return ""


def _quota(body: Body) -> Quota:
    status, spec = body.get("status") or {}, body.get("spec") or {}
    hard = dict(quantities(status.get("hard") or spec.get("hard") or {}))
    used = dict(quantities(status.get("used") or {}))
    free: dict[str, float] = {}
    limit: dict[str, float] = {}
    for name, amount in hard.items():
        resource = name.removeprefix("requests.").removeprefix("limits.").removeprefix("count/")
        left = max(amount - used.get(name, 0.0), 0.0)
        free[resource] = min(free.get(resource, left), left)
        limit[resource] = min(limit.get(resource, amount), amount)
    return Quota(identity_of("ResourceQuota", body), free, limit, _scopes(spec))


def _scopes(spec: Body) -> tuple[tuple[str, str, frozenset[str]], ...]:
    plain = [(str(scope), "Exists", frozenset[str]()) for scope in spec.get("scopes") or ()]
    chosen = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return (
        *plain,
        *(
            (str(e.get("scopeName")), str(e.get("operator")), frozenset(e.get("values") or ()))
            for e in chosen
        ),
    )
