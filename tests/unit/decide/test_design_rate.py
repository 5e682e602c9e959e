"""The design rate: trend upwards only, bounded, and burstiness apart from drift."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.decide import bursts
from sojourn.decide.design_rate import LARGEST_GROWTH, design_rate
from sojourn.facts.situation import Past, RateSample

WINDOW_S = 60.0


def past(rates: list[float], step_s: float = 15.0) -> Past:
    return Past(0.0, rates=tuple(RateSample(i * step_s, r) for i, r in enumerate(rates)))


def test_without_history_the_design_rate_is_the_rate_now() -> None:
    answer = design_rate(40.0, Past(0.0), WINDOW_S, 240.0)
    assert (answer.rate_per_s, answer.text) == (40.0, "")


def test_a_rising_rate_is_carried_over_the_cold_start() -> None:
    rising = [100 + 0.5 * 15 * i for i in range(20)]
    answer = design_rate(rising[-1], past(rising), WINDOW_S, 240.0)
    assert answer.trend_per_s2 == pytest.approx(0.5)
    assert answer.rate_per_s == pytest.approx(rising[-1] + 120)
    assert "rising" in answer.text


def test_growth_is_at_most_a_doubling() -> None:
    rising = [10 + 15.0 * i for i in range(20)]
    answer = design_rate(rising[-1], past(rising), WINDOW_S, 3600.0)
    assert answer.rate_per_s == LARGEST_GROWTH * rising[-1]


def test_a_step_that_is_over_is_carried_no_further() -> None:
    """FC-040 after a quiet hour: from 600/s to 1600/s within one window, then flat."""
    step = [*[600.0] * 12, 850.0, 1100.0, 1350.0, *[1600.0] * 5]
    found = design_rate(1600.0, past(step), WINDOW_S, 255.0)
    assert found.rate_per_s == 1600.0
    still = design_rate(1350.0, past(step[:15]), WINDOW_S, 255.0)
    assert still.rate_per_s > 1600.0


def test_a_falling_rate_is_not_carried_down() -> None:
    falling = [500 - 10.0 * i for i in range(20)]
    assert design_rate(falling[-1], past(falling), WINDOW_S, 240.0).rate_per_s == falling[-1]


def test_poisson_noise_seldom_passes_for_a_trend() -> None:
    rng = np.random.default_rng(7)
    grown = 0
    for _ in range(200):
        counts = rng.poisson(40 * 15, 40)
        rates = [float(counts[i : i + 4].sum() / 60) for i in range(37)]
        grown += design_rate(rates[-1], past(rates), WINDOW_S, 240.0).trend_per_s2 > 0
    assert grown <= 20


def test_poisson_counts_are_no_bursts_and_grouped_ones_are() -> None:
    rng = np.random.default_rng(3)
    calm = [float(c) / 60 for c in rng.poisson(600, 30)]
    assert design_rate(10, past(calm, 60), WINDOW_S, 0).burstiness == 1
    draws = [past([float(c) / 60 for c in 8 * rng.poisson(75, 30)], 60) for _ in range(101)]
    found = [design_rate(10, drawn, WINDOW_S, 0) for drawn in draws]
    assert np.median([one.burstiness for one in found]) == pytest.approx(8, rel=0.2)
    assert "times as much as Poisson's" in found[0].text


def test_thirty_windows_of_a_poisson_stream_hardly_ever_pass_for_bursts() -> None:
    rng = np.random.default_rng(11)
    found = [
        bursts.peakedness(bursts.windows(past([c / 60 for c in counts], 60).rates, 60.0))
        for counts in rng.poisson(600, (1000, 30))
    ]
    assert sum(z > 1 for z in found) <= 5


def test_a_steady_drift_and_a_step_of_the_load_are_no_bursts() -> None:
    drift = [100.0 + i for i in range(30)]
    assert design_rate(130, past(drift, 60), WINDOW_S, 0).burstiness == 1
    rng = np.random.default_rng(5)
    step = [float(c) / 60 for c in (*rng.poisson(600, 15), *rng.poisson(6000, 15))]
    assert design_rate(100, past(step, 60), WINDOW_S, 0).burstiness == 1


def test_fewer_than_twenty_windows_say_nothing_of_bursts() -> None:
    assert design_rate(10, past([1.0, 100.0] * 9, 60), WINDOW_S, 0).burstiness == 1


@given(z=st.floats(1, 1e6), replicas=st.integers(0, 1000))
def test_one_of_many_replicas_sees_its_share_of_the_excess(z: float, replicas: int) -> None:
    one = bursts.of_one(z, replicas)
    assert one in bursts.STEPS
    assert one <= 1 + (z - 1) / max(1, replicas) + 1e-9
    assert bursts.of_one(z, replicas + 1) <= one


@given(rates=st.lists(st.floats(0, 1e4), max_size=40), now=st.floats(0, 1e4))
def test_the_design_rate_is_never_below_the_rate_now(rates: list[float], now: float) -> None:
    answer = design_rate(now, past(rates), WINDOW_S, 240.0)
    assert now <= answer.rate_per_s <= max(now, LARGEST_GROWTH * now)
    assert answer.burstiness >= 1
