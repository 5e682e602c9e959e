"""Dispersion z: measuring it, Hayward's approximation, and the batch server's correction."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.errors import ModelDomainError
from sojourn.facts.replica import DynamicReplica, OperatingPoint
from sojourn.facts.service_time import LinearServiceTime
from sojourn.model import burstiness, erlang
from sojourn.model.exact_model import ExactModel

GPT3 = DynamicReplica(LinearServiceTime(0.050, 0.0005), max_batch=16)


def test_poisson_counts_have_dispersion_near_one_and_groups_that_of_the_group() -> None:
    rng = np.random.default_rng(1)
    counts = rng.poisson(50, 60)
    assert burstiness.peakedness(counts) == pytest.approx(1, abs=0.5)
    assert burstiness.peakedness(4 * counts) == pytest.approx(4, abs=2)


@pytest.mark.parametrize("counts", [[100] * 29, [1] * 60, []])
def test_too_few_intervals_or_arrivals_say_nothing(counts: list[int]) -> None:
    assert burstiness.peakedness(counts) is None


def test_even_counts_are_taken_for_poisson() -> None:
    assert burstiness.peakedness([10] * 60) == 1.0


@given(slots=st.integers(1, 200), share=st.floats(0.05, 0.99))
def test_erlang_b_for_whole_slots_is_erlangs(slots: int, share: float) -> None:
    assert burstiness.loss(slots, slots * share) == pytest.approx(
        erlang.loss(slots, slots * share), rel=1e-9
    )


@given(slots=st.floats(1, 50), offered=st.floats(0.5, 40))
def test_erlang_b_lies_between_its_whole_neighbours(slots: float, offered: float) -> None:
    found = burstiness.loss(slots, offered)
    assert erlang.loss(math.ceil(slots), offered) <= found * (1 + 1e-3)
    assert found <= erlang.loss(math.floor(slots), offered) * (1 + 1e-3)


def test_hayward_with_poisson_arrivals_is_erlang_c() -> None:
    wait = erlang.delay(10, 8.0) / 2
    assert burstiness.mean_wait_s(10, 8.0, 1.0, 1.0) == pytest.approx(wait, rel=1e-9)


@given(offered=st.floats(1, 60), z=st.floats(1, 8))
def test_burstier_arrivals_never_need_fewer_slots(offered: float, z: float) -> None:
    smooth = burstiness.slots_needed(offered, 1.0, 1.0, 0.05)
    bursty = burstiness.slots_needed(offered, 1.0, z, 0.05)
    assert bursty >= smooth > offered
    assert burstiness.mean_wait_s(bursty, offered, 1.0, z) <= 0.05


def test_correction_leaves_poisson_alone_and_raises_bursty_ones() -> None:
    smooth = ExactModel().sojourn(OperatingPoint(GPT3, 200.0), (0.5, 0.99))
    same = ExactModel().sojourn(OperatingPoint(GPT3, 200.0, dispersion=0.5), (0.5, 0.99))
    bursty = ExactModel().sojourn(OperatingPoint(GPT3, 200.0, dispersion=4.0), (0.5, 0.99))
    assert same == smooth
    assert bursty.latency.quantile_s(0.99) > smooth.latency.quantile_s(0.99)
    assert "4.0 times as variable as Poisson" in bursty.warnings[-1]


def test_dispersion_above_ten_says_that_no_load_limit_protects() -> None:
    answer = ExactModel().sojourn(OperatingPoint(GPT3, 200.0, dispersion=30.0), (0.99,))
    assert "no load limit protects P99" in answer.warnings[-1]


@pytest.mark.parametrize("z", [-1.0, math.nan])
def test_dispersion_that_is_none_is_a_named_error(z: float) -> None:
    with pytest.raises(ModelDomainError, match="dispersion"):
        burstiness.hayward(10, 8.0, z)
