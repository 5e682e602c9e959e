"""The engine's container of a workload, as its pod template has it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sojourn import engines
from sojourn.engines import Engine, Flags, Surroundings
from sojourn.units import GIB, parse_quantity

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi")
PRODUCT_LABELS = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator")
GROUP = "LeaderWorkerSet"
TEMPLATES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "Deployment": (("spec", "template"),),
    "StatefulSet": (("spec", "template"),),
    GROUP: (
        ("spec", "leaderWorkerTemplate", "leaderTemplate"),
        ("spec", "leaderWorkerTemplate", "workerTemplate"),
    ),
    "RayCluster": (("spec", "headGroupSpec", "template"),),
    "RayService": (("spec", "rayClusterConfig", "headGroupSpec", "template"),),
}
"""Where the pod template of a kind is, that of the pod which starts the engine first."""

_CLUSTERS = ("RayCluster", "RayService")
_SLICE = re.compile(r"nvidia\.com/mig-\d+g\.(\d+)gb(?:\..*)?")


@dataclass(frozen=True)
class Workload:
    """One container that runs an engine.

    Attributes:
        field: where to look, as a path.
        flags: what its command line, environment and image say.
        engine: name of the engine.
        model: the model its command line names; empty when it names none.
        gpus: devices it asks for, of a group all its pods; None when it names none.
        product: card its pods are bound to; empty when they are not.
        spread: ranks of the engine may run in other pods.
        slice_bytes: memory of a slice of a card, when it asks for one.
        grouped: pods of the group that asks for them; 0 when it is the container alone.
    """

    field: str
    flags: Flags
    engine: str
    model: str
    gpus: int | None
    product: str
    spread: bool = False
    slice_bytes: float | None = None
    grouped: int = 0


def workload_of(
    body: Mapping[str, Any],
    config_maps: Mapping[str, Mapping[str, str]] | None = None,
    missing: str = "is not read",
) -> Workload | None:
    """The engine's container of a Deployment or the like; None when none is recognised.

    Args:
        config_maps: data of the namespace's ConfigMaps by name, as far as they are known.
        missing: what is said of a ConfigMap that is not among them.
    """
    kind = str(body.get("kind") or "Deployment")
    for path in TEMPLATES.get(kind, TEMPLATES["Deployment"]):
        pod = at(body, *path, "spec")
        around = Surroundings(pod, config_maps or {}, missing)
        for container in _containers(pod):
            engine = engines.detect(container)
            if engine is not None:
                place = f"{'.'.join(path)}.spec.containers[{container.get('name') or ''}].args"
                found = _read(engine, container, around, place, kind in _CLUSTERS)
                return found if found is None or kind != GROUP else _of_group(found, body)
    return None


def _containers(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (c for c in pod.get("containers") or [] if isinstance(c, Mapping))


def _of_group(workload: Workload, body: Mapping[str, Any]) -> Workload:
    """The devices of a leader and its workers: the engine's ranks are spread over all of them."""
    parts = at(body, "spec", "leaderWorkerTemplate")
    size = parts.get("size")
    size = size if isinstance(size, int) and size > 0 else 1
    worker = _gpus_of_pod(at(parts, "workerTemplate", "spec"))
    leader = (
        _gpus_of_pod(at(parts, "leaderTemplate", "spec")) if "leaderTemplate" in parts else worker
    )
    if worker is None or leader is None:
        return replace(workload, gpus=None)
    total = leader + (size - 1) * worker
    return replace(workload, gpus=total, spread=False, grouped=size)


def _gpus_of_pod(pod: Mapping[str, Any]) -> int | None:
    """Devices of all containers of a pod; None when none names any."""
    named = (_devices_of(container)[0] for container in _containers(pod))
    counts = [count for count in named if count is not None]
    return sum(counts) if counts else None


def _read(
    engine: Engine, container: Mapping[str, Any], around: Surroundings, place: str, group: bool
) -> Workload | None:
    flags = engines.read_flags(engine, container, around)
    backend = flags.values.get("backend")
    if backend is not None and backend.text == "huggingface":
        return None  # KServe's server without vLLM
    executor = flags.values.get("executor")
    several = (flags.number("nodes") or 1) > 1
    gpus, slice_bytes = _devices_of(container)
    return Workload(
        field=place,
        flags=flags,
        engine=engine.name,
        model=flags.model,
        gpus=gpus,
        product=_product_of(around.pod),
        spread=group or several or flags.ray or (executor is not None and executor.text == "ray"),
        slice_bytes=slice_bytes,
    )


def _devices_of(container: Mapping[str, Any]) -> tuple[int | None, float | None]:
    """GPUs a container asks for, and the memory of one when it is a slice: at most what it says."""
    resources = at(container, "resources")
    for part in ("limits", "requests"):
        held = resources.get(part)
        for name, amount in held.items() if isinstance(held, Mapping) else ():
            cut = _SLICE.fullmatch(str(name))
            if name in GPU_RESOURCES or cut:
                try:
                    count = int(parse_quantity(amount))
                except ValueError:
                    return None, None
                return count, float(cut.group(1)) * GIB if cut else None
    return None, None


def _product_of(pod: Mapping[str, Any]) -> str:
    chosen = at(pod, "nodeSelector")
    return next((str(chosen[label]) for label in PRODUCT_LABELS if label in chosen), "")


def at(node: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The mapping at a path of a body; an empty one where there is none."""
    for name in path:
        inner = node.get(name)
        node = inner if isinstance(inner, Mapping) else {}
    return node
