"""Plans: holds, evidence, limits, what is written and what is only said."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.decide.capacity import Serving
from sojourn.facts.declaration import Actuation, Mode
from sojourn.facts.plan import Plan
from sojourn.facts.reading import Known, Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import (
    Past,
    RateSample,
    Recommendation,
    ScaleEvent,
    Signals,
    Situation,
)
from tests.unit.decide import builders
from tests.unit.decide.builders import NOW_S, autoscaled, plan, situation

BLIND = Unknown(Reason.PROMETHEUS_UNAVAILABLE, "connection refused")


@cache
def book(**scaling: object) -> Serving:
    return autoscaled(scaling=scaling)


def condition(one: Plan, kind: str) -> tuple[bool | None, Reason]:
    return next((c.status, c.reason) for c in one.conditions if c.type == kind)


def test_load_above_the_threshold_writes_more_replicas_and_tells_the_event() -> None:
    one = plan(book(), 400, 2)
    assert one.decision.row is Reason.BATCH_BELOW_MINIMUM
    assert one.write_replicas
    assert one.decision.after.replicas == 4
    (event,) = one.events
    assert event.reason is Reason.SCALED_UP
    assert "2 -> 4 replicas" in event.message


def test_a_steady_service_writes_nothing_and_tells_nothing() -> None:
    one = plan(book(), 200, 2)
    assert one.decision.row is Reason.STEADY
    assert not one.write_replicas
    assert not one.write_max_batch
    assert one.events == ()


def test_unknown_rate_holds_replicas_and_says_why() -> None:
    one = plan(book(), BLIND, 7)
    assert one.decision.row is Reason.HOLD
    assert not one.write_replicas
    assert one.decision.after.replicas == 7
    assert condition(one, "MetricsAvailable") == (False, Reason.PROMETHEUS_UNAVAILABLE)
    assert condition(one, "Ready") == (False, Reason.PROMETHEUS_UNAVAILABLE)


def test_a_retry_storm_adds_replicas_removes_none_and_is_told() -> None:
    for rate, replicas, after in ((400.0, 2, 4), (20.0, 5, 5)):
        state = situation(book(), rate, replicas)
        storm = Signals(rate_per_s=Known(rate, NOW_S, lower_bound=True), retry_storm="a refuses")
        one = builders.replan(state, book(), signals=storm)
        assert one.decision.after.replicas == after
        assert condition(one, "MetricsAvailable") == (True, Reason.RETRY_STORM)


def bursty(one: Serving, replicas: int, z: int) -> Situation:
    """100/s whose half hour of minutes varies ``z`` times as much as Poisson's."""
    rng = np.random.default_rng(1)
    counts = z * rng.poisson(6000 / z, 30)
    rates = tuple(RateSample(NOW_S - 1800 + 60.0 * i, c / 60) for i, c in enumerate(counts))
    state = situation(one, 100.0, replicas)
    return replace(state, past=replace(state.past, rates=rates))


def test_bursty_arrivals_want_the_replicas_that_calm_them_and_no_more() -> None:
    """S9 at B = 8 within 130 ms: one replica takes 104/s of a Poisson stream."""
    tight = autoscaled(slo={"latency_s": 0.13})
    for replicas, calm in ((1, Reason.STEADY), (2, Reason.UTILIZATION_LOW)):
        assert builders.replan(bursty(tight, replicas, 1), tight).decision.row is calm
    one = builders.replan(bursty(tight, 1, 8), tight)
    assert one.decision.row is Reason.LATENCY_ABOVE_SLO
    assert one.decision.after.replicas == 2
    assert "arrivals vary" in one.decision.message
    two = builders.replan(bursty(tight, 2, 8), tight)
    assert two.decision.after.replicas == 2, "what one sees of two is what was decided for one"


def test_bursts_matter_to_no_service_without_a_latency_goal() -> None:
    loose = autoscaled(slo={"latency_s": 5.0})
    assert builders.replan(bursty(loose, 1, 8), loose).decision.after.replicas == 1


def test_the_floor_holds_with_every_metric_unknown() -> None:
    one = plan(book(min_replicas=3), BLIND, 1)
    assert one.write_replicas
    assert one.decision.after.replicas == 3
    assert one.decision.limited_by[0].reason is Reason.MIN_REPLICAS


def test_an_unknown_rate_never_lowers_replicas_above_the_ceiling() -> None:
    assert not plan(book(max_replicas=5), BLIND, 9).write_replicas


def test_a_lower_bound_of_the_rate_adds_but_never_removes() -> None:
    state = situation(book(), 20, 6)
    thin = Signals(rate_per_s=Known(20, NOW_S, lower_bound=True))
    held = builders.replan(state, book(), signals=thin)
    assert held.decision.after.replicas == 6
    assert held.decision.limited_by[0].reason is Reason.EVIDENCE
    busy = Signals(rate_per_s=Known(2000, NOW_S, lower_bound=True))
    assert (builders.replan(state, book(), signals=busy).decision.after.replicas or 0) > 6


def test_a_young_pod_blocks_scale_down_until_the_window_is_full() -> None:
    one = plan(book(), 20, 6, target={"youngest_ready_at_s": NOW_S - 10})
    assert one.decision.after.replicas == 6
    assert one.decision.limited_by[0].reason is Reason.EVIDENCE


def test_a_restarted_process_does_not_scale_down_before_it_has_seen_a_window() -> None:
    one = plan(book(), 20, 6, past=Past(since_s=NOW_S - 30))
    assert one.decision.after.replicas == 6
    assert one.decision.limited_by[-1].reason is Reason.STABILIZATION


def test_scale_down_goes_to_the_largest_need_of_the_window() -> None:
    past = Past(0.0, (Recommendation(NOW_S - 100, 4), Recommendation(NOW_S - 15, 2)))
    one = plan(book(), 20, 6, past=past)
    assert one.decision.raw.replicas == 1
    assert one.decision.after.replicas == 4


def test_a_missing_target_is_a_condition_and_no_write() -> None:
    state = builders.without_target(situation(book(), 20, 2))
    one = builders.replan(state, book())
    assert not one.write_replicas
    assert condition(one, "AbleToScale") == (False, Reason.TARGET_MISSING)


@pytest.mark.parametrize(
    ("scaling", "reason"),
    [
        ({"mode": Mode.RECOMMEND}, Reason.RECOMMEND),
        ({"actuation": Actuation.METRIC}, Reason.RECOMMEND),
    ],
)
def test_recommend_and_metric_decide_and_write_nothing(
    scaling: dict[str, object], reason: Reason
) -> None:
    one = plan(book(**scaling), 400, 2)
    assert one.decision.after.replicas == 4
    assert not one.write_replicas
    assert one.decision.limited_by[-1].reason is reason


def test_a_second_owner_of_the_target_stops_every_write() -> None:
    one = plan(book(), 400, 2, target={"other_owners": ("HorizontalPodAutoscaler chat",)})
    assert not one.write_replicas
    assert condition(one, "Conflict") == (True, Reason.TARGET_CONFLICT)


def test_off_and_paused_write_nothing_even_below_the_floor() -> None:
    assert not plan(book(mode=Mode.OFF, min_replicas=2), 400, 1).write_replicas
    paused = autoscaled(paused=True, scaling={"min_replicas": 2})
    assert not plan(paused, 400, 1).write_replicas


def test_quota_stops_growth_and_removes_nothing() -> None:
    one = plan(book(), 900, 3, quota=4)
    assert one.decision.after.replicas == 4
    assert one.decision.limited_by[-1].reason is Reason.QUOTA
    assert plan(book(), 400, 4, quota=2).decision.after.replicas == 4


def test_an_slo_out_of_reach_is_said_and_sized_by_utilisation() -> None:
    one = plan(autoscaled(slo={"latency_s": 0.04}), 400, 2)
    assert condition(one, "SLOAttainable") == (False, Reason.SLO_UNREACHABLE)
    assert one.decision.after.replicas == 4


@given(
    rate=st.one_of(st.floats(0, 5000), st.just(None)),
    replicas=st.integers(0, 60),
    lowest=st.integers(1, 5),
    highest=st.integers(5, 50),
)
def test_written_replicas_are_within_bounds_and_never_fewer_without_evidence(
    rate: float | None, replicas: int, lowest: int, highest: int
) -> None:
    one = book(min_replicas=lowest, max_replicas=highest)
    done = plan(one, BLIND if rate is None else rate, replicas)
    if done.write_replicas:
        assert done.decision.after.replicas is not None
        assert lowest <= done.decision.after.replicas <= highest
        if rate is None:
            assert done.decision.after.replicas > replicas


@given(rate=st.floats(0, 3000), more=st.floats(0, 1000), replicas=st.integers(0, 40))
def test_more_offered_load_never_gives_fewer_replicas(
    rate: float, more: float, replicas: int
) -> None:
    low, high = plan(book(), rate, replicas), plan(book(), rate + more, replicas)
    assert (low.decision.after.replicas or 0) <= (high.decision.after.replicas or 0)


def slow(measured_s: float, bucket: tuple[float, float]) -> Signals:
    return Signals(
        rate_per_s=Known(200, NOW_S),
        latency_p99_s=Known(measured_s, NOW_S),
        latency_p99_bucket_s=bucket,
    )


def test_a_measured_miss_of_the_slo_adds_replicas_where_the_model_agrees() -> None:
    one = autoscaled(slo={"latency_s": 0.2})
    calm = builders.replan(situation(one, 200, 2), one)
    assert calm.decision.row is Reason.STEADY
    missed = builders.replan(situation(one, 200, 2), one, signals=slow(0.27, (0.25, 0.3)))
    assert missed.decision.row is Reason.LATENCY_ABOVE_SLO
    assert (missed.decision.after.replicas or 0) > 2
    assert "measured latency 250ms" in missed.decision.message


def test_a_measured_miss_within_its_bucket_or_soon_after_a_change_is_no_evidence() -> None:
    one = autoscaled(slo={"latency_s": 0.2})
    within = builders.replan(situation(one, 200, 2), one, signals=slow(0.27, (0.1, 0.3)))
    assert within.decision.row is Reason.STEADY
    fresh = Past(0.0, scale_events=(ScaleEvent(NOW_S - 30, 1),))
    soon = situation(one, 200, 2, past=fresh)
    assert builders.replan(soon, one, signals=slow(0.27, (0.25, 0.3))).decision.row is Reason.STEADY


def test_pods_that_cannot_be_placed_are_told_with_the_clusters_words() -> None:
    one = plan(book(), 200, 2, target={"ready_replicas": 1, "blocked": "Unschedulable: 0/4 nodes"})
    assert condition(one, "Ready") == (True, Reason.CAPACITY_BLOCKED)
    assert one.decision.after.replicas == 2


def test_littles_law_is_checked_where_the_setting_is_settled() -> None:
    def seen(running: float, past: Past = builders.LONG_SEEN) -> bool | None:
        one = book()
        state = situation(one, 200, 2, past=past)
        signals = Signals(
            rate_per_s=Known(200, NOW_S), running=Known(running, NOW_S), waiting=Known(0, NOW_S)
        )
        return builders.replan(state, one, signals=signals).report.littles_law_agrees

    # 200/s at a mean near 80 ms keep about 16 requests in the system.
    assert seen(17) is True
    assert seen(60) is False
    assert seen(60, Past(NOW_S - 30)) is None
