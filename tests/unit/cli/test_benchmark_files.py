"""Benchmark results of other tools, as they write them, become the same points."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sojourn.cli.exits import UsageError
from sojourn.cli.profiling import files
from sojourn.cli.profiling.points import Point

LATENCY_S, FIRST_S, STEP_S = 2.5, 0.080, 0.019


def statistics(mean: float, median: float | None = None) -> dict[str, Any]:
    values = {"mean": mean, "median": median or mean, "std_dev": 0.1, "percentiles": {"p99": 3.0}}
    return {"successful": values, "errored": {"mean": 0}, "total": values}


GUIDELLM = {
    "metadata": {"version": 1},
    "benchmarks": [
        {
            "config": {"strategy": {"type_": "concurrent", "streams": streams}},
            "metrics": {
                "request_latency": statistics(LATENCY_S),
                "time_to_first_token_ms": statistics(1e3 * FIRST_S),
                "inter_token_latency_ms": statistics(25.0, 1e3 * STEP_S),
                "prompt_token_count": statistics(512),
                "output_token_count": statistics(128),
                "request_concurrency": statistics(streams - 0.1),
            },
        }
        for streams in (1, 8)
    ],
}
VLLM = {
    "date": "20250101-000000",
    "backend": "vllm",
    "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "max_concurrency": 8,
    "completed": 80,
    "total_input_tokens": 40960,
    "total_output_tokens": 10240,
    "mean_ttft_ms": 1e3 * FIRST_S,
    "median_itl_ms": 1e3 * STEP_S,
    "mean_tpot_ms": (LATENCY_S - FIRST_S) / 127 * 1e3,
}


def unit(value: float, name: str = "ms") -> dict[str, Any]:
    return {"unit": name, "avg": value, "p50": value, "p99": value, "min": value, "max": value}


GENAI_PERF = {
    "request_latency": unit(1e3 * LATENCY_S),
    "time_to_first_token": unit(1e3 * FIRST_S),
    "inter_token_latency": {**unit(25.0), "p50": 1e3 * STEP_S},
    "input_sequence_length": unit(512, "tokens"),
    "output_sequence_length": unit(128, "tokens"),
    "input_config": {"perf_analyzer": {"stimulus": {"concurrency": 8}}},
}
AIPERF = {**GENAI_PERF, "input_config": {"loadgen": {"concurrency": 8}}}
SGLANG = {
    **{key: value for key, value in VLLM.items() if key != "mean_tpot_ms"},
    "backend": "sglang",
    "mean_e2e_latency_ms": 1e3 * LATENCY_S,
}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(GUIDELLM, id="guidellm"),
        pytest.param(VLLM, id="vllm"),
        pytest.param(GENAI_PERF, id="genai-perf"),
        pytest.param(AIPERF, id="aiperf"),
        pytest.param(SGLANG, id="sglang"),
    ],
)
def test_every_tool_gives_the_same_point(content: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(content))
    point = files.read([path])[-1]
    assert (point.batch, point.prompt_tokens, point.output_tokens) == (8, 512, 128)
    assert point.latency_s == pytest.approx(LATENCY_S)
    assert point.first_token_s == pytest.approx(FIRST_S)
    assert point.output_token_s == pytest.approx(STEP_S)


def test_one_object_a_line_gives_one_point_a_line(tmp_path: Path) -> None:
    path = tmp_path / "sglang.jsonl"
    lines = [{**SGLANG, "max_concurrency": batch} for batch in (1, 8, 32)]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    assert [point.batch for point in files.read([path])] == [1, 8, 32]


def test_several_files_are_put_in_order_of_their_batch(tmp_path: Path) -> None:
    paths = []
    for batch in (32, 1, 8):
        paths.append(tmp_path / f"{batch}.json")
        paths[-1].write_text(json.dumps({**VLLM, "max_concurrency": batch}))
    assert [point.batch for point in files.read(paths)] == [1, 8, 32]


def test_perf_analyzer_gives_what_the_server_computed_not_what_clients_waited(
    tmp_path: Path,
) -> None:
    path = tmp_path / "perf.csv"
    path.write_text(
        "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,"
        "Server Compute Input,Server Compute Infer,Server Compute Output,Client Recv,"
        "p50 latency,p90 latency,p95 latency,p99 latency\n"
        "1,69.2,225,2148,64,206,11781,19,0,13891,18795,19753,21018\n"
        "4,84.2,279,1604,33669,233,11731,18,1,47045,56545,59225,64886\n"
    )
    assert files.read([path]) == [
        Point(1, 0.012006),
        Point(4, 0.011982),
    ]


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"some": "other tool"}', "a,b\n1,2\n"])
def test_what_no_tool_writes_is_refused_with_the_tools_we_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="expected GuideLLM, vLLM bench"):
        files.read([path])
