"""Models described rather than named: inline, config.json, a user's additions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.catalogue import additions, huggingface, inline, models
from sojourn.errors import InvalidModelConfig, ModelDomainError, ModelUnknown
from sojourn.facts.architecture import AttentionKind
from sojourn.facts.declaration import DeclaredArchitecture, LatentAttention, SlidingWindow
from sojourn.model import kv

LLAMA_8B: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
MIXTRAL = LLAMA_8B | {
    "model_type": "mixtral",
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
    "max_position_embeddings": 32768,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "fp8"},
}
GEMMA_3 = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 62,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "sliding_window": 1024,
        "sliding_window_pattern": 6,
        "vocab_size": 262144,
        "max_position_embeddings": 131072,
    },
}
QWEN3_MOE = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "use_sliding_window": False,
    "sliding_window": None,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize(
    ("config", "name"),
    [
        pytest.param(LLAMA_8B, "meta-llama/Llama-3.1-8B", id="grouped query"),
        pytest.param(MIXTRAL, "mistralai/Mixtral-8x7B-v0.1", id="experts"),
        pytest.param(DEEPSEEK_V3, "deepseek-ai/DeepSeek-V3", id="latent, shared experts, fp8"),
        pytest.param(GEMMA_3, "google/gemma-3-27b-it", id="sliding, tied, nested"),
        pytest.param(QWEN3_MOE, "Qwen/Qwen3-30B-A3B", id="narrow experts"),
    ],
)
def test_a_config_file_gives_what_the_catalogue_has(config: dict[str, Any], name: str) -> None:
    read, known = huggingface.from_config(config, name), models.find(name)
    assert read.parameters == pytest.approx(known.parameters, rel=0.002)
    assert read.active_parameters == pytest.approx(known.active_parameters, rel=0.02)
    assert kv.kv_bytes_per_token(read) == kv.kv_bytes_per_token(known)
    place = kv.KvPlacement()
    assert kv.kv_request_bytes(read, 30_000, place) == kv.kv_request_bytes(known, 30_000, place)
    assert (read.precision, read.experts) == (known.precision, known.experts)
    assert read.tied_embeddings == known.tied_embeddings
    assert read.replicated_parameters == pytest.approx(
        known.replicated_parameters, rel=1.0
    )  # same order; biases and latent projections are the catalogue's


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"num_hidden_layers": 0}, "num_hidden_layers", id="no layers"),
        pytest.param({"num_hidden_layers": None}, "num_hidden_layers", id="layers missing"),
        pytest.param({"hidden_size": "4096"}, "hidden_size", id="a text"),
        pytest.param({"num_key_value_heads": 5}, "num_key_value_heads", id="heads indivisible"),
        pytest.param({"num_attention_heads": 33, "num_key_value_heads": 33},
                     "num_attention_heads", id="width indivisible"),
        pytest.param({"layer_types": ["full_attention", "telepathy"] * 16}, "layer_types",
                     id="unknown layer kind"),
        pytest.param({"layer_types": ["full_attention"]}, "layer_types", id="too few layer kinds"),
        pytest.param({"torch_dtype": "float7"}, "torch_dtype", id="unknown precision"),
        pytest.param({"quantization_config": {"quant_method": "exl3"}},
                     "quantization_config.quant_method", id="unknown quantisation"),
        pytest.param({"mamba_d_state": 128}, "mamba_d_state", id="state-space layers"),
        pytest.param({"vocab_size": -1}, "vocab_size", id="negative"),
    ],
)  # fmt: skip
def test_bad_config_data_is_a_named_error_with_the_field(
    change: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidModelConfig) as raised:
        huggingface.from_config(LLAMA_8B | change)
    assert raised.value.field == field
    assert field in str(raised.value)


def test_a_truncated_file_says_where_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_8B, indent=1)[:120])
    with pytest.raises(InvalidModelConfig, match="truncated"):
        huggingface.from_config(path)
    with pytest.raises(InvalidModelConfig, match="cannot be read"):
        huggingface.from_config(tmp_path / "absent.json")
    path.write_text(json.dumps(LLAMA_8B))
    assert huggingface.from_config(path, "mine").name == "mine"


def test_an_inline_architecture_needs_three_numbers() -> None:
    declared = DeclaredArchitecture(layers=96, hidden=12288, attention_heads=96, vocabulary=50257)
    model = inline.architecture_from(declared, "mine")
    assert kv.kv_bytes_per_token(model) == 2 * 96 * 12288 * 2  # the book's multi-head default
    assert model.parameters == pytest.approx(175e9, rel=0.01)  # GPT-3's 12 L d^2
    assert "estimated" in model.source


def test_inline_windows_and_latent_attention_shape_the_cache() -> None:
    windows = SlidingWindow(tokens=1024, every_nth_layer_full=6)
    declared = DeclaredArchitecture(62, 5376, 32, 16, 128, sliding_window=windows)
    kinds = {g.kind: g.layers for g in inline.architecture_from(declared, "m").attention}
    assert kinds == {AttentionKind.FULL: 10, AttentionKind.SLIDING: 52}
    latent = DeclaredArchitecture(
        61, 7168, 128, latent_attention=LatentAttention(512, 64), parameters=671e9
    )
    assert kv.kv_bytes_per_token(inline.architecture_from(latent, "m")) == 70272


@pytest.mark.parametrize(
    ("declared", "field"),
    [
        (DeclaredArchitecture(0, 4096, 32), "layers"),
        (DeclaredArchitecture(32, 4096, 32, kv_heads=5), "keyValueHeads"),
        (DeclaredArchitecture(32, 4097, 32), "hiddenSize"),
        (DeclaredArchitecture(32, 4096, 32, recurrent_layers=33), "recurrentLayers"),
    ],
)
def test_an_impossible_inline_architecture_names_its_field(
    declared: DeclaredArchitecture, field: str
) -> None:
    with pytest.raises(ModelDomainError) as raised:
        inline.architecture_from(declared, "m")
    assert raised.value.name == field


def test_additions_come_first_and_the_rest_stays() -> None:
    own = additions.with_additions(
        {
            "models": {
                "acme/chat": {
                    "aliases": ["Chat"],
                    "layers": 40,
                    "hiddenSize": 5120,
                    "attentionHeads": 40,
                    "maxLength": 8192,
                },
                "acme/copy": {"config": LLAMA_8B},
            },
            "gpus": {"X100": {"memory": "64Gi", "bandwidth": "2T", "labels": ["ACME-X100"]}},
        }
    )
    assert own.model("CHAT").max_length_tokens == 8192
    assert own.model("acme/copy").layers == 32
    assert own.model("Llama-2-70b").layers == 80
    assert own.gpu("acme x100").memory_bytes == 64 * 2**30
    assert own.gpu("A10G").name == "A10G"
    assert "X100" in [card.name for card in own.gpus()]
    with pytest.raises(ModelUnknown) as raised:
        own.model("acme/chatt")
    assert "acme/chat" in raised.value.nearest


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ({"modles": {}}, "additions.modles"),
        ({"models": {"m": {"layer": 3}}}, "models.m.layer"),
        ({"models": {"m": {"layers": 0, "hiddenSize": 64, "attentionHeads": 1}}},
         "models.m.layers"),
        ({"models": {"m": {"hiddenSize": 64}}}, "models.m"),
        ({"models": {"m": {"layers": 1.5, "hiddenSize": 64, "attentionHeads": 1}}},
         "models.m.layers"),
        ({"gpus": {"g": {}}}, "gpus.g.memory"),
        ({"gpus": {"g": {"memory": "80 gigs"}}}, "gpus.g.memory"),
        ({"gpus": {"g": {"memory": "80Gi", "colour": "red"}}}, "gpus.g.colour"),
    ],
)  # fmt: skip
def test_bad_additions_are_named_by_their_path(content: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidModelConfig) as raised:
        additions.with_additions(content)
    assert raised.value.field == path


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10**6) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(change=st.dictionaries(st.sampled_from([*LLAMA_8B, "layer_types", "kv_lora_rank"]), _JSON))
def test_whatever_a_config_holds_the_error_is_named(change: dict[str, Any]) -> None:
    try:
        model = huggingface.from_config(LLAMA_8B | change)
    except InvalidModelConfig:
        return
    assert model.parameters > 0
