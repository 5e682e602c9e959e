"""``sojourn models`` and ``sojourn gpus``: what the catalogue knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from sojourn.cli import exits, text
from sojourn.cli.exits import UsageError
from sojourn.cli.table import Column, Format, Table, write
from sojourn.units import GIB


@dataclass(frozen=True)
class SearchOptions:
    """Flags of both lists."""

    words: Annotated[
        list[str] | None, typer.Argument(help="Words the name contains; none lists everything.")
    ] = None
    sources: Annotated[
        bool, typer.Option("--sources", help="Show where each figure comes from.")
    ] = False
    output: Annotated[Format, typer.Option("--output", "-o", help="How the answer is written.")] = (
        Format.TABLE
    )


def _billions(value: float | None) -> str:
    return text.DASH if not value else f"{value / 1e9:.1f}B"


def _tera(value: float | None) -> str:
    return text.DASH if value is None else f"{float(f'{value / 1e12:.3g}'):,.10g}"


MODEL_COLUMNS = (
    Column("name", "MODEL", left=True),
    Column("parameters", "PARAMETERS", _billions),
    Column("active_parameters", "ACTIVE", _billions, rank=2),
    Column("precision", "PRECISION", left=True, rank=1),
    Column("layers", "LAYERS", text.count, rank=4),
    Column("kv_bytes_per_token", "KV/TOKEN", lambda v: f"{v / 1024:,.0f} KiB", rank=2),
    Column("max_length_tokens", "MAX LENGTH", text.count, rank=1),
    Column("weights_bytes", "WEIGHTS", lambda v: f"{v / GIB:,.1f} GiB"),
)
GPU_COLUMNS = (
    Column("name", "GPU", left=True),
    Column("memory_bytes", "MEMORY", lambda v: f"{v / GIB:,.1f} GiB"),
    Column("bandwidth_bytes_per_s", "TB/S", _tera),
    Column("fp16_flop_per_s", "FP16 TFLOP/S", _tera, rank=2),
    Column("fp8_flop_per_s", "FP8 TFLOP/S", _tera, rank=3),
    Column("price_per_hour_usd", "LIST/H", text.usd),
    Column("resource", "RESOURCE", left=True, rank=1),
)
SOURCE = Column("source", "SOURCE", left=True)


def models(options: SearchOptions) -> None:
    """Models known by name, with their size and KV cache."""
    from sojourn.catalogue import models as known  # noqa: PLC0415
    from sojourn.model import kv, weights  # noqa: PLC0415

    rows = tuple(
        {
            "name": model.name,
            "parameters": model.parameters,
            "active_parameters": model.active_parameters,
            "precision": model.precision,
            "layers": model.layers,
            "kv_bytes_per_token": kv.kv_bytes_per_token(
                model, 1, 1, kv.kv_value_bytes("auto", model.precision)
            ),
            "max_length_tokens": model.max_length_tokens,
            "weights_bytes": weights.total_weights_bytes(model),
            "source": model.source,
        }
        for model in known.search(" ".join(options.words or ()))
    )
    _write(Table(MODEL_COLUMNS, rows), options, "model")


def gpus(options: SearchOptions) -> None:
    """GPU types known by name, with memory, speed and list price."""
    from sojourn.catalogue import gpus as known  # noqa: PLC0415

    rows = tuple(
        {
            "name": gpu.name,
            "memory_bytes": gpu.memory_bytes,
            "bandwidth_bytes_per_s": gpu.bandwidth_bytes_per_s,
            "fp16_flop_per_s": gpu.dense_fp16_flop_per_s,
            "fp8_flop_per_s": gpu.dense_fp8_flop_per_s,
            "price_per_hour_usd": gpu.price_per_hour_usd,
            "resource": gpu.resource,
            "source": gpu.source,
        }
        for gpu in known.search(" ".join(options.words or ()))
    )
    _write(Table(GPU_COLUMNS, rows), options, "GPU")


def _write(table: Table, options: SearchOptions, noun: str) -> None:
    if not table.rows and options.output is Format.TABLE:
        wanted = " ".join(options.words or ())
        raise UsageError(f"no {noun} of the catalogue contains {wanted!r}: try fewer words")
    if options.sources:
        table = Table((*table.columns, SOURCE), table.rows)
    write(table, options.output)
    if not table.rows:
        raise typer.Exit(exits.VERDICT)
