"""The rules of a continuous-batching step, event by event."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sojourn.facts.replica import ContinuousReplica
from sojourn.facts.service_time import IterationTime, TokenLengths
from sojourn.simulate.job import Job, Request
from sojourn.simulate.step_core import StepCore

ITERATION = IterationTime(fixed_s=0.010, per_request_s=0.001, per_prompt_token_s=0.0001)


def core(**changes: object) -> StepCore:
    values = {"iteration": ITERATION, "output": TokenLengths(10), "prompt_tokens": 100.0}
    values |= {"max_batch": 4, **changes}
    return StepCore(ContinuousReplica(**values))  # type: ignore[arg-type]


def submitted(server: StepCore, request: Request, now_s: float) -> Job:
    job = server.submit(request, now_s)
    assert job is not None
    return job


def test_the_prompt_step_makes_the_first_token() -> None:
    server = core()
    job = submitted(server, Request(100, 3), 0.0)
    server.advance(1.0)
    assert job.first_token_at_s == pytest.approx(0.020)
    assert job.finished_at_s == pytest.approx(0.020 + 2 * 0.011)


def test_a_newcomer_joins_at_the_next_step_and_its_prompt_lengthens_it() -> None:
    server = core()
    first = submitted(server, Request(100, 5), 0.0)
    # 0.025 lies in the first decoding step, which ends at 0.031.
    second = submitted(server, Request(100, 2), 0.025)
    server.advance(1.0)
    assert second.started_at_s == pytest.approx(0.031)
    assert second.first_token_at_s == pytest.approx(0.031 + 0.021)
    assert first.finished_at_s == pytest.approx(0.052 + 2 * 0.011 + 0.001)


def test_requests_beyond_max_batch_wait_for_a_place() -> None:
    server = core(max_batch=1)
    first = submitted(server, Request(0, 3), 0.0)
    second = submitted(server, Request(0, 1), 0.0)
    assert (server.running, server.waiting) == (1, 1)
    server.advance(1.0)
    assert second.started_at_s == pytest.approx(first.finished_at_s)


def test_a_prompt_longer_than_the_budget_takes_several_steps() -> None:
    server = core(max_batched_tokens=40)
    job = submitted(server, Request(100, 1), 0.0)
    server.advance(1.0)
    assert job.first_token_at_s == pytest.approx(3 * 0.010 + 100 * 0.0001)


def test_a_full_queue_refuses() -> None:
    server = core(max_batch=1, queue_capacity=1)
    outcomes = [server.submit(Request(0, 50), 0.0) is not None for _ in range(3)]
    assert outcomes == [True, True, False]


def test_a_request_larger_than_the_kv_pool_is_refused() -> None:
    assert core(kv_tokens=100.0).submit(Request(90, 20), 0.0) is None


def test_the_request_that_joined_last_is_preempted_and_still_ends() -> None:
    server = core(kv_tokens=64.0)
    old = submitted(server, Request(10, 40), 0.0)
    young = submitted(server, Request(10, 40), 0.0)
    server.advance(10.0)
    ledger = server.take_ledger()
    assert (old.preemptions, young.preemptions) == (0, 1)
    assert young.finished_at_s > old.finished_at_s
    assert ledger.generated_tokens == 2 * 40
    assert server.resident_tokens == 0


def test_a_preempted_request_is_first_in_the_queue() -> None:
    server = core(kv_tokens=64.0, max_batch=2)
    old = submitted(server, Request(10, 40), 0.0)
    young = submitted(server, Request(10, 40), 0.0)
    waiting = submitted(server, Request(10, 5), 0.0)
    server.advance(10.0)
    assert young.preemptions == 1
    # The newcomer would fit beside the old one, but the preempted one is before it.
    assert waiting.started_at_s >= old.finished_at_s


def test_exclusive_prompts_stop_decoding_meanwhile() -> None:
    replica = ContinuousReplica(ITERATION, TokenLengths(10), 100.0, max_batch=4)
    server = StepCore(replica, exclusive_prompts=True)
    first = submitted(server, Request(100, 3), 0.0)
    submitted(server, Request(100, 1), 0.025)
    server.advance(1.0)
    assert first.finished_at_s == pytest.approx(0.031 + 0.020 + 0.011)


@pytest.mark.parametrize("kv_tokens", [math.inf, 400.0])
def test_asking_often_changes_nothing(kv_tokens: float) -> None:
    """Catching up in many small pieces and in one go give the same history."""

    def history(pieces: int) -> list[float]:
        rng = np.random.default_rng(7)
        server = core(kv_tokens=None if kv_tokens == math.inf else kv_tokens)
        now_s, jobs = 0.0, []
        for gap_s in rng.exponential(0.15, 200):
            for piece in range(pieces):
                server.advance(now_s + gap_s * piece / pieces)
            now_s += gap_s
            jobs.append(submitted(server, Request(50, int(rng.geometric(0.05))), now_s))
        server.advance(now_s + 1e6)
        return [job.finished_at_s for job in jobs]

    assert history(7) == pytest.approx(history(1), abs=1e-9)


def test_every_token_and_gap_is_accounted_for() -> None:
    rng = np.random.default_rng(3)
    server = core()
    lengths = rng.geometric(0.1, 100).tolist()
    for i, length in enumerate(lengths):
        server.submit(Request(20, length), 0.01 * i)
    server.advance(1e6)
    ledger = server.take_ledger()
    assert ledger.generated_tokens == sum(lengths)
    assert sum(times for _, times in ledger.gaps) == sum(lengths) - len(lengths)
    assert len(ledger.first_tokens_s) == len(ledger.finished) == 100
    assert ledger.prompt_tokens == 2000
