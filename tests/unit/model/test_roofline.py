"""Step time estimated from model and GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.catalogue import gpus, models
from sojourn.errors import ModelDomainError
from sojourn.facts.memory import Footprint
from sojourn.model import roofline


def footprint(
    model: str, gpu: str, tensor_parallel: int = 1, precision: str | None = None
) -> Footprint:
    return Footprint(
        models.find(model), gpus.find(gpu), tensor_parallel=tensor_parallel, precision=precision
    )


@pytest.mark.parametrize(
    ("asked", "tokens", "points_ms"),
    [
        pytest.param(
            replace(footprint("meta-llama/Llama-3.1-70B", "H200", 1, "fp8"), kv_precision="fp8"),
            (1024, 1024),
            [(4, 20.114), (16, 22.987), (64, 32.335)],
            id="aiconfigurator llama-3.1-70b h200 trtllm fp8 tp1",
        ),
        pytest.param(
            footprint("meta-llama/Llama-3.1-70B", "H200", 2, "fp8"),
            (1024, 8192),
            [(4, 14.202), (8, 14.833), (32, 23.161)],
            id="aiconfigurator llama-3.1-70b h200 vllm fp8 tp2",
        ),
    ],
)
def test_published_inter_token_latencies_lie_within_the_band(
    asked: Footprint, tokens: tuple[int, int], points_ms: list[tuple[int, float]]
) -> None:
    prompt, output = tokens
    estimated = roofline.estimate(asked, context_tokens=prompt + output / 2)
    step = estimated.iteration
    for batch, measured_ms in points_ms:
        # In a closed loop each step also prefills n / output prompts.
        prefill_s = step.per_prompt_token_s * prompt * batch / output
        ours_ms = 1e3 * (step.fixed_s + step.per_request_s * batch + prefill_s)
        assert ours_ms == pytest.approx(measured_ms, rel=estimated.error)


def test_the_estimate_says_how_far_it_may_be_off() -> None:
    dense = roofline.estimate(footprint("Llama-3.1-8B", "H100"))
    experts = roofline.estimate(footprint("Qwen/Qwen3-30B-A3B", "H100"))
    assert 0 < dense.error < experts.error
    assert "estimated from" in dense.text
    assert "20%" in dense.text


def test_a_step_of_experts_reads_more_of_them_as_the_batch_grows() -> None:
    asked = footprint("Qwen/Qwen3-30B-A3B", "H100")
    read = [roofline.read_bytes(asked, batch) for batch in (1, 8, 64, 10_000)]
    assert read == sorted(read)
    assert read[0] < 0.2 * read[-1]
    assert read[-1] == pytest.approx(2 * 30.5e9, rel=0.02)


def test_a_card_without_figures_is_a_named_error() -> None:
    asked = footprint("Llama-3.1-8B", "H100")
    bare = replace(asked.gpu, bandwidth_bytes_per_s=None)
    with pytest.raises(ModelDomainError, match="serviceTime"):
        roofline.estimate(replace(asked, gpu=bare))


@given(
    model=st.sampled_from(["Llama-3.1-8B", "Llama-2-70b", "Mixtral-8x7B-v0.1", "DeepSeek-V3"]),
    tensor_parallel=st.sampled_from([1, 2, 4, 8]),
    context=st.floats(1, 100_000),
    batch=st.integers(1, 512),
)
def test_more_context_or_a_slower_card_never_estimates_faster(
    model: str, tensor_parallel: int, context: float, batch: int
) -> None:
    asked = replace(footprint(model, "H200", tensor_parallel), max_batch=batch)
    here = roofline.estimate(asked, context).iteration
    longer = roofline.estimate(asked, context * 2).iteration
    slower = roofline.estimate(replace(asked, gpu=gpus.find("A100-80GB")), context).iteration
    for step in (here, longer, slower):
        assert step.fixed_s > 0
        assert step.per_request_s > 0
        assert step.per_prompt_token_s > 0
    assert longer.per_request_s >= here.per_request_s
    assert slower.fixed_s > here.fixed_s
    assert slower.per_prompt_token_s > here.per_prompt_token_s
