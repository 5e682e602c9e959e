"""Arrivals behind a router that counts, in the steps of one replica."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import continuous_rows
from sojourn.facts.replica import ContinuousReplica, OperatingPoint, Routing
from sojourn.facts.service_time import IterationTime, TokenLengths
from sojourn.model.continuous import ContinuousModel, levelled
from sojourn.model.continuous.arrivals import arrivals
from sojourn.model.continuous.machine import machine
from tests.unit.model import reference

ROWS = {row["id"]: row for row in reference.simulated("continuous-batching-fleet")}
CHAT = ContinuousReplica(
    IterationTime(0.012, 0.00015, 0.000025), TokenLengths(64, law="geometric"), 1024.0, 32
)


def fleet(
    load: float, routing: Routing = Routing.LEAST_LOADED, replicas: int = 4
) -> OperatingPoint:
    rate_per_s = load * machine(CHAT).capacity_per_s * replicas
    return OperatingPoint(CHAT, rate_per_s, replicas, routing)


@pytest.mark.parametrize("row_id", ["fleet-001", "fleet-007", "fleet-023"])
def test_where_nobody_queues_p99_of_the_first_token_is_the_simulated_one(row_id: str) -> None:
    row = ROWS[row_id]
    predicted, _ = continuous_rows.predict(row["inputs"])
    assert predicted["ttft_p99"] == pytest.approx(row["simulated"]["ttft_p99"], rel=0.01)


def test_a_newcomer_keeps_the_next_ones_away() -> None:
    shares = []
    for routing in (Routing.LEAST_LOADED, Routing.RANDOM):
        answer = ContinuousModel().sojourn(fleet(0.5, routing), (0.95,))
        assert answer.time_to_first_token is not None
        shares.append(answer.time_to_first_token.quantile_s(0.95))
    assert shares[0] < 0.96 * shares[1]


def test_fewer_requests_than_replicas_each_find_an_empty_one() -> None:
    answer = ContinuousModel().sojourn(fleet(0.02, replicas=8), (0.5, 0.99))
    assert answer.time_to_first_token is not None
    alone_s = 0.012 + 1024 * 0.000025
    assert answer.time_to_first_token.quantile_s(0.99) == pytest.approx(alone_s, rel=0.02)
    assert 0 < answer.busy_fraction < 0.5


def test_several_arrivals_a_step_are_left_to_chance() -> None:
    crowded = replace(CHAT, prompt_tokens=64.0, output=TokenLengths(4, law="geometric"))
    rate_per_s = 0.9 * machine(crowded).capacity_per_s
    stream = arrivals(OperatingPoint(crowded, 4 * rate_per_s, 4, Routing.LEAST_LOADED))
    assert not levelled.applies(machine(crowded), stream)
    assert levelled.applies(machine(CHAT), arrivals(fleet(0.6)))
    assert not levelled.applies(machine(CHAT), arrivals(fleet(0.6, Routing.ROUND_ROBIN)))
