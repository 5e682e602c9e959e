"""Plan: what it prints, in every format, and how it ends."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import yaml

from tests.unit.cli import golden
from tests.unit.cli.objects import GPT3, ROOT, sojourn

EXAMPLES = ROOT / "deploy" / "examples"
OPEN = ("-f", str(GPT3), "--max-batch", "1..64", "--max-replicas", "8")
FLAGS = (
    *("--model", "GPT-3", "--gpu", "A100-80GB", "--tp", "8", "--engine", "custom"),
    *("--max-wait", "10ms", "--fixed", "50ms", "--per-request", "500us"),
    *("--max-batch", "1..64", "--slo", "1s", "--max-length", "2048", "--precision", "fp16"),
)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("plan.txt", ("plan", *OPEN)),
        ("plan-steps.txt", ("plan", *OPEN, "--steps")),
        ("plan-range.txt", ("plan", *OPEN, "--rate", "100..2000")),
        ("plan-compare.txt", ("plan", *OPEN, "--rate", "1000", "--compare-gpus", "H100,H200")),
        ("plan.csv", ("plan", *OPEN, "-o", "csv")),
        ("plan.md", ("plan", *OPEN, "-o", "md")),
        ("plan-refused.txt", ("plan", "-f", str(EXAMPLES / "unstable.yaml"))),
    ],
)
def test_plan_prints_what_is_kept(name: str, words: tuple[str, ...]) -> None:
    golden.agrees(name, sojourn(*words).out)


@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize("more", [(), ("--steps",), ("--rate", "100..2000")])
def test_no_line_is_longer_than_the_terminal(columns: int, more: tuple[str, ...]) -> None:
    lines = sojourn("plan", *OPEN, *more, columns=columns).out.splitlines()
    assert max(map(len, lines)) <= columns


def test_flags_alone_give_the_plan_of_the_manifest() -> None:
    by_file = json.loads(sojourn("plan", *OPEN, "-o", "json").out)
    by_flags = json.loads(sojourn("plan", *FLAGS, "--rate", "100", "-o", "json").out)
    for key in ("replicas", "max_batch", "utilisation", "latency", "cost", "regime"):
        assert by_flags[key] == by_file[key]


def test_json_and_yaml_hold_the_same() -> None:
    as_json = json.loads(sojourn("plan", *OPEN, "-o", "json").out)
    assert yaml.safe_load(sojourn("plan", *OPEN, "-o", "yaml").out) == as_json


def test_parts_of_the_latency_add_up_to_its_mean() -> None:
    latency = json.loads(sojourn("plan", *OPEN, "-o", "json").out)["latency"]
    parts = latency["waiting_s"] + latency["batching_s"] + latency["service_s"]
    assert parts == pytest.approx(latency["mean_s"], rel=1e-6)


def test_cost_per_million_tokens_is_the_hours_price_over_the_hours_tokens() -> None:
    found = json.loads(sojourn("plan", *OPEN, "-o", "json").out)
    tokens = 100 * 256 * 3600 / 1e6  # default answers of 256 tokens
    assert found["cost"]["per_hour_usd"] == pytest.approx(8 * 2.79)
    expected = 8 * 2.79 / tokens
    assert found["cost"]["per_million_output_tokens_usd"] == pytest.approx(expected)


def test_percentile_after_the_slo_is_the_one_that_is_kept() -> None:
    found = json.loads(sojourn("plan", *OPEN, "--slo", "1s@95", "-o", "json").out)
    assert "p95_s" in found["latency"]


def test_more_replicas_than_the_spec_allows_is_no_plan_that_works() -> None:
    words = ("-f", str(GPT3), "--rate", "130", "-o", "json")  # load 0.88 on the one allowed
    ran = sojourn("plan", *words)
    found = json.loads(ran.out)
    assert (ran.code, found["works"], found["replicas"]) == (1, False, 2)
    assert [one["verdict"] for one in found["findings"]] == ["WARN"]


def test_narrow_terminal_loses_the_columns_that_matter_least_and_says_which() -> None:
    words = ("plan", *OPEN, "--rate", "100..2000")
    narrow, wide = sojourn(*words, columns=70).out, sojourn(*words, columns=120).out
    assert narrow.splitlines()[-1].startswith("(too narrow for ")
    assert "P50" in wide.splitlines()[1]
    assert "P50" not in narrow.splitlines()[1]
    assert "replicas" in narrow.splitlines()[1]


def test_range_breaks_where_one_more_replica_is_needed() -> None:
    out = sojourn("plan", *OPEN, "--rate", "100..2000", "-o", "csv").out
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["replicas"] for row in rows] == ["1", "2", "3", "4"]
    one = 0.75 * 64 / 0.082  # target load of full batches of 64
    ends = [float(row["to_per_s"]) for row in rows]
    assert ends == pytest.approx([one, 2 * one, 3 * one, 2000], rel=1e-5)


def test_comparison_is_sorted_by_cost_and_says_where_the_time_is_from() -> None:
    words = ("--compare-gpus", "A100-80GB,H100,H200", "--compare-tp", "8", "-o", "json")
    rows = json.loads(sojourn("plan", *OPEN, "--rate", "400", *words).out)
    costs = [row["per_hour_usd"] for row in rows]
    assert costs == sorted(costs)
    assert {row["gpu"]: row["time_from"] for row in rows} == {
        "A100-80GB": "as given",
        "H100": "scaled",
        "H200": "scaled",
    }


@pytest.mark.parametrize(
    ("example", "code", "reason"),
    [("oom.yaml", 1, "WontStart"), ("unstable.yaml", 1, "Unstable"), ("gpt3.yaml", 0, "")],
)
def test_exit_code_is_the_verdict(example: str, code: int, reason: str) -> None:
    ran = sojourn("plan", "-f", str(EXAMPLES / example))
    assert ran.code == code
    assert reason in ran.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "GPT-3"), "--gpu and --slo missing"),
        (("-f", "nowhere.yaml"), "nowhere.yaml cannot be read"),
        ((*FLAGS, "--rate", "fast"), "--rate fast cannot be read"),
        ((*FLAGS, "--rate", "9..3"), "--rate 9..3: expected rates above 0"),
        ((*FLAGS,), "no rate is declared: give --rate"),
        ((*FLAGS, "--rate", "9", "--slo", "1"), '--slo: is "1": expected a duration'),
        ((*FLAGS, "--rate", "9", "--model", "GPT-33"), "Nearest: GPT-3"),
        ((*FLAGS, "--rate", "9", "--gpu", "A100"), "Nearest: A100-40GB"),
        ((*FLAGS, "--rate", "9", "--max-batch", "many"), "--max-batch many cannot be read"),
    ],
)
def test_mistake_is_one_line_that_says_what_to_do(words: tuple[str, ...], said: str) -> None:
    ran = sojourn("plan", *words)
    assert ran.code == 2
    assert ran.out == ""
    assert said in ran.err
    assert ran.err.startswith("sojourn: ")
    assert ran.err.count("\n") == 1


def test_manifest_with_two_services_asks_which(tmp_path: Path) -> None:
    body = yaml.safe_load(GPT3.read_text())
    other = {**body, "metadata": {"name": "other"}}
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump_all([body, other]))
    ran = sojourn("plan", "-f", str(path))
    assert "holds 2 services (gpt3, other): name one by --service" in ran.err
    assert sojourn("plan", "-f", str(path), "--service", "other").code == 0


def test_file_that_is_no_yaml_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("a: 1\nb: [\n")
    assert "bad.yaml is not YAML: line 3" in sojourn("plan", "-f", str(path)).err


def test_config_json_stands_in_for_a_model_nobody_knows(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    }
    folder = tmp_path / "acme-8b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    words = ("--engine", "custom", "--max-wait", "5ms", "--fixed", "50ms", "--per-request", "1ms")
    given = ("--config", str(folder / "config.json"), "--gpu", "A100-80GB", "--slo", "2s", *words)
    found = json.loads(sojourn("plan", *given, "--rate", "5", "-o", "json").out)
    assert found["model"] == "acme-8b"
    assert found["memory"]["fit"] == "Fits"
