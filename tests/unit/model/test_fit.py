"""Fitting T_fixed and t_req (S11 step 1)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.errors import FitRefused
from sojourn.facts.fit import ServiceTimeFit
from sojourn.model import fit


@pytest.mark.parametrize("method", [fit.fit, fit.fit_least_squares])
def test_books_profile_of_1_8_32_gives_gpt3(method: Callable[..., ServiceTimeFit]) -> None:
    found = method([1, 8, 32], [0.0505, 0.054, 0.066])
    assert found.law.fixed_s == pytest.approx(0.050)
    assert found.law.per_request_s == pytest.approx(0.0005)
    assert found.r_squared == pytest.approx(1)
    assert found.is_linear and found.is_valid
    assert (found.smallest_batch, found.largest_batch) == (1, 32)


@pytest.mark.parametrize("batches", [[4, 4, 4], [1]])
def test_batches_that_do_not_vary_are_refused(batches: list[int]) -> None:
    with pytest.raises(FitRefused, match="2 or more needed"):
        fit.fit(batches, [0.05] * len(batches))


def test_time_that_falls_with_the_batch_is_refused() -> None:
    with pytest.raises(FitRefused, match="falls with the batch"):
        fit.fit([1, 8, 32], [0.10, 0.05, 0.02])


def test_noise_around_a_flat_curve_is_a_good_fit_with_a_low_r_squared() -> None:
    found = fit.fit([1, 2, 4, 8], [0.100, 0.099, 0.101, 0.100])
    assert found.is_linear
    assert found.r_squared < 0.5


def test_bent_curve_is_not_linear_and_names_its_worst_batch() -> None:
    found = fit.fit([1, 2, 4, 8, 64], [0.02, 0.021, 0.03, 0.2, 0.25])
    assert not found.is_valid
    assert found.worst_batch in {1, 2, 4, 8, 64}


def test_extrapolation_beyond_twice_the_range_is_named() -> None:
    found = fit.fit([1, 8, 32], [0.0505, 0.054, 0.066])
    assert not found.extrapolates(64)
    assert found.extrapolates(65)


@given(
    seconds=st.lists(st.floats(0.01, 10), min_size=3, max_size=8),
)
def test_no_other_line_has_a_smaller_relative_error(seconds: list[float]) -> None:
    sizes = np.array([1.0, 2, 4, 8, 16, 32, 64, 128])[: len(seconds)]
    times = np.sort(np.array(seconds))
    fixed, slope = fit.least_relative_error(sizes, times)
    best = np.max(np.abs(fixed + slope * sizes - times) / times)
    assert fixed >= 0 and slope >= 0
    for f in np.linspace(0, times.max(), 15):
        for r in np.linspace(0, 2 * (times / sizes).max(), 40):
            assert best <= np.max(np.abs(f + r * sizes - times) / times) + 1e-9
