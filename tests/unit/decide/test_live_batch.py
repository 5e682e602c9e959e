"""Max batch of engines that take it while they run: at tick speed, inside the interval."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from sojourn.act.execute import Applied
from sojourn.controller import past as past_of
from sojourn.decide.capacity import Serving
from sojourn.facts.declaration import BatchPolicy, Mode
from sojourn.facts.plan import Plan
from sojourn.facts.reading import Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import EnginePod, Past
from tests.unit.decide.builders import NOW_S, autoscaled, plan

PODS = (EnginePod("chat-0", "10.0.0.1", "uid/0"), EnginePod("chat-1", "10.0.0.2", "uid/0"))
TARGET = {"engine_pods": PODS, "max_batch": 32, "batch_referenced": False}


@cache
def triton(**scaling: Any) -> Serving:
    engine = {"name": "triton", "min_batch": 1, "max_batch": 32, "max_batch_wait_s": 0.0}
    return autoscaled(engine=engine, scaling={"batch_policy": BatchPolicy.LIVE, **scaling})


def decided(rate: float | Unknown, past: Past, **target: Any) -> Plan:
    return plan(triton(), rate, 2, past=past, target={**TARGET, **target})


def given(max_batch: int | None) -> Past:
    return Past(0.0, live_batch=max_batch)


def test_another_batch_is_given_at_once_without_patience_rollout_or_reference() -> None:
    past = replace(given(8), batch_changed_at_s=NOW_S - 20)
    done = decided(300, past, rollout_running=True)
    assert done.live_max_batch is not None
    assert done.live_max_batch.max_batch == done.decision.after.max_batch == 32
    assert done.live_max_batch.pods == PODS
    assert done.live_max_batch.port == 8000
    assert not done.write_max_batch
    assert [event.reason for event in done.events] == [Reason.BATCH_CHANGED]


def test_a_larger_batch_answers_an_unstable_queue_instead_of_replicas() -> None:
    """300/s on two replicas: 296/s at max batch 8, 970/s at 32."""
    done = decided(300, given(8))
    assert done.decision.row is Reason.BATCH_BELOW_MINIMUM
    assert done.decision.after.replicas == 2
    assert "with max batch 32 these are enough" in done.decision.message


def test_a_batch_that_was_refused_is_not_counted_on() -> None:
    past = replace(given(8), live_refused_at_s=NOW_S - 30)
    done = decided(300, past)
    assert (done.decision.after.replicas or 0) > 2
    assert done.live_max_batch is not None


def test_a_batch_within_tolerance_is_kept_and_still_repeated_for_new_pods() -> None:
    done = decided(600, given(30))
    assert done.live_max_batch is not None
    assert done.live_max_batch.max_batch == 30
    assert done.events == ()


def test_no_engine_gets_more_than_it_was_started_with() -> None:
    done = decided(300, given(4), max_batch=16)
    assert done.live_max_batch is not None
    assert done.live_max_batch.max_batch == 16


def test_while_the_rate_is_unknown_restarted_pods_get_the_last_batch() -> None:
    blind = Unknown(Reason.NO_SERIES, "no series")
    held = decided(blind, given(8))
    assert held.live_max_batch is not None
    assert held.live_max_batch.max_batch == 8
    assert decided(blind, given(None)).live_max_batch is None


@pytest.mark.parametrize(
    "scaling", [{"mode": Mode.RECOMMEND}, {"mode": Mode.OFF}, {"batch_policy": BatchPolicy.FIXED}]
)
def test_recommend_off_and_fixed_give_nothing(scaling: dict[str, Any]) -> None:
    one = triton(**scaling)
    assert plan(one, 300, 2, past=given(8), target=TARGET).live_max_batch is None


def test_an_engine_that_cannot_is_told_to_use_a_rollout() -> None:
    engine = {"name": "vllm", "min_batch": 1, "max_batch": 32}
    one = autoscaled(engine=engine, scaling={"batch_policy": BatchPolicy.LIVE})
    done = plan(one, 300, 2, past=given(None), target=TARGET)
    assert done.live_max_batch is None
    assert not done.write_max_batch


def test_the_past_holds_what_every_pod_took_and_when_one_did_not() -> None:
    done = decided(300, given(8))
    taken = past_of.after(given(8), Applied(done, live_batch=32), NOW_S)
    assert (taken.live_batch, taken.live_refused_at_s) == (32, None)
    assert taken.batch_changed_at_s == NOW_S
    refused = past_of.after(given(8), Applied(done), NOW_S)
    assert (refused.live_batch, refused.live_refused_at_s) == (8, NOW_S)
