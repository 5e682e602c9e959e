"""What replicas can take: the batch that carries a rate, ranks, rounding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.decide.capacity import MANY_REPLICAS, replicas_for
from tests.unit.decide.builders import autoscaled, plan


def test_the_books_least_batches_are_found_by_bisection() -> None:
    one = autoscaled()
    assert one.least_batch(100, 1, 1.0) == 6
    assert one.least_batch(100, 1, 0.75) == 8
    assert one.utilisation(100, 1, 4) == pytest.approx(1.30)
    assert one.utilisation(100, 2, 4) == pytest.approx(0.65)


def test_no_batch_carries_more_than_the_marginal_rate() -> None:
    # 1 / t_req = 2000/s is what no batch reaches (S2).
    assert autoscaled().least_batch(2100, 1, 1.0) is None


def test_data_parallel_ranks_multiply_what_a_replica_takes() -> None:
    one, two = autoscaled(), autoscaled(gpu={"data_parallel": 2})
    assert two.capacity_per_s(8) == pytest.approx(2 * one.capacity_per_s(8))
    assert plan(two, 400, 1).decision.after.replicas == 2
    assert plan(one, 400, 1).decision.after.replicas == 4


@given(replicas=st.integers(1, 10_000), rate=st.floats(1e-3, 1e4))
def test_a_rate_that_fills_replicas_exactly_asks_for_no_more(replicas: int, rate: float) -> None:
    assert replicas_for(replicas * rate, rate) == replicas


def test_no_rate_needs_no_replica_and_no_capacity_needs_too_many() -> None:
    assert replicas_for(0.0, 5.0) == 0
    assert replicas_for(1.0, 0.0) == MANY_REPLICAS
