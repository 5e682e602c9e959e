"""The one serving constraint: least replicas and the interval of batches (S17)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.facts.declaration import Objective
from sojourn.facts.replica import ContinuousReplica, DynamicReplica, OperatingPoint, Replica
from sojourn.facts.service_time import IterationTime, LinearServiceTime, TokenLengths
from sojourn.facts.sizing import ServingConstraint
from sojourn.facts.sojourn import LatencyGoal, ReplicaRate
from sojourn.model import max_rate, sizing, stability
from sojourn.model.candidates import candidates
from sojourn.model.continuous import ContinuousModel
from sojourn.model.exact_model import ExactModel
from sojourn.model.protocol import QueueModel
from sojourn.model.surrogate_model import SurrogateModel

GPT3 = DynamicReplica(LinearServiceTime(0.050, 0.0005), max_batch=1)
BY_LOAD = ServingConstraint(GPT3, LatencyGoal(), largest_batch=8)


def passes(model: QueueModel, constraint: ServingConstraint, share: float, batch: int) -> bool:
    assert isinstance(constraint.replica, DynamicReplica)
    replica = replace(constraint.replica, max_batch=batch)
    goal = constraint.goal
    load = float(stability.utilisation(share, 1, batch, replica.service))
    if load > goal.max_utilisation * (1 + 1e-9):
        return False
    if goal.latency_s is None:
        return True
    answer = model.sojourn(OperatingPoint(replica, share), (goal.probability,))
    return answer.latency.quantile_s(goal.probability) <= goal.latency_s


def test_gpt3_at_100_per_s_needs_one_replica_at_batch_8_and_two_at_4() -> None:
    one = sizing.size(SurrogateModel(), BY_LOAD, 100.0)
    assert (one.replicas, one.batch, one.binding) == (1, 8, "Utilisation")
    two = sizing.size(SurrogateModel(), replace(BY_LOAD, largest_batch=4), 100.0)
    assert (two.replicas, two.batch) == (2, 4)


def test_no_traffic_needs_no_replicas() -> None:
    assert sizing.size(SurrogateModel(), BY_LOAD, 0.0).replicas == 0


def test_rate_that_fills_replicas_exactly_asks_for_no_more() -> None:
    rate = sizing.size(SurrogateModel(), BY_LOAD, 1.0).rate_per_replica_per_s
    assert sizing.size(SurrogateModel(), BY_LOAD, 3 * rate).replicas == 3
    assert sizing.size(SurrogateModel(), BY_LOAD, 3 * rate * 1.0001).replicas == 4


def test_memory_bound_ends_the_interval_and_is_named() -> None:
    found = sizing.size(SurrogateModel(), replace(BY_LOAD, kv_batch=6), 100.0)
    assert found.largest_batch == 6
    assert found.bound_above == "Memory"


def test_unreachable_goal_is_sized_by_load_and_gives_its_floor() -> None:
    constraint = replace(BY_LOAD, goal=LatencyGoal(latency_s=0.010))
    found = sizing.size(SurrogateModel(), constraint, 100.0)
    assert not found.reachable
    assert found.replicas == 1
    assert found.floor_s > 0.050


@settings(max_examples=40, deadline=None)
@given(
    fixed_ms=st.floats(1, 200),
    per_request_ms=st.floats(0.1, 20),
    slo=st.floats(1.5, 60),
    rate=st.floats(0.5, 300),
    low=st.integers(1, 4),
    span=st.integers(0, 10),
)
def test_sizing_equals_exhaustive_search(
    fixed_ms: float, per_request_ms: float, slo: float, rate: float, low: int, span: int
) -> None:
    law = LinearServiceTime(fixed_ms / 1e3, per_request_ms / 1e3)
    goal = LatencyGoal(latency_s=slo * (law.fixed_s + law.per_request_s), max_utilisation=0.8)
    constraint = ServingConstraint(DynamicReplica(law, 1), goal, low, low + span)
    model = SurrogateModel()
    found = sizing.size(model, constraint, rate)
    if not found.reachable:
        return
    feasible = {}
    for c in range(1, found.replicas + 1):
        fits = [b for b in range(low, low + span + 1) if passes(model, constraint, rate / c, b)]
        if fits:
            feasible = {"replicas": c, "low": fits[0], "high": fits[-1]}
            break
    # Where a rate lies within the solver's tolerance of an edge either answer is right.
    near = {"replicas": found.replicas, "low": found.smallest_batch, "high": found.largest_batch}
    if feasible != near:
        answers = sizing.capacity(model, constraint).answers
        shares = [rate / c for c in range(1, found.replicas + 1)]
        edges = [e for a in answers for e in (a.rate_per_s, a.from_rate_per_s)]
        gaps = np.abs(np.subtract.outer(shares, edges)) / np.maximum(shares, 1e-9)[:, None]
        assert gaps.min() < 1e-3


@settings(max_examples=25, deadline=None)
@given(rates=st.lists(st.floats(0.1, 2000), min_size=2, max_size=8), slo=st.floats(0.3, 3))
def test_more_load_never_needs_fewer_replicas(rates: list[float], slo: float) -> None:
    constraint = replace(BY_LOAD, goal=LatencyGoal(latency_s=slo), largest_batch=24)
    replicas = [sizing.size(SurrogateModel(), constraint, r).replicas for r in sorted(rates)]
    assert replicas == sorted(replicas)


def test_min_latency_takes_the_batch_of_least_mean_latency() -> None:
    constraint = replace(BY_LOAD, largest_batch=64, objective=Objective.MIN_LATENCY)
    assert sizing.size(SurrogateModel(), constraint, 100.0).batch == 10
    assert (
        sizing.size(
            SurrogateModel(), replace(constraint, objective=Objective.MAX_BATCH), 100.0
        ).batch
        == 64
    )


@pytest.mark.parametrize(("low", "high"), [(1, 8), (5, 100), (3, 3), (17, 4096)])
def test_candidates_hold_both_ends_and_rise(low: int, high: int) -> None:
    grid = candidates(low, high)
    assert grid[0] == low and grid[-1] == high
    assert all(a < b for a, b in pairwise(grid))
    assert len(grid) < 40


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(
    fixed_ms=st.floats(10, 200),
    per_request_ms=st.floats(0.5, 20),
    wait=st.sampled_from([0.0, 0.3]),
    slo=st.floats(1.5, 6),
    rate=st.floats(5, 200),
    span=st.integers(0, 6),
)
def test_sizing_by_the_exact_model_equals_exhaustive_search(
    fixed_ms: float, per_request_ms: float, wait: float, slo: float, rate: float, span: int
) -> None:
    law = LinearServiceTime(fixed_ms / 1e3, per_request_ms / 1e3)
    lone_s = law.fixed_s * (1 + wait) + law.per_request_s
    goal = LatencyGoal(latency_s=slo * lone_s, max_utilisation=0.8)
    constraint = ServingConstraint(DynamicReplica(law, 1, wait * law.fixed_s), goal, 1, 1 + span)
    model = ExactModel(precise=True)
    found = sizing.size(model, constraint, rate)
    assert found.reachable
    # Rates within the solver's tolerance of an edge may go either way: look on both sides of it.
    least = [
        next(
            c
            for c in range(max(1, found.replicas - 2), found.replicas + 2)
            if any(passes(model, constraint, rate * off / c, b) for b in range(1, 2 + span))
        )
        for off in (0.999, 1.001)
    ]
    assert least[0] <= found.replicas <= least[1]
    assert passes(model, constraint, rate / found.replicas * 0.999, found.batch)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    prompt=st.sampled_from([0.0, 200.0, 1500.0]),
    law=st.sampled_from([TokenLengths(120, law="geometric"), TokenLengths(200, 0.6, "lognormal")]),
    first=st.one_of(st.none(), st.floats(2, 30)),
    token=st.one_of(st.none(), st.floats(1.02, 2)),
    rate=st.floats(0.05, 60),
    ends=st.tuples(st.integers(1, 6), st.integers(0, 30)),
)
def test_sizing_of_continuous_batching_equals_exhaustive_search(
    prompt: float,
    law: TokenLengths,
    first: float | None,
    token: float | None,
    rate: float,
    ends: tuple[int, int],
) -> None:
    """Every batch solved, against a few: least replicas, and both ends of the interval."""
    iteration = IterationTime(0.012, 0.0006, 0.00002)
    replica = ContinuousReplica(iteration, law, prompt, 1)
    goal = LatencyGoal(
        first_token_s=first and first * (0.012 + 0.00002 * prompt),
        output_token_s=token and token * 0.0126,
        max_utilisation=0.85,
    )
    low, high = ends[0], ends[0] + ends[1]
    model = ContinuousModel()
    found = sizing.size(model, ServingConstraint(replica, goal, low, high), rate)
    answers = {b: model.max_rate(replace(replica, max_batch=b), goal) for b in range(low, high + 1)}
    if not any(answer.reachable for answer in answers.values()):
        assert not found.reachable
        return
    # Rates within the search's tolerance of an edge may go either way.
    ways = []
    for off in (0.998, 1.002):
        best = max(answer.rate_per_s for answer in answers.values())
        least = max(1, math.ceil(rate * off / best - 1e-9))
        serving = [b for b, one in answers.items() if rate * off / least <= one.rate_per_s]
        ways.append((least, serving[0], serving[-1]))
    assert ways[0][0] <= found.replicas <= ways[1][0]
    if ways[0][0] == ways[1][0]:
        assert ways[0][1] <= found.smallest_batch <= ways[1][1]
        assert ways[1][2] <= found.largest_batch <= ways[0][2]


def test_a_continuous_service_is_sized_with_few_questions() -> None:
    asked: list[int] = []

    @dataclass(frozen=True)
    class Counting(ContinuousModel):
        def max_rate(
            self, replica: Replica, goal: LatencyGoal, dispersion: float = 1.0
        ) -> ReplicaRate:
            if max_rate.asks_latency(goal):
                asked.append(replica.max_batch)
            return super().max_rate(replica, goal, dispersion)

    replica = ContinuousReplica(
        IterationTime(0.012, 0.0006, 0.00002), TokenLengths(120, law="geometric"), 200.0, 1
    )
    # 0.1 s is less than one step of a full batch: steps matter, not only waits.
    for goal, most in (
        (LatencyGoal(first_token_s=2.0), 10),
        (LatencyGoal(output_token_s=0.02), 18),
        (LatencyGoal(first_token_s=0.1), 24),
    ):
        asked.clear()
        found = sizing.size(Counting(), ServingConstraint(replica, goal, 1, 256), 500.0)
        assert found.reachable
        assert len(set(asked)) <= most, (goal, asked)


@settings(max_examples=6, deadline=None)
@given(rates=st.lists(st.floats(0.1, 2000), min_size=2, max_size=8), slo=st.floats(0.08, 0.5))
def test_more_load_never_needs_fewer_replicas_by_the_exact_model(
    rates: list[float], slo: float
) -> None:
    constraint = replace(BY_LOAD, goal=LatencyGoal(latency_s=slo), largest_batch=24)
    replicas = [sizing.size(ExactModel(), constraint, r).replicas for r in sorted(rates)]
    assert replicas == sorted(replicas)
