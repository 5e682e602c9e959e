"""A model read from a local Hugging Face ``config.json``.

Reads decoder models of the Llama kind and their kin: grouped and multi-query attention, sliding
windows, latent attention, experts. State-space layers are refused by name: their state cannot be
told from the file alike for all families, and a wrong size is worse than none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sojourn.errors import InvalidModelConfig
from sojourn.facts.architecture import Architecture, AttentionGroup, AttentionKind

Config = Mapping[str, Any]

_PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "half": "fp16"}
_QUANTISED = {
    "fp8": "fp8",
    "awq": "int4",
    "gptq": "int4",
    "mxfp4": "mxfp4",
    "modelopt_fp4": "nvfp4",
}
_FULL_LAYERS = ("full_attention", "global_attention", "attention")
_WINDOW_LAYERS = ("sliding_attention", "chunked_attention", "local_attention")
_TIED_BY_DEFAULT = ("gemma", "gpt2", "bloom", "opt", "cohere", "falcon", "starcoder2")
_STATE_SPACE = (
    "ssm_cfg", "mamba_d_state", "ssm_state_size", "state_size", "linear_num_value_heads",
    "hybrid_override_pattern", "layers_block_type", "attn_layer_period",
)  # fmt: skip


def from_config(config: Config | str | Path, name: str | None = None) -> Architecture:
    """The architecture a ``config.json`` describes.

    Args:
        config: the file's path, or its contents.
        name: name to give it; None takes the file's ``_name_or_path``.

    Raises:
        InvalidModelConfig: not readable, or a field missing or impossible, named in the error.
    """
    top = config if isinstance(config, Mapping) else _read(Path(config))
    text = top.get("text_config") or top
    if not isinstance(text, Mapping):
        raise InvalidModelConfig("text_config", "expected an object")
    _refuse_state_space(text)
    layers = _count(text, "num_hidden_layers", "n_layer", "n_layers")
    hidden = _count(text, "hidden_size", "n_embd", "d_model")
    vocabulary = _count(text, "vocab_size", "padded_vocab_size")
    attention = _attention(text, layers, hidden)
    tied = _tied(top, text)
    embedding = vocabulary * hidden * (1 if tied else 2)
    feed = _feed_forward(text, layers, hidden)
    shared = embedding + _attention_parameters(text, attention, hidden) + 2 * layers * hidden
    return Architecture(
        name=name or str(top.get("_name_or_path") or top.get("model_type") or "config.json"),
        layers=layers,
        hidden=hidden,
        vocabulary=vocabulary,
        parameters=float(shared + feed.total),
        active_parameters=float(shared + feed.active),
        embedding_parameters=float(embedding),
        attention=attention,
        precision=_precision(top, text),
        max_length_tokens=_count(text, "max_position_embeddings", "n_positions", "seq_length"),
        experts=feed.experts,
        experts_per_token=feed.per_token,
        tied_embeddings=tied,
        feed_forward_parameters=float(feed.quantised),
        replicated_parameters=float(2 * layers * hidden + feed.routers),
        source="config.json",
    )


class _FeedForward:
    """Feed-forward parameters of all layers: gated (three matrices), dense or routed."""

    def __init__(self, text: Config, layers: int, hidden: int) -> None:
        experts = _optional(text, "num_local_experts", "num_experts", "n_routed_experts") or 0
        width = _width(text, hidden)
        matrices = 3 if _gated(text) else 2
        dense = matrices * hidden * width
        self.experts = experts
        self.per_token = 0
        if not experts:
            self.total = self.active = self.quantised = layers * dense
            self.routers = 0
            return
        self.per_token = _count(text, "num_experts_per_tok", "experts_per_token", "moe_topk")
        expert_width = _optional(text, "moe_intermediate_size") or width
        each = matrices * hidden * expert_width
        shared_width = _optional(text, "shared_expert_intermediate_size") or (
            (_optional(text, "n_shared_experts") or 0) * expert_width
        )
        routed = max(
            0, (layers - _dense_layers(text)) // (_optional(text, "decoder_sparse_step") or 1)
        )
        rest = routed * matrices * hidden * shared_width + (layers - routed) * dense
        self.routers = routed * experts * hidden
        self.quantised = routed * experts * each
        self.total = self.quantised + rest + self.routers
        self.active = routed * self.per_token * each + rest + self.routers


def _feed_forward(text: Config, layers: int, hidden: int) -> _FeedForward:
    return _FeedForward(text, layers, hidden)


def _read(path: Path) -> Config:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidModelConfig(str(path), f"cannot be read: {exc}") from exc
    except json.JSONDecodeError as exc:
        why = f"not JSON at line {exc.lineno}, column {exc.colno} ({exc.msg}): truncated?"
        raise InvalidModelConfig(str(path), why) from exc
    if not isinstance(content, dict):
        raise InvalidModelConfig(str(path), "expected an object")
    return content


def _refuse_state_space(text: Config) -> None:
    for key in _STATE_SPACE:
        if text.get(key) is not None:
            why = (
                "state-space layers are not read; use spec.model.architecture with recurrentLayers"
            )
            raise InvalidModelConfig(key, why)


def _optional(text: Config, *keys: str) -> int | None:
    """The first of the keys that is set, as a whole number, 0 or more."""
    for key in keys:
        value = text.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidModelConfig(key, f"is {value!r}, expected a whole number")
        return value
    return None


def _count(text: Config, *keys: str) -> int:
    """The first of the keys that is set, as a whole number from 1."""
    value = _optional(text, *keys)
    if value is None:
        raise InvalidModelConfig(keys[0], "is missing (a truncated or unknown kind of config)")
    if value < 1:
        raise InvalidModelConfig(keys[0], f"is {value}, expected 1 or more")
    return value


def _width(text: Config, hidden: int) -> int:
    width = _optional(text, "intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim")
    if width is None and "n_embd" in text:
        return 4 * hidden  # GPT-2's rule when n_inner is absent
    if width is None:
        width = _optional(text, "moe_intermediate_size")
    if not width:
        raise InvalidModelConfig("intermediate_size", "is missing or 0")
    return width


def _gated(text: Config) -> bool:
    """Two matrices only in the GPT-2, NeoX, OPT, BLOOM, Falcon, Phi and StarCoder families."""
    kind = str(text.get("model_type", "")).lower()
    return kind not in ("gpt2", "gpt_neox", "gptj", "opt", "bloom", "falcon", "phi", "starcoder2")


def _dense_layers(text: Config) -> int:
    only = text.get("mlp_only_layers") or ()
    return _optional(text, "first_k_dense_replace") or len(only)


def _attention(text: Config, layers: int, hidden: int) -> tuple[AttentionGroup, ...]:
    heads = _count(text, "num_attention_heads", "n_head", "n_heads")
    rank = _optional(text, "kv_lora_rank")
    if rank:
        latent = rank + _count(text, "qk_rope_head_dim")
        return (AttentionGroup(AttentionKind.LATENT, layers, heads, latent_dim=latent),)
    kv_heads = _kv_heads(text, heads)
    dim = _optional(text, "head_dim")
    if not dim:
        if hidden % heads:
            raise InvalidModelConfig("num_attention_heads", f"{heads} does not divide {hidden}")
        dim = hidden // heads
    windowed = _windowed_layers(text, layers)
    groups = []
    if layers > windowed:
        full = layers - windowed
        groups.append(AttentionGroup(AttentionKind.FULL, full, heads, kv_heads, dim, dim))
    if windowed:
        window = _count(text, "sliding_window", "attention_chunk_size")
        kind = AttentionKind.SLIDING
        groups.append(AttentionGroup(kind, windowed, heads, kv_heads, dim, dim, window))
    return tuple(groups)


def _kv_heads(text: Config, heads: int) -> int:
    kv_heads = _optional(text, "num_key_value_heads", "num_kv_heads", "multi_query_group_num")
    if text.get("multi_query") is True and not text.get("new_decoder_architecture"):
        kv_heads = 1
    if kv_heads is None:
        return heads
    if kv_heads < 1 or heads % kv_heads:
        why = f"is {kv_heads}, expected a divisor of num_attention_heads {heads}"
        raise InvalidModelConfig("num_key_value_heads", why)
    return kv_heads


def _windowed_layers(text: Config, layers: int) -> int:
    """Layers that keep a window only, by ``layer_types`` or the families' own keys."""
    kinds = text.get("layer_types")
    if kinds is not None:
        return _windowed_kinds(kinds, layers)
    if not text.get("sliding_window") or text.get("use_sliding_window") is False:
        return 0
    pattern = _optional(text, "sliding_window_pattern")
    if pattern:
        return layers - layers // pattern
    return layers // 2 if text.get("model_type") == "gemma2" else layers


def _windowed_kinds(kinds: Any, layers: int) -> int:
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise InvalidModelConfig("layer_types", f"expected one kind for each of {layers} layers")
    for kind in kinds:
        if kind not in _FULL_LAYERS + _WINDOW_LAYERS:
            raise InvalidModelConfig("layer_types", f"{kind!r} is not a known kind of layer")
    return sum(kind in _WINDOW_LAYERS for kind in kinds)


def _attention_parameters(text: Config, groups: tuple[AttentionGroup, ...], hidden: int) -> int:
    total = 0
    for group in groups:
        heads, kv_heads = group.query_heads, group.kv_heads
        if group.kind is AttentionKind.LATENT:
            total += group.layers * _latent_parameters(text, heads, hidden)
            continue
        per_layer = 2 * hidden * (heads + kv_heads) * group.key_dim
        total += group.layers * per_layer
    return total


def _latent_parameters(text: Config, heads: int, hidden: int) -> int:
    rank, rope = _count(text, "kv_lora_rank"), _count(text, "qk_rope_head_dim")
    nope, value = _count(text, "qk_nope_head_dim"), _count(text, "v_head_dim")
    lora = _optional(text, "q_lora_rank")
    query = lora * (hidden + heads * (nope + rope)) if lora else hidden * heads * (nope + rope)
    return query + hidden * (rank + rope) + rank * heads * (nope + value) + heads * value * hidden


def _tied(top: Config, text: Config) -> bool:
    """Stated, or the default of the family: files leave out what their class assumes."""
    for part in (top, text):
        if part.get("tie_word_embeddings") is not None:
            return bool(part["tie_word_embeddings"])
    return str(text.get("model_type", "")).lower().startswith(_TIED_BY_DEFAULT)


def _quantised(section: Mapping[str, Any]) -> str:
    method = str(section.get("quant_method", "")).lower()
    if method in ("awq", "gptq") and section.get("bits", 4) == 8:
        return "int8"
    if method in _QUANTISED:
        return _QUANTISED[method]
    raise InvalidModelConfig(
        "quantization_config.quant_method",
        f"{method or 'missing'} is not known; give spec.model.precision and drop the section",
    )


def _precision(top: Config, text: Config) -> str:
    quantisation = top.get("quantization_config") or text.get("quantization_config")
    if isinstance(quantisation, Mapping):
        return _quantised(quantisation)
    stated = top.get("torch_dtype") or top.get("dtype") or text.get("torch_dtype") or "bfloat16"
    if not isinstance(stated, str) or stated not in _PRECISIONS:
        raise InvalidModelConfig(
            "torch_dtype", f"{stated!r} is not one of {', '.join(_PRECISIONS)}"
        )
    return _PRECISIONS[stated]
