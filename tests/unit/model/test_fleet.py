"""Many services at once: the table's rates, and sizing as arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sojourn.facts.declaration import Objective, TailRule
from sojourn.facts.replica import ContinuousReplica, DynamicReplica, OperatingPoint
from sojourn.facts.service_time import IterationTime, LinearServiceTime, TokenLengths
from sojourn.facts.sizing import ServingConstraint, Sizing
from sojourn.facts.sojourn import LatencyGoal
from sojourn.model import fleet, sizing, tabled
from sojourn.model.continuous import ContinuousModel
from sojourn.model.exact_model import ExactModel
from sojourn.model.protocol import QueueModel
from sojourn.model.surrogate_model import SurrogateModel

GPT3 = DynamicReplica(LinearServiceTime(0.050, 0.0005), 1)
CONSTRAINT = ServingConstraint(GPT3, LatencyGoal(latency_s=0.15, max_utilisation=0.8), 1, 64)


def services(count: int, seed: int) -> list[ServingConstraint]:
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        law = LinearServiceTime(
            10 ** rng.uniform(-2, 0), 10 ** rng.uniform(-4, -2), float(rng.choice([0.0, 0.1]))
        )
        wait_s = float(rng.uniform(0, 0.4)) * law.fixed_s if i % 2 else 0.0
        lone_s = law.fixed_s + law.per_request_s + wait_s
        goal = LatencyGoal(latency_s=lone_s * float(rng.uniform(2, 10)), max_utilisation=0.8)
        largest = int(rng.choice([8, 16, 48, 128]))
        found.append(ServingConstraint(DynamicReplica(law, 1, wait_s), goal, 1, largest))
    return found


def continuous(count: int, seed: int) -> list[ServingConstraint]:
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        step_s = 10 ** rng.uniform(-2.3, -1.4)
        iteration = IterationTime(step_s, step_s * 10 ** rng.uniform(-3.5, -1.7), step_s / 800)
        mean = float(rng.uniform(30, 400))
        output = TokenLengths(mean, float(rng.uniform(0.4, 1.5)), "lognormal")
        replica = ContinuousReplica(
            iteration,
            output if i % 3 else TokenLengths(mean, law="geometric"),
            float(rng.uniform(0, 1500)) if i % 4 else 0.0,
            256,
        )
        first_s = step_s + iteration.per_prompt_token_s * replica.prompt_tokens
        goal = LatencyGoal(
            first_token_s=first_s * float(rng.uniform(4, 20)),
            output_token_s=step_s * float(rng.uniform(1.3, 3)) if i % 2 else None,
        )
        largest = int(rng.choice([12, 32, 100, 256]))
        found.append(ServingConstraint(replica, goal, 1, largest))
    return found


def assert_sized_as_one_by_one(
    model: QueueModel, constraints: list[ServingConstraint], rates: np.ndarray
) -> tuple[fleet.FleetSizing, list[Sizing]]:
    together = fleet.fleet(constraints).size(rates)
    apart = [sizing.size(model, *one) for one in zip(constraints, rates.tolist(), strict=True)]
    for i, alone in enumerate(apart):
        assert together.reachable[i] == alone.reachable
        assert abs(together.replicas[i] - alone.replicas) <= max(1, 0.1 * alone.replicas)
    return together, apart


@pytest.mark.slow
def test_fleet_sizes_continuous_services_as_one_by_one() -> None:
    together, apart = assert_sized_as_one_by_one(
        ContinuousModel(), continuous(16, 4), np.geomspace(0.2, 500, 16)
    )
    for batch, alone in zip(together.batch, apart, strict=True):
        assert batch == pytest.approx(alone.batch, rel=0.2)


def test_a_fleet_of_both_kinds_answers_each_as_alone() -> None:
    mixed = [*services(4, 1), *continuous(4, 1)]
    together, rates = fleet.fleet(mixed), np.linspace(1, 50, 8)
    for i, one in enumerate(mixed):
        alone = fleet.fleet([one]).size(rates[[i]])
        assert together.size(rates).replicas[i] == alone.replicas[0]


def test_what_the_draft_cannot_reach_is_asked_of_the_whole_model() -> None:
    one = continuous(2, 7)[1]
    assert isinstance(one.replica, ContinuousReplica)
    floor_s = one.replica.iteration.fixed_s + one.replica.iteration.per_request_s
    goal = LatencyGoal(output_token_s=0.99 * floor_s)
    found = fleet.fleet([replace(one, goal=goal)])
    assert not found.reachable[0] and found.floor_s[0] > goal.output_token_s
    assert found.size([5.0]).replicas[0] >= 1


def test_table_covers_the_common_case() -> None:
    assert tabled.available() is not None
    found = ExactModel().max_rate(replace(GPT3, max_batch=16), CONSTRAINT.goal)
    assert found.reachable


@pytest.mark.parametrize("seed", range(6))
def test_rate_from_the_table_keeps_the_goal_and_wastes_little(seed: int) -> None:
    for one in services(3, seed):
        replica = replace(one.replica, max_batch=one.largest_batch)
        found = ExactModel().max_rate(replica, one.goal)
        point = OperatingPoint(replica, found.rate_per_s)
        answer = ExactModel().sojourn(point, (0.99,))
        seconds = answer.latency.quantile_s(0.99)
        assert one.goal.latency_s is not None
        assert seconds <= one.goal.latency_s
        assert found.binding == "Utilisation" or seconds >= 0.93 * one.goal.latency_s


@pytest.mark.slow
def test_fleet_sizes_as_the_services_one_by_one() -> None:
    assert_sized_as_one_by_one(ExactModel(), services(12, 100), np.linspace(1, 2000, 12))


def test_fleet_of_surrogates_equals_sizing_one_by_one() -> None:
    constraint = replace(CONSTRAINT, goal=LatencyGoal(latency_s=1.0), largest_batch=16)
    together = fleet.fleet([constraint], TailRule.EXPONENTIAL).size([100.0])
    alone = sizing.size(SurrogateModel(), constraint, 100.0)
    assert (together.replicas[0], together.batch[0]) == (alone.replicas, alone.batch)


def test_more_load_never_needs_fewer_replicas_in_a_fleet() -> None:
    constraints = services(30, 3)
    rates = np.geomspace(0.1, 1000, 25)
    solved = fleet.fleet(constraints)
    replicas = np.array([solved.size(np.full(30, rate)).replicas for rate in rates])
    assert np.all(np.diff(replicas, axis=0) >= 0)


def test_unreachable_goal_is_sized_by_load_in_a_fleet() -> None:
    constraint = replace(CONSTRAINT, goal=LatencyGoal(latency_s=0.01))
    found = fleet.fleet([constraint]).size([100.0])
    assert not found.reachable[0]
    assert found.replicas[0] == 1


def test_no_traffic_needs_no_replicas_in_a_fleet() -> None:
    assert fleet.fleet([CONSTRAINT]).size([0.0]).replicas[0] == 0


def test_least_latency_batch_is_no_larger_than_the_largest() -> None:
    constraint = replace(CONSTRAINT, objective=Objective.MIN_LATENCY)
    found = fleet.fleet([constraint]).size([100.0])
    assert found.smallest_batch[0] <= found.batch[0] <= found.largest_batch[0]


def test_status_percentiles_from_the_table_are_close_to_the_exact_ones() -> None:
    parts = tabled.Services(*(np.array([x]) for x in (0.050, 0.0005, 0.0, 0.0, 1.0, 1.0)))
    for batch, rate in ((8, 80.0), (16, 100.0), (32, 300.0)):
        quick = tabled.quantiles_s(parts, [batch], [rate], 0.99)[0]
        point = OperatingPoint(replace(GPT3, max_batch=batch), rate)
        exact = ExactModel().sojourn(point, (0.99,)).latency.quantile_s(0.99)
        assert quick == pytest.approx(exact, rel=0.05)
    assert np.isinf(tabled.quantiles_s(parts, [8], [1000.0], 0.99)[0])
