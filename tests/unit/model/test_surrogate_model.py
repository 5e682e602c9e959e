"""The surrogate behind the protocol."""

from __future__ import annotations

import math

import pytest

from sojourn.errors import ModelDomainError
from sojourn.facts.declaration import TailRule
from sojourn.facts.replica import ContinuousReplica, DynamicReplica, OperatingPoint
from sojourn.facts.service_time import IterationTime, LinearServiceTime, TokenLengths
from sojourn.facts.sojourn import LatencyGoal
from sojourn.model.choose import model_for
from sojourn.model.protocol import QueueModel
from sojourn.model.surrogate_model import SurrogateModel, SurrogateTail

GPT3 = DynamicReplica(LinearServiceTime(0.050, 0.0005), max_batch=8)
CONTINUOUS = ContinuousReplica(IterationTime(0.012, 1e-4), TokenLengths(100), 100, 8)


def test_parts_add_up_and_little_holds() -> None:
    answer = SurrogateModel().sojourn(OperatingPoint(GPT3, 200.0, replicas=2), (0.5, 0.99))
    parts = answer.queue_wait_s + answer.batch_wait_s + answer.service_s
    assert parts == pytest.approx(answer.latency.mean_s)
    assert answer.latency.quantile_s(0.99) == pytest.approx(0.668, abs=5e-4)  # section 2
    assert answer.in_system == pytest.approx(200 * answer.latency.mean_s)
    assert answer.utilisation == pytest.approx(0.675)


@pytest.mark.parametrize("tail", SurrogateTail)
def test_load_of_one_gives_infinity(tail: SurrogateTail) -> None:
    answer = SurrogateModel(tail).sojourn(OperatingPoint(GPT3, 1000.0), (0.99,))
    assert math.isinf(answer.latency.mean_s)
    assert math.isinf(answer.latency.quantile_s(0.99))


@pytest.mark.parametrize("tail", [SurrogateTail.EXPONENTIAL, SurrogateTail.GAUSSIAN])
def test_largest_rate_meets_the_goal_and_a_little_more_does_not(tail: SurrogateTail) -> None:
    model: QueueModel = SurrogateModel(tail)
    goal = LatencyGoal(latency_s=0.600, max_utilisation=0.9)
    found = model.max_rate(GPT3, goal)
    assert found.reachable

    def p99_s(rate: float) -> float:
        return model.sojourn(OperatingPoint(GPT3, rate), (0.99,)).latency.quantile_s(0.99)

    assert p99_s(found.rate_per_s) <= 0.600
    if found.binding == "Latency":
        assert p99_s(found.rate_per_s * 1.01) > 0.600


def test_goal_below_the_floor_is_answered_with_the_floor() -> None:
    found = SurrogateModel().max_rate(GPT3, LatencyGoal(latency_s=0.05))
    assert not found.reachable
    assert found.rate_per_s == 0
    assert found.floor_s > 0.05


def test_goal_without_latency_is_the_rate_at_the_load_limit() -> None:
    found = SurrogateModel().max_rate(GPT3, LatencyGoal(max_utilisation=0.75))
    assert found.rate_per_s == pytest.approx(0.75 * 8 / 0.054)
    assert found.binding == "Utilisation"


def test_tail_rule_chooses_the_model() -> None:
    assert model_for(GPT3, TailRule.EXPONENTIAL).name == "Surrogate/Exponential"
    assert model_for(GPT3, TailRule.GAUSSIAN).name == "Surrogate/Gaussian"


def test_continuous_replica_is_refused_by_name() -> None:
    with pytest.raises(ModelDomainError, match="dynamic batching"):
        SurrogateModel().max_rate(CONTINUOUS, LatencyGoal())
