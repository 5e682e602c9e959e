"""The slow loop of max batch: a rollout must be worth it, affordable, and harmless."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sojourn.decide import batch_loop
from sojourn.decide.batch_loop import BatchMove, BatchWish
from sojourn.facts.declaration import BatchPolicy, BatchRefMode, MaxBatchRef
from sojourn.facts.policy import Policy
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import Past, ScaleEvent, TargetState
from tests.unit.decide.builders import NOW_S, autoscaled, plan, situation

PATIENT = Past(0.0, batch_wanted_since_s=NOW_S - 700)
WISH = BatchWish(
    live=8, wanted=32, feasible=(6, 32), replicas_saved=2, restores_slo=False, replicas_needed=3
)


def move(
    wish: BatchWish = WISH,
    past: Past = PATIENT,
    target: dict[str, object] | None = None,
    **changes: object,
) -> BatchMove:
    one = autoscaled(engine={"min_batch": 1, "max_batch": 32}, **changes)
    state = situation(one, 300, 4, past=past, target=target)
    assert isinstance(state.target, TargetState)
    return batch_loop.move(state, state.target, wish, Policy())


def test_a_larger_batch_that_saves_replicas_is_rolled_out_once_it_was_wanted_long_enough() -> None:
    done = move()
    assert (done.write, done.max_batch, done.reason) == (True, 32, Reason.BATCH_CHANGED)
    assert "saves 2 replicas" in done.message


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"past": Past(0.0, batch_wanted_since_s=NOW_S - 100)}, "wanted for 100 s of 600 s"),
        ({"target": {"rollout_running": True}}, "a rollout is running"),
        ({"target": {"pods_pending": 2}}, "2 pods are still starting"),
        ({"target": {"batch_referenced": False}}, "no argument of the target refers"),
        (
            {"past": replace(PATIENT, scale_events=(ScaleEvent(NOW_S - 20, 1),))},
            "the scale changed less than 60 s ago",
        ),
        ({"past": replace(PATIENT, batch_changed_at_s=NOW_S - 900)}, "last changed 900 s ago"),
        ({"target": {"batch_written_at_s": NOW_S - 700}}, "last changed 700 s ago"),
        ({"target": {"rollout_unavailable": 2}}, "set the strategy's maxUnavailable to 0"),
        ({"scaling": {"batch_policy": BatchPolicy.FIXED}}, "maxBatchPolicy is Fixed"),
        ({"wish": replace(WISH, replicas_saved=0)}, "no replica saved"),
    ],
)
def test_each_objection_keeps_the_live_batch_and_says_why(
    changes: dict[str, object], why: str
) -> None:
    done = move(**changes)  # type: ignore[arg-type]
    assert not done.write
    assert done.max_batch == 8
    assert why in done.message


def test_a_batch_within_a_quarter_of_the_wanted_one_is_left_alone() -> None:
    done = move(replace(WISH, wanted=9))
    assert (done.write, done.wanted) == (False, False)


def test_an_urgent_reduction_skips_the_patience_and_not_the_budget() -> None:
    urgent = replace(WISH, live=32, wanted=8, restores_slo=True, replicas_saved=0)
    fresh = Past(0.0)
    assert move(urgent, fresh).write
    recent = replace(fresh, batch_changed_at_s=NOW_S - 900)
    assert not move(urgent, recent).write


def test_a_mode_that_is_not_the_environment_is_not_written() -> None:
    ref = MaxBatchRef(BatchRefMode.NONE)
    done = batch_loop.move(
        situation(autoscaled(engine={"max_batch_ref": ref}), 300, 4),
        TargetState(spec_replicas=4, ready_replicas=4, batch_referenced=True),
        WISH,
        Policy(),
    )
    assert not done.write


def test_a_variable_that_was_never_set_is_set() -> None:
    one = autoscaled(engine={"max_batch": 32})
    done = plan(one, 300, 4, target={"max_batch": None})
    assert done.write_max_batch
    assert done.decision.after.max_batch == 32
