"""From a workload and its pods to the TargetState of one service."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sojourn import engines
from sojourn.engines import Flags
from sojourn.facts.declaration import BatchPolicy, BatchRefMode, Declaration
from sojourn.facts.situation import EnginePod, TargetState
from sojourn.observe.pods import Pod, Pods
from sojourn.observe.records import Quota, Workload


@dataclass(frozen=True)
class ContainerFacts:
    """What the engine's container says."""

    name: str | None
    max_batch: int | None
    referenced: bool
    version: str | None
    flags: tuple[tuple[str, str, str], ...]


_NOTHING = ContainerFacts(None, None, False, None, ())


def state_of(
    declaration: Declaration, workload: Workload, pods: Pods, owners: tuple[str, ...]
) -> TargetState:
    """The target as decisions see it. ``owners`` are others who scale it."""
    serving = pods.serving
    facts = container_facts(declaration, workload)
    ready_at_s = [pod.ready_at_s for pod in serving if pod.ready_at_s is not None]
    return TargetState(
        spec_replicas=workload.replicas,
        ready_replicas=len(serving),
        pods_pending=max(workload.replicas - len(serving), 0),
        max_batch=facts.max_batch,
        batch_referenced=facts.referenced,
        container=facts.name,
        rollout_running=workload.rollout_running,
        other_owners=owners,
        youngest_ready_at_s=max(ready_at_s, default=None),
        pods_terminating=sum(pod.terminating for pod in pods.live),
        finishing_until_s=max((p.gone_by_s for p in pods.live if p.gone_by_s), default=None),
        blocked=workload.failure or next((p.blocked for p in pods.live if p.blocked), ""),
        rollout_unavailable=workload.rollout_unavailable,
        engine_version=facts.version,
        flags=facts.flags,
        replicas_manager=workload.replicas_manager,
        engine_pods=_engine_pods(declaration, serving),
    )


def _engine_pods(declaration: Declaration, serving: Iterable[Pod]) -> tuple[EnginePod, ...]:
    """The pods to speak to where max batch is changed without a restart."""
    live = declaration.scaling.batch_policy is BatchPolicy.LIVE
    if not live and declaration.engine.max_batch_ref.mode is not BatchRefMode.LIVE:
        return ()
    return tuple(EnginePod(pod.name, pod.address, pod.incarnation) for pod in serving)


def container_facts(declaration: Declaration, workload: Workload) -> ContainerFacts:
    """What the engine's container says; remembered for this version of the workload."""
    engine, ref = declaration.engine.name, declaration.engine.max_batch_ref
    key = (engine, ref)
    if key not in workload.memo:
        workload.memo[key] = _read(declaration, workload.containers)
    found: ContainerFacts = workload.memo[key]
    return found


def quota_replicas(workload: Workload, here: int, quotas: Iterable[Quota]) -> int | None:
    """Replicas that fit: those here, and as many more as the tightest quota leaves room for.

    ``here`` counts the pods that exist: a quota's usage holds them already.
    """
    wanted = {**workload.devices, "pods": 1.0}
    rooms = [
        math.floor(quota.free[resource] / amount + 1e-9)
        for quota in quotas
        for resource, amount in wanted.items()
        if amount > 0 and resource in quota.free
    ]
    return here + min(rooms) if rooms else None


def _read(declaration: Declaration, containers: tuple[Mapping[str, Any], ...]) -> ContainerFacts:
    container = _engine_container(declaration, containers)
    if container is None:
        return _NOTHING
    try:
        engine = engines.find(declaration.engine.name)
    except engines.EngineUnknown:
        return _NOTHING
    flags = engines.read_flags(engine, container)
    variable = declaration.engine.max_batch_ref.env
    referenced = engines.refers_to(engine, container, variable)
    return ContainerFacts(
        name=str(container.get("name") or "") or None,
        max_batch=_max_batch(flags, container, variable if referenced else ""),
        referenced=referenced,
        version=".".join(map(str, flags.version)) if flags.version else None,
        flags=tuple((r, v.text, v.source.value) for r, v in flags.values.items()),
    )


def _engine_container(
    declaration: Declaration, containers: tuple[Mapping[str, Any], ...]
) -> Mapping[str, Any] | None:
    """The container named in the spec, else the one that runs the engine, else the only one."""
    wanted = declaration.engine.max_batch_ref.container
    if wanted is not None:
        return next((c for c in containers if c.get("name") == wanted), None)
    name = declaration.engine.name
    for container in containers:
        found = engines.detect(container)
        if found is not None and found.name == name:
            return container
    return containers[0] if len(containers) == 1 else None


def _max_batch(flags: Flags, container: Mapping[str, Any], variable: str) -> int | None:
    """What the engine runs with: its flag, or the variable an unknown engine refers to."""
    number = flags.number("max_batch")
    if number is not None or not variable:
        return number
    values = (e.get("value") for e in container.get("env") or () if e.get("name") == variable)
    text = str(next(values, None) or "")
    return int(text) if text.isdecimal() else None
