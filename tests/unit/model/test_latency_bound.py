"""The cheap bound never promises what the model does not keep."""

from __future__ import annotations

import itertools

import pytest

from sojourn.facts.replica import ContinuousReplica, DynamicReplica, OperatingPoint, Replica
from sojourn.facts.service_time import IterationTime, LinearServiceTime, TokenLengths
from sojourn.facts.sojourn import LatencyGoal
from sojourn.model import latency_bound
from sojourn.model.choose import model_for

LEVEL = 0.99
BOOK = DynamicReplica(LinearServiceTime(0.05, 0.0005), max_batch=8)

DYNAMIC = [
    pytest.param(DynamicReplica(LinearServiceTime(fixed, 0.0005), batch, wait, places), id=name)
    for name, fixed, batch, wait, places in (
        ("book", 0.05, 8, 0.0, None),
        ("alone", 0.05, 1, 0.0, None),
        ("timer", 0.05, 32, 0.02, None),
        ("long timer", 0.05, 32, 0.2, None),
        ("linear", 0.0, 16, 0.0, None),
        ("finite", 0.05, 8, 0.0, 40),
        ("large", 0.05, 256, 0.0, None),
    )
]
CONTINUOUS = [
    pytest.param(
        ContinuousReplica(
            IterationTime(0.006, 0.00003 * heavy, 0.00002 * heavy),
            TokenLengths(mean, 0.0 if law == "fixed" else 1.0, law),
            prompt,
            batch,
            max_batched_tokens=8192,
        ),
        id=f"{law}-{mean}-{prompt}-{batch}-{heavy}",
    )
    for law, mean, prompt, batch, heavy in itertools.product(
        ("geometric", "fixed", "lognormal"), (20.0, 250.0), (100.0, 1000.0), (16, 256), (1,)
    )
]


def capacity_per_s(replica: Replica) -> float:
    goal = LatencyGoal(max_utilisation=1.0, max_blocking=1.0)
    return model_for(replica).max_rate(replica, goal).rate_per_s


@pytest.mark.parametrize("replica", [*DYNAMIC, *CONTINUOUS])
def test_no_percentile_of_the_model_exceeds_its_bound(replica: Replica) -> None:
    known = 0
    for load in (0.0, 0.1, 0.5, 0.75, 0.95):
        point = OperatingPoint(replica, load * capacity_per_s(replica))
        bound = latency_bound.at_most(point, LEVEL)
        answer = model_for(replica).sojourn(point, (LEVEL,))
        known += bound.latency_s < float("inf")
        assert answer.latency.quantile_s(LEVEL) <= bound.latency_s * (1 + 1e-6), load
        assert answer.blocking <= bound.blocking + 1e-6, load
        for latency, most_s in (
            (answer.time_to_first_token, bound.first_token_s),
            (answer.time_per_output_token, bound.output_token_s),
        ):
            if latency is not None:
                assert latency.quantile_s(LEVEL) <= most_s * (1 + 1e-6), load
    assert known >= 2, "the bound is of use"


def test_a_lax_goal_is_cleared_without_the_model() -> None:
    assert latency_bound.surely_within(OperatingPoint(BOOK, 100.0), LatencyGoal(latency_s=1.0))


def test_a_tight_goal_is_left_to_the_model() -> None:
    point = OperatingPoint(BOOK, 100.0)
    assert not latency_bound.surely_within(point, LatencyGoal(latency_s=0.1))


def test_an_unstable_point_is_never_cleared() -> None:
    point = OperatingPoint(BOOK, 200.0)
    assert not latency_bound.surely_within(point, LatencyGoal(latency_s=1e6))


def test_of_service_times_that_vary_nothing_is_claimed() -> None:
    varying = DynamicReplica(LinearServiceTime(0.05, 0.0005, scv=1.0), max_batch=8)
    assert latency_bound.at_most(OperatingPoint(varying, 100.0), LEVEL).latency_s == float("inf")
