"""Dynamic batching with service times that vary, against long simulations of its own.

Rows: tests/data/dynamic_varying.json, which says how they were made.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sojourn.facts.replica import DynamicReplica, OperatingPoint
from sojourn.facts.service_time import LinearServiceTime
from sojourn.facts.sojourn import Sojourn
from sojourn.model.dynamic import answer, distribution
from sojourn.model.dynamic.problem import Problem
from sojourn.model.exact_model import ExactModel
from tests.unit.model import reference

ROWS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "dynamic_varying.json").read_text()
)["rows"]
LEVELS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def answer_of(row: dict[str, Any]) -> Sojourn:
    inputs = row["inputs"]
    law = LinearServiceTime(inputs["t_fixed"], inputs["t_req"], inputs["cv2"])
    replica = DynamicReplica(law, inputs["bmax"], inputs["tmax"], inputs["cap"])
    point = OperatingPoint(replica, inputs["lam"])
    return ExactModel().sojourn(point, tuple(LEVELS.values()))


def errors_of(row: dict[str, Any]) -> dict[str, float]:
    """Relative errors beyond the simulation's half-width, 0 within it."""
    found, given = answer_of(row), row["simulated"]
    values = {name: found.latency.quantile_s(level) for name, level in LEVELS.items()}
    values["mean"] = found.latency.mean_s
    if given["blocking"] > 1e-4:
        values["blocking"] = found.blocking
    return {
        name: max(0.0, abs(value - given[name]) - given[name + "_hw"]) / given[name]
        for name, value in values.items()
    }


@pytest.mark.parametrize("row", ROWS, ids=reference.ids)
def test_varying_times_are_answered_within_a_long_simulation(row: dict[str, Any]) -> None:
    errors = errors_of(row)
    assert errors.pop("blocking", 0.0) <= 5e-3
    assert max(errors.values()) <= 2e-3, errors


def test_p99_of_varying_times_is_within_0_1_percent_in_the_median_interval_included() -> None:
    short = [row for row in ROWS if row["simulated"]["p99_hw"] < 2e-3 * row["simulated"]["p99"]]
    errors = [
        answer_of(row).latency.quantile_s(0.99) / row["simulated"]["p99"] - 1 for row in short
    ]
    assert len(errors) >= 20
    assert np.median(np.abs(errors)) <= 1e-3
    assert abs(np.median(errors)) <= 1e-3  # nor is it low or high as a rule


@pytest.mark.parametrize("row", ROWS, ids=reference.ids)
def test_percentiles_and_means_come_to_the_same_by_two_ways(row: dict[str, Any]) -> None:
    """The mean of the law is not the mean of the cycle: nothing of one is in the other."""
    inputs = row["inputs"]
    law = LinearServiceTime(inputs["t_fixed"], inputs["t_req"], inputs["cv2"])
    problem = Problem(inputs["lam"], law, inputs["bmax"], inputs["tmax"], inputs["cap"])
    solved = answer.solve(problem)
    found = distribution.response(problem, solved.stationary, solved.oldest)
    above = 1 - (found.cdf[1:] + found.cdf[:-1]) / 2
    assert above @ np.diff(found.edges_s) == pytest.approx(solved.mean_s, rel=1e-3)
    assert found.mass == pytest.approx(solved.means.mean_batch, rel=2e-3)


@pytest.mark.parametrize(("batch", "scv", "load"), [(64, 1.0, 0.9), (200, 0.3, 0.95)])
def test_a_long_finite_queue_without_loss_answers_like_an_unbounded_one(
    batch: int, scv: float, load: float
) -> None:
    """States in steps and a geometric tail on one side, an end of the queue on the other."""
    law = LinearServiceTime(0.5, 0.5 / batch, scv)
    open_end = DynamicReplica(law, batch, 0.5)
    # Losses of e^-20: rare, and yet more than what the model takes for no bound at all.
    decay = Problem(load * batch, law, batch, 0.5, None).decay
    bounded = DynamicReplica(law, batch, 0.5, batch + round(20 / -math.log(decay)))
    both = [
        ExactModel().sojourn(OperatingPoint(one, load * batch), (0.5, 0.99))
        for one in (open_end, bounded)
    ]
    assert 0 < both[1].blocking < 1e-6
    assert both[0].latency.mean_s == pytest.approx(both[1].latency.mean_s, rel=2e-3)
    for level in (0.5, 0.99):
        assert both[0].latency.quantile_s(level) == pytest.approx(
            both[1].latency.quantile_s(level), rel=2e-3
        )
