"""Engines by name, image and command, and their metric names by version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sojourn import engines
from sojourn.engines.version import parse_version
from sojourn.facts.declaration import Batching

SAMPLES = Path(__file__).parents[2] / "data" / "metrics_samples"


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("vllm/vllm-openai:v0.10.2", (0, 10, 2)),
        ("registry.local:5000/vllm/vllm-openai:v0.33.0-cu129", (0, 33, 0)),
        ("lmsysorg/sglang:v0.5.3.post1-cu126", (0, 5, 3)),
        ("nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3", (26, 7, 0)),
        ("ghcr.io/huggingface/text-generation-inference:3.3", (3, 3, 0)),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai", None),
        ("registry.local:5000/vllm-openai", None),
        ("vllm/vllm-openai:v0.9.2@sha256:0123456789abcdef", (0, 9, 2)),
        ("vllm/vllm-openai@sha256:0123456789abcdef", None),
        ("vllm/vllm-openai:20241103", None),
    ],
)
def test_the_version_comes_from_the_image_tag_or_is_unknown(image: Any, expected: Any) -> None:
    assert engines.version_of_image(image) == expected


@pytest.mark.parametrize("spelling", ["vllm", "VLLM", "llama_cpp", "llama-cpp", "tgi", "custom"])
def test_an_engine_is_found_by_any_usual_spelling(spelling: Any) -> None:
    assert engines.find(spelling).name == spelling.lower().replace("-", "").replace("_", "")


def test_an_unknown_engine_names_the_nearest() -> None:
    with pytest.raises(engines.EngineUnknown, match="vllm"):
        engines.find("vlm")


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({"image": "vllm/vllm-openai:v0.10.2"}, "vllm"),
        ({"image": "ghcr.io/llm-d/llm-d-inference-sim:v0.9.2"}, "vllm"),
        ({"image": "lmsysorg/sglang:latest"}, "sglang"),
        ({"image": "ghcr.io/huggingface/text-generation-inference:3.3.7"}, "tgi"),
        ({"image": "own/image:1", "args": ["trtllm-serve", "m"]}, "trtllm"),
        ({"image": "own/image", "command": ["sh", "-c", "exec vllm serve m"]}, "vllm"),
        ({"image": "nginx:1"}, None),
        ({}, None),
    ],
)
def test_an_engine_is_detected_from_image_or_command(container: Any, expected: Any) -> None:
    found = engines.detect(container)
    assert (found.name if found else None) == expected


@pytest.mark.parametrize(
    ("name", "batching"),
    [
        ("vllm", Batching.CONTINUOUS),
        ("sglang", Batching.CONTINUOUS),
        ("tgi", Batching.CONTINUOUS),
        ("trtllm", Batching.CONTINUOUS),
        ("triton", Batching.DYNAMIC),
        ("custom", Batching.DYNAMIC),
    ],
)
def test_llm_engines_batch_continuously_and_the_others_dynamically(
    name: Any, batching: Any
) -> None:
    assert engines.find(name).batching is batching


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.6.6", ["vllm:gpu_cache_usage_perc"]),
        ("0.9.1", ["vllm:gpu_cache_usage_perc"]),
        ("0.10.2", ["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"]),
        ("0.33.0", ["vllm:kv_cache_usage_perc"]),
        ("latest", ["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"]),
    ],
)
def test_an_unknown_version_tries_every_name_newest_first(version: Any, expected: Any) -> None:
    names = engines.find("vllm").names("kv_usage", parse_version(version))
    assert [m.name for m in names] == expected


@pytest.mark.parametrize(
    ("sample", "engine", "version", "absent"),
    [
        ("vllm_0_6", "vllm", "0.6.6", set()),
        ("vllm_0_10", "vllm", "0.10.2", set()),
        ("vllm_latest", "vllm", "0.33.0", set()),
        ("sglang", "sglang", "0.5.23", set()),
        ("tgi", "tgi", "3.3.7", set()),
        ("trtllm", "trtllm", "latest", set()),
        ("triton", "triton", "26.07", set()),
        ("llama_cpp", "llamacpp", "latest", set()),
    ],
)
def test_every_role_of_an_engine_is_exported_by_its_sample(
    sample: Any, engine: Any, version: Any, absent: Any
) -> None:
    text = (SAMPLES / f"{sample}.txt").read_text()
    exported = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line[:1] != "#"}
    found = engines.find(engine)
    assert found.metrics, "a sample without roles checks nothing"
    for role in found.metrics:
        names = found.names(role, parse_version(version))
        if not names:
            continue
        seen = [m.name for m in names if m.name in exported or f"{m.name}_bucket" in exported]
        assert seen or role in absent, f"{role}: none of {[m.name for m in names]} in {sample}"
