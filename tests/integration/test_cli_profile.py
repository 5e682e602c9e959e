"""``sojourn profile`` as a process, against a real HTTP server that streams."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from sojourn import api
from tests.unit.cli.fake_endpoint import FakeEndpoint

PROGRAM = Path(sys.executable).parent / "sojourn"
WHAT = ("--model", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "A100-80GB")
QUICK = ("--prompt-tokens", "40", "--output-tokens", "8", "--rounds", "3", "--warm-up", "1")


@contextmanager
def listening(endpoint: FakeEndpoint) -> Iterator[FakeEndpoint]:
    """The endpoint on an event loop of its own thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(endpoint.__aenter__(), loop).result(10)
    try:
        yield endpoint
    finally:
        asyncio.run_coroutine_threadsafe(endpoint.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def started(*words: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(PROGRAM), "profile", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def profiled(endpoint: FakeEndpoint, *words: str, **environment: str) -> tuple[int, str, str]:
    process = started("--endpoint", endpoint.url, *WHAT, *QUICK, *words, **environment)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def test_live_server_becomes_a_profile_the_cluster_would_take() -> None:
    with listening(FakeEndpoint()) as endpoint:
        code, out, err = profiled(endpoint, "--batches", "1,4,8")
        done = endpoint
    assert code == 0, err
    body = yaml.safe_load(out)
    profile = api.read_profile(body)
    assert profile.iteration is not None
    assert (profile.prompt_tokens, profile.output_tokens) == (40, 8)
    # What the server did, over all batches, lies between the line's ends.
    step_s = float(np.median(done.gaps_s))
    low_s, high_s = (
        profile.iteration.fixed_s + profile.iteration.per_request_s * n for n in (1, 8)
    )
    assert 0.9 * low_s < step_s < 1.1 * high_s
    assert "a step of decoding:" in err


def test_server_s_own_name_of_the_model_and_the_token_are_sent() -> None:
    with listening(FakeEndpoint(fixed_s=0.002)) as endpoint:
        code, _, err = profiled(endpoint, "--batches", "1,2", OPENAI_API_KEY="secret-key")
        assert code in (0, 1), err
        assert {body["model"] for body in endpoint.bodies} == {"served-as"}
        assert set(endpoint.headers) == {"Bearer secret-key"}
        assert "secret-key" not in err


def test_interrupt_keeps_the_batches_that_were_measured(tmp_path: Path) -> None:
    path = tmp_path / "profile.yaml"
    words = ("--batches", "1,2,64", "--rounds", "30", "--dynamic", "-o", str(path))
    with listening(FakeEndpoint(fixed_s=0.004, per_request_s=0.0005)) as endpoint:
        process = started("--endpoint", endpoint.url, *WHAT, *QUICK, *words)
        until_s = time.monotonic() + 60
        while endpoint.most_inside < 60 and time.monotonic() < until_s:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode in (0, 1), err
    measured = yaml.safe_load(path.read_text())["spec"]["points"]
    assert [point["batch"] for point in measured] == [1, 2]


def test_server_that_refuses_is_one_line_and_exit_code_3() -> None:
    with listening(FakeEndpoint(failing=500)) as endpoint:
        code, out, err = profiled(endpoint)
    assert (code, out) == (3, "")
    assert err.splitlines()[-1].startswith("sojourn: http://127.0.0.1")


def test_nobody_listening_is_one_line_and_exit_code_3() -> None:
    process = started("--endpoint", "http://127.0.0.1:9", *WHAT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert len(err.splitlines()) == 1


def test_triton_s_generate_endpoint_gives_points_of_whole_batches() -> None:
    with listening(FakeEndpoint(fixed_s=0.005)) as endpoint:
        code, out, err = profiled(
            endpoint,
            *("--protocol", "triton", "--engine", "triton"),
            *("--served-model", "ensemble", "--batches", "1,4"),
        )
    assert code == 0, err
    assert [point["batch"] for point in yaml.safe_load(out)["spec"]["points"]] == [1, 4]


def test_benchmark_files_become_a_profile_and_a_figure(tmp_path: Path) -> None:
    paths = []
    for batch in (1, 8, 32):
        result: dict[str, Any] = {
            "max_concurrency": batch,
            "completed": 100,
            "total_input_tokens": 51200,
            "total_output_tokens": 12800,
            "mean_ttft_ms": 34.0,
            "median_itl_ms": 11 + 0.055 * batch,
            "mean_e2el_ms": 1500,
        }
        paths.append(tmp_path / f"{batch}.json")
        paths[-1].write_text(json.dumps(result))
    figure = tmp_path / "fit.svg"
    process = started(*map(str, paths), *WHAT, "--figure", str(figure))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    spec = yaml.safe_load(out)["spec"]["continuous"]
    assert spec["iterationFixed"] == "11ms"
    assert spec["iterationPerRequest"] == "55us"
    assert figure.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give one source"),
        (("--endpoint", "http://x", "--prometheus", "http://y"), "(2 given)"),
        (("--endpoint", "http://x", "--batches", "8"), "a line needs two sizes"),
        (("--endpoint", "http://x", "--protocol", "grpc"), "expected completions, chat, triton"),
        (("--endpoint", "http://x", "--max-wait", "5"), "--max-wait: cannot read"),
    ],
)
def test_mistake_is_said_before_anything_is_sent(words: tuple[str, ...], said: str) -> None:
    process = started(*words, *WHAT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert said in err
