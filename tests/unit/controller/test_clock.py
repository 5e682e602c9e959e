"""A wall that is set under a running process moves no age."""

from __future__ import annotations

from dataclasses import fields

import pytest

from sojourn.controller.clock import Clock, moved
from sojourn.facts.situation import (
    Past,
    RateSample,
    Recommendation,
    ScaleEvent,
    ServiceSample,
)


class Wall:
    """Two clocks of a machine."""

    def __init__(self) -> None:
        self.wall_s, self.steady_s = 1e9, 5.0

    def passes(self, seconds: float, *, set_by_s: float = 0.0) -> None:
        self.wall_s += seconds + set_by_s
        self.steady_s += seconds


@pytest.mark.parametrize("set_by_s", [90.0, -90.0, -3600.0])
def test_a_setting_is_told_once_and_time_that_passes_is_none(set_by_s: float) -> None:
    """FC-141."""
    machine = Wall()
    clock = Clock(lambda: machine.wall_s, lambda: machine.steady_s)
    machine.passes(15.0)
    assert clock.set_by_s() == 0
    machine.passes(15.0, set_by_s=set_by_s)
    assert clock.set_by_s() == pytest.approx(set_by_s)
    machine.passes(36_000.0)
    assert clock.set_by_s() == 0


def test_slow_drift_is_no_setting() -> None:
    machine = Wall()
    clock = Clock(lambda: machine.wall_s, lambda: machine.steady_s)
    for _ in range(1000):
        machine.passes(15.0, set_by_s=0.01)
        assert clock.set_by_s() == 0


def test_every_time_that_is_remembered_moves_with_the_wall() -> None:
    past = Past(
        since_s=1.0,
        recommendations=(Recommendation(2.0, 4),),
        scale_events=(ScaleEvent(3.0, 1),),
        rates=(RateSample(4.0, 9.0),),
        service_samples=(ServiceSample(5.0, 8.0, 0.1),),
        batch_changed_at_s=6.0,
        batch_wanted_since_s=7.0,
        reverted_at_s=(8.0,),
        live_refused_at_s=9.0,
        decided_at_s=10.0,
        unbroken_since_s=11.0,
    )
    later = moved(past, 100.0)
    assert later.since_s == 101.0
    assert later.recommendations == (Recommendation(102.0, 4),)
    assert later.scale_events == (ScaleEvent(103.0, 1),)
    assert later.rates == (RateSample(104.0, 9.0),)
    assert later.service_samples == (ServiceSample(105.0, 8.0, 0.1),)
    assert (later.batch_changed_at_s, later.batch_wanted_since_s) == (106.0, 107.0)
    assert (later.reverted_at_s, later.live_refused_at_s) == ((108.0,), 109.0)
    assert (later.decided_at_s, later.unbroken_since_s) == (110.0, 111.0)
    assert moved(later, -100.0) == past


def test_no_time_in_the_past_is_forgotten() -> None:
    """A field of time that is added must be moved too."""
    times = {f.name for f in fields(Past) if f.name.endswith("_s")}
    assert times == {
        "since_s",
        "batch_changed_at_s",
        "batch_wanted_since_s",
        "reverted_at_s",
        "live_refused_at_s",
        "decided_at_s",
        "unbroken_since_s",
    }
