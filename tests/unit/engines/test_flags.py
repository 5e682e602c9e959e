"""Flags read from a container, with where each value comes from."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn import engines
from sojourn.engines import FlagSource

VLLM = engines.find("vllm")
IMAGE = "vllm/vllm-openai:v0.20.1"


def flags(engine: Any = "vllm", config: Any = None, **container: Any) -> Any:
    if config is not None:
        container["envFrom"] = [{"configMapRef": {"name": "settings"}}]
    around = engines.Surroundings(config_maps={"settings": config or {}})
    return engines.read_flags(engines.find(engine), {"image": IMAGE, **container}, around)


@pytest.mark.parametrize(
    ("container", "value", "source"),
    [
        pytest.param({"args": ["--max-num-seqs", "64"]}, 64, FlagSource.ARGUMENT, id="two words"),
        pytest.param({"args": ["--max-num-seqs=64"]}, 64, FlagSource.ARGUMENT, id="equals"),
        pytest.param({"args": ["--max_num_seqs", "64"]}, 64, FlagSource.ARGUMENT, id="underscores"),
        pytest.param(
            {"args": ["--max-num-seqs=8", "--max_num_seqs=64"]},
            64,
            FlagSource.ARGUMENT,
            id="the last one wins",
        ),
        pytest.param(
            {
                "args": ["--max-num-seqs=$(MAX_SEQS)"],
                "env": [{"name": "MAX_SEQS", "value": "64"}],
            },
            64,
            FlagSource.VARIABLE,
            id="variable",
        ),
        pytest.param(
            {
                "args": ["--max-num-seqs=$(MAX_SEQS)"],
                "env": [{"name": "N", "value": "64"}, {"name": "MAX_SEQS", "value": "$(N)"}],
            },
            64,
            FlagSource.VARIABLE,
            id="variable of a variable",
        ),
        pytest.param(
            {"command": ["/bin/sh", "-c"], "args": ["exec vllm serve m --max-num-seqs 64"]},
            64,
            FlagSource.SHELL,
            id="shell",
        ),
        pytest.param(
            {"command": ["bash", "-ec", "vllm serve m --max-num-seqs=${MAX_SEQS:-64}"]},
            64,
            FlagSource.VARIABLE,
            id="shell default",
        ),
        pytest.param(
            {
                "command": ["bash", "-c", "vllm serve m --max-num-seqs $MAX_SEQS"],
                "env": [{"name": "MAX_SEQS", "value": "64"}],
            },
            64,
            FlagSource.VARIABLE,
            id="shell variable",
        ),
        pytest.param(
            {"args": ["--max-num-seqs=$(MAX_SEQS)"]},
            None,
            FlagSource.UNKNOWN,
            id="nobody defines the variable",
        ),
        pytest.param(
            {
                "args": ["--max-num-seqs=$(MAX_SEQS)"],
                "env": [{"name": "MAX_SEQS", "valueFrom": {"secretKeyRef": {}}}],
            },
            None,
            FlagSource.UNKNOWN,
            id="a secret's value is not known",
        ),
        pytest.param(
            {
                "command": ["bash", "-c", 'eval "exec vllm serve m $@"', "--"],
                "args": ["--max-num-seqs", "64"],
            },
            64,
            FlagSource.SHELL,
            id="eval",
        ),
        pytest.param(
            {"command": ["bash", "-c", "shift 2; exec vllm serve m $@"]},
            None,
            FlagSource.UNKNOWN,
            id="a script that changes its own arguments",
        ),
        pytest.param(
            {"command": ["bash", "-c", "vllm serve 'm --max-num-seqs 64"]},
            None,
            FlagSource.UNKNOWN,
            id="unbalanced quotes",
        ),
        pytest.param({"args": ["--max-num-seqs"]}, None, None, id="a flag without its value"),
        pytest.param({"args": ["--max-num-seqs-extra=64"]}, None, None, id="another flag"),
        pytest.param({"args": "--max-num-seqs=64"}, None, None, id="args that are no list"),
        pytest.param({}, None, None, id="nothing"),
    ],
)
def test_max_batch_is_read_as_the_engine_will_read_it(
    container: Any, value: Any, source: Any
) -> None:
    read = flags(**container)
    assert read.number("max_batch") == value
    found = read.values.get("max_batch")
    assert (found.source if found else None) == source


def test_env_from_is_used_when_its_values_are_known_and_env_wins_over_it() -> None:
    args = ["--max-num-seqs=$(MAX_SEQS)"]
    assert flags(args=args, config={"MAX_SEQS": "64"}).number("max_batch") == 64
    env = [{"name": "MAX_SEQS", "value": "32"}]
    assert flags(args=args, env=env, config={"MAX_SEQS": "64"}).number("max_batch") == 32


def test_a_secret_in_env_hides_the_known_value_of_env_from() -> None:
    env = [{"name": "MAX_SEQS", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    read = flags(args=["--max-num-seqs=$(MAX_SEQS)"], env=env, config={"MAX_SEQS": "64"})
    assert read.values["max_batch"].source is FlagSource.UNKNOWN


def test_an_escaped_reference_stays_as_it_is_written() -> None:
    read = flags(args=["--served-model-name=$$(NAME)"], env=[{"name": "NAME", "value": "x"}])
    assert read.values["served_name"].text == "$(NAME)"


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("vllm/vllm-openai:v0.19.1", "0.90"),
        ("vllm/vllm-openai:v0.20.0", "0.92"),
        ("vllm/vllm-openai:latest", None),
    ],
)
def test_a_default_that_differs_by_version_is_unknown_without_one(
    image: Any, expected: Any
) -> None:
    found = flags(image=image).values.get("memory_utilisation")
    assert (found.text if found else None) == expected


def test_tgi_reads_its_own_variable_but_a_flag_wins() -> None:
    env = [{"name": "MAX_BATCH_SIZE", "value": "16"}]
    by_variable = flags("tgi", env=env).values["max_batch"]
    assert (by_variable.number, by_variable.source) == (16, FlagSource.ENGINE_VARIABLE)
    by_flag = flags("tgi", env=env, args=["--max-batch-size", "8"]).values["max_batch"]
    assert (by_flag.number, by_flag.source) == (8, FlagSource.ARGUMENT)


def test_parallelism_and_length_are_read_by_alias() -> None:
    read = flags(args=["-tp", "4", "-pp=2", "--max-model-len", "8192"])
    found = {r: read.number(r) for r in ("tensor_parallel", "pipeline_parallel", "max_length")}
    assert found == {"tensor_parallel": 4, "pipeline_parallel": 2, "max_length": 8192}


@pytest.mark.parametrize(
    ("engine", "container", "expected"),
    [
        ("vllm", {"args": ["--max-num-seqs=$(SOJOURN_MAX_BATCH)"]}, True),
        ("vllm", {"args": ["--max-num-seqs=$(SOJOURN_MAX_BATCH)", "--max-num-seqs=8"]}, False),
        ("vllm", {"args": ["--max-model-len=$(SOJOURN_MAX_BATCH)"]}, False),
        ("vllm", {"command": ["sh", "-c", "vllm serve --max-num-seqs $SOJOURN_MAX_BATCH"]}, True),
        ("vllm", {"args": ["--max-num-seqs=64"]}, False),
        ("vllm", {}, False),
        ("custom", {"args": ["--batch", "$(SOJOURN_MAX_BATCH)"]}, True),
        ("custom", {"args": ["--batch", "8"]}, False),
    ],
)
def test_max_batch_follows_a_variable_only_where_the_last_flag_refers_to_it(
    engine: Any, container: Any, expected: Any
) -> None:
    assert engines.refers_to(engines.find(engine), container, "SOJOURN_MAX_BATCH") is expected


def test_only_engines_with_a_live_cap_change_max_batch_without_a_restart() -> None:
    assert VLLM.restart_needed("max_batch")
    assert not engines.find("sglang").restart_needed("live_batch")


@given(st.lists(st.text(max_size=12), max_size=6), st.lists(st.text(max_size=12), max_size=6))
def test_reading_flags_never_fails_whatever_the_words(command: Any, args: Any) -> None:
    read = engines.read_flags(VLLM, {"image": IMAGE, "command": command, "args": args})
    assert all(isinstance(value.text, str) for value in read.values.values())
