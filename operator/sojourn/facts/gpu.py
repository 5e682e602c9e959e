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


@dataclass(frozen=True)
class GpuRoom:
    """Room for the replicas of one service on the GPUs of its type.

    Attributes:
        type: catalogue name, or the label's own where the catalogue has none.
        total: cards, or MIG slices, that usable nodes offer; a shared card counts once.
        free: of them, those that no placed pod or claim holds any part of.
        per_replica: cards of one replica over all its pods.
        placed: replicas whose pods all have a node.
        fits: replicas in all: those placed, and as many more as the free cards take, the cards of
            each pod on one node.
        shared: the service's pods are, or can only be, on cards that other pods use at the same
            time (time-slicing, MPS).
    """

    type: str
    total: int
    free: int
    per_replica: int
    placed: int
    fits: int
    shared: bool = False

    def shortage(self, replicas: int) -> str:
        """What is missing for that many replicas, in cards."""
        need = (replicas - self.placed) * self.per_replica
        have = f"{self.free} free of {self.total} {self.type}"
        return f"{replicas} replicas need {need} GPUs more, {have}"
