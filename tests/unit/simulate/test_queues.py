"""The offline simulators against closed forms, the event machines, ciw and each other."""

from __future__ import annotations

from dataclasses import replace

import ciw
import numpy as np
import pytest

from sojourn.errors import ModelDomainError
from sojourn.facts.replica import ContinuousReplica, DynamicReplica, OperatingPoint, Routing
from sojourn.facts.service_time import IterationTime, LinearServiceTime, TokenLengths
from sojourn.simulate import batch_queue, queues
from sojourn.simulate.batch_core import BatchCore
from sojourn.simulate.estimate import Estimate, estimate
from sojourn.simulate.job import Request
from sojourn.simulate.queues import Run
from sojourn.simulate.step_core import StepCore
from sojourn.simulate.step_queue import SharedQueue


def single(
    rate_per_s: float,
    scv: float = 0.0,
    capacity: int | None = None,
    servers: int = 1,
    routing: Routing = Routing.SHARED_QUEUE,
) -> OperatingPoint:
    """B = 1, one second of service: M/G/c/K."""
    replica = DynamicReplica(LinearServiceTime(1.0, 0.0, scv), 1, queue_capacity=capacity)
    return OperatingPoint(replica, rate_per_s, servers, routing)


GPT3 = DynamicReplica(LinearServiceTime(0.050, 0.0005), max_batch=16)
LLM = ContinuousReplica(
    IterationTime(0.012, 0.00015, 0.000025),
    TokenLengths(64, law="geometric"),
    prompt_tokens=256.0,
    max_batch=16,
)


@pytest.mark.parametrize("rate_per_s", [0.3, 0.6])
def test_md1_has_the_mean_wait_of_pollaczek_and_khinchin(rate_per_s: float) -> None:
    seen = queues.dynamic(single(rate_per_s), Run(100_000), np.random.default_rng(1))
    assert seen.latency.mean.holds(1 + rate_per_s / (2 * (1 - rate_per_s)), slack=0.005)


def test_mm1_has_an_exponential_sojourn() -> None:
    seen = queues.dynamic(single(0.6, scv=1.0), Run(150_000), np.random.default_rng(2))
    p99 = seen.latency.quantile(0.99)
    assert p99.holds(-np.log(0.01) / (1 - 0.6), slack=0.02)


def test_mm1k_loses_what_the_truncated_geometric_law_says() -> None:
    seen = queues.dynamic(single(0.9, 1.0, capacity=4), Run(150_000), np.random.default_rng(3))
    weights = 0.9 ** np.arange(6)
    assert seen.blocking == pytest.approx(weights[-1] / weights.sum(), rel=0.05)


def test_a_given_trace_is_played_as_it_is() -> None:
    trace = np.array([0.0, 0.5, 0.6, 5.0])
    served = batch_queue.serve(
        DynamicReplica(LinearServiceTime(1.0, 0.0), max_batch=2), trace, np.random.default_rng(1)
    )
    assert served.start_s.tolist() == [0.0, 1.0, 1.0, 5.0]
    assert served.end_s.tolist() == [1.0, 2.0, 2.0, 6.0]
    assert served.batch_sizes.tolist() == [1, 2, 1]


@pytest.mark.parametrize("max_wait_s", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("capacity", [None, 20])
def test_the_pass_over_batches_and_the_event_machine_agree_on_every_request(
    max_wait_s: float, capacity: int | None
) -> None:
    replica = DynamicReplica(LinearServiceTime(0.05, 0.001), 16, max_wait_s, capacity)
    arrivals_s = np.cumsum(np.random.default_rng(4).exponential(1 / 230, 3000))
    served = batch_queue.serve(replica, arrivals_s, np.random.default_rng(1))
    core = BatchCore(replica, np.random.default_rng(1))
    jobs = [core.submit(Request(), now_s) for now_s in arrivals_s.tolist()]
    core.advance(1e9)
    assert [job is not None for job in jobs] == np.isin(np.arange(3000), served.index).tolist()
    ends = [job.finished_at_s for job in jobs if job is not None]
    assert ends == pytest.approx(served.end_s.tolist())


@pytest.mark.parametrize("routing", [Routing.RANDOM, Routing.ROUND_ROBIN, Routing.LEAST_LOADED])
def test_every_request_is_served_once_whatever_the_routing(routing: Routing) -> None:
    point = OperatingPoint(GPT3, 300.0, 3, routing)
    seen = queues.dynamic(point, Run(20_000), np.random.default_rng(5))
    assert seen.blocking == 0
    assert seen.served == 18_000
    assert 1 <= seen.mean_batch <= 16


def test_a_shared_queue_beats_random_splitting_of_single_servers() -> None:
    shared = queues.dynamic(single(2.4, servers=3), Run(40_000), np.random.default_rng(6))
    split = queues.dynamic(
        single(2.4, servers=3, routing=Routing.RANDOM), Run(40_000), np.random.default_rng(6)
    )
    assert shared.latency.mean.value < split.latency.mean.value


def test_one_output_token_is_dynamic_batching() -> None:
    """A step that carries only prompts is a batch of T_fixed = a and t_req = p ISL."""
    prompts = ContinuousReplica(
        IterationTime(0.05, 0.0, 0.0001), TokenLengths(1), prompt_tokens=5.0, max_batch=16
    )
    arrivals_s = queues.poisson(OperatingPoint(GPT3, 150.0), 20_000, np.random.default_rng(7))
    run = Run(arrivals_s=arrivals_s)
    rng = np.random.default_rng(8)
    steps = queues.continuous(OperatingPoint(prompts, 150.0), run, rng)
    batches = queues.dynamic(OperatingPoint(GPT3, 150.0), run, rng)
    assert steps.latency.mean.value == pytest.approx(batches.latency.mean.value, rel=1e-9)


def test_one_engine_behind_a_shared_queue_is_the_engine_with_its_own() -> None:
    shared, alone = (
        queues.continuous(
            OperatingPoint(LLM, 15.0, 1, routing), Run(6_000), np.random.default_rng(11)
        )
        for routing in (Routing.SHARED_QUEUE, Routing.RANDOM)
    )
    assert shared.latency.mean.value == pytest.approx(alone.latency.mean.value, rel=1e-9)


def test_a_shared_queue_of_engines_loses_what_finds_its_places_taken() -> None:
    """Far above capacity all but capacity / rate is lost."""
    bounded = OperatingPoint(replace(LLM, queue_capacity=10), 62.4, 2, Routing.SHARED_QUEUE)
    seen = queues.continuous(bounded, Run(6_000), np.random.default_rng(15))
    assert seen.blocking == pytest.approx(0.5, abs=0.02)


def test_engines_behind_one_queue_start_requests_in_order_and_sooner_than_random() -> None:
    point = OperatingPoint(LLM, 42.0, 3, Routing.SHARED_QUEUE)
    arrivals_s = queues.poisson(point, 6_000, np.random.default_rng(12))
    cores = [StepCore(LLM) for _ in range(3)]
    requests = [Request(256, 64)] * arrivals_s.size
    ties = np.random.default_rng(13).random(arrivals_s.size)
    jobs, lost = SharedQueue(cores, None).play(arrivals_s, requests, ties)
    assert lost == 0 and len(jobs) == arrivals_s.size
    assert [job.arrived_at_s for job in jobs] == arrivals_s.tolist()
    run = Run(arrivals_s=arrivals_s)
    shared, random = (
        queues.continuous(replace(point, routing=routing), run, np.random.default_rng(14))
        for routing in (Routing.SHARED_QUEUE, Routing.RANDOM)
    )
    assert 2 * shared.queue_s.mean.value < random.queue_s.mean.value


def test_the_mean_step_of_a_lone_request_is_seen() -> None:
    """At a vanishing load: time to first token a + P, time per output token a + b."""
    seen = queues.continuous(OperatingPoint(LLM, 0.01), Run(2_000), np.random.default_rng(9))
    assert seen.first_token is not None and seen.output_token is not None
    assert seen.first_token.quantile(0.5).value == pytest.approx(0.012 + 0.0064, rel=1e-6)
    assert seen.output_token.quantile(0.5).value == pytest.approx(0.01215, rel=1e-6)


def test_progress_is_told_and_grows() -> None:
    told: list[float] = []
    queues.dynamic(single(0.5), Run(60_000, progress=told.append), np.random.default_rng(1))
    assert told == sorted(told) and told[0] > 0 and told[-1] <= 1


def test_a_seed_repeats_a_run() -> None:
    point = OperatingPoint(LLM, 8.0, 2, Routing.LEAST_LOADED)
    first = queues.continuous(point, Run(2_000), np.random.default_rng(3))
    assert first == queues.continuous(point, Run(2_000), np.random.default_rng(3))


def test_intervals_shrink_with_the_run_and_hold_the_truth() -> None:
    rng = np.random.default_rng(10)
    short, long = (estimate(rng.exponential(1.0, n), (0.5,)) for n in (2_000, 200_000))
    assert long.mean.half_width < short.mean.half_width / 5
    assert long.mean.half_width == pytest.approx(1.96 / np.sqrt(200_000), rel=0.8)
    assert long.mean.holds(1.0, slack=0.003)
    assert long.quantile(0.5).holds(np.log(2), slack=0.003)
    assert not Estimate(1.0, 0.01).holds(1.02)


def test_a_replica_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(ModelDomainError, match="DynamicReplica"):
        queues.dynamic(OperatingPoint(LLM, 1.0), Run(10), np.random.default_rng(1))
    with pytest.raises(ModelDomainError, match="ContinuousReplica"):
        queues.continuous(OperatingPoint(GPT3, 1.0), Run(10), np.random.default_rng(1))


def _ciw_waits(point: OperatingPoint, service: ciw.dists.Distribution, until: float) -> list[float]:
    replica = point.replica
    assert isinstance(replica, DynamicReplica)
    capacity = replica.queue_capacity
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=point.rate_per_s)],
        service_distributions=[service],
        number_of_servers=[point.replicas],
        queue_capacities=[float("inf") if capacity is None else capacity],
    )
    ciw.seed(1)
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_time(until)
    records = simulation.get_all_records(only=["service"])
    records.sort(key=lambda record: record.arrival_date)
    return [record.waiting_time + record.service_time for record in records]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "service"),
    [
        pytest.param(single(0.7), ciw.dists.Deterministic(1.0), id="M/D/1"),
        pytest.param(single(0.7, 0.25), ciw.dists.Gamma(4.0, 0.25), id="M/G/1"),
        pytest.param(single(2.1, 1.0, servers=3), ciw.dists.Exponential(1.0), id="M/M/3"),
        pytest.param(single(2.7, 1.0, 5, servers=3), ciw.dists.Exponential(1.0), id="M/M/3/K"),
    ],
)
def test_ciw_sees_the_same_queue(point: OperatingPoint, service: ciw.dists.Distribution) -> None:
    theirs = _ciw_waits(point, service, until=60_000.0)
    ours = queues.dynamic(point, Run(400_000), np.random.default_rng(2))
    their = estimate(np.asarray(theirs[len(theirs) // 10 :]), (0.5, 0.99))
    pairs = [
        (ours.latency.mean, their.mean),
        (ours.latency.quantile(0.5), their.quantile(0.5)),
        (ours.latency.quantile(0.99), their.quantile(0.99)),
    ]
    for one, other in pairs:
        assert abs(one.value - other.value) <= one.half_width + other.half_width
