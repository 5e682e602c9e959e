"""From a workload and its pods to the TargetState of one service."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sojourn import engines
from sojourn.engines import Engine, Flags, FlagSource
from sojourn.facts.declaration import BatchPolicy, BatchRefMode, Declaration
from sojourn.facts.situation import EnginePod, TargetState
from sojourn.observe.pods import Pod, Pods
from sojourn.observe.records import Quota
from sojourn.observe.workloads import Workload


@dataclass(frozen=True)
class ContainerFacts:
    """What the engine's container says.

    ``templates`` are the paths of the pod templates whose container refers to the variable.
    """

    name: str | None
    max_batch: int | None
    referenced: bool
    version: str | None
    flags: tuple[tuple[str, str, str], ...]
    templates: tuple[str, ...]


_NOTHING = ContainerFacts(None, None, False, None, (), ())


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
        trouble=_trouble(pods),
        rollout_unavailable=workload.rollout_unavailable,
        rollout_manual=workload.rollout_manual,
        engine_version=facts.version,
        flags=facts.flags,
        replicas_manager=workload.replicas_manager,
        batch_written_at_s=workload.batch_written_at_s,
        engine_pods=_engine_pods(declaration, serving),
        batch_templates=facts.templates,
    )


def _trouble(pods: Pods) -> str:
    """What keeps pods that were placed from serving, of one of them."""
    found = [f"{p.name}: {p.trouble}" for p in pods.live if p.trouble and not p.terminating]
    more = f" (and {len(found) - 1} more pods)" if len(found) > 1 else ""
    return f"{min(found)}{more}" if found else ""


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
        workload.memo[key] = _read(declaration, workload)
    found: ContainerFacts = workload.memo[key]
    return found


def quota_replicas(workload: Workload, here: int, quotas: Iterable[Quota]) -> int | None:
    """Replicas that fit: those here, and as many more as the tightest quota leaves room for.

    ``here`` counts the replicas that exist: a quota's usage holds their pods already.
    """
    wanted = {**workload.devices, "pods": float(workload.pods)}
    rooms = [
        math.floor(quota.free[resource] / amount + 1e-9)
        for quota in quotas
        if quota.covers(workload.priority_class)
        for resource, amount in wanted.items()
        if amount > 0 and resource in quota.free
    ]
    return here + min(rooms) if rooms else None


def gpus_of(workload: Workload, declaration: Declaration) -> tuple[float, int]:
    """GPUs of one pod, and how many pods of a replica have that many: what the templates ask for.

    Where no template names a device (DRA claims), the declared GPUs over the replica's pods.
    """
    asking = [t for t in workload.templates if any(map(_is_gpu, t.devices))]
    if not asking:
        return declaration.gpu.per_replica / workload.pods, workload.pods
    # Pods that ask for different numbers count as the largest of them: too few fit, never too many.
    amounts = [sum(a for name, a in t.devices.items() if _is_gpu(name)) for t in asking]
    return max(amounts), sum(template.pods for template in asking)


def _is_gpu(resource: str) -> bool:
    device = resource.rpartition("/")[2]
    return device.startswith(("gpu", "mig-", "gaudi"))


def _read(declaration: Declaration, workload: Workload) -> ContainerFacts:
    container = _engine_container(declaration, workload.containers)
    if container is None:
        return _NOTHING
    try:
        engine = engines.find(declaration.engine.name)
    except engines.EngineUnknown:
        return _NOTHING
    flags = engines.read_flags(engine, container)
    variable = declaration.engine.max_batch_ref.env
    templates = _following(engine, workload, container, variable)
    referenced = bool(templates)
    return ContainerFacts(
        name=str(container.get("name") or "") or None,
        max_batch=_max_batch(flags, container, variable if referenced else ""),
        referenced=referenced,
        version=".".join(map(str, flags.version)) if flags.version else None,
        flags=tuple((r, v.text, v.source.value) for r, v in flags.values.items()),
        templates=templates,
    )


def _following(
    engine: Engine, workload: Workload, container: Mapping[str, Any], variable: str
) -> tuple[str, ...]:
    """Templates whose engine follows the variable; none where a part of a group would not.

    The ranks of one engine must agree on max batch: a worker that is given another one on its
    command line keeps it out of the whole group.
    """
    if not engines.refers_to(engine, container, variable):
        return ()
    first, *others = workload.templates
    paths = [first.path]
    for template in others:
        same = next(
            (c for c in template.containers if c.get("name") == container.get("name")), None
        )
        if same is None:
            continue
        said = engines.read_flags(engine, same).values.get("max_batch")
        if engines.refers_to(engine, same, variable):
            paths.append(template.path)
        elif said is not None and said.source is not FlagSource.DEFAULT:
            return ()
    return tuple(paths)


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
