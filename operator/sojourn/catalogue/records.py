"""The data files, read once, each entry turned into a noun when it is asked for."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from sojourn.facts.architecture import Architecture, AttentionGroup, AttentionKind
from sojourn.facts.gpu import Gpu

_DATA = Path(__file__).parent / "data"

Record = dict[str, Any]


@cache
def read(name: str) -> Record:
    """Contents of one data file."""
    content: Record = json.loads((_DATA / name).read_text(encoding="utf-8"))
    return content


def architecture(record: Record) -> Architecture:
    """The model of one entry of ``models.json``."""
    return Architecture(
        name=record["name"],
        layers=record["layers"],
        hidden=record["hidden"],
        vocabulary=record["vocabulary"],
        parameters=float(record["parameters"]),
        active_parameters=float(record["active"]),
        embedding_parameters=float(record["embedding"]),
        attention=tuple(_attention(row) for row in record["attention"]),
        precision=record["precision"],
        max_length_tokens=record["max_length"],
        experts=record.get("experts", 0),
        experts_per_token=record.get("experts_per_token", 0),
        tied_embeddings=record.get("tied", False),
        feed_forward_parameters=float(record.get("feed_forward", 0)),
        replicated_parameters=float(record.get("replicated", 0)),
        weight_bytes=record.get("weight_bytes"),
        source=record["source"],
    )


def gpu(record: Record) -> Gpu:
    """The card of one entry of ``gpus.json``."""
    priced = f"; price: {record['price_source']}" if "price_source" in record else ""
    return Gpu(
        name=record["name"],
        memory_bytes=float(record["memory_bytes"]),
        bandwidth_bytes_per_s=record.get("bandwidth"),
        dense_fp16_flop_per_s=record.get("fp16"),
        dense_fp8_flop_per_s=record.get("fp8"),
        price_per_hour_usd=record.get("price"),
        product_labels=tuple(record.get("labels", ())),
        resource=record["resource"],
        source=record["source"] + priced,
    )


def _attention(row: list[Any]) -> AttentionGroup:
    kind, layers = AttentionKind(row[0]), int(row[1])
    if kind is AttentionKind.RECURRENT:
        return AttentionGroup(kind, layers, state_bytes=float(row[2]))
    if kind is AttentionKind.LATENT:
        return AttentionGroup(kind, layers, query_heads=row[2], latent_dim=row[3])
    window = row[6] if kind is AttentionKind.SLIDING else 0
    query, kv, key_dim, value_dim = row[2:6]
    return AttentionGroup(kind, layers, query, kv, key_dim, value_dim, window)
