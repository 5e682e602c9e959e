"""Profiling against servers whose service time is known."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from sojourn.cli.exits import EndpointUnavailable, UsageError
from sojourn.cli.profiling import fitting, history, loop
from sojourn.cli.profiling.endpoint import Endpoint, Target
from sojourn.cli.profiling.fitting import Gathering, Identity
from sojourn.cli.profiling.points import Point, Sample, summarised
from sojourn.facts.replica import DynamicReplica
from sojourn.facts.service_time import LinearServiceTime
from sojourn.simulate.engine import EngineParameters, SimulatedEngine
from sojourn.simulate.job import Request
from tests.unit.cli.fake_endpoint import FakeEndpoint

GPT3 = Identity("gpt-3-a100", "GPT-3", "A100-80GB", 8, "custom", dynamic=True)
CHAT = Identity("chat", "meta-llama/Llama-3.1-8B-Instruct", "A100-80GB")
NOISE = 0.02
MAX_WAIT_S = 0.005


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer: an hour of waiting takes no time."""

    def __init__(self) -> None:
        super().__init__()
        self._at_s = 0.0

    def time(self) -> float:
        return self._at_s

    def _run_once(self) -> None:
        inner: Any = self
        due_s = [timer.when() for timer in inner._scheduled if not timer.cancelled()]
        if not inner._ready and due_s:
            self._at_s = max(self._at_s, min(due_s))
        super()._run_once()  # type: ignore[misc]


async def engine_points(seed: int, rounds: int) -> list[Point]:
    """The book's GPT-3 with 2 % noise, measured in a closed loop, no time passing."""
    law = LinearServiceTime(0.050, 0.0005, scv=NOISE**2)
    replica = DynamicReplica(law, max_batch=32, max_wait_s=MAX_WAIT_S)
    engine = SimulatedEngine(EngineParameters(replica), np.random.default_rng(seed))

    async def send() -> Sample:
        done = await engine.submit(Request(output_tokens=1))
        return Sample(latency_s=done.finished_at_s - done.arrived_at_s)

    return await loop.measure(send, loop.Run((1, 8, 32), rounds, 2), asyncio.Event())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_engine_simulator_with_2_percent_noise_is_recovered_within_3_percent(seed: int) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        points = runner.run(engine_points(seed, rounds=120))
    # The largest batch fills at once, so only the smaller ones have waited.
    law = fitting.fitted(points, GPT3, Gathering(MAX_WAIT_S, full_batch=32)).judged.law
    assert law.fixed_s == pytest.approx(0.050, rel=0.03)
    assert law.per_request_s == pytest.approx(0.0005, rel=0.03)


async def http_points(endpoint: FakeEndpoint, run: loop.Run) -> list[Point]:
    async with endpoint:
        target = Target(endpoint.url, "served-as", prompt_tokens=40, output_tokens=12)
        async with Endpoint(target) as client:
            return await loop.measure(client.send, run, asyncio.Event())


def test_streaming_server_first_token_and_token_gap_are_measured() -> None:
    endpoint = FakeEndpoint()
    (point,) = asyncio.run(http_points(endpoint, loop.Run((2,), rounds=3, warm_up=0)))
    # Client and server are one event loop: a token is read at most some milliseconds later.
    assert point.first_token_s == pytest.approx(np.mean(endpoint.first_s), abs=0.008)
    assert point.output_token_s == pytest.approx(np.median(endpoint.gaps_s), abs=0.001)
    assert point.latency_s == pytest.approx(
        np.mean(endpoint.first_s) + 11 * np.mean(endpoint.gaps_s), rel=0.05
    )
    assert (point.prompt_tokens, point.output_tokens) == (40, 12)


def test_step_and_prompt_time_of_a_streaming_server_are_recovered() -> None:
    # What a server whose step takes a + b n, and a prompt token p, is seen to do.
    points = [
        Point(n, 3.0, 0.011 + 0.000055 * n + 512 * 45e-6, 0.011 + 0.000055 * n, 512, 128)
        for n in (1, 8, 32)
    ]
    found = fitting.fitted(points, CHAT)
    assert found.judged.law.fixed_s == pytest.approx(0.011, rel=1e-6)
    assert found.judged.law.per_request_s == pytest.approx(0.000055, rel=1e-6)
    assert found.per_prompt_token_s == pytest.approx(45e-6, rel=0.01)


def test_closed_loop_keeps_exactly_b_requests_inside() -> None:
    endpoint = FakeEndpoint(fixed_s=0.005)
    points = asyncio.run(http_points(endpoint, loop.Run((6,), rounds=2, warm_up=0)))
    assert endpoint.most_inside == 6
    assert points[0].samples == 12


def test_requests_of_the_warm_up_do_not_count() -> None:
    async def run() -> list[Point]:
        sent = 0

        async def send() -> Sample:
            nonlocal sent
            sent += 1
            await asyncio.sleep(0)
            return Sample(9.0 if sent <= 3 else 0.05)

        return await loop.measure(send, loop.Run((1,), rounds=4, warm_up=3), asyncio.Event())

    assert asyncio.run(run())[0].latency_s == pytest.approx(0.05)


def test_no_two_requests_share_a_prompt() -> None:
    endpoint = FakeEndpoint(fixed_s=0.001)
    asyncio.run(http_points(endpoint, loop.Run((2,), rounds=2, warm_up=0)))
    prompts = [body["prompt"] for body in endpoint.bodies]
    assert len(set(prompts)) == len(prompts)


def test_streamed_points_become_a_continuous_profile() -> None:
    endpoint = FakeEndpoint()
    points = asyncio.run(http_points(endpoint, loop.Run((1, 4), rounds=2, warm_up=0)))
    spec = fitting.manifest(fitting.fitted(points, CHAT))["spec"]
    assert set(spec["continuous"]) == {
        "iterationFixed",
        "iterationPerRequest",
        "prefillPerToken",
    }
    assert (spec["promptTokens"], spec["outputTokens"]) == (40, 12)


def test_server_error_ends_the_run_with_its_text() -> None:
    endpoint = FakeEndpoint(failing=503)
    with pytest.raises(EndpointUnavailable, match=r"answered 503: .*overloaded"):
        asyncio.run(http_points(endpoint, loop.Run((2,), rounds=1, warm_up=0)))


def test_server_that_streams_nothing_is_named() -> None:
    with pytest.raises(EndpointUnavailable, match="streamed no token"):
        asyncio.run(http_points(FakeEndpoint(silent=True), loop.Run((1,), 1, 0)))


def test_stopping_keeps_the_batches_measured_until_then() -> None:
    async def run() -> list[Point]:
        stop = asyncio.Event()
        sent = 0

        async def send() -> Sample:
            nonlocal sent
            sent += 1
            if sent == 12:  # 1 x 4 and the first round of 8
                stop.set()
            await asyncio.sleep(0)
            return Sample(0.05)

        return await loop.measure(send, loop.Run((1, 8, 32), rounds=4, warm_up=0), stop)

    assert [point.batch for point in asyncio.run(run())] == [1]


def test_batching_wait_is_taken_from_every_batch() -> None:
    points = [Point(1, 0.0525), Point(8, 0.056), Point(32, 0.068)]
    law = fitting.fitted(points, GPT3, Gathering(0.002)).judged.law
    assert law.fixed_s == pytest.approx(0.050, rel=1e-6)
    assert law.per_request_s == pytest.approx(0.0005, rel=1e-6)


def test_one_batch_size_is_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match="measure 1, 8 and 32"):
        fitting.fitted([Point(8, 0.05)], GPT3)


def test_curve_that_is_no_line_is_said_and_not_usable() -> None:
    points = [Point(1, 0.010), Point(8, 0.050), Point(32, 0.055)]
    found = fitting.fitted(points, GPT3)
    assert not found.usable
    assert fitting.verdicts(found)[0].startswith("not linear: the line is")


def test_median_gap_ignores_the_steps_that_took_in_a_prompt() -> None:
    gaps = (0.012,) * 9 + (0.060,)
    assert summarised(4, [Sample(0.2, 0.05, gaps)]).output_token_s == 0.012


def test_history_needs_a_load_that_varied() -> None:
    alike = [(10.0 + 0.01 * i, 0.012) for i in range(40)]
    with pytest.raises(UsageError, match="a spread of"):
        history.summarised(alike)


def test_history_gives_the_line_its_pairs_lie_on() -> None:
    pairs = [(n, 0.011 + 0.000055 * n) for n in np.linspace(2, 60, 80).tolist()]
    law = fitting.fitted(history.summarised(pairs), CHAT).judged.law
    assert law.fixed_s == pytest.approx(0.011, rel=1e-3)
    assert law.per_request_s == pytest.approx(0.000055, rel=1e-2)
