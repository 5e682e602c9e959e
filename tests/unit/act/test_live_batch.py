"""Max batch given to running engines: once a pod and incarnation, every failure told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import pytest
from aiohttp import web

from sojourn.act.live_batch import Limits, LiveBatches, Outcome, of_the_cluster
from sojourn.facts.plan import LiveBatch
from sojourn.facts.situation import EnginePod
from tests.controlplane.components import LOOPBACK
from tests.unit.act.fake_engines import FakeEngine, FakeSGLang, FakeTriton

KEY = ("prod", "chat")


def pods(count: int = 1, incarnation: str = "uid/0") -> tuple[EnginePod, ...]:
    return tuple(EnginePod(f"chat-{n}", LOOPBACK, incarnation) for n in range(count))


WANTED = LiveBatch(
    max_batch=24,
    engine="sglang",
    version="0.5.6",
    port=None,
    model="org/bert",
    pipeline_parallel=1,
    pods=pods(),
)


@dataclass
class Clock:
    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


def batches(clock: Callable[[], float] | None = None, timeout_s: float = 5.0) -> LiveBatches:
    """What gives the value, allowed to speak to this machine."""
    return LiveBatches(Limits(timeout_s=timeout_s), allowed=lambda _: True, clock=clock or Clock())


async def given(one: LiveBatches, fake: FakeEngine, **changes: Any) -> Outcome:
    wanted = replace(WANTED, **{"port": fake.port, **changes})
    return await one.apply(KEY, wanted, lambda: True)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("0.5.6", "pp_max_micro_batch_size"),
        ("0.4.10", "max_micro_batch_size"),
        (None, "pp_max_micro_batch_size"),
        (None, "max_micro_batch_size"),
    ],
)
async def test_sglang_is_asked_by_the_name_of_its_version(version: str | None, name: str) -> None:
    engine = FakeSGLang(name=name)
    async with engine.running():
        assert (await given(batches(), engine, version=version)).complete
    assert engine.cap == 24


@pytest.mark.asyncio
async def test_pipeline_stages_share_the_batch_and_every_rank_must_agree() -> None:
    engine = FakeSGLang(ranks=4)
    async with engine.running():
        assert (await given(batches(), engine, pipeline_parallel=2)).complete
    assert engine.cap == 12


@pytest.mark.asyncio
async def test_a_cap_that_was_not_taken_is_told_though_the_engine_says_updated() -> None:
    engine = FakeSGLang(started_with=16, always_updated=True)
    async with engine.running():
        outcome = await given(batches(), engine)
    assert not outcome.complete
    assert "chat-0: POST /set_internal_state: pp_max_micro_batch_size 24 was not" in outcome.why


@pytest.mark.asyncio
async def test_a_pod_is_asked_once_and_again_only_when_its_engine_started_anew() -> None:
    engine, one = FakeSGLang(), batches()
    async with engine.running():
        for _ in range(3):
            assert (await given(one, engine)).complete
        assert len(engine.asked) == 1
        engine.cap = None
        assert (await given(one, engine, pods=pods(incarnation="uid/1"))).complete
    assert len(engine.asked) == 2
    assert str(engine.cap) == "24"


@pytest.mark.asyncio
async def test_triton_loads_the_model_with_its_own_configuration_and_another_batch() -> None:
    engine = FakeTriton()
    async with engine.running():
        assert (await given(batches(), engine, engine="triton")).complete
        assert engine.config["max_batch_size"] == 24
        assert engine.config["platform"] == "onnxruntime_onnx"
        assert engine.config["dynamic_batching"] == {
            "preferred_batch_size": [8, 16],
            "max_queue_delay_microseconds": 5000,
        }
        # A new process of ours asks again; a model that has it is not loaded again.
        assert (await given(batches(), engine, engine="triton")).complete
    assert engine.loads == 1


@pytest.mark.asyncio
async def test_of_several_models_the_declared_one_is_loaded_and_none_is_guessed() -> None:
    engine = FakeTriton(models=("bert", "resnet"))
    async with engine.running():
        assert (await given(batches(), engine, engine="triton")).complete
        outcome = await given(batches(), engine, engine="triton", model="org/whisper")
    assert "no model whisper: bert, resnet" in outcome.why


@pytest.mark.asyncio
async def test_one_pod_that_fails_does_not_keep_the_others_from_it() -> None:
    good, bad = FakeSGLang(), FakeSGLang(broken=True)
    async with AsyncExitStack() as stack:
        bad.port = await stack.enter_async_context(good.running())
        # Two machines of the loopback, one port, as pods have one port on many addresses.
        app = web.Application()
        app.add_routes(bad.routes())
        runner = web.AppRunner(app)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.2", good.port).start()
        both = (EnginePod("chat-0", LOOPBACK, "a"), EnginePod("chat-1", "127.0.0.2", "a"))
        outcome = await given(batches(), good, pods=both)
    assert good.cap == 24
    assert not outcome.complete
    assert "not taken by chat-1: POST /set_internal_state: HTTP 500: CUDA error" in outcome.why


@pytest.mark.asyncio
async def test_a_pod_that_failed_is_left_alone_for_a_minute_and_stays_told() -> None:
    engine, clock = FakeSGLang(broken=True), Clock()
    one = batches(clock)
    async with engine.running():
        assert (await given(one, engine)).why
        clock.now_s += 15
        assert (await given(one, engine)).why
        assert len(engine.asked) == 1
        engine.broken = False
        clock.now_s += 60
        outcome = await given(one, engine)
    assert outcome == Outcome(complete=True)


@pytest.mark.asyncio
async def test_an_engine_that_never_answers_costs_its_time_limit_and_no_more() -> None:
    engine = FakeSGLang(hangs=True)
    async with engine.running():
        outcome = await given(batches(timeout_s=0.05), engine)
    assert "TimeoutError" in outcome.why or "imeout" in outcome.why


@pytest.mark.asyncio
async def test_without_the_lease_nothing_is_asked() -> None:
    engine = FakeSGLang()
    async with engine.running():
        wanted = replace(WANTED, port=engine.port)
        assert not (await batches().apply(KEY, wanted, lambda: False)).complete
    assert engine.asked == []


@pytest.mark.asyncio
async def test_only_addresses_a_pod_may_have_are_spoken_to() -> None:
    engine = FakeSGLang()
    async with engine.running():
        wanted = replace(WANTED, port=engine.port)
        outcome = await LiveBatches().apply(KEY, wanted, lambda: True)
    assert "127.0.0.1 is no pod's" in outcome.why
    assert engine.asked == []


@pytest.mark.parametrize(
    ("address", "may"),
    [
        ("10.4.0.7", True),
        ("fd00::7", True),
        ("169.254.169.254", False),
        ("::1", False),
        ("0.0.0.0", False),
        ("metadata.google.internal", False),
        ("", False),
    ],
)
def test_an_address_is_a_pods_or_it_is_refused(address: str, may: bool) -> None:
    assert of_the_cluster(address) is may
