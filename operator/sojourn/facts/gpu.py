"""A GPU as the models see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """One card, or one isolated slice of a card.

    Attributes:
        name: catalogue name, such as ``A100-80GB``.
        memory_bytes: total memory as the engine sees it, not the marketed figure.
        bandwidth_bytes_per_s: memory bandwidth; None if unknown.
        dense_fp16_flop_per_s: without sparsity; None if unknown.
        dense_fp8_flop_per_s: without sparsity; None if unsupported or unknown.
        price_per_hour_usd: list price of one GPU-hour; None if unknown.
        product_labels: values of the node label ``nvidia.com/gpu.product`` (or the vendor's).
        resource: extended resource a pod asks for.
        shared: True for one time-sliced share: the memory is the whole card's and not isolated.
        source: where the figures come from.
    """

    name: str
    memory_bytes: float
    bandwidth_bytes_per_s: float | None = None
    dense_fp16_flop_per_s: float | None = None
    dense_fp8_flop_per_s: float | None = None
    price_per_hour_usd: float | None = None
    product_labels: tuple[str, ...] = ()
    resource: str = "nvidia.com/gpu"
    shared: bool = False
    source: str = "Declared"
