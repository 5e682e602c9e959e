"""Where a card's memory goes, whether the engine starts, and how many requests it holds."""

from __future__ import annotations

import doctest
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.catalogue import gpus, models
from sojourn.errors import Indivisible, ModelDomainError
from sojourn.facts.declaration import KvLayout
from sojourn.facts.memory import Fit, Footprint
from sojourn.model import kv, memory, memory_engines, memory_remedies
from sojourn.units import GB, GIB

LLAMA_70B = models.find("meta-llama/Llama-2-70b")


def footprint(
    model: str = "meta-llama/Llama-2-70b", gpu: str = "A100-80GB", **more: object
) -> Footprint:
    settled: dict[str, Any] = {"engine_version": "0.19.0"} | more
    return Footprint(models.find(model), gpus.find(gpu), **settled)


@pytest.mark.parametrize("gpu", ["A10G", "L4", "RTX-4090"])
def test_llama_2_70b_in_fp16_does_not_start_on_one_24_gb_card(gpu: str) -> None:
    asked = Footprint(LLAMA_70B, gpus.find(gpu), precision="fp16")
    answer = memory.answer(asked)
    assert answer.fit is Fit.WONT_START
    assert answer.weights_bytes / GIB == pytest.approx(128.5, abs=0.1)  # 68.98e9 x 2 bytes
    assert answer.budget_bytes / GIB < 22.1
    assert answer.weights_bytes - answer.budget_bytes > 106 * GIB
    assert answer.margin_bytes < -answer.weights_bytes + answer.budget_bytes
    remedies = memory_remedies.remedies(asked, gpus.every())
    assert remedies.tensor_parallel is not None
    assert "GPUs (tensorParallel:" in remedies.text()


def test_the_books_llama_2_70b_figure_is_out_of_memory_beyond_16_on_40_gb_cards() -> None:
    """Four 40 GB cards, whole and nameplate: 160 GB less 138 GB of weights, 1.34 GB a request."""
    request = kv.kv_bytes_per_token(LLAMA_70B) * 4096
    weights = LLAMA_70B.parameters * 2
    assert kv.book_requests_that_fit(4 * 40 * GB, weights, request) == 16


def test_the_books_llama_2_70b_figure_holds_about_112_on_80_gb_cards() -> None:
    """Four 80 GB cards at 0.9: 288 GB less 138 GB, 1.34 GB a request of 4,096 tokens."""
    request = kv.kv_bytes_per_token(LLAMA_70B) * 4096
    fitting = kv.book_requests_that_fit(0.9 * 4 * 80 * GB, LLAMA_70B.parameters * 2, request)
    assert fitting == pytest.approx(112, abs=1)
    real = memory.answer(footprint(tensor_parallel=4))
    assert real.fit is Fit.FITS
    assert real.max_concurrent == pytest.approx(112, rel=0.05)


def test_on_40_gb_cards_overheads_leave_less_than_the_figures_16() -> None:
    asked = footprint(gpu="A100-40GB", tensor_parallel=4)
    assert 0 < memory.answer(asked).max_concurrent < 16
    batch = memory_remedies.largest_max_batch(
        replace(asked, max_batch=32, kv_layout=KvLayout.CONTIGUOUS)
    )
    assert batch is not None
    assert batch < 16


@pytest.mark.parametrize(
    ("model", "more", "kv_tokens"),
    [
        pytest.param("meta-llama/Llama-3.1-8B", {}, 476016, id="llama-3.1-8b"),
        pytest.param("meta-llama/Llama-3.1-8B", {"tensor_parallel": 4}, 2209792, id="tp 4"),
        pytest.param("meta-llama/Llama-3.1-8B", {"kv_precision": "fp8"}, 952032, id="fp8 cache"),
        pytest.param("meta-llama/Llama-3.1-8B", {"precision": "fp8"}, 529248, id="fp8 weights"),
        pytest.param("meta-llama/Llama-3.1-8B", {"precision": "fp32"}, 175296, id="fp32"),
        pytest.param("Qwen/Qwen2.5-7B-Instruct", {}, 1096000, id="qwen2.5-7b"),
        pytest.param("microsoft/phi-4", {}, 241568, id="phi-4"),
        pytest.param("google/gemma-7b", {}, 129760, id="gemma-7b, wide heads"),
        pytest.param("google/gemma-3-27b-it", {}, 36560, id="gemma-3-27b, sliding in groups"),
        pytest.param("deepseek-ai/DeepSeek-V2-Lite-Chat", {}, 1505552, id="latent"),
        pytest.param("mistralai/Mixtral-8x7B-v0.1", {"tensor_parallel": 2}, 465936, id="experts"),
    ],
)
def test_kv_tokens_agree_with_vllm_0_19_on_h100_within_three_percent(
    model: str, more: dict[str, Any], kv_tokens: int
) -> None:
    """Published start-up logs, llmd-planner-h100-v0.19, utilisation 0.95, maxLength 8192."""
    asked = footprint(model, "H100", memory_utilisation=0.95, max_length_tokens=8192, **more)
    answer = memory.answer(asked)
    assert answer.covered
    assert answer.kv_tokens == pytest.approx(kv_tokens, rel=0.03)


def test_the_parts_of_the_budget_add_up() -> None:
    answer = memory.answer(footprint(tensor_parallel=4, engine_version="0.22.0"))
    parts = (
        answer.weights_bytes
        + answer.activation_bytes
        + answer.non_torch_bytes
        + answer.graphs_bytes
        + answer.kv_pool_bytes
    )
    assert parts == pytest.approx(answer.budget_bytes)
    assert answer.margin_bytes == answer.kv_pool_bytes - answer.kv_request_bytes


def test_graphs_come_out_of_the_budget_from_0_21_only() -> None:
    before = memory.answer(footprint(tensor_parallel=4, memory_utilisation=0.9))
    since = memory.answer(
        footprint(tensor_parallel=4, memory_utilisation=0.9, engine_version="0.21.0")
    )
    eager = memory.answer(
        footprint(tensor_parallel=4, memory_utilisation=0.9, engine_version="0.21.0", eager=True)
    )
    assert before.graphs_bytes == since.graphs_bytes > 0
    assert eager.graphs_bytes == 0
    assert since.kv_pool_bytes < before.kv_pool_bytes <= eager.kv_pool_bytes


def test_an_unknown_version_widens_the_band_and_is_not_covered() -> None:
    known, unknown = memory.answer(footprint()), memory.answer(footprint(engine_version=None))
    assert known.covered
    assert not unknown.covered
    assert (known.band_bytes, unknown.band_bytes) == (0.5 * GIB, 1.5 * GIB)


def test_gpt_oss_120b_on_one_h100_is_too_close_to_call() -> None:
    """Starts with 0.11.2 (issue 33155), fails with default flags (issue 27508)."""
    for version in (None, "0.11.2"):
        answer = memory.answer(footprint("openai/gpt-oss-120b", "H100", engine_version=version))
        assert answer.fit is Fit.TOO_CLOSE


def test_a_start_up_peak_beyond_the_card_is_too_close_although_the_budget_holds() -> None:
    """gpt-oss-20b on H100, vLLM 0.19: out of memory in the sampler warm-up after KV sizing."""
    asked = footprint("openai/gpt-oss-20b", "H100", memory_utilisation=0.95, max_length_tokens=8192)
    answer = memory.answer(asked)
    assert answer.margin_bytes > 50 * GIB
    assert answer.startup_exceeds_card
    assert answer.fit is Fit.TOO_CLOSE
    assert memory.answer(replace(asked, eager=True)).fit is Fit.FITS


def test_experts_cost_0_3_gib_more_activation() -> None:
    """Qwen3-30B-A3B, vLLM 0.19 on H100: 168,288 tokens of KV printed."""
    asked = footprint("Qwen/Qwen3-30B-A3B", "H100", memory_utilisation=0.95, max_length_tokens=8192)
    assert memory.answer(asked).kv_tokens == pytest.approx(168288, rel=0.01)


@pytest.mark.parametrize(("stages", "gib"), [(2, 7.51), (4, 4.26)])
def test_a_stage_holds_its_layers_and_one_embedding(stages: int, gib: float) -> None:
    """Llama-3.1-8B, vLLM 0.19 start-up logs with pipeline parallelism."""
    asked = footprint("meta-llama/Llama-3.1-8B", "H100", pipeline_parallel=stages)
    assert memory.answer(asked).weights_bytes / GIB == pytest.approx(gib, rel=0.01)


def test_an_undeclared_max_batch_is_no_reason_to_reject() -> None:
    asked = footprint("openai/gpt-oss-120b", "H100", engine_version="0.11.2")
    assert memory.answer(asked).fit is Fit.TOO_CLOSE
    assert memory.answer(replace(asked, max_batch=1024)).fit is Fit.WONT_START
    batch = memory_remedies.largest_max_batch(
        replace(asked, max_batch=1024, max_length_tokens=4096)
    )
    assert batch is not None
    assert 1 <= batch < 1024


def test_a_long_request_that_does_not_fit_names_the_longest_that_does() -> None:
    asked = footprint(
        "meta-llama/Llama-3.1-8B", "A10G", max_length_tokens=131072, engine_version="0.22.0"
    )
    assert memory.answer(asked).fit is Fit.WONT_START
    length = memory_remedies.largest_max_length(asked)
    assert length is not None
    assert memory.answer(replace(asked, max_length_tokens=length)).fit is Fit.FITS
    assert memory.answer(replace(asked, max_length_tokens=length + 64)).fit is not Fit.FITS


def test_every_remedy_alone_makes_the_configuration_fit() -> None:
    asked = footprint(gpu="A10G", tensor_parallel=4, engine_version="0.22.0")
    found = memory_remedies.remedies(asked, gpus.every())
    assert found.tensor_parallel == 16
    assert found.precision == "int4"
    assert "A100-80GB" in found.gpus
    for changed in (
        replace(asked, tensor_parallel=found.tensor_parallel),
        replace(asked, precision=found.precision),
        *(replace(asked, gpu=gpus.find(name)) for name in found.gpus),
    ):
        assert memory.answer(changed).fit is Fit.FITS
    assert found.text() == (
        "Use 16 GPUs (tensorParallel: 16), weights in int4, RTXA6000, A100-80GB, or "
        f"{found.gpus[-1]}."
    )


def test_paged_requests_take_their_own_length_and_contiguous_ones_the_longest() -> None:
    paged = footprint(tensor_parallel=4)
    contiguous = replace(paged, kv_layout=KvLayout.CONTIGUOUS)
    assert memory.requests_that_fit(paged, 1024) == pytest.approx(4 * 116, rel=0.02)
    at_any_length = {memory.requests_that_fit(contiguous, mean) for mean in (64, 1024, 4096)}
    assert at_any_length == {memory.answer(contiguous).max_concurrent}
    assert memory.requests_that_fit(paged, 1024) > 3 * at_any_length.pop()


def test_sliding_windows_hold_more_long_requests_than_full_attention_would() -> None:
    asked = footprint("google/gemma-3-27b-it", "H100", max_length_tokens=131072)
    short, long = (memory.requests_that_fit(asked, tokens) for tokens in (1024, 65536))
    assert long > short / 64


@pytest.mark.parametrize(
    ("more", "field"),
    [
        pytest.param({"tensor_parallel": 3}, "attentionHeads", id="heads"),
        pytest.param({"tensor_parallel": 128}, "attentionHeads", id="more ranks than heads"),
    ],
)
def test_tensor_parallelism_that_does_not_divide_is_named(more: dict[str, Any], field: str) -> None:
    with pytest.raises(Indivisible) as raised:
        memory.answer(footprint(**more))
    assert raised.value.field == field


def test_a_vocabulary_that_cannot_be_shared_is_named() -> None:
    odd = replace(LLAMA_70B, vocabulary=32000 + 64, attention=())
    with pytest.raises(Indivisible, match="vocabulary"):
        memory.answer(Footprint(odd, gpus.find("H100"), tensor_parallel=128))


def test_the_books_gpt3_may_run_on_eight_gpus_although_50257_is_odd() -> None:
    """Engines pad the vocabulary to a multiple of 64 before they share it out."""
    answer = memory.answer(footprint("GPT-3", tensor_parallel=8))
    assert answer.fit is Fit.FITS
    assert answer.max_concurrent <= 30  # the book's 30 leaves nothing for overheads


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"memory_utilisation": 0.0}, "memoryUtilization"),
        ({"memory_utilisation": 1.01}, "memoryUtilization"),
        ({"max_length_tokens": -1}, "maxLength"),
        ({"precision": "int3"}, "precision"),
        ({"kv_precision": "int3"}, "kvCachePrecision"),
        ({"pipeline_parallel": 0}, "pipelineParallel"),
        ({"pipeline_parallel": 81}, "pipelineParallel"),
        ({"tensor_parallel": 0}, "tensorParallel"),
    ],
)
def test_a_number_outside_the_domain_is_named(more: dict[str, Any], field: str) -> None:
    with pytest.raises(ModelDomainError) as raised:
        memory.answer(footprint(**more))
    assert raised.value.name == field


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.11.2", (0, 11)),
        ("v0.20.2rc1.dev249+glm", (0, 20)),
        ("nightly", None),
        (None, None),
        ("", None),
    ],
)
def test_versions_are_read_from_tags(text: str | None, version: tuple[int, int] | None) -> None:
    assert memory_engines.version_of(text) == version


def test_a_checkout_without_tags_counts_as_unknown() -> None:
    row = memory_engines.engine_memory("vllm", "0.1.dev20073+g8e685d198")
    assert not row.covered
    assert row.utilisation == 0.92  # the newest known, not the oldest


@pytest.mark.parametrize(
    "engine", ["sglang", "tgi", "trtllm", "tensorrt-llm", "lmdeploy", "triton"]
)
def test_other_engines_answer_with_the_wide_band(engine: str) -> None:
    answer = memory.answer(footprint(tensor_parallel=4, engine=engine, engine_version=None))
    assert answer.fit is Fit.FITS
    assert not answer.covered
    assert 20 * GIB < answer.kv_pool_bytes < 47 * GIB


_ANY = st.fixed_dictionaries(
    {
        "model": st.sampled_from(
            ["Llama-2-70b", "Qwen2.5-7B-Instruct", "gemma-3-27b-it", "DeepSeek-V3", "gpt-oss-20b",
             "Qwen3-Next-80B-A3B-Instruct", "mamba-2.8b-hf"]
        ),
        "gpu": st.sampled_from(["A10G", "A100-80GB", "H200", "B200"]),
        "tensor_parallel": st.sampled_from([1, 2, 4, 8]),
        "engine_version": st.sampled_from([None, "0.6.3", "0.11.0", "0.19.0", "0.22.0"]),
        "max_length_tokens": st.integers(1, 200_000),
        "max_batch": st.none() | st.integers(1, 2048),
    }
)  # fmt: skip


@given(asked=_ANY)
def test_better_never_turns_into_worse(asked: dict[str, Any]) -> None:
    """More memory, a shorter request or a smaller batch never loses room."""
    base = footprint(**asked)
    if base.architecture.attention[0].kind.value == "recurrent" and base.tensor_parallel > 1:
        return
    try:
        here = memory.answer(base)
    except Indivisible:
        return
    roomier = replace(base.gpu, memory_bytes=base.gpu.memory_bytes * 1.1)
    assert memory.answer(replace(base, gpu=roomier)).margin_bytes > here.margin_bytes
    shorter = replace(base, max_length_tokens=max(1, here.max_length_tokens // 2))
    if base.engine_version != "0.6.3":  # prefills whole prompts: its own test below
        assert memory.answer(shorter).margin_bytes >= here.margin_bytes
    smaller = replace(base, max_batch=max(1, memory.effective_max_batch(base) // 2))
    assert memory.answer(smaller).kv_pool_bytes >= here.kv_pool_bytes
    assert here.kv_tokens >= 0
    assert (here.fit is Fit.WONT_START) <= (here.margin_bytes < -here.band_bytes)
    assert memory.requests_that_fit(base, 100) >= memory.requests_that_fit(base, 10_000)


def test_engines_without_chunked_prefill_pay_for_the_longest_prompt() -> None:
    """RTX 3090, Llama-3.1-8B: 3.81 GiB of pool at 20,000 tokens, 2.89 at 29,000 (issue 10517)."""
    asked = footprint("Llama-3.1-8B", "RTX3090", memory_utilisation=0.9, engine_version="0.6.3")
    pools = [
        memory.answer(replace(asked, max_length_tokens=tokens)).kv_pool_bytes / GIB
        for tokens in (20_000, 29_000)
    ]
    assert pools == pytest.approx([3.81, 2.89], abs=0.5)
    assert pools[0] - pools[1] == pytest.approx(3.81 - 2.89, abs=0.05)


def test_the_examples_of_the_explanation_are_true() -> None:
    page = Path(__file__).parents[3] / "docs" / "explanation" / "memory.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted > 5
    assert result.failed == 0
