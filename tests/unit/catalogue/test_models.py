"""Models by name: spellings, nearest names, sources, speed."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from sojourn.catalogue import models
from sojourn.errors import ModelUnknown
from sojourn.facts.architecture import AttentionKind
from sojourn.model import kv, weights
from sojourn.units import GB, GIB


@pytest.mark.parametrize(
    "name",
    [
        "Llama-2-70b",
        "meta-llama/Llama-2-70b",
        "meta-llama/Llama-2-70b-hf",
        "meta-llama/Llama-2-70b-chat-hf",
        "LLAMA-2-70B",
        "llama-2-70B-Chat",
    ],
)
def test_llama_2_70b_is_found_however_it_is_written(name: str) -> None:
    model = models.find(name)
    assert (model.layers, model.hidden, model.vocabulary) == (80, 8192, 32000)
    assert kv.kv_bytes_per_token(model) == 327680  # published: 320 KiB a token


@pytest.mark.parametrize("name", ["GPT-3", "gpt3-175b", "gpt-3", "openai/gpt3-175b"])
def test_the_books_gpt3_weighs_350_gb_and_9_66_gb_a_request(name: str) -> None:
    """Book, S15."""
    model = models.find(name)
    assert weights.total_weights_bytes(model) == 350 * GB
    assert "textbook" in model.source
    place = kv.KvPlacement()
    assert kv.kv_request_bytes(model, 2048, place) == kv.book_kv_bytes(96, 12288, 2048, 1, 2)


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "fp8"),
        ("TheBloke/Mixtral-8x7B-Instruct-v0.1-AWQ", "int4"),
        ("Qwen1.5-32B-Chat-GPTQ-Int4", "int4"),
        ("RedHatAI/Qwen2.5-7B-Instruct-quantized.w8a8", "int8"),
    ],
)
def test_a_quantised_name_finds_the_shape_and_sets_the_precision(name: str, precision: str) -> None:
    model = models.find(name)
    assert model.precision == precision
    assert model.name == name


def test_an_unknown_model_names_the_three_nearest() -> None:
    with pytest.raises(ModelUnknown) as raised:
        models.find("meta-llama/Llama-2-71b")
    assert len(raised.value.nearest) == 3
    assert "meta-llama/Llama-2-70b-hf" in raised.value.nearest
    assert "spec.model.architecture" in str(raised.value)


def test_a_short_name_of_two_different_models_finds_neither() -> None:
    with pytest.raises(ModelUnknown):
        models.find("kimi-k2")


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        pytest.param("meta-llama/Llama-3.1-8B-Instruct", 14.99, id="vLLM 0.19 start-up log"),
        pytest.param("microsoft/phi-4", 27.39, id="vLLM 0.19 start-up log, phi-4"),
        pytest.param("RedHatAI/Qwen2.5-7B-Instruct-quantized.w8a8", 8.14, id="log, w8a8"),
        pytest.param("Qwen/Qwen3-30B-A3B", 56.88, id="log, experts"),
        pytest.param("openai/gpt-oss-120b", 64.38, id="log, mxfp4"),
        pytest.param("google/gemma-3-27b-it", 51.45, id="log, with vision tower"),
    ],
)
def test_computed_weights_agree_with_published_loads_within_one_percent(
    name: str, gib: float
) -> None:
    assert weights.weights_bytes(models.find(name)) / GIB == pytest.approx(gib, rel=0.01)


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        pytest.param("nvidia/Gemma-4-31B-IT-NVFP4", 31.04, id="dense, with vision tower"),
        pytest.param("nvidia/Qwen3.5-122B-A10B-NVFP4", 70.47, id="experts, resharded copy"),
    ],
)
def test_nvfp4_checkpoints_keep_attention_in_16_bits(name: str, gib: float) -> None:
    """Published loads; four bits throughout would be 20 and 68 GiB less embeddings."""
    assert weights.weights_bytes(models.find(name)) / GIB == pytest.approx(gib, rel=0.06)


def test_every_entry_is_whole_and_has_a_source() -> None:
    names = models.names()
    assert len(names) >= 240
    for name in names:
        model = models.find(name)
        assert model.name == name, "a later entry must not hide an earlier one"
        assert model.source
        assert model.layers >= 1
        assert 0 < model.embedding_parameters <= model.parameters
        assert 0 < model.active_parameters <= model.parameters
        assert sum(group.layers for group in model.attention) <= model.layers
        assert weights.total_weights_bytes(model) > 0
        kinds = {group.kind for group in model.attention}
        assert kv.kv_bytes_per_token(model) > 0 or kinds == {AttentionKind.RECURRENT}


def test_search_finds_every_word_in_names_and_aliases() -> None:
    found = [model.name for model in models.search("llama 70b")]
    assert "meta-llama/Llama-2-70b-hf" in found
    assert all("llama" in name.lower() for name in found)
    assert len(models.search("")) == len(models.names())


def test_ten_thousand_lookups_take_under_50_ms() -> None:
    models.find("meta-llama/Llama-2-70b")
    began = time.perf_counter()
    for _ in range(10_000):
        models.find("meta-llama/Llama-2-70b")
    assert time.perf_counter() - began < 0.050


def test_loading_is_lazy_light_and_under_100_ms() -> None:
    script = (
        "import sys, time\n"
        "from sojourn.catalogue import models, gpus\n"
        "from sojourn.catalogue import records\n"
        "assert records.read.cache_info().currsize == 0, 'read at import'\n"
        "began = time.perf_counter()\n"
        "models.find('Llama-2-70b'); gpus.find('A10G')\n"
        "took = time.perf_counter() - began\n"
        "heavy = {'pydantic', 'numpy', 'kubernetes'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "print(took)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30
    )
    assert float(done.stdout) < 0.100
