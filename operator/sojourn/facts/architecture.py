"""A model's shape, as memory and service time need it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class AttentionKind(StrEnum):
    """How a layer keeps the past."""

    FULL = "full"
    SLIDING = "sliding"
    LATENT = "latent"
    RECURRENT = "recurrent"


@dataclass(frozen=True)
class AttentionGroup:
    """Layers of one attention kind.

    Attributes:
        kind: how these layers keep the past.
        layers: how many.
        query_heads: attention heads.
        kv_heads: key-value heads; equal to query_heads in multi-head attention.
        key_dim: dimension of one head's key.
        value_dim: dimension of one head's value.
        window_tokens: SLIDING: tokens kept.
        latent_dim: LATENT: kv_lora_rank + rope_head_dim, kept whole on every rank.
        state_bytes: RECURRENT: fixed bytes per request and layer.
    """

    kind: AttentionKind
    layers: int
    query_heads: int = 0
    kv_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0
    window_tokens: int = 0
    latent_dim: int = 0
    state_bytes: float = 0.0


@dataclass(frozen=True)
class Architecture:
    """One model.

    Attributes:
        name: catalogue name.
        layers: N_L.
        hidden: d.
        vocabulary: size of the vocabulary; 0 if unknown.
        parameters: stored parameters.
        active_parameters: parameters used for one token; equal to ``parameters`` if dense.
        embedding_parameters: input embedding and output head together.
        attention: the layers by kind.
        precision: the checkpoint's own weight precision.
        max_length_tokens: the model's maximum context.
        experts: number of experts; 0 if dense.
        experts_per_token: routed experts one token uses; 0 if dense.
        tied_embeddings: input embedding and output head share their weights.
        feed_forward_parameters: of all feed-forward layers, routed experts alone where there are
            any: what four-bit checkpoints quantise; 0 if unknown, then all but the embedding.
        replicated_parameters: kept whole on every tensor-parallel rank: norms, routers, latent
            down-projections.
        weight_bytes: bytes of the published checkpoint at its own precision; None to compute.
        source: where the figures come from.
    """

    name: str
    layers: int
    hidden: int
    vocabulary: int
    parameters: float
    active_parameters: float
    embedding_parameters: float
    attention: tuple[AttentionGroup, ...]
    precision: str = "bf16"
    max_length_tokens: int = 4096
    experts: int = 0
    experts_per_token: int = 0
    tied_embeddings: bool = False
    feed_forward_parameters: float = 0.0
    replicated_parameters: float = 0.0
    weight_bytes: float | None = None
    source: str = "Declared"
