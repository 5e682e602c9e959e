"""KV-cache bytes: the book's numbers, each attention kind, layouts and places."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.errors import ModelDomainError
from sojourn.facts.architecture import Architecture, AttentionGroup, AttentionKind
from sojourn.model import kv

GPT3_WEIGHTS_BYTES = 175e9 * 2


def grouped(layers: int = 80, heads: int = 64, kv_heads: int = 8) -> AttentionGroup:
    return AttentionGroup(AttentionKind.FULL, layers, heads, kv_heads, 128, 128)


def architecture(*groups: AttentionGroup, layers: int | None = None) -> Architecture:
    total = layers or sum(group.layers for group in groups)
    return Architecture("m", total, 8192, 32000, 7e10, 7e10, 5e8, groups)


def test_a_gpt3_request_of_2048_tokens_takes_9_66_gb() -> None:
    """Book, section on KV cache: 2 x 96 x 12288 x 2048 x 1 x 2 bytes."""
    assert kv.book_kv_bytes(96, 12288, 2048, 1, 2) / 1e9 == pytest.approx(9.66, abs=0.005)


def test_gpt3_on_eight_80_gb_cards_leaves_290_gb_for_30_requests() -> None:
    """Book: 640 GB - 350 GB = 290 GB; 290 / 9.66 = 30."""
    request = kv.book_kv_bytes(96, 12288, 2048, 1, 2)
    assert GPT3_WEIGHTS_BYTES == 350e9
    assert 640e9 - GPT3_WEIGHTS_BYTES == 290e9
    assert kv.book_requests_that_fit(640e9, GPT3_WEIGHTS_BYTES, request) == 30


def test_the_general_formula_gives_the_books_number_for_multi_head_attention() -> None:
    gpt3 = architecture(grouped(layers=96, heads=96, kv_heads=96))
    one_gpu = kv.kv_bytes_per_token(gpt3) * 2048
    assert one_gpu == kv.book_kv_bytes(96, 12288, 2048, 1, 2)


@pytest.mark.parametrize(
    ("tensor_parallel", "expected"),
    [
        pytest.param(1, 327680, id="llama-2-70b: 2 x 80 x 8 x 128 x 2 bytes"),
        pytest.param(4, 81920, id="heads are shared out"),
        pytest.param(8, 40960, id="one head a rank"),
        pytest.param(16, 40960, id="heads are replicated when ranks outnumber them"),
    ],
)
def test_grouped_query_heads_are_shared_and_then_replicated(
    tensor_parallel: int, expected: float
) -> None:
    assert kv.kv_bytes_per_token(architecture(grouped()), tensor_parallel) == expected


def test_latent_cache_is_not_divided_by_tensor_parallelism() -> None:
    latent = AttentionGroup(AttentionKind.LATENT, 61, query_heads=128, latent_dim=576)
    deepseek = architecture(latent)
    assert kv.kv_bytes_per_token(deepseek, 1) == 70272  # 61 x 576 x 2
    assert kv.kv_bytes_per_token(deepseek, 8) == 70272


def test_a_sliding_layer_stops_growing_at_its_window() -> None:
    window = AttentionGroup(AttentionKind.SLIDING, 40, 32, 8, 128, 128, window_tokens=4096)
    model = architecture(window)
    place = kv.KvPlacement()
    full_window = kv.kv_request_bytes(model, 4096, place)
    assert kv.kv_request_bytes(model, 32768, place) == full_window
    assert kv.kv_request_bytes(model, 1024, place) == full_window / 4
    assert kv.marginal_kv_bytes(model, 32768, place) == 0


def test_recurrent_layers_cost_a_fixed_state_and_no_tokens() -> None:
    state = AttentionGroup(AttentionKind.RECURRENT, 36, state_bytes=2_000_000)
    model = architecture(grouped(layers=12), state)
    place = kv.KvPlacement()
    assert kv.kv_bytes_per_token(model) == kv.kv_bytes_per_token(architecture(grouped(layers=12)))
    assert kv.state_bytes_per_request(model, place) == 36 * 2_000_000


def test_the_heaviest_pipeline_stage_decides() -> None:
    model = architecture(grouped(layers=62))
    assert kv.kv_bytes_per_token(model, 1, 4) == 16 * 2 * 8 * 128 * 2


def test_pages_round_a_request_up_to_whole_blocks() -> None:
    model = architecture(grouped())
    place = kv.KvPlacement(block_tokens=16)
    assert kv.kv_request_bytes(model, 17, place) == 32 * 327680


def test_contiguous_allocation_wastes_60_to_80_percent_at_usual_lengths() -> None:
    """Book, S16: mean lengths of a fifth to two fifths of the reservation."""
    assert kv.contiguous_waste(0.4 * 4096, 4096) == pytest.approx(0.60)
    assert kv.contiguous_waste(0.2 * 4096, 4096) == pytest.approx(0.80)


def test_fp8_halves_and_fp32_doubles_the_cache() -> None:
    assert kv.kv_value_bytes("auto", "bf16") == 2
    assert kv.kv_value_bytes("auto", "fp8") == 2
    assert kv.kv_value_bytes("auto", "fp32") == 4
    assert kv.kv_value_bytes("fp8", "bf16") == 1
    with pytest.raises(ModelDomainError, match="kvCachePrecision"):
        kv.kv_value_bytes("int3", "bf16")


@pytest.mark.parametrize("stages", [0, 81])
def test_more_stages_than_layers_is_a_named_error(stages: int) -> None:
    with pytest.raises(ModelDomainError, match="pipelineParallel"):
        kv.kv_bytes_per_token(architecture(grouped()), 1, stages)


@given(
    tokens=st.integers(1, 100_000),
    more=st.integers(0, 1000),
    tensor_parallel=st.sampled_from([1, 2, 4, 8]),
    window=st.integers(16, 8192),
)
def test_more_tokens_never_cost_less_and_more_ranks_never_cost_more(
    tokens: int, more: int, tensor_parallel: int, window: int
) -> None:
    sliding = AttentionGroup(AttentionKind.SLIDING, 40, 64, 8, 128, 128, window_tokens=window)
    model = architecture(grouped(layers=40), sliding)
    place = kv.KvPlacement(tensor_parallel)
    fewer_tokens = kv.kv_request_bytes(model, tokens, place)
    assert kv.kv_request_bytes(model, tokens + more, place) >= fewer_tokens
    assert fewer_tokens <= kv.kv_request_bytes(model, tokens, kv.KvPlacement(1))
    assert fewer_tokens >= 40 * tokens * kv.layer_token_bytes(grouped(), place)
