"""The batching rule, event by event."""

from __future__ import annotations

import numpy as np
import pytest

from sojourn.facts.replica import DynamicReplica
from sojourn.facts.service_time import LinearServiceTime, MeasuredServiceTime
from sojourn.simulate.batch_core import BatchCore, mean_batch_s
from sojourn.simulate.job import Request

GPT3 = LinearServiceTime(fixed_s=0.050, per_request_s=0.0005)


def core(**changes: object) -> BatchCore:
    replica = DynamicReplica(**{"service": GPT3, "max_batch": 4, **changes})  # type: ignore[arg-type]
    return BatchCore(replica, np.random.default_rng(1))


def test_a_full_batch_starts_at_once_and_ends_together() -> None:
    server = core(max_wait_s=1.0)
    jobs = [server.submit(Request(), 0.0) for _ in range(4)]
    assert (server.running, server.waiting) == (4, 0)
    server.advance(0.0521)
    assert [job.finished_at_s for job in jobs if job] == [pytest.approx(0.052)] * 4


def test_the_oldest_request_waits_no_longer_than_max_wait() -> None:
    server = core(max_wait_s=0.010)
    first = server.submit(Request(), 1.0)
    second = server.submit(Request(), 1.004)
    server.advance(2.0)
    assert first is not None and second is not None
    assert first.started_at_s == second.started_at_s == pytest.approx(1.010)
    assert first.finished_at_s == pytest.approx(1.010 + 0.051)


def test_requests_that_wait_out_the_timer_in_service_start_when_it_ends() -> None:
    server = core(max_wait_s=0.001)
    server.submit(Request(), 0.0)
    late = server.submit(Request(), 0.010)
    server.advance(1.0)
    assert late is not None
    assert late.started_at_s == pytest.approx(0.001 + 0.0505)


def test_an_arrival_that_finds_the_queue_full_is_refused() -> None:
    server = core(max_batch=2, queue_capacity=2)
    accepted = [server.submit(Request(), 0.0) for _ in range(4)]
    # One starts alone, two wait, the last finds both places taken.
    assert [job is not None for job in accepted] == [True, True, True, False]


def test_a_queue_shorter_than_the_batch_limits_the_batch() -> None:
    server = core(max_batch=8, queue_capacity=2, max_wait_s=10.0)
    server.submit(Request(), 0.0)
    server.submit(Request(), 0.0)
    assert server.running == 2


def test_a_batch_takes_no_more_than_the_kv_pool_holds() -> None:
    replica = DynamicReplica(service=GPT3, max_batch=4, max_wait_s=1.0)
    server = BatchCore(replica, np.random.default_rng(1), kv_tokens=250)
    for _ in range(4):
        server.submit(Request(prompt_tokens=60, output_tokens=40), 0.0)
    assert (server.running, server.waiting, server.resident_tokens) == (2, 2, 200)


def test_noise_keeps_the_mean_and_has_the_asked_variation() -> None:
    server = core(service=LinearServiceTime(0.050, 0.0005, scv=0.25), max_batch=1)
    drawn = []
    for i in range(4000):
        job = server.submit(Request(), float(i))
        server.advance(i + 0.999)
        assert job is not None
        drawn.append(job.finished_at_s - job.started_at_s)
    assert np.mean(drawn) == pytest.approx(0.0505, rel=0.03)
    assert np.var(drawn) / np.mean(drawn) ** 2 == pytest.approx(0.25, rel=0.1)


def test_measured_batch_times_are_joined_by_straight_lines() -> None:
    measured = MeasuredServiceTime(batches=(1, 8, 32), batch_s=(0.1, 0.2, 0.3))
    assert mean_batch_s(measured, 8) == pytest.approx(0.2)
    assert mean_batch_s(measured, 20) == pytest.approx(0.25)
    assert mean_batch_s(measured, 56) == pytest.approx(0.4)


def test_abandoning_empties_the_server() -> None:
    server = core(max_batch=1)
    server.submit(Request(), 0.0)
    server.submit(Request(), 0.0)
    assert len(server.abandon()) == 2
    assert server.next_event_at_s() is None
