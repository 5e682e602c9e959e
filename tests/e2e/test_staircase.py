"""The staircase: replicas follow the load, the SLO is kept, every change has its reason."""

import itertools
import math
import time

import numpy as np
import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.demo import scenario, summary
from tests.e2e.demo.stage import Actor, Sample, Stage
from tests.e2e.demo.theatre import COLD_START_S
from tests.e2e.house import House

TREAD_S = 24.0
# From the start of a tread: the window of rates, two ticks, the cold start; then the requests that
# queued meanwhile are served.
SETTLING_S = 16.0
SAMPLE_S = 0.5
RATES = (60.0, 140.0, 280.0, 60.0)
SLACK_S = 2.0  # a scrape of 1 s, and the sampling on both sides


@pytest.fixture(scope="module")
def played(house: House, control_plane: ControlPlane) -> tuple[House, Stage, int]:
    """The staircase, played to its end once for all tests of this module; and where it began."""
    namespace = control_plane.create_namespace("staircase")
    since = control_plane.audit_position()
    stage = house.stage(namespace, [scenario.gpt3(RATES, (TREAD_S,) * len(RATES))])
    stage.start()
    while stage.elapsed_s < stage.duration_s:
        stage.sample()
        # The pace of the record: there is no condition to wait for.
        time.sleep(SAMPLE_S)
    return house, stage, since


def gpt3(stage: Stage) -> Actor:
    return stage.actors["gpt3"]


def tread(samples: list[Sample], number: int) -> list[Sample]:
    """The settled part of a tread."""
    begins, ends = number * TREAD_S + SETTLING_S, (number + 1) * TREAD_S
    return [sample for sample in samples if begins <= sample.at_s < ends]


def test_replicas_rise_and_fall_with_the_load(played: tuple[House, Stage, int]) -> None:
    _, stage, _ = played
    samples = gpt3(stage).samples
    settled = [tread(samples, number)[-1].desired for number in range(len(RATES))]
    assert settled[:3] == sorted(settled[:3])
    assert settled == [1, 2, 3, 1]


def test_never_below_the_need_for_longer_than_a_cold_start_and_two_ticks(
    played: tuple[House, Stage, int],
) -> None:
    house, stage, _ = played
    actor = gpt3(stage)
    allowed_s = COLD_START_S + 2 * house.tick_s + SLACK_S
    # Need at the rate as the router counted it: a window sees a step only once it has happened.
    below = [
        (s.at_s, s.ready < actor.forecast.wanted(s.sent_per_s, s.ready, s.max_batch))
        for s in actor.samples
    ]
    for short, run in itertools.groupby(below, key=lambda pair: pair[1]):
        times = [at_s for at_s, _ in run]
        if short:
            assert times[-1] - times[0] <= allowed_s, f"below the need from {times[0]:.1f} s on"


def test_the_measured_p99_keeps_the_slo_in_steady_phases(
    played: tuple[House, Stage, int],
) -> None:
    _, stage, _ = played
    actor = gpt3(stage)
    for number in range(len(RATES)):
        begins_s = stage.started_at_s + number * TREAD_S
        latencies = actor.latencies_s(begins_s + SETTLING_S, begins_s + TREAD_S - 1.0)
        assert len(latencies) > 100
        assert np.percentile(latencies, 99) <= actor.forecast.slo_s
    assert actor.attainment() > 0.99


def test_the_model_predicts_what_is_measured(played: tuple[House, Stage, int]) -> None:
    _, stage, _ = played
    actor = gpt3(stage)
    # The treads without a queue left over from a change.
    for number in (0, len(RATES) - 1):
        last = tread(actor.samples, number)[-1]
        assert math.isfinite(last.predicted_s)
        assert last.p99_s == pytest.approx(last.predicted_s, rel=0.25)


def test_every_change_has_an_event_and_a_reason(played: tuple[House, Stage, int]) -> None:
    house, stage, since = played
    events = summary.decisions(house.client, stage.namespace)
    told = [event for event in events if event["reason"] in ("ScaledUp", "ScaledDown")]
    written = [
        event
        for event in house.writes(stage.namespace, since)
        if event["objectRef"].get("subresource") == "scale"
    ]
    assert len(written) == len(told) > 0
    for event in told:
        assert event["regarding"]["name"] == "gpt3"
        row = event["note"].split(":")[0]
        assert row in ("UtilizationHigh", "UtilizationLow", "LatencyAboveSLO", "BatchBelowMinimum")
        assert any(figure.isdigit() for figure in event["note"])
    history = house.status(stage.namespace, "gpt3")["history"]
    assert [change["to"]["replicas"] for change in history] == [
        change["to"]["replicas"] for change in sorted(history, key=lambda c: c["at"], reverse=True)
    ]
    assert all(change["row"] and change["message"] for change in history)


def test_the_operator_s_log_has_no_traceback(played: tuple[House, Stage, int]) -> None:
    house, _, _ = played
    assert house.installation.tracebacks() == []
