"""Dynamic batching against the reference table, its reductions and its traps."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sojourn.errors import ModelDomainError
from sojourn.facts.replica import DynamicReplica, OperatingPoint
from sojourn.facts.service_time import LinearServiceTime, MeasuredServiceTime
from sojourn.facts.sojourn import LatencyGoal, Sojourn
from sojourn.model import erlang, md1, mm1, screen
from sojourn.model.exact_model import ExactModel
from tests.unit.model import reference

LEVELS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
SINGLE = [r for r in reference.simulated("dynamic-batching") if r["regime"].startswith("single")]


def replica_of(inputs: dict[str, Any]) -> DynamicReplica:
    law = LinearServiceTime(inputs["t_fixed"], inputs["t_req"], inputs["cv2"])
    return DynamicReplica(law, inputs["bmax"], inputs["tmax"], inputs["cap"])


def answer_of(inputs: dict[str, Any]) -> Sojourn:
    point = OperatingPoint(replica_of(inputs), inputs["lam"], inputs.get("c", 1))
    return ExactModel().sojourn(point, tuple(LEVELS.values()))


def errors_of(row: dict[str, Any]) -> dict[str, float]:
    answer, simulated = answer_of(row["inputs"]), row["simulated"]
    values = {name: answer.latency.quantile_s(level) for name, level in LEVELS.items()}
    values |= {"mean": answer.latency.mean_s, "blocking": answer.blocking}
    return {
        name: values[name] / simulated[name] - 1 for name in values if simulated.get(name, 0) > 0
    }


def within_tolerance(row: dict[str, Any]) -> None:
    errors = errors_of(row)
    outside = {n: errors[n] for n, t in row["tolerance"].items() if abs(errors[n]) > t}
    assert not outside


@pytest.mark.parametrize("row", [r for r in SINGLE if r["inputs"]["cv2"] == 0], ids=reference.ids)
def test_fixed_service_time_is_within_tolerance_of_simulation(row: dict[str, Any]) -> None:
    within_tolerance(row)


@pytest.mark.parametrize(
    "row",
    [r for r in SINGLE if r["inputs"]["cv2"] > 0 and r["inputs"]["bmax"] <= 4],
    ids=reference.ids,
)
def test_varying_service_time_is_within_tolerance_of_simulation(row: dict[str, Any]) -> None:
    within_tolerance(row)


@pytest.mark.slow
@pytest.mark.parametrize(
    "row",
    [r for r in SINGLE if r["inputs"]["cv2"] > 0 and r["inputs"]["bmax"] > 4],
    ids=reference.ids,
)
def test_varying_service_time_of_large_batches_is_within_tolerance_of_simulation(
    row: dict[str, Any],
) -> None:
    within_tolerance(row)


def test_p99_of_fixed_times_below_load_90_percent_is_within_0_2_percent_in_the_median() -> None:
    errors = [
        abs(errors_of(row)["p99"])
        for row in SINGLE
        if row["regime"] == "single" and row["load"] < 0.9 and row["inputs"]["cv2"] == 0
    ]
    assert np.median(errors) <= 0.002
    assert max(errors) <= 0.02


def one_by_one(load: float, scv: float, capacity: int | None = None) -> Sojourn:
    replica = DynamicReplica(LinearServiceTime(1.0, 0.0, scv), 1, 0.0, capacity)
    return ExactModel().sojourn(OperatingPoint(replica, load), (0.5, 0.9, 0.99))


@pytest.mark.parametrize("load", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("scv", [0.0, 0.3, 1.0])
def test_batch_of_one_has_the_pollaczek_khinchine_mean(load: float, scv: float) -> None:
    expected = 1 + load * (1 + scv) / (2 * (1 - load))
    assert one_by_one(load, scv).latency.mean_s == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("load", [0.3, 0.8, 0.95])
def test_batch_of_one_with_a_fixed_time_is_m_d_1(load: float) -> None:
    answer = one_by_one(load, 0.0)
    for level in (0.9, 0.99):
        wait = answer.latency.quantile_s(level) - 1
        assert float(md1.wait_cdf(load, wait)) == pytest.approx(
            level, abs=2e-3 * (1 - level) + 1e-5
        )


@pytest.mark.parametrize("load", [0.3, 0.8, 0.95])
def test_batch_of_one_with_an_exponential_time_is_m_m_1(load: float) -> None:
    answer = one_by_one(load, 1.0)
    for level in (0.5, 0.9, 0.99):
        expected = float(mm1.latency_quantile_s(load, 1.0, level))
        assert answer.latency.quantile_s(level) == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize("load", [0.5, 1.0, 1.3])
def test_finite_queue_with_an_exponential_time_is_m_m_1_k(load: float) -> None:
    expected = erlang.finite_queue(load, 1.0, 1, 12)
    answer = one_by_one(load, 1.0, capacity=12)
    assert answer.blocking == pytest.approx(expected.blocking, rel=2e-5)
    assert answer.latency.mean_s == pytest.approx(expected.latency_mean_s, rel=2e-5)


@pytest.mark.slow
def test_long_finite_queue_at_load_one_is_m_m_1_k() -> None:
    expected = erlang.finite_queue(1.0, 1.0, 1, 3000)
    answer = one_by_one(1.0, 1.0, capacity=3000)
    assert answer.blocking == pytest.approx(expected.blocking, rel=1e-2)
    assert answer.latency.mean_s == pytest.approx(expected.latency_mean_s, rel=1e-2)


GPT3 = DynamicReplica(LinearServiceTime(0.050, 0.0005), max_batch=64)


@pytest.mark.parametrize("rate", [1.0, 20.0, 100.0, 300.0])
def test_mean_is_just_below_inoues_bound_when_the_batch_does_not_bind(
    rate: float,
) -> None:
    """E[T] <= min(phi0, phi1), Inoue, Perform. Eval. 147 (2021)."""
    law = LinearServiceTime(0.050, 0.0005)
    batch = math.ceil(3 * float(screen.self_regulated_batch(rate, law))) + 20
    answer = ExactModel().sojourn(OperatingPoint(replace(GPT3, max_batch=batch), rate), ())
    bound = float(screen.mean_latency_bound_s(rate, law))
    assert answer.latency.mean_s <= bound * 1.0015
    assert answer.latency.mean_s >= bound * 0.9


@pytest.mark.parametrize("wait_s", [0.0, 0.04])
@pytest.mark.parametrize("scv", [0.0, 0.2])
def test_lone_requests_wait_their_timer_out_and_run_alone(wait_s: float, scv: float) -> None:
    replica = DynamicReplica(LinearServiceTime(0.050, 0.0005, scv), 64, wait_s)
    answer = ExactModel().sojourn(OperatingPoint(replica, 1e-6), ())
    assert answer.latency.mean_s == pytest.approx(wait_s + 0.0505, rel=1e-5)


def test_window_without_end_always_runs_full_batches() -> None:
    replica = replace(GPT3, max_batch=8, max_wait_s=math.inf)
    answer = ExactModel().sojourn(OperatingPoint(replica, 100.0), (0.99,))
    assert answer.mean_batch == pytest.approx(8, rel=1e-9)
    assert answer.busy_fraction == pytest.approx(answer.utilisation, rel=1e-6)
    # Worked example, "real, batches always full": 91.7 / 173 ms.
    assert answer.latency.mean_s == pytest.approx(0.0917, rel=2e-3)
    assert answer.latency.quantile_s(0.99) == pytest.approx(0.173, rel=5e-3)


@pytest.mark.parametrize(
    ("batch", "mean_ms", "p99_ms"), [(8, 81.8, 123), (16, 79.4, 106), (32, 79.4, 106)]
)
def test_worked_example_without_a_window(batch: int, mean_ms: float, p99_ms: float) -> None:
    replica = replace(GPT3, max_batch=batch)
    answer = ExactModel().sojourn(OperatingPoint(replica, 100.0), (0.99,))
    assert answer.latency.mean_s * 1e3 == pytest.approx(mean_ms, rel=1e-3)
    assert answer.latency.quantile_s(0.99) * 1e3 == pytest.approx(p99_ms, rel=5e-3)


def test_load_is_not_the_busy_fraction() -> None:
    answer = ExactModel().sojourn(OperatingPoint(replace(GPT3, max_batch=16), 100.0), ())
    assert answer.utilisation == pytest.approx(0.3625)
    assert answer.busy_fraction == pytest.approx(0.999, abs=1e-3)
    assert answer.mean_batch == pytest.approx(5.27, abs=0.01)


@pytest.mark.parametrize("stretch", [1e-3, 1e3])
def test_stretched_time_stretches_percentiles_and_leaves_blocking(stretch: float) -> None:
    law = LinearServiceTime(0.03, 0.01, 0.2)
    one = DynamicReplica(law, 8, 0.05, 20)
    slow = DynamicReplica(
        LinearServiceTime(0.03 * stretch, 0.01 * stretch, 0.2), 8, 0.05 * stretch, 20
    )
    fast_answer = ExactModel().sojourn(OperatingPoint(one, 70.0), (0.99,))
    slow_answer = ExactModel().sojourn(OperatingPoint(slow, 70.0 / stretch), (0.99,))
    assert slow_answer.latency.quantile_s(0.99) == pytest.approx(
        fast_answer.latency.quantile_s(0.99) * stretch, rel=1e-6
    )
    assert slow_answer.blocking == pytest.approx(fast_answer.blocking, rel=1e-6)


def test_little_holds_and_the_parts_add_up() -> None:
    answer = answer_of(
        {
            "lam": 80.0,
            "t_fixed": 0.03,
            "t_req": 0.01,
            "cv2": 0.2,
            "bmax": 8,
            "tmax": 0.05,
            "cap": 12,
        }
    )
    parts = answer.queue_wait_s + answer.batch_wait_s + answer.service_s
    assert parts == pytest.approx(answer.latency.mean_s)
    assert answer.throughput_per_s == pytest.approx(80 * (1 - answer.blocking), rel=1e-4)
    assert answer.in_system == pytest.approx(answer.throughput_per_s * answer.latency.mean_s)


def test_measured_points_on_a_line_answer_like_the_line() -> None:
    points = tuple(range(1, 17))
    law = MeasuredServiceTime(points, tuple(0.05 + 0.0005 * b for b in points))
    for wait_s in (0.0, 0.02):
        line = replace(GPT3, max_batch=16, max_wait_s=wait_s)
        one = ExactModel().sojourn(OperatingPoint(line, 150.0), (0.99,))
        two = ExactModel().sojourn(OperatingPoint(replace(line, service=law), 150.0), (0.99,))
        assert two.latency.quantile_s(0.99) == pytest.approx(one.latency.quantile_s(0.99), rel=1e-9)


def test_queue_below_the_batch_bounds_the_batch_and_is_named() -> None:
    answer = ExactModel().sojourn(OperatingPoint(replace(GPT3, queue_capacity=3), 100.0), ())
    assert "queue capacity 3 is below max batch 64" in answer.warnings[0]
    three = replace(GPT3, queue_capacity=3, max_batch=3)
    assert answer.latency == ExactModel().sojourn(OperatingPoint(three, 100.0), ()).latency


@pytest.mark.parametrize("rate", [100.0, 5 / 0.05])
def test_load_of_one_or_more_without_a_bound_is_infinite(rate: float) -> None:
    replica = DynamicReplica(LinearServiceTime(0.05, 0.0), 5)
    answer = ExactModel().sojourn(OperatingPoint(replica, rate), (0.99,))
    assert math.isinf(answer.latency.mean_s)
    assert math.isinf(answer.latency.quantile_s(0.99))


def test_load_close_to_one_says_so() -> None:
    answer = ExactModel().sojourn(OperatingPoint(replace(GPT3, max_batch=8), 145.0), ())
    assert "too close to 1 to call" in answer.warnings[-1]


@pytest.mark.parametrize("rate", [-1.0, math.nan])
def test_a_rate_that_is_no_rate_is_a_named_error(rate: float) -> None:
    with pytest.raises(ModelDomainError, match="rate is"):
        ExactModel().sojourn(OperatingPoint(GPT3, rate), ())


def test_p99_rises_with_the_rate_when_the_window_is_within_the_service() -> None:
    rates = np.linspace(5, 480, 20)
    replica = replace(GPT3, max_batch=16, max_wait_s=0.05)
    p99_s = [
        ExactModel().sojourn(OperatingPoint(replica, r), (0.99,)).latency.quantile_s(0.99)
        for r in rates
        if r * 0.058 / 16 < 0.97
    ]
    assert np.all(np.diff(p99_s) >= -2e-3 * np.array(p99_s[:-1]))


def test_lambda_star_meets_the_goal_and_a_little_more_does_not() -> None:
    goal = LatencyGoal(latency_s=0.115, max_utilisation=0.9)
    found = ExactModel(precise=True).max_rate(replace(GPT3, max_batch=8), goal)

    def p99_s(rate: float) -> float:
        point = OperatingPoint(replace(GPT3, max_batch=8), rate)
        return ExactModel().sojourn(point, (0.99,)).latency.quantile_s(0.99)

    assert found.binding == "Latency"
    assert p99_s(found.rate_per_s) <= 0.115 < p99_s(found.rate_per_s * 1.005)


def test_goal_below_the_floor_is_answered_with_the_floor() -> None:
    found = ExactModel().max_rate(GPT3, LatencyGoal(latency_s=0.04))
    assert not found.reachable
    assert found.floor_s == pytest.approx(0.0505, rel=1e-3)
