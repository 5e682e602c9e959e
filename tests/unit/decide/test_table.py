"""The decision table: four rows at the live point, Steady otherwise."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.decide.capacity import Serving
from sojourn.decide.table import Live, evaluate
from sojourn.facts.policy import Policy
from sojourn.facts.reasons import Reason
from tests.unit.decide.builders import autoscaled

OPPOSITE = {
    Reason.UTILIZATION_LOW: {
        Reason.BATCH_BELOW_MINIMUM,
        Reason.LATENCY_ABOVE_SLO,
        Reason.UTILIZATION_HIGH,
    },
    Reason.BATCH_BELOW_MINIMUM: {Reason.UTILIZATION_LOW},
    Reason.LATENCY_ABOVE_SLO: {Reason.UTILIZATION_LOW},
    Reason.UTILIZATION_HIGH: {Reason.UTILIZATION_LOW},
}


@cache
def book(max_batch: int = 8, slo_s: float = 1.0) -> Serving:
    return autoscaled(engine={"max_batch": max_batch}, slo={"latency_s": slo_s})


def live(one: Serving, rate_per_s: float, replicas: int) -> Live:
    return Live(one, Policy(), rate_per_s, replicas, one.service.bounds.maximum)


@pytest.mark.parametrize(
    ("rate", "replicas", "reason", "wanted"),
    [
        pytest.param(200, 1, Reason.BATCH_BELOW_MINIMUM, 2, id="rho 1.35 at B 8: unstable"),
        pytest.param(130, 1, Reason.UTILIZATION_HIGH, 2, id="rho 0.88 above 0.85"),
        pytest.param(120, 1, Reason.STEADY, 1, id="rho 0.81 between the thresholds"),
        pytest.param(100, 4, Reason.UTILIZATION_LOW, 1, id="rho 0.17 below 0.50"),
        pytest.param(0, 3, Reason.UTILIZATION_LOW, 0, id="idle and seen to be idle"),
        pytest.param(10, 0, Reason.BATCH_BELOW_MINIMUM, 1, id="traffic and no replica"),
    ],
)
def test_the_first_row_that_matches_fires(
    rate: float, replicas: int, reason: Reason, wanted: int
) -> None:
    row = evaluate(live(book(), rate, replicas))
    assert (row.reason, row.replicas) == (reason, wanted)


def test_a_missed_slo_fires_below_the_utilisation_threshold() -> None:
    # At B 8 a lone request takes 50.5 ms; an SLO of 120 ms binds long before rho 0.85.
    one = book(slo_s=0.12)
    row = evaluate(live(one, 110, 1))
    assert row.reason is Reason.LATENCY_ABOVE_SLO
    assert row.replicas == 2


def test_steady_says_why_a_low_utilisation_changes_nothing() -> None:
    one = book(slo_s=0.11)
    rate = 0.97 * 3 * one.within_goal(8).rate_per_s
    row = evaluate(live(one, rate, 3))
    assert row.reason is Reason.STEADY
    if live(one, rate, 3).utilisation < 0.5:
        assert "3 replicas are the least" in row.message


@given(
    rate=st.floats(0, 3000),
    more=st.floats(0, 500),
    batch=st.sampled_from([4, 8, 32]),
    slo_s=st.sampled_from([0.2, 1.0]),
)
def test_more_load_never_needs_fewer_replicas(
    rate: float, more: float, batch: int, slo_s: float
) -> None:
    one = book(batch, slo_s)
    assert live(one, rate, 1).needed <= live(one, rate + more, 1).needed


@given(
    rate=st.floats(0, 3000),
    replicas=st.integers(0, 60),
    batch=st.sampled_from([4, 8, 32]),
    slo_s=st.sampled_from([0.2, 1.0]),
)
def test_after_an_action_the_opposite_row_does_not_fire(
    rate: float, replicas: int, batch: int, slo_s: float
) -> None:
    one = book(batch, slo_s)
    first = evaluate(live(one, rate, replicas))
    second = evaluate(live(one, rate, first.replicas))
    assert second.reason not in OPPOSITE.get(first.reason, set())
    assert second.replicas == first.replicas
