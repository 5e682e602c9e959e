"""A model described in place of a name: ``spec.model.architecture``."""

from __future__ import annotations

from sojourn.errors import ModelDomainError
from sojourn.facts.architecture import Architecture, AttentionGroup, AttentionKind
from sojourn.facts.declaration import DeclaredArchitecture

_DEFAULT_LENGTH = 4096
_DEFAULT_PRECISION = "bf16"

# Attention 4 d^2 in the multi-head case and feed-forward 8 d^2 a layer: 4 d wide with two
# matrices, or 8/3 d wide with three (gated). Models with wider layers must state their parameters.
_FEED_FORWARD_PER_HIDDEN_SQUARED = 8

# State of a recurrent layer: between 140 and 1,024 bytes a unit of width in the catalogue's
# hybrids; the largest, so that memory is never promised twice.
_STATE_BYTES_PER_HIDDEN = 1024.0


def architecture_from(
    declared: DeclaredArchitecture,
    name: str,
    precision: str | None = None,
    max_length_tokens: int | None = None,
) -> Architecture:
    """The architecture a user described, parameters computed when not given.

    Args:
        precision: of the weights; None is bf16.
        max_length_tokens: the model's maximum; None is 4,096.

    Raises:
        ModelDomainError: a count that is not possible, named by its field.
    """
    _check(declared)
    vocabulary = declared.vocabulary or 0
    embedding = 2.0 * vocabulary * declared.hidden
    computed = declared.parameters is None
    parameters = _parameters(declared) + embedding if computed else float(declared.parameters or 0)
    source = "Declared; parameters estimated from the shape" if computed else "Declared"
    return Architecture(
        name=name,
        layers=declared.layers,
        hidden=declared.hidden,
        vocabulary=vocabulary,
        parameters=parameters,
        active_parameters=parameters,
        embedding_parameters=min(embedding, parameters),
        attention=_attention(declared),
        precision=precision or _DEFAULT_PRECISION,
        max_length_tokens=max_length_tokens or _DEFAULT_LENGTH,
        source=source,
    )


def _check(declared: DeclaredArchitecture) -> None:
    for field, value in (
        ("layers", declared.layers),
        ("hiddenSize", declared.hidden),
        ("attentionHeads", declared.attention_heads),
        ("keyValueHeads", declared.kv_heads),
        ("headDim", declared.head_dim),
        ("parameters", declared.parameters),
    ):
        if value is not None and not value > 0:
            raise ModelDomainError(field, value, "more than 0")
    heads, kv_heads = declared.attention_heads, declared.kv_heads or declared.attention_heads
    if heads % kv_heads:
        raise ModelDomainError("keyValueHeads", kv_heads, f"a divisor of attentionHeads {heads}")
    if declared.head_dim is None and declared.hidden % heads:
        expected = f"a multiple of attentionHeads {heads}, or headDim to be given"
        raise ModelDomainError("hiddenSize", declared.hidden, expected)
    if not 0 <= declared.recurrent_layers <= declared.layers:
        expected = f"0 to {declared.layers} (layers)"
        raise ModelDomainError("recurrentLayers", declared.recurrent_layers, expected)


def _shape(declared: DeclaredArchitecture) -> tuple[int, int, int]:
    """Query heads, key-value heads, head dimension."""
    heads = declared.attention_heads
    return heads, declared.kv_heads or heads, declared.head_dim or declared.hidden // heads


def _parameters(declared: DeclaredArchitecture) -> float:
    heads, kv_heads, dim = _shape(declared)
    attention = 2.0 * declared.hidden * (heads + kv_heads) * dim
    feed_forward = _FEED_FORWARD_PER_HIDDEN_SQUARED * declared.hidden**2
    return declared.layers * (attention + feed_forward)


def _attention(declared: DeclaredArchitecture) -> tuple[AttentionGroup, ...]:
    heads, kv_heads, dim = _shape(declared)
    keeping = declared.layers - declared.recurrent_layers
    groups: list[AttentionGroup] = []
    if declared.latent_attention is not None:
        latent = declared.latent_attention.kv_lora_rank + declared.latent_attention.rope_head_dim
        groups.append(
            AttentionGroup(AttentionKind.LATENT, keeping, query_heads=heads, latent_dim=latent)
        )
    elif declared.sliding_window is not None:
        nth = declared.sliding_window.every_nth_layer_full
        full = keeping // nth if nth else 0
        window = declared.sliding_window.tokens
        if full:
            groups.append(AttentionGroup(AttentionKind.FULL, full, heads, kv_heads, dim, dim))
        sliding = AttentionGroup(
            AttentionKind.SLIDING, keeping - full, heads, kv_heads, dim, dim, window
        )
        groups.append(sliding)
    else:
        groups.append(AttentionGroup(AttentionKind.FULL, keeping, heads, kv_heads, dim, dim))
    if declared.recurrent_layers:
        state = _STATE_BYTES_PER_HIDDEN * declared.hidden
        groups.append(
            AttentionGroup(AttentionKind.RECURRENT, declared.recurrent_layers, state_bytes=state)
        )
    return tuple(group for group in groups if group.layers)
