"""Engines, router, load and the HTTP side in real time, compressed."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import aiohttp
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sojourn.facts.replica import ContinuousReplica, DynamicReplica, Routing
from sojourn.facts.service_time import IterationTime, LinearServiceTime, TokenLengths
from sojourn.simulate.engine import Completion, EngineParameters, Outcome, SimulatedEngine
from sojourn.simulate.http import MetricsServer, PodTarget
from sojourn.simulate.job import Request
from sojourn.simulate.load import LoadGenerator, RateStep, staircase, traffic
from sojourn.simulate.router import Router

DYNAMIC = DynamicReplica(LinearServiceTime(0.050, 0.0005), max_batch=8, queue_capacity=16)
CONTINUOUS = ContinuousReplica(
    IterationTime(0.012, 0.00015, 0.000025), TokenLengths(20), 100.0, max_batch=8
)


def engine(
    replica: DynamicReplica | ContinuousReplica, pod: str = "p", compression: float = 20.0
) -> SimulatedEngine:
    return SimulatedEngine(
        EngineParameters(replica, "org/model", compression), np.random.default_rng(1), pod
    )


def value(text: str, name: str, **labels: str) -> float:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    raise KeyError(name)


@pytest.mark.asyncio
async def test_a_batch_is_stamped_with_the_time_it_was_due() -> None:
    server = engine(DYNAMIC)
    done = await server.submit(Request(10, 5))
    assert done.outcome is Outcome.DONE
    assert done.finished_at_s - done.arrived_at_s == pytest.approx(0.0505 / 20)


@pytest.mark.asyncio
async def test_continuous_tokens_come_step_by_step() -> None:
    server = engine(CONTINUOUS)
    done = await server.submit(Request(100, 20))
    assert done.first_token_at_s - done.arrived_at_s == pytest.approx(0.0145 / 20)
    assert done.finished_at_s - done.first_token_at_s == pytest.approx(19 * 0.01215 / 20)


@pytest.mark.asyncio
async def test_an_idle_engine_exports_true_zeros_of_every_child() -> None:
    text = engine(CONTINUOUS).render_metrics()
    for reason in ("stop", "length", "abort", "error", "repetition"):
        assert value(text, "vllm:request_success_total", finished_reason=reason) == 0
    assert value(text, "vllm:num_requests_running", model_name="org/model", engine="0") == 0
    assert value(text, "vllm:e2e_request_latency_seconds_count") == 0
    assert value(text, "vllm:cache_config_info", block_size="16") == 1


@pytest.mark.asyncio
async def test_metrics_count_what_happened_in_wall_seconds() -> None:
    server = engine(CONTINUOUS)
    await asyncio.gather(*(server.submit(Request(100, 20)) for _ in range(3)))
    text = server.render_metrics()
    assert value(text, "vllm:request_success_total", finished_reason="stop") == 3
    assert value(text, "vllm:generation_tokens_total") == 60
    assert value(text, "vllm:inter_token_latency_seconds_count") == 57
    assert value(text, "vllm:time_to_first_token_seconds_count") == 3
    assert value(text, "vllm:e2e_request_latency_seconds_bucket", le="0.015") == 3
    assert value(text, "vllm:request_prompt_tokens_sum") == 300


@pytest.mark.asyncio
async def test_the_gauges_show_what_runs_and_what_waits() -> None:
    server = engine(CONTINUOUS, compression=1.0)
    tasks = [asyncio.create_task(server.submit(Request(100, 1000))) for _ in range(10)]
    await asyncio.sleep(0)
    text = server.render_metrics()
    assert value(text, "vllm:num_requests_running") + value(
        text, "vllm:num_requests_waiting"
    ) == pytest.approx(10)
    assert value(text, "vllm:kv_cache_usage_perc") > 0
    server.kill()
    await asyncio.gather(*tasks)


@pytest.mark.asyncio
async def test_a_full_queue_is_counted_as_refused() -> None:
    # Slow enough that no batch ends while the requests come in, on a busy machine too.
    server = engine(DYNAMIC, compression=0.4)
    ends = await asyncio.gather(*(server.submit(Request()) for _ in range(30)))
    counted = Counter(end.outcome for end in ends)
    assert counted == {Outcome.DONE: 17, Outcome.REJECTED: 13}
    text = server.render_metrics()
    assert value(text, "vllm:admission_rejections_total", reason="max_num_queued_reqs") == 13


@pytest.mark.asyncio
async def test_draining_ends_what_is_inside_and_takes_nothing_new() -> None:
    server = engine(DYNAMIC)
    inside = asyncio.create_task(server.submit(Request()))
    await asyncio.sleep(0)
    await server.drain()
    assert (await inside).outcome is Outcome.DONE
    assert (await server.submit(Request())).outcome is Outcome.UNAVAILABLE


@pytest.mark.asyncio
async def test_a_killed_pod_loses_what_it_had_and_the_router_turns_to_another() -> None:
    first, second = engine(DYNAMIC, "a", 0.4), engine(DYNAMIC, "b", 0.4)
    router = Router(Routing.ROUND_ROBIN, np.random.default_rng(2))
    router.set_ready({"a": first, "b": second})
    sent = [asyncio.create_task(router.send(Request())) for _ in range(4)]
    await asyncio.sleep(0)
    first.kill()
    ends = await asyncio.gather(*sent)
    assert Counter(end.outcome for end in ends) == {Outcome.LOST: 2, Outcome.DONE: 2}
    assert (await router.send(Request())).pod == "b"


@pytest.mark.asyncio
async def test_a_pod_that_closes_between_choice_and_hand_over_is_left_out() -> None:
    class Closing(SimulatedEngine):
        async def submit(self, request: Request) -> Completion:
            self.accepting = False
            return await super().submit(request)

    closing = Closing(EngineParameters(DYNAMIC, compression=20.0), np.random.default_rng(1), "a")
    router = Router(Routing.ROUND_ROBIN, np.random.default_rng(2))
    router.set_ready({"b": engine(DYNAMIC, "b"), "a": closing})
    done = await router.send(Request())
    assert (done.outcome, done.pod) == (Outcome.DONE, "b")


@pytest.mark.asyncio
async def test_without_a_ready_pod_a_request_is_unavailable() -> None:
    router = Router(Routing.RANDOM, np.random.default_rng(2))
    assert (await router.send(Request())).outcome is Outcome.UNAVAILABLE


@pytest.mark.asyncio
async def test_least_loaded_levels_the_pods() -> None:
    engines = {name: engine(CONTINUOUS, name, 2.0) for name in "abcd"}
    router = Router(Routing.LEAST_LOADED, np.random.default_rng(2))
    router.set_ready(engines)
    sent = [asyncio.create_task(router.send(Request(10, 50))) for _ in range(12)]
    await asyncio.sleep(0)
    assert [server.in_flight for server in engines.values()] == [3, 3, 3, 3]
    await asyncio.gather(*sent)


def test_a_shared_queue_is_no_router() -> None:
    with pytest.raises(ValueError, match="no queue to share"):
        Router(Routing.SHARED_QUEUE, np.random.default_rng(1))


def test_the_staircase_has_the_asked_rates() -> None:
    arrivals_s = staircase(
        [RateStep(100.0, 50.0), RateStep(100.0, 0.0), RateStep(100.0, 10.0)],
        np.random.default_rng(5),
    )
    counts = np.histogram(arrivals_s, bins=[0, 100, 200, 300])[0]
    assert np.all(np.diff(arrivals_s) >= 0)
    assert counts[0] == pytest.approx(5000, rel=0.05)
    assert counts[1] == 0
    assert counts[2] == pytest.approx(1000, rel=0.1)


@pytest.mark.asyncio
async def test_the_load_generator_keeps_a_record_of_every_request() -> None:
    rng = np.random.default_rng(11)
    router = Router(Routing.RANDOM, rng)
    router.set_ready({name: engine(CONTINUOUS, name, 100.0) for name in "ab"})
    arrivals_s = staircase([RateStep(20.0, 10.0)], rng)
    load = traffic(arrivals_s, TokenLengths(20, law="geometric"), TokenLengths(100), rng)
    generator = LoadGenerator(router.send, load, compression=100.0)
    records = await generator.run()
    assert len(records) == generator.sent == len(arrivals_s) == router.offered
    assert {record.outcome for record in records} == {Outcome.DONE}
    assert {record.pod for record in records} == {"a", "b"}
    assert all(record.finished_at_s >= record.first_token_at_s for record in records)


@pytest.mark.asyncio
async def test_prometheus_finds_every_pod_and_its_metrics() -> None:
    server = engine(CONTINUOUS, "web-0")
    async with MetricsServer() as face, aiohttp.ClientSession() as client:
        labels = {"serving.sojourn.dev/name": "chat"}
        face.add(PodTarget("prod", "web-0", "vllm", server, labels))
        async with client.get(f"http://{face.address}/targets") as answer:
            (target,) = json.loads(await answer.text())
        assert target == {
            "targets": [face.address],
            "labels": {
                "__metrics_path__": "/metrics/prod/web-0",
                "namespace": "prod",
                "pod": "web-0",
                "container": "vllm",
                "serving_sojourn_dev_name": "chat",
            },
        }
        url = f"http://{face.address}{target['labels']['__metrics_path__']}"
        async with client.get(url) as answer:
            assert answer.status == 200
            assert value(await answer.text(), "vllm:num_requests_waiting") == 0
        face.remove("prod", "web-0")
        async with client.get(url) as answer:
            assert answer.status == 404
