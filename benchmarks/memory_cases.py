"""Published outcomes of engine starts, read into what the memory model is asked.

A case is computable when the model, the card, the parallel sizes and the formats are all known:
nothing is guessed. Why a case is not computable is kept, so that the table can say so.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sojourn.catalogue import gpus, models
from sojourn.errors import ModelDomainError, UnknownName
from sojourn.facts.architecture import Architecture
from sojourn.facts.gpu import Gpu
from sojourn.facts.memory import Footprint, MemoryAnswer
from sojourn.model import memory
from sojourn.units import GIB

_PRECISION = {
    "fp8": "fp8",
    "awq": "int4",
    "gptq": "int4",
    "bitsandbytes-nf4": "int4",
    "nvfp4": "nvfp4",
    "modelopt_fp4": "nvfp4",
    "mxfp4": "mxfp4",
}
_KV_PRECISION = {
    None: "auto",
    "auto": "auto",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "float16": "fp16",
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
}
_LOAD_TOLERANCE = 0.15
_UNMODELLED = ("decode_context_parallel", "dp_attention")


@dataclass(frozen=True)
class Case:
    """One published outcome.

    Attributes:
        footprint: what the model is asked; None when not computable.
        why_not: why it is not computable.
        starts: the published outcome; None for memory held by somebody else (contention).
        kv_gib, kv_tokens: what the engine printed, if it did.
    """

    id: str
    series: str
    footprint: Footprint | None
    why_not: str
    starts: bool | None
    kv_gib: float | None
    kv_tokens: float | None


class NotComputable(Exception):
    """A case that lacks something the model needs."""


def read(path: Path) -> list[Case]:
    """Cases of a file in the layout of ``tests/data/memory_cases.json``."""
    content = json.loads(path.read_text(encoding="utf-8"))
    rows: list[dict[str, Any]] = content["cases"] if isinstance(content, dict) else content
    return [_case(row) for row in rows]


def _case(row: dict[str, Any]) -> Case:
    outcome = row.get("outcome")
    observed = row.get("observed") or {}
    footprint, why = None, ""
    try:
        footprint = _footprint(row)
        _refuse_contradicted(row, memory.answer(footprint))
    except UnknownName as unknown:
        footprint, why = None, f"{unknown.kind} {unknown.name!r} is not in the catalogue"
    except (NotComputable, ModelDomainError) as reason:
        footprint, why = None, str(reason)
    return Case(
        id=row["id"],
        series=row.get("series") or row["id"],
        footprint=footprint,
        why_not=why,
        starts=None if outcome == "wont_start_contention" else outcome == "starts",
        kv_gib=observed.get("kv_cache_gib"),
        kv_tokens=observed.get("kv_tokens"),
    )


def _footprint(row: dict[str, Any]) -> Footprint:
    _refuse_unmodelled(row)
    architecture = models.find(row["model"] or "")
    extra = row.get("extra") or {}
    fraction = row.get("gpu_memory_utilization") or row.get("mem_fraction_static")
    return Footprint(
        architecture=architecture,
        gpu=_gpu(row),
        tensor_parallel=_tensor_parallel(row),
        pipeline_parallel=row.get("pp") or 1,
        data_parallel=row.get("dp") or 1,
        engine=row["engine"],
        engine_version=row.get("engine_version"),
        precision=_precision(row, architecture),
        kv_precision=_kv_precision(row),
        memory_utilisation=fraction,
        max_length_tokens=row.get("max_model_len"),
        max_batch=row.get("max_num_seqs"),
        max_batched_tokens=row.get("max_num_batched_tokens"),
        eager=bool(row.get("enforce_eager")) or extra.get("optimization_level") == 0,
        graph_capture_size=extra.get("max_cudagraph_capture_size"),
    )


def _refuse_unmodelled(row: dict[str, Any]) -> None:
    extra = row.get("extra") or {}
    for key in _UNMODELLED:
        if extra.get(key) not in (None, False, 1):
            raise NotComputable(f"{key} is not modelled")
    if row.get("speculative"):
        raise NotComputable("speculative decoding is not modelled")


def _refuse_contradicted(row: dict[str, Any], answer: MemoryAnswer) -> None:
    """A load far from what the stated formats weigh shows a format that was not stated."""
    loaded = (row.get("observed") or {}).get("model_load_gib")
    if not loaded or row.get("quantization"):
        return
    if abs(answer.weights_bytes / GIB / loaded - 1) > _LOAD_TOLERANCE:
        raise NotComputable("the load printed contradicts the formats stated")


def _gpu(row: dict[str, Any]) -> Gpu:
    """The catalogue's card; a total printed by the engine stands in for a card it does not have."""
    seen = (row.get("observed") or {}).get("gpu_mem_total_gib")
    try:
        return gpus.find(row.get("gpu") or "unknown")
    except UnknownName:
        if seen is None:
            raise NotComputable(f"card {row.get('gpu')} has no known memory") from None
        return Gpu(name=row.get("gpu") or "seen in the log", memory_bytes=seen * GIB)


def _tensor_parallel(row: dict[str, Any]) -> int:
    if row.get("tp"):
        return int(row["tp"])
    if (row.get("gpu_count") or 1) > 1:
        raise NotComputable("several GPUs, tensor parallelism not stated")
    return 1


def _precision(row: dict[str, Any], architecture: Architecture) -> str | None:
    quantisation = row.get("quantization")
    if quantisation == "compressed-tensors":
        if architecture.precision in ("bf16", "fp16", "fp32"):
            raise NotComputable("compressed-tensors of unknown width")
        return architecture.precision
    if quantisation is not None:
        if quantisation not in _PRECISION:
            raise NotComputable(f"quantisation {quantisation} is not modelled")
        return _PRECISION[quantisation]
    return "fp32" if row.get("dtype") == "float32" else None


def _kv_precision(row: dict[str, Any]) -> str:
    stated = row.get("kv_cache_dtype")
    if stated not in _KV_PRECISION:
        raise NotComputable(f"KV format {stated} is not modelled")
    return _KV_PRECISION[stated]
