"""KV-cache bytes: of a token, of a request, by attention kind, layout and place (S15, S16).

Exact by construction: on published start-up logs the median error is 0.00 %, so nothing here is
fitted. All figures are bytes on one GPU unless a name says otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sojourn.errors import ModelDomainError
from sojourn.facts.architecture import Architecture, AttentionGroup, AttentionKind

BLOCK_TOKENS = 16  # the default page of every paged engine in the catalogue

_TOKEN_KINDS = (AttentionKind.FULL, AttentionKind.SLIDING)
_VALUE_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0}


@dataclass(frozen=True)
class KvPlacement:
    """How a request's KV lies on the GPUs of one data-parallel rank.

    Attributes:
        tensor_parallel: ranks that share each layer's heads.
        pipeline_parallel: stages that share the layers.
        value_bytes: bytes of one cached value.
        block_tokens: tokens of one page; 1 for no rounding.
        in_flight_tokens: prompt tokens of one step that a sliding layer keeps beside its window.
        grouped: layers of full and of sliding attention are allocated in groups of equal size,
            the last one padded (vLLM's hybrid allocator).
    """

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    value_bytes: float = 2.0
    block_tokens: int = BLOCK_TOKENS
    in_flight_tokens: int = 0
    grouped: bool = False


def book_kv_bytes(
    layers: int, hidden: int, context_tokens: float, batch: float, bytes_per_value: float
) -> float:
    """KV bytes of a multi-head model over all GPUs: M_KV = 2 N_L d S B s.

    Args:
        layers: N_L.
        hidden: d.
        context_tokens: S, tokens kept per request.
        batch: B, requests.
        bytes_per_value: s, 2 for FP16.

    Source: S15 of the theory; GPT-3 at 2,048 tokens in FP16 takes 9.66 GB a request.

    >>> round(book_kv_bytes(96, 12288, 2048, 1, 2) / 1e9, 2)
    9.66
    """
    return 2.0 * layers * hidden * context_tokens * batch * bytes_per_value


def book_requests_that_fit(memory_bytes: float, weights_bytes: float, request_bytes: float) -> int:
    """Requests the memory left by the weights holds, by the book's budget without overheads.

    Source: S15: 8 x 80 GB less 350 GB of weights is 290 GB; at 9.66 GB a request that is 30.

    >>> book_requests_that_fit(640e9, 350e9, book_kv_bytes(96, 12288, 2048, 1, 2))
    30
    """
    return max(0, math.floor((memory_bytes - weights_bytes) / request_bytes))


def kv_value_bytes(kv_precision: str, weight_precision: str) -> float:
    """Bytes of one cached value; ``auto`` follows the activations: 4 for fp32 weights, else 2.

    Raises:
        ModelDomainError: a precision no engine keeps its cache in.
    """
    if kv_precision == "auto":
        return 4.0 if weight_precision == "fp32" else 2.0
    if kv_precision not in _VALUE_BYTES:
        raise ModelDomainError("kvCachePrecision", kv_precision, f"auto, {', '.join(_VALUE_BYTES)}")
    return _VALUE_BYTES[kv_precision]


def kv_bytes_per_token(
    architecture: Architecture,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    value_bytes: float = 2.0,
) -> float:
    """KV bytes one token adds on the heaviest GPU while every layer still keeps it.

    Sliding layers count: their window only bounds how many tokens they keep. See
    ``marginal_kv_bytes`` for a token beyond the windows.

    Raises:
        ModelDomainError: a parallel size below 1.
    """
    placement = KvPlacement(tensor_parallel, pipeline_parallel, value_bytes)
    return sum(
        _layers_of(group, architecture, placement) * layer_token_bytes(group, placement)
        for group in architecture.attention
    )


def marginal_kv_bytes(architecture: Architecture, tokens: float, placement: KvPlacement) -> float:
    """KV bytes the next token costs a request that has ``tokens`` already."""
    return sum(
        _layers_of(group, architecture, placement) * layer_token_bytes(group, placement)
        for group in architecture.attention
        if group.kind is not AttentionKind.SLIDING or tokens < group.window_tokens
    )


def kv_request_bytes(architecture: Architecture, tokens: float, placement: KvPlacement) -> float:
    """KV bytes of one request of ``tokens`` on the heaviest GPU, rounded up to whole pages.

    A sliding layer keeps min(S, W + tokens in flight), a recurrent one a fixed state.

    Raises:
        ModelDomainError: negative tokens, or a parallel size below 1.
    """
    if tokens < 0:
        raise ModelDomainError("tokens", tokens, "0 or more")
    return sum(
        _layers_of(group, architecture, placement) * _layer_request_bytes(group, tokens, placement)
        for group in architecture.attention
    )


def layer_token_bytes(group: AttentionGroup, placement: KvPlacement) -> float:
    """KV bytes of one token in one layer on one GPU.

    Heads are shared out, at least one to a rank (replicated when ranks outnumber heads); a latent
    cache lies whole on every rank; recurrent layers keep no tokens.

    Source: S15, docs/explanation/memory.md.
    """
    match group.kind:
        case AttentionKind.LATENT:
            return group.latent_dim * placement.value_bytes
        case AttentionKind.RECURRENT:
            return 0.0
    heads = max(1.0, group.kv_heads / placement.tensor_parallel)
    return heads * (group.key_dim + group.value_dim) * placement.value_bytes


def state_bytes_per_request(architecture: Architecture, placement: KvPlacement) -> float:
    """Bytes of recurrent state one running request holds on the heaviest GPU."""
    return kv_request_bytes(architecture, 0, placement)


def contiguous_waste(mean_tokens: float, max_length_tokens: float) -> float:
    """Fraction of the KV pool a contiguous layout reserves and never fills: 1 - E[len]/maxLength.

    Raises:
        ModelDomainError: a mean outside 0..maxLength.

    Source: S16; the book says 60 to 80 % is usual.

    >>> contiguous_waste(1024, 4096)
    0.75
    """
    if not 0 < mean_tokens <= max_length_tokens:
        raise ModelDomainError(
            "mean tokens", mean_tokens, f"more than 0, up to {max_length_tokens}"
        )
    return 1.0 - mean_tokens / max_length_tokens


def heaviest_stage_layers(layers: int, pipeline_parallel: int) -> int:
    """Layers of the pipeline stage that holds most of them."""
    if pipeline_parallel < 1 or pipeline_parallel > max(layers, 1):
        raise ModelDomainError("pipelineParallel", pipeline_parallel, f"1 to {layers} (layers)")
    return math.ceil(layers / pipeline_parallel)


def _layers_of(group: AttentionGroup, architecture: Architecture, placement: KvPlacement) -> float:
    """Layers of the group on the heaviest stage; kinds are interleaved, so each gives its share."""
    if placement.tensor_parallel < 1:
        raise ModelDomainError("tensorParallel", placement.tensor_parallel, "1 or more")
    stage = heaviest_stage_layers(architecture.layers, placement.pipeline_parallel)
    layers = _padded_layers(group, architecture) if placement.grouped else group.layers
    return layers * stage / max(architecture.layers, 1)


def _padded_layers(group: AttentionGroup, architecture: Architecture) -> int:
    """Layers the hybrid allocator pays for: whole groups, as many layers each as the rarer kind.

    When the kinds differ by less than a quarter, one group of the larger count holds each.
    Gemma 3 27B (10 full, 52 sliding) pays for 70 layers: 36,570 tokens in 19.53 GiB, 36,560 logged.
    """
    counts = [g.layers for g in architecture.attention if g.kind in _TOKEN_KINDS]
    if group.kind not in _TOKEN_KINDS or len(counts) < 2:
        return group.layers
    size = max(counts) if max(counts) < 1.25 * min(counts) else min(counts)
    return math.ceil(group.layers / size) * size


def _layer_request_bytes(group: AttentionGroup, tokens: float, placement: KvPlacement) -> float:
    if group.kind is AttentionKind.RECURRENT:
        return group.state_bytes / placement.tensor_parallel
    kept = tokens
    if group.kind is AttentionKind.SLIDING:
        kept = min(tokens, group.window_tokens + placement.in_flight_tokens)
    pages = math.ceil(kept / placement.block_tokens)
    return pages * placement.block_tokens * layer_token_bytes(group, placement)
