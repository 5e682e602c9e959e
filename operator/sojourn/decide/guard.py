"""The guard: whether a workload would start with the arguments it is about to get.

The declaration of the InferenceService is taken, what the command line says put over it, and the
memory checks of admission asked. Without an InferenceService the command line must name the model
and the node selector the card; what is not known is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sojourn import engines
from sojourn.decide.admission import MEMORY, gathered
from sojourn.decide.proposal import Proposal
from sojourn.engines import Flags, FlagSource
from sojourn.engines.command import argv_of
from sojourn.facts.declaration import (
    Declaration,
    DeclaredGpu,
    DeclaredModel,
    ObjectRef,
    Slo,
    TargetRef,
)
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.reasons import Reason
from sojourn.units import parse_quantity

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi")
PRODUCT_LABELS = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator")
_MODEL_FLAGS = ("--model", "--model-path", "--model-id", "--model-name")


@dataclass(frozen=True)
class Workload:
    """One container that runs an engine, as its pod template has it.

    Attributes:
        container: its name.
        flags: what its command line, environment and image say.
        engine: name of the engine.
        model: the model its command line names; empty when it names none.
        gpus: devices it asks for; None when it names none.
        product: card its pods are bound to; empty when they are not.
    """

    container: str
    flags: Flags
    engine: str
    model: str
    gpus: int | None
    product: str

    @property
    def field(self) -> str:
        """Where to look."""
        return f"spec.template.spec.containers[{self.container}].args"


def workload_of(
    body: Mapping[str, Any], config: Mapping[str, str] | None = None
) -> Workload | None:
    """The engine's container of a Deployment or the like; None when none is recognised.

    Args:
        config: values of the container's ``envFrom``, when they are known.
    """
    pod = _at(body, "spec", "template", "spec")
    containers = [c for c in pod.get("containers") or [] if isinstance(c, Mapping)]
    for container in containers:
        engine = engines.detect(container)
        if engine is not None:
            return Workload(
                container=str(container.get("name") or ""),
                flags=engines.read_flags(engine, container, config),
                engine=engine.name,
                model=_model_of(container),
                gpus=_gpus_of(container),
                product=_product_of(pod),
            )
    return None


def as_run(declaration: Declaration, workload: Workload) -> Declaration:
    """The declaration with what the command line says in place of what was declared."""
    number, flags = _numbers(workload.flags), workload.flags
    utilisation = _fraction(flags, "memory_utilisation")
    model, gpu, engine = declaration.model, declaration.gpu, declaration.engine
    version = ".".join(map(str, flags.version)) if flags.version else engine.version
    max_batch = number("max_batch") or engine.max_batch
    return replace(
        declaration,
        model=replace(model, max_length_tokens=number("max_length") or model.max_length_tokens),
        gpu=replace(
            gpu,
            tensor_parallel=number("tensor_parallel") or 1,
            pipeline_parallel=number("pipeline_parallel") or 1,
            data_parallel=number("data_parallel") or 1,
            memory_utilisation=utilisation or gpu.memory_utilisation,
        ),
        engine=replace(
            engine,
            name=workload.engine,
            version=version,
            max_batch=max_batch,
            min_batch=min(engine.min_batch, max_batch or engine.min_batch),
            max_batched_tokens=number("batched_tokens") or engine.max_batched_tokens,
        ),
    )


def undeclared(workload: Workload, ref: ObjectRef) -> Declaration | None:
    """A declaration made of the command line alone; None when model or card are not told."""
    if not workload.model or not workload.product:
        return None
    return Declaration(
        ref=ref,
        model=DeclaredModel(workload.model),
        gpu=DeclaredGpu(workload.product),
        slo=Slo(),
        target=TargetRef(ref.name),
    )


def findings(workload: Workload, proposal: Proposal) -> tuple[Finding, ...]:
    """What the memory checks find, told at the workload's container."""
    checks = (*MEMORY, _too_few_gpus(workload), _unused_gpus(workload))
    return tuple(replace(found, field=workload.field) for found in gathered(checks, proposal))


def _too_few_gpus(workload: Workload) -> Callable[[Proposal], Finding | None]:
    def check(proposal: Proposal) -> Finding | None:
        needed = _on_one_node(proposal)
        if workload.gpus is None or workload.gpus >= needed:
            return None
        message = (
            f"the engine is started on {needed} GPUs and the container asks for {workload.gpus}. "
            f"Ask for {needed}, or set tensor parallelism to {workload.gpus}."
        )
        return Finding(Reason.WONT_START, Verdict.REJECT, workload.field, message)

    return check


def _unused_gpus(workload: Workload) -> Callable[[Proposal], Finding | None]:
    def check(proposal: Proposal) -> Finding | None:
        used = _on_one_node(proposal)
        if workload.gpus is None or workload.gpus <= used:
            return None
        message = (
            f"{workload.gpus - used} of {workload.gpus} GPUs are not used: the engine is started "
            f"on {used}. Set tensor parallelism to {workload.gpus}, or ask for {used}."
        )
        return Finding(Reason.GPUS_UNUSED, Verdict.WARN, workload.field, message)

    return check


def _on_one_node(proposal: Proposal) -> int:
    """GPUs of one replica; its ranks may also be spread over pods, which a guard cannot see."""
    return proposal.service.declaration.gpu.per_replica


def _numbers(flags: Flags) -> Callable[[str], int | None]:
    def number(role: str) -> int | None:
        found = flags.number(role)
        return found if found is not None and found > 0 else None

    return number


def _fraction(flags: Flags, role: str) -> float | None:
    value = flags.values.get(role)
    if value is None or value.source in (FlagSource.UNKNOWN, FlagSource.DEFAULT):
        return None
    try:
        share = float(value.text)
    except ValueError:
        return None
    return share if 0 < share <= 1 else None


def _model_of(container: Mapping[str, Any]) -> str:
    """The model after its flag, or after ``serve``."""
    words = argv_of(container).words
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        following = words[i + 1] if i + 1 < len(words) else ""
        if name in _MODEL_FLAGS:
            return value if equals else following
        if word == "serve" and following and not following.startswith("-"):
            return following
    return ""


def _gpus_of(container: Mapping[str, Any]) -> int | None:
    resources = _at(container, "resources")
    for part in ("limits", "requests"):
        held = resources.get(part)
        for name in GPU_RESOURCES:
            if isinstance(held, Mapping) and name in held:
                try:
                    return int(parse_quantity(held[name]))
                except ValueError:
                    return None
    return None


def _product_of(pod: Mapping[str, Any]) -> str:
    chosen = _at(pod, "nodeSelector")
    return next((str(chosen[label]) for label in PRODUCT_LABELS if label in chosen), "")


def _at(node: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    for name in path:
        inner = node.get(name)
        node = inner if isinstance(inner, Mapping) else {}
    return node
