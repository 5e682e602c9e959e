"""The program as a process: speed, colour, exit codes, completion, the kubectl plugin."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.objects import GPT3, sojourn

BIN = Path(sys.executable).parent


def run(
    *words: str, program: str = "sojourn", **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / program), *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def processor_s(*words: str) -> float:
    """Processor time of a command: what the machine does beside does not count."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(*words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize(
    ("words", "most_s"),
    [
        pytest.param(("--help",), 0.45, id="help"),
        pytest.param(("plan", "--help"), 0.45, id="help of plan"),
        pytest.param(("plan", "-f", str(GPT3)), 1.2, id="plan"),
    ],
)
def test_command_takes_less_processor_time_than_a_person_notices(
    words: tuple[str, ...], most_s: float
) -> None:
    # The limits are those of a quiet machine, 0.3 s and 1 s, with room for a slower one.
    assert min(processor_s(*words) for _ in range(3)) < most_s


def test_help_loads_neither_numpy_nor_the_models() -> None:
    script = "import sys, sojourn.cli.main; print([m for m in sys.modules if m in %r])"
    heavy = ["numpy", "pydantic", "yaml", "kopf", "kubernetes", "matplotlib", "sojourn.decide"]
    done = subprocess.run(
        [sys.executable, "-c", script % heavy], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_output_into_a_pipe_has_no_colour() -> None:
    assert "\x1b[" not in run("plan", "-f", str(GPT3)).stdout


def test_no_color_is_obeyed_even_where_colour_is_forced() -> None:
    assert "\x1b[3" not in run("plan", "-f", str(GPT3), NO_COLOR="1", FORCE_COLOR="1").stdout


def test_debug_shows_where_an_error_came_from() -> None:
    quiet, loud = run("plan", "-f", "no.yaml"), run("--debug", "plan", "-f", "no.yaml")
    assert (quiet.returncode, loud.returncode) == (2, 2)
    assert "Traceback" not in quiet.stderr
    assert "Traceback" in loud.stderr


def test_unknown_flag_is_exit_code_2() -> None:
    assert run("plan", "--colour").returncode == 2


def test_kubectl_plugin_is_the_same_program_under_its_own_name() -> None:
    done = run("--help", program="kubectl-sojourn")
    assert done.returncode == 0
    assert "Usage: kubectl sojourn" in done.stdout


def test_reader_that_has_seen_enough_is_no_error() -> None:
    words = f"{BIN / 'sojourn'} models | head -1"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("MODEL")
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_calls_the_program(shell: str) -> None:
    ran = sojourn("completion", shell)
    assert ran.code == 0
    assert "_SOJOURN_COMPLETE" in ran.out


def test_bash_completion_finds_the_commands() -> None:
    done = run(COMP_WORDS="sojourn pl", COMP_CWORD="1", _SOJOURN_COMPLETE="complete_bash")
    assert done.stdout.split() == ["plan"]


def test_version_is_the_installed_one() -> None:
    assert run("version").stdout.strip() == "0.1.0"


def test_models_and_gpus_are_found_by_their_words() -> None:
    models = json.loads(sojourn("models", "llama-2", "70b", "-o", "json").out)
    assert [one["name"] for one in models] == ["meta-llama/Llama-2-70b-hf"]
    assert models[0]["kv_bytes_per_token"] == 327680
    gpus = json.loads(sojourn("gpus", "a100", "80gb", "-o", "json").out)
    assert {one["name"] for one in gpus} == {"A100-80GB", "A100-80GB-PCIe"}


def test_word_no_model_contains_is_said() -> None:
    ran = sojourn("models", "no-such-model")
    assert ran.code == 2
    assert "try fewer words" in ran.err


def test_simulation_agrees_with_the_model_for_gpt3() -> None:
    ran = sojourn("simulate", "-f", str(GPT3), "--requests", "60000", "-o", "json")
    assert ran.code == 0, ran.err
    for figure in json.loads(ran.out):
        gap = abs(figure["predicted_s"] - figure["simulated_s"])
        assert gap < 2 * figure["half_width_s"] + 0.02 * figure["simulated_s"], figure


def test_simulation_of_an_unstable_queue_is_refused_with_its_load() -> None:
    ran = sojourn("simulate", "-f", str(GPT3), "--rate", "160", "--replicas", "1")
    assert ran.code == 2
    assert "load 1.08: the queue grows for ever" in ran.err
