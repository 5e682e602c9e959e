"""Replicas that share requests by round robin, by load, or through one queue."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sojourn.facts.replica import DynamicReplica, OperatingPoint, Routing
from sojourn.facts.service_time import LinearServiceTime
from sojourn.model import erlang, even_split, routing_fit
from sojourn.model.exact_model import ExactModel
from tests.unit.model import reference

LEVELS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
ROUTING = {
    "roundrobin": Routing.ROUND_ROBIN,
    "jsq": Routing.LEAST_LOADED,
    "shared": Routing.SHARED_QUEUE,
}
FLEETS = [
    r
    for r in reference.simulated("dynamic-batching")
    if r["inputs"]["routing"] in ROUTING and r["tolerance"]
]
GPT3 = DynamicReplica(LinearServiceTime(0.050, 0.0005), max_batch=16)


def point_of(inputs: dict[str, Any]) -> OperatingPoint:
    law = LinearServiceTime(inputs["t_fixed"], inputs["t_req"], inputs["cv2"])
    replica = DynamicReplica(law, inputs["bmax"], inputs["tmax"], inputs["cap"])
    return OperatingPoint(replica, inputs["lam"], inputs["c"], ROUTING[inputs["routing"]])


def quick(row: dict[str, Any]) -> bool:
    return bool(row["inputs"]["bmax"] == 1 or row["inputs"]["cv2"] == 0)


@pytest.mark.parametrize("row", [r for r in FLEETS if quick(r)], ids=reference.ids)
def test_routed_replicas_are_within_tolerance_of_simulation(row: dict[str, Any]) -> None:
    within_tolerance(row)


@pytest.mark.slow
@pytest.mark.parametrize("row", [r for r in FLEETS if not quick(r)], ids=reference.ids)
def test_routed_replicas_with_varying_times_are_within_tolerance(row: dict[str, Any]) -> None:
    within_tolerance(row)


def within_tolerance(row: dict[str, Any]) -> None:
    answer = ExactModel().sojourn(point_of(row["inputs"]), tuple(LEVELS.values()))
    values = {name: answer.latency.quantile_s(level) for name, level in LEVELS.items()}
    values["mean"] = answer.latency.mean_s
    for name, tolerance in row["tolerance"].items():
        assert values[name] == pytest.approx(row["simulated"][name], rel=tolerance)


@pytest.mark.parametrize("routing", [Routing.ROUND_ROBIN, Routing.LEAST_LOADED])
def test_interpolated_answers_say_so_and_their_parts_add_up(routing: Routing) -> None:
    answer = ExactModel().sojourn(OperatingPoint(GPT3, 400.0, 3, routing), (0.99,))
    assert "interpolated" in answer.warnings[0]
    parts = answer.queue_wait_s + answer.batch_wait_s + answer.service_s
    assert parts == pytest.approx(answer.latency.mean_s)


def test_one_replica_is_the_same_whatever_the_routing() -> None:
    answers = {
        ExactModel().sojourn(OperatingPoint(GPT3, 100.0, 1, routing), (0.99,))
        for routing in Routing
    }
    assert len(answers) == 1


def test_random_replicas_share_the_rate_and_add_up() -> None:
    one = ExactModel().sojourn(OperatingPoint(GPT3, 100.0), (0.99,))
    four = ExactModel().sojourn(OperatingPoint(GPT3, 400.0, 4), (0.99,))
    assert four.latency == one.latency
    assert four.in_system == pytest.approx(4 * one.in_system)
    assert four.throughput_per_s == pytest.approx(4 * one.throughput_per_s)


def test_shared_queue_of_batching_servers_says_that_only_simulation_is_honest() -> None:
    answer = ExactModel().sojourn(OperatingPoint(GPT3, 400.0, 4, Routing.SHARED_QUEUE), ())
    assert "only a simulation is honest" in answer.warnings[-1]


@pytest.mark.parametrize(("servers", "offered"), [(1, 0.5), (10, 8.0), (100, 90.0)])
def test_shared_queue_with_exponential_times_is_erlang_c(servers: int, offered: float) -> None:
    one = DynamicReplica(LinearServiceTime(1.0, 0.0, 1.0), 1)
    answer = ExactModel().sojourn(OperatingPoint(one, offered, servers, Routing.SHARED_QUEUE), ())
    wait = erlang.delay(servers, offered) / (servers - offered)
    assert answer.queue_wait_s == pytest.approx(wait, rel=1e-6)


def test_shared_finite_queue_with_exponential_times_is_m_m_c_k() -> None:
    one = DynamicReplica(LinearServiceTime(1.0, 0.0, 1.0), 1, 0.0, 8)
    answer = ExactModel().sojourn(OperatingPoint(one, 6.4, 8, Routing.SHARED_QUEUE), ())
    assert answer.blocking == pytest.approx(0.016361, rel=5e-5)  # reference row mmck-6.4-8-8
    assert answer.latency.mean_s == pytest.approx(1.17467, rel=5e-6)


def test_round_robin_is_never_slower_than_random_in_the_tail() -> None:
    for load in (0.2, 0.5, 0.8, 0.95):
        rate = load * 16 / 0.058 * 4
        levels = (0.95, 0.99)
        random = ExactModel().sojourn(OperatingPoint(GPT3, rate, 4), levels)
        even = ExactModel().sojourn(OperatingPoint(GPT3, rate, 4, Routing.ROUND_ROBIN), levels)
        for level in levels:
            assert even.latency.quantile_s(level) <= random.latency.quantile_s(level) * (1 + 1e-9)


@pytest.mark.parametrize("scv", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("load", [0.2, 0.7, 0.95])
def test_round_robin_over_one_replica_is_pollaczek_khinchine(scv: float, load: float) -> None:
    found = even_split.waits(load, 1.0, scv, 1, (0.99,))
    assert found.mean_wait_s == pytest.approx(load * (1 + scv) / (2 * (1 - load)), rel=5e-3)


def test_round_robin_of_exponential_times_over_many_replicas_is_near_d_m_1() -> None:
    """D/M/1 at load 0.8: sigma = exp(-(1 - sigma) / 0.8), E[W] = sigma / (1 - sigma)."""
    sigma = 0.5
    for _ in range(200):
        sigma = math.exp(-(1 - sigma) / 0.8)
    found = even_split.waits(0.8, 1.0, 1.0, 400, (0.5,))
    assert found.mean_wait_s == pytest.approx(sigma / (1 - sigma), rel=1e-2)


@pytest.mark.parametrize(("name", "most"), [("jsq", 0.03), ("roundrobin", 0.015)])
def test_typical_p99_of_batches_is_near_rows_on_which_nothing_was_fitted(
    name: str, most: float
) -> None:
    errors = []
    for row in FLEETS:
        inputs = row["inputs"]
        if inputs["routing"] == name and inputs["bmax"] > 1 and inputs["cv2"] <= 0.1:
            answer = ExactModel().sojourn(point_of(inputs), (0.99,))
            errors.append(abs(answer.latency.quantile_s(0.99) / row["simulated"]["p99"] - 1))
    assert len(errors) >= 12
    assert np.median(errors) < most


def test_a_fleet_unlike_the_simulated_ones_is_not_corrected_and_says_how_far_it_may_be_off() -> (
    None
):
    known = OperatingPoint(GPT3, 0.7 * 16 / 0.058 * 4, 4, Routing.LEAST_LOADED)
    varied = DynamicReplica(LinearServiceTime(0.050, 0.0005, 0.9), max_batch=16)
    assert routing_fit.covers(known)
    assert not routing_fit.covers(replace(known, replica=varied))
    assert not routing_fit.covers(replace(known, replicas=400, rate_per_s=100 * known.rate_per_s))
    assert "may be 7 % off" in ExactModel().sojourn(known, (0.99,)).warnings[0]
    unlike = ExactModel().sojourn(replace(known, replica=varied), (0.99,))
    assert "may be 20 % off" in unlike.warnings[0]


def test_a_correction_fades_with_the_distance_from_the_simulated_fleets() -> None:
    shape = routing_fit.Shape(0.06, 3.0, 0.9, (0.09, 0.12), (0.08, 0.11), 3.0)
    point = OperatingPoint(GPT3, 600.0, 4, Routing.LEAST_LOADED)
    features = routing_fit.features(point, shape)
    near = routing_fit.correction(Routing.LEAST_LOADED, features, (0.5, 0.99))
    far = routing_fit.correction(Routing.LEAST_LOADED, features + 1000.0, (0.5, 0.99))
    assert near.near > 0.5 and near.quantiles[0] != 1.0
    assert (far.mean, far.quantiles) == (1.0, (1.0, 1.0))
    assert far.near == pytest.approx(0.0, abs=1e-9)
