"""lambda1* and sizing under arrivals that vary more than Poisson's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sojourn.facts.replica import ContinuousReplica, DynamicReplica, OperatingPoint, Replica
from sojourn.facts.service_time import IterationTime, LinearServiceTime, TokenLengths
from sojourn.facts.sizing import ServingConstraint
from sojourn.facts.sojourn import LatencyGoal
from sojourn.model import fleet, max_rate, sizing
from sojourn.model.continuous import ContinuousModel
from sojourn.model.exact_model import ExactModel
from sojourn.model.protocol import QueueModel

CHAT = ContinuousReplica(
    IterationTime(0.012, 0.00015, 0.000025), TokenLengths(256, law="geometric"), 512.0, 64
)
BATCHES = DynamicReplica(LinearServiceTime(0.05, 0.0005), 16)
CASES: list[tuple[QueueModel, Replica, LatencyGoal]] = [
    (ContinuousModel(), CHAT, LatencyGoal(first_token_s=0.3, max_utilisation=0.95)),
    (ContinuousModel(), CHAT, LatencyGoal(output_token_s=0.024, max_utilisation=0.95)),
    (ExactModel(precise=True), BATCHES, LatencyGoal(latency_s=0.16, max_utilisation=0.95)),
    (
        ExactModel(precise=True),
        replace(BATCHES, max_batch=1),
        LatencyGoal(latency_s=0.3, max_utilisation=0.95),
    ),
]
KINDS = ["first token", "output token", "batches", "one by one"]


@pytest.mark.parametrize(("model", "replica", "goal"), CASES, ids=KINDS)
def test_the_largest_rate_falls_when_dispersion_rises(
    model: QueueModel, replica: Replica, goal: LatencyGoal
) -> None:
    rates = [model.max_rate(replica, goal, z).rate_per_s for z in (1.0, 2.0, 4.0)]
    assert rates[0] == model.max_rate(replica, goal).rate_per_s
    assert rates[0] > 1.01 * rates[1] > 1.01**2 * rates[2] > 0


@pytest.mark.parametrize(("model", "replica", "goal"), CASES, ids=KINDS)
@pytest.mark.parametrize("z", [1.0, 3.0])
def test_at_the_largest_rate_the_goal_is_met_and_one_percent_above_it_is_not(
    model: QueueModel, replica: Replica, goal: LatencyGoal, z: float
) -> None:
    rate = model.max_rate(replica, goal, z).rate_per_s
    at, above = (
        model.sojourn(OperatingPoint(replica, part * rate, dispersion=z), (goal.probability,))
        for part in (1.0, 1.01)
    )
    assert max_rate.excess(at, goal).ratio <= 1 < max_rate.excess(above, goal).ratio


@pytest.mark.parametrize("latency_s", [0.11, 0.13, 0.15, 0.2])
def test_the_table_of_poisson_arrivals_lowers_no_bursty_rate(latency_s: float) -> None:
    """Read off it, 80/s within 150 ms at a dispersion of 8 became 0.2/s."""
    goal = LatencyGoal(latency_s=latency_s, max_utilisation=0.85)
    one = replace(BATCHES, max_batch=8)
    for z in (1.5, 3.0, 8.0):
        assert ExactModel().max_rate(one, goal, z) == ExactModel(precise=True).max_rate(
            one, goal, z
        )


def test_replicas_that_share_a_stream_at_random_share_its_bursts() -> None:
    alone = ExactModel().sojourn(OperatingPoint(BATCHES, 150.0, dispersion=2.0), (0.99,))
    of_four = ExactModel().sojourn(OperatingPoint(BATCHES, 600.0, 4, dispersion=5.0), (0.99,))
    assert of_four.latency == alone.latency


def test_sizing_needs_more_replicas_for_burstier_arrivals() -> None:
    constraint = ServingConstraint(CHAT, CASES[0][2], 1, 64)
    sizes = [
        sizing.size(ContinuousModel(), replace(constraint, dispersion=z), 60.0) for z in (1.0, 6.0)
    ]
    assert sizes[0].replicas < sizes[1].replicas
    together = fleet.fleet([constraint, replace(constraint, dispersion=6.0)]).size([60.0, 60.0])
    assert list(together.replicas) == [one.replicas for one in sizes]


def test_batches_of_bursty_services_are_not_read_from_the_table_of_poisson_arrivals() -> None:
    constraint = ServingConstraint(BATCHES, CASES[2][2], 1, 16)
    several = fleet.fleet([constraint, replace(constraint, dispersion=4.0)])
    calm, bursty = several.size([500.0, 500.0]).rate_per_replica_per_s
    assert bursty < calm
