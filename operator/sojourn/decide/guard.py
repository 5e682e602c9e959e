"""The guard: whether a workload would start with the arguments it is about to get.

The declaration of the InferenceService is taken, what the command line says put over it, and the
memory checks of admission asked. Without an InferenceService the command line must name the model
and the node selector the card; what is not known is not judged, and said to be so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from sojourn.decide.admission import MEMORY, gathered
from sojourn.decide.guard_workload import Workload
from sojourn.decide.proposal import Proposal
from sojourn.engines import Flags, FlagSource, FlagValue
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

SHORTEST_TOKENS = 16
"""One block of KV cache: only the weights are judged of a length that is not known, or that the
engine shortens until it fits."""

_PARALLEL = ("tensor_parallel", "pipeline_parallel", "data_parallel")
_COUNTS = (*_PARALLEL, "max_batch", "max_length", "batched_tokens", "kv_cache_bytes")
_DECIDING = (*_PARALLEL, "memory_utilisation", "kv_precision", "quantisation", "weights_type")
"""Roles without which memory cannot be judged."""

_UNMODELLED = {
    "kv_cache_bytes": "fixes the KV cache apart from memory utilisation",
    "cpu_offload_gib": "keeps part of the weights outside the GPU",
}
_WEIGHTS = {
    "fp8": "fp8", "awq": "int4", "gptq": "int4", "int4": "int4", "bitsandbytes": "int4",
    "fp4": "int4", "int8": "int8",
}  # fmt: skip
"""Least bytes a weight that a quantisation whose name holds the key may take."""


def as_run(declaration: Declaration, workload: Workload) -> Declaration:
    """The declaration with what the command line says in place of what was declared."""
    flags = workload.flags
    model, engine = declaration.model, declaration.engine
    version = ".".join(map(str, flags.version)) if flags.version else engine.version
    max_batch = _positive(flags, "max_batch") or engine.max_batch
    return replace(
        declaration,
        model=replace(
            model,
            max_length_tokens=_length(flags) or model.max_length_tokens,
            precision=model.precision or _weights(flags),
            kv_precision=_kv(flags) or model.kv_precision,
        ),
        gpu=_gpu_as_run(declaration.gpu, workload),
        engine=replace(
            engine,
            name=workload.engine,
            version=version,
            max_batch=max_batch,
            min_batch=min(engine.min_batch, max_batch or engine.min_batch),
            max_batched_tokens=_positive(flags, "batched_tokens") or engine.max_batched_tokens,
        ),
    )


def _gpu_as_run(gpu: DeclaredGpu, workload: Workload) -> DeclaredGpu:
    flags = workload.flags
    return replace(
        gpu,
        memory_bytes=workload.slice_bytes or gpu.memory_bytes,
        tensor_parallel=_positive(flags, "tensor_parallel") or 1,
        pipeline_parallel=_positive(flags, "pipeline_parallel") or 1,
        data_parallel=_positive(flags, "data_parallel") or 1,
        memory_utilisation=_fraction(flags, "memory_utilisation") or gpu.memory_utilisation,
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


def unreadable(workload: Workload) -> tuple[Finding, ...]:
    """What the engine would not understand, and what is not known, as warnings and one note."""
    warnings = [
        Finding(Reason.ARGUMENT_UNREADABLE, Verdict.WARN, workload.field, text)
        for text in (*workload.flags.remarks, *_misspelt(workload))
    ]
    unknown = dict.fromkeys(_unknown(workload.flags))
    if unknown:
        told = f"not all of it is judged. Unknown: {'; '.join(unknown)}."
        note = Finding(Reason.ARGUMENT_UNREADABLE, Verdict.NOTE, workload.field, told)
        return (*warnings, note)
    return tuple(warnings)


def impossible(workload: Workload, found: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """What forbids a combination of model and arguments, such as heads that do not divide.

    That a model or a card is not in the catalogue is no fault of theirs.
    """
    return tuple(
        Finding(
            Reason.ARGUMENT_UNREADABLE,
            Verdict.WARN,
            workload.field,
            f"the engine does not start with these arguments: {finding.message}.",
        )
        for finding in found
        if finding.reason is Reason.INVALID_OBJECT
    )


def judgeable(workload: Workload) -> bool:
    """Whether enough is known of a command line to judge its memory."""
    flags = workload.flags
    known = not any(flags.unknown(role) for role in _DECIDING)
    modelled = not any(role in flags.values for role in _UNMODELLED)
    return known and modelled and _weights(flags) != ""


def _unknown(flags: Flags) -> Iterator[str]:
    """Why what decides over memory is not known, each reason once."""
    for role in (*_DECIDING, "max_length", "max_batch", "batched_tokens", *_UNMODELLED):
        value = flags.values.get(role)
        if value is None:
            continue
        if role in _UNMODELLED and value.source is not FlagSource.UNKNOWN:
            yield f"{value.name} {_UNMODELLED[role]}"
        elif not value.undefined and (why := flags.unknown(role)):
            yield why
    if _weights(flags) == "":
        quantisation = flags.values["quantisation"]
        yield f"{quantisation.name} {quantisation.text}: how many bytes a weight takes"


def _misspelt(workload: Workload) -> Iterator[str]:
    """Values that are no value of their flag: the engine would end at once."""
    flags = workload.flags
    if workload.engine == "vllm":
        yield from _fewer_tokens_than_batch(flags)
    for role in (*_COUNTS, "memory_utilisation"):
        value = flags.values.get(role)
        if value is None or value.source is FlagSource.DEFAULT:
            continue
        if value.undefined:
            name = value.variables[0]
            yield (
                f"{value.why}: the engine is given the text as it is written and ends. Set {name} "
                "in the container's env."
            )
        elif value.source is not FlagSource.UNKNOWN and (wrong := _wrong(role, value)):
            yield f"{value.name} {value.text} {wrong}"


def _fewer_tokens_than_batch(flags: Flags) -> Iterator[str]:
    tokens, batch = flags.number("batched_tokens"), flags.number("max_batch")
    if tokens is not None and batch is not None and 0 < tokens < batch:
        names = [flags.values[role].name for role in ("batched_tokens", "max_batch")]
        yield f"{names[0]} {tokens} is below {names[1]} {batch}: vLLM ends. Use at least {batch}."


def _wrong(role: str, value: FlagValue) -> str:
    if role == "memory_utilisation":
        try:
            share = float(value.text)
        except ValueError:
            return "is no number: the engine ends. Use a share such as 0.9."
        return "" if 0 < share <= 1 else "is no share: the engine ends. Use 0 to 1, such as 0.9."
    if value.number is not None or (role == "max_length" and value.text.lower() == "auto"):
        return ""
    if value.suffixes and value.text[-1:] in tuple("KMGT"):
        small = f"{value.text[:-1]}{value.text[-1].lower()}"
        return f"is no whole number: the engine ends. K counts in 1,024s; write {small} for 1,000s."
    return "is no whole number: the engine ends."


def _too_few_gpus(workload: Workload) -> Callable[[Proposal], Finding | None]:
    def check(proposal: Proposal) -> Finding | None:
        needed = _in_one_pod(workload, proposal)
        if workload.spread or workload.gpus is None or workload.gpus >= needed:
            return None
        pods = "1 pod" if workload.grouped == 1 else f"{workload.grouped} pods"
        asking = f"the group of {pods}" if workload.grouped else "the container"
        message = (
            f"the engine is started on {needed} GPUs and {asking} asks for "
            f"{workload.gpus}. "
            f"Ask for {needed}, or set tensor parallelism to {workload.gpus}."
        )
        return Finding(Reason.WONT_START, Verdict.REJECT, workload.field, message)

    return check


def _unused_gpus(workload: Workload) -> Callable[[Proposal], Finding | None]:
    def check(proposal: Proposal) -> Finding | None:
        used = _in_one_pod(workload, proposal)
        if workload.spread or workload.gpus is None or workload.gpus <= used:
            return None
        message = (
            f"{workload.gpus - used} of {workload.gpus} GPUs are not used: the engine is started "
            f"on {used}. Set tensor parallelism to {workload.gpus}, or ask for {used}."
        )
        return Finding(Reason.GPUS_UNUSED, Verdict.WARN, workload.field, message)

    return check


def _in_one_pod(workload: Workload, proposal: Proposal) -> int:
    """GPUs of one replica, of its data-parallel ranks only those of this pod, or of the group."""
    gpu = proposal.service.declaration.gpu
    local = None if workload.grouped else workload.flags.number("data_parallel_local")
    return gpu.tensor_parallel * gpu.pipeline_parallel * (local or gpu.data_parallel)


def _length(flags: Flags) -> int | None:
    """Tokens of the longest request, as far as the command line tells."""
    value = flags.values.get("max_length")
    if value is None or value.source is FlagSource.DEFAULT:
        return None
    return _positive(flags, "max_length") or SHORTEST_TOKENS


def _weights(flags: Flags) -> str | None:
    """Precision of the weights by the command line: None if it does not say, "" if not known."""
    quantisation = flags.values.get("quantisation")
    if quantisation is not None and quantisation.source is not FlagSource.UNKNOWN:
        name = quantisation.text.lower()
        return next((p for key, p in _WEIGHTS.items() if key in name), "")
    kind = flags.values.get("weights_type")
    return "fp32" if kind is not None and kind.text in ("float", "float32") else None


def _kv(flags: Flags) -> str | None:
    value = flags.values.get("kv_precision")
    if value is None or value.source in (FlagSource.UNKNOWN, FlagSource.DEFAULT):
        return None
    named = {"fp8": "fp8", "bf": "bf16", "float16": "fp16", "int8": "int8"}
    return next((p for key, p in named.items() if value.text.startswith(key)), None)


def _positive(flags: Flags, role: str) -> int | None:
    found = flags.number(role)
    return found if found is not None and found > 0 else None


def _fraction(flags: Flags, role: str) -> float | None:
    value = flags.values.get(role)
    if value is None or value.source in (FlagSource.UNKNOWN, FlagSource.DEFAULT):
        return None
    try:
        share = float(value.text)
    except ValueError:
        return None
    return share if 0 < share <= 1 else None
