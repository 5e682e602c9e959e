"""Traps of queueing computations that have no test of their own elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from sojourn.facts.replica import DynamicReplica, OperatingPoint
from sojourn.facts.service_time import LinearServiceTime
from sojourn.model import poisson
from sojourn.model.dynamic import counts
from sojourn.model.exact_model import ExactModel


def test_counts_of_a_mean_of_zero_and_of_ten_thousand_are_probabilities() -> None:
    assert poisson.pmf(0.0, 3).tolist() == [1, 0, 0]
    assert poisson.pmf(1e4, 12_000).sum() == pytest.approx(1)
    assert poisson.tail(0.0, 1) == 0
    assert poisson.tail(1e-3, 2) == pytest.approx(5e-7, rel=1e-3)


def test_negative_binomial_with_little_variance_is_poisson() -> None:
    varied = counts.pmf(np.array([7.0]), 1e-6, 40)[0]
    assert varied == pytest.approx(poisson.pmf(7.0, 40), abs=1e-5)


@pytest.mark.parametrize("shape", [0.4, 1.0, 10.0, 400.0])
def test_gamma_tail_is_that_of_scipy(shape: float) -> None:
    points = shape * np.array([0.0, 0.01, 0.5, 0.99, 1.0, 1.05, 2.0, 5.0])
    expected = special.gammaincc(shape, points)
    assert counts.gamma_tail(shape, points) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("wait_s", [0.0505, 0.0520, 0.0541])
def test_window_between_two_service_times_changes_nothing_suddenly(wait_s: float) -> None:
    """T just above s_b for some b and below for others."""
    law = LinearServiceTime(0.050, 0.0005)

    def mean_s(window_s: float) -> float:
        point = OperatingPoint(DynamicReplica(law, 8, window_s), 100.0)
        return ExactModel().sojourn(point, ()).latency.mean_s

    assert mean_s(wait_s + 1e-6) == pytest.approx(mean_s(wait_s - 1e-6), rel=2e-3)


def test_batch_a_request_is_in_is_larger_than_the_batch_a_server_runs() -> None:
    law = LinearServiceTime(0.0, 0.010)
    answer = ExactModel().sojourn(OperatingPoint(DynamicReplica(law, 32), 50.0), ())
    assert answer.service_s > 0.010 * answer.mean_batch * 1.05


def test_lone_requests_behind_a_timer_have_a_two_point_law() -> None:
    law = LinearServiceTime(0.050, 0.0005)
    point = OperatingPoint(DynamicReplica(law, 16, 0.040), 0.01)
    answer = ExactModel().sojourn(point, (0.5, 0.99))
    for _, seconds in answer.latency.quantiles_s:
        assert seconds == pytest.approx(0.040 + 0.0505, rel=2e-3)
