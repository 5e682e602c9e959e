"""What the fresh rows and the fitted design are drawn from."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import queueing_design, queueing_fresh
from sojourn.facts.replica import DynamicReplica, Routing
from sojourn.model import service_time


def test_bursty_gaps_have_the_rate_and_the_dispersion_asked_for() -> None:
    times = queueing_fresh.hyperexponential(5.0, 3.0, 400_000, np.random.default_rng(1))
    gaps = np.diff(times)
    assert gaps.mean() == pytest.approx(0.2, rel=0.01)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(3.0, rel=0.03)


@pytest.mark.parametrize("number", range(6))
def test_a_fresh_row_repeats_and_says_what_was_simulated(number: int) -> None:
    row = queueing_fresh.row(number, seed=7, requests=400, dispersion=None)
    assert row == queueing_fresh.row(number, seed=7, requests=400, dispersion=None)
    assert 0.2 <= row["load"] <= 0.93
    metric = "p99" if row["system"] == "dynamic-batching" else "ttft_p99"
    assert row["simulated"][metric] > 0 and row["simulated"][f"{metric}_hw"] >= 0


def test_the_design_covers_its_box_in_units_of_a_full_batch() -> None:
    fleets = [queueing_design.fleet(number) for number in range(400)]
    for name, low, high in [("load", 0.15, 0.96), ("fixed_share", 0.06, 0.97), ("batch", 2, 60)]:
        values = [getattr(one, name) for one in fleets]
        assert min(values) <= low and max(values) >= high
    for one in fleets[:20]:
        point = one.point(Routing.LEAST_LOADED)
        assert isinstance(point.replica, DynamicReplica)
        full_s = service_time.service_s(point.replica.service, one.batch)
        assert float(full_s) == pytest.approx(1.0)
        assert point.rate_per_s == pytest.approx(one.load * one.batch * one.replicas)
