"""What the memory model is asked and what it answers. Bytes per GPU unless said."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sojourn.facts.architecture import Architecture
from sojourn.facts.declaration import KvLayout
from sojourn.facts.gpu import Gpu


class Fit(StrEnum):
    """The three answers of memory: never a guess in between."""

    FITS = "Fits"
    TOO_CLOSE = "TooClose"
    WONT_START = "WontStart"


@dataclass(frozen=True)
class Footprint:
    """One configuration of a model on GPUs, as the engine would be started.

    Attributes:
        memory_utilisation: fraction of GPU memory the engine may take; None is the engine's own.
        max_length_tokens: prompt + output, most tokens of one request.
        max_batch: requests running together the engine is started for; None is the engine's own.
        precision: of the weights: fp32 bf16 fp16 fp8 int8 int4 mxfp4; None is the model's own.
        kv_precision: of the KV cache; ``auto`` follows the activations.
        engine_version: None when unknown; then the band is wide.
        graph_capture_size: largest batch captured in a graph; None is the engine's own.
        eager: no compilation and no graphs.
    """

    architecture: Architecture
    gpu: Gpu
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    engine: str = "vllm"
    engine_version: str | None = None
    precision: str | None = None
    kv_precision: str = "auto"
    memory_utilisation: float | None = None
    max_length_tokens: int | None = None
    max_batch: int | None = None
    max_batched_tokens: int | None = None
    kv_layout: KvLayout = KvLayout.PAGED
    eager: bool = False
    graph_capture_size: int | None = None


@dataclass(frozen=True)
class MemoryAnswer:
    """Where a GPU's memory goes, and whether the engine starts.

    Attributes:
        fit: the verdict; ``TOO_CLOSE`` when the margin is within the model's own error band.
        budget_bytes: what the engine may take of a GPU.
        weights_bytes: on the heaviest rank.
        activation_bytes, non_torch_bytes, graphs_bytes: the rest of the budget's costs.
        kv_pool_bytes: what is left for the KV cache; negative when nothing is.
        kv_bytes_per_token: per GPU; what one more token costs while no window is full.
        kv_request_bytes: KV of one request of maxLength.
        kv_tokens: tokens the pool of one replica holds (all of one data-parallel rank).
        margin_bytes: kv_pool - kv_request.
        band_bytes: the model's own error; a margin below minus this cannot start.
        max_length_tokens: the length judged.
        max_concurrent: requests of maxLength that fit together; contiguous: that can run at all.
        covered: True when the engine version was fitted on published logs.
        startup_peak_bytes: most the engine holds of the card while it starts, what lies outside
            the budget (graph capture, sampler warm-up) included.
        startup_limit_bytes: what the card can give it.
    """

    fit: Fit
    budget_bytes: float
    weights_bytes: float
    activation_bytes: float
    non_torch_bytes: float
    graphs_bytes: float
    kv_pool_bytes: float
    kv_bytes_per_token: float
    kv_request_bytes: float
    kv_tokens: float
    margin_bytes: float
    band_bytes: float
    max_length_tokens: int
    max_concurrent: int
    covered: bool
    startup_peak_bytes: float = 0.0
    startup_limit_bytes: float = 0.0

    @property
    def startup_exceeds_card(self) -> bool:
        """The engine may run out of memory while it starts, although the budget holds."""
        return self.startup_peak_bytes > self.startup_limit_bytes
