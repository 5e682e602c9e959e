"""A Plan as a status, and what of it is worth a write."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.api.changes import HEARTBEAT_S, Change, age_s, change
from sojourn.api.status import MOST_BYTES, status
from sojourn.api.v1alpha1.status import InferenceServiceStatus
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.plan import Clip, Condition, Limits, Setting
from sojourn.facts.reading import Known, Unknown
from sojourn.facts.reasons import Reason
from tests.unit.api.plans import AT_S, CONDITIONS, NOW, decision, plan, predicted, report, steady

LATER = "2026-01-31T09:00:00Z"


def test_a_plan_renders_as_the_status_of_the_specification() -> None:
    assert status(plan(), None, NOW) == {
        "observedGeneration": 7,
        "replicas": {"current": 6, "ready": 6, "desired": 7},
        "maxBatch": {"current": 24, "desired": 24, "changing": False},
        "rate": {"state": "Known", "value": "38400m", "source": "Prometheus", "at": NOW},
        "utilizationPercent": 71,
        "regime": "LatencyKnee",
        "latency": {
            "predicted": {
                "p50": "750ms",
                "p99": "1.62s",
                "waiting": "200ms",
                "batching": "0s",
                "service": "600ms",
            },
            "measured": {"p50": "740ms", "p99": "1.55s"},
        },
        "littlesLaw": {"predictedInSystem": "15", "measuredInSystem": "14"},
        "limits": {
            "minBatch": 12,
            "maxBatchForSLO": 40,
            "maxBatchForMemory": 106,
            "ratePerReplica": "6200m",
            "maxStableRate": "51500m",
            "binding": "Latency",
        },
        "limitedBy": "MaxReplicas",
        "lastDecision": {
            "at": NOW,
            "row": "UtilizationHigh",
            "from": {"replicas": 6, "maxBatch": 24},
            "to": {"replicas": 7, "maxBatch": 24},
            "raw": {"replicas": 8, "maxBatch": 24},
            "limitedBy": ["MaxReplicas"],
            "message": "utilisation 0.87 > 0.85 at 38.4/s; 7 replicas give 0.74, P99 1.62s <= 2s",
        },
        "history": [
            {
                "at": NOW,
                "row": "UtilizationHigh",
                "from": {"replicas": 6, "maxBatch": 24},
                "to": {"replicas": 7, "maxBatch": 24},
                "message": "utilisation 0.87 > 0.85 at 38.4/s; 7 replicas give 0.74,"
                " P99 1.62s <= 2s",
            }
        ],
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Converged",
                "message": "decided from fresh metrics of this target",
                "observedGeneration": 7,
                "lastTransitionTime": NOW,
            },
            {
                "type": "SLOAttainable",
                "status": "Unknown",
                "reason": "NotObserved",
                "message": "not judged",
                "observedGeneration": 7,
                "lastTransitionTime": NOW,
            },
            {
                "type": "Conflict",
                "status": "False",
                "reason": "NoConflict",
                "message": "nobody else scales the target",
                "observedGeneration": 7,
                "lastTransitionTime": NOW,
            },
        ],
    }


def test_a_rendered_status_is_one_its_own_schema_takes() -> None:
    InferenceServiceStatus.model_validate(status(plan(), None, NOW))


def test_the_same_plan_gives_the_same_status_apart_from_times() -> None:
    assert status(plan(), None, NOW) == status(plan(), None, NOW)


def test_an_idle_service_and_an_unknown_rate_look_different() -> None:
    idle = status(plan(report=report(0.0)), None, NOW)["rate"]
    why = Unknown(Reason.NO_SERIES, "no series")
    blind = status(plan(report=report(rate_per_s=0, **{}, in_system=why)), None, NOW)
    unknown = status(plan(report=replace(report(), rate_per_s=why)), None, NOW)["rate"]
    assert idle == {"state": "Zero", "value": "0", "source": "Prometheus", "at": NOW}
    assert unknown == {"state": "Unknown", "reason": "NoSeries", "message": "no series"}
    assert "measuredInSystem" not in blind["littlesLaw"]


def test_an_unstable_service_shows_its_load_without_a_prediction() -> None:
    shown = status(plan(report=report(predicted=None, utilisation=1.3)), None, NOW)
    assert shown["utilizationPercent"] == 130
    assert "predicted" not in shown["latency"]


def test_an_unbounded_latency_is_said_and_an_infinite_load_left_out() -> None:
    endless = replace(predicted(math.inf), queue_wait_s=math.inf)
    shown = status(plan(report=report(predicted=endless)), None, NOW)
    assert shown["latency"]["predicted"]["waiting"] == "unbounded"
    assert "utilizationPercent" not in shown


def test_without_a_clip_the_bound_of_the_rate_is_what_limits() -> None:
    assert status(steady(), None, NOW)["limitedBy"] == "Latency"


def test_a_transition_time_stays_while_the_status_of_the_condition_stays() -> None:
    first = status(steady(), None, NOW)
    changed = (replace(CONDITIONS[0], status=False, reason=Reason.HOLD), *CONDITIONS[1:])
    second = status(steady(conditions=changed), first, LATER)
    times = {c["type"]: c["lastTransitionTime"] for c in second["conditions"]}
    assert times == {"Ready": LATER, "SLOAttainable": NOW, "Conflict": NOW}


def test_the_history_keeps_the_five_latest_changes_newest_first() -> None:
    shown: dict[str, Any] | None = None
    for step in range(8):
        changed = decision(step, step + 1, AT_S + 60 * step)
        shown = status(plan(decision=changed), shown, NOW)
    assert shown is not None
    assert [change["to"]["replicas"] for change in shown["history"]] == [8, 7, 6, 5, 4]


def test_a_steady_decision_adds_nothing_to_the_history() -> None:
    first = status(plan(), None, NOW)
    assert status(steady(), first, LATER)["history"] == first["history"]


def test_a_change_decided_again_because_its_write_failed_is_one_change() -> None:
    first = status(plan(), None, NOW)
    again = status(plan(decision=decision(at_s=AT_S + 15)), first, LATER)
    assert again["history"] == first["history"]


def test_a_previous_status_of_another_shape_is_no_obstacle() -> None:
    odd = {"history": "x", "conditions": [3, {"type": "Ready"}], "lastDecision": []}
    assert status(plan(), odd, NOW)["history"]
    assert change(odd, status(plan(), odd, NOW)) is Change.FACT
    assert age_s(odd, status(plan(), odd, NOW)) == math.inf


def long_plan(length: int) -> Any:
    text = "ü" * length
    findings = tuple(
        Finding(Reason.UNSTABLE, Verdict.REJECT, f"spec.f{i}" + text, text) for i in range(30)
    )
    return plan(
        decision=decision(
            message=text, limited_by=tuple(Clip(r, 1, text) for r in list(Reason)[:5])
        ),
        conditions=tuple(Condition(f"C{i}", True, Reason.FITS, text) for i in range(10)),
        findings=findings,
    )


@pytest.mark.parametrize("length", [10, 100, 1000, 100_000])
def test_a_status_stays_below_8_kB_whatever_the_texts(length: int) -> None:
    shown: dict[str, Any] | None = None
    for step in range(6):
        changed = replace(
            long_plan(length).decision, after=replace(decision().after, replicas=step)
        )
        shown = status(replace(long_plan(length), decision=changed), shown, NOW)
    assert len(json.dumps(shown, ensure_ascii=False).encode()) < MOST_BYTES
    InferenceServiceStatus.model_validate(shown)


def test_one_long_message_is_cut_at_1_kB() -> None:
    shown = status(plan(decision=decision(message="x" * 5000)), None, NOW)
    assert len(shown["lastDecision"]["message"].encode()) == 1024
    assert shown["lastDecision"]["message"].endswith("…")


def after(rate_per_s: float = 38.4, **changes: Any) -> Change:
    """How urgent the next status is once a steady plan's was written."""
    first = status(steady(), None, NOW)
    return change(first, status(steady(AT_S + 15, rate_per_s, **changes), first, LATER))


@pytest.mark.parametrize(
    ("rate_per_s", "urgency"),
    [
        pytest.param(38.4, Change.NOTHING, id="steady"),
        pytest.param(42.0, Change.NOTHING, id="9 percent, as noise of 5 percent brings"),
        pytest.param(44.0, Change.LASTING, id="14 percent"),
        pytest.param(90.0, Change.FACT, id="doubled"),
        pytest.param(17.0, Change.FACT, id="halved"),
    ],
)
def test_a_rate_is_told_when_it_moved(rate_per_s: float, urgency: Change) -> None:
    assert after(rate_per_s) is urgency


def test_three_requests_a_minute_and_six_are_the_same_rate() -> None:
    few = status(steady(rate_per_s=0.05), None, NOW)
    assert change(few, status(steady(AT_S + 15, 0.1), few, LATER)) is Change.NOTHING


def test_zero_and_unknown_are_written_at_once() -> None:
    assert after(0.0) is Change.FACT
    blind = replace(report(), rate_per_s=Unknown(Reason.STALE_SERIES, "no sample in 300 s"))
    assert after(report=blind) is Change.FACT


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"ready_replicas": 5}, id="ready"),
        pytest.param({"rollout_running": True}, id="rollout"),
        pytest.param({"conditions": CONDITIONS[:2]}, id="condition gone"),
        pytest.param(
            {"conditions": (replace(CONDITIONS[0], reason=Reason.HOLD), *CONDITIONS[1:])},
            id="reason",
        ),
        pytest.param(
            {"conditions": (replace(CONDITIONS[0], message="by hpa/chat"), *CONDITIONS[1:])},
            id="other words",
        ),
        pytest.param(
            {"findings": (Finding(Reason.UNSTABLE, Verdict.WARN, "spec", "x"),)}, id="finding"
        ),
        pytest.param({"ref": replace(plan().ref, generation=8)}, id="generation"),
        pytest.param({"decision": replace(steady().decision, after=Setting(9, 24))}, id="setting"),
    ],
)
def test_facts_are_written_at_once(changes: dict[str, Any]) -> None:
    assert after(**changes) is Change.FACT


def wishing(reason: Reason) -> dict[str, Any]:
    """A need of one replica more that some limit holds back, as a plan tells it."""
    row = replace(steady().decision, row=Reason.UTILIZATION_HIGH, message="too much", raw=WISH)
    limit = Condition("ScalingLimited", True, reason, "6 of 7 wanted")
    return {
        "decision": replace(row, limited_by=(Clip(reason, 6, "6 of 7 wanted"),)),
        "conditions": (*FREE[:-1], limit),
    }


WISH = Setting(7, 24)
FREE = (*CONDITIONS, Condition("ScalingLimited", False, Reason.UNLIMITED, "no limit"))


@pytest.mark.parametrize(
    ("reason", "urgency"),
    [
        (Reason.STABILIZATION, Change.LASTING),
        (Reason.TOLERANCE, Change.LASTING),
        (Reason.MAX_REPLICAS, Change.FACT),
        (Reason.QUOTA, Change.FACT),
    ],
)
def test_a_wish_that_only_waits_has_to_last_and_one_that_cannot_be_met_is_told(
    reason: Reason, urgency: Change
) -> None:
    first = status(steady(conditions=FREE), None, NOW)
    new = status(steady(AT_S + 15, **wishing(reason)), first, LATER)
    assert change(first, new) is urgency
    assert change(new, status(steady(AT_S + 30, conditions=FREE), new, LATER)) is urgency


def test_figures_inside_messages_are_no_reason_to_write() -> None:
    calm = (replace(CONDITIONS[0], message="load 0.71 at 38.4/s"), *CONDITIONS[1:])
    other = (replace(CONDITIONS[0], message="load 0.72 at 39.1/s"), *CONDITIONS[1:])
    first = status(steady(conditions=calm), None, NOW)
    assert change(first, status(steady(conditions=other), first, LATER)) is Change.NOTHING


def test_numbers_that_follow_the_rate_have_to_move_by_half() -> None:
    assert after(report=report(predicted=predicted(0.9))) is Change.NOTHING
    assert after(report=report(predicted=predicted(2.0))) is Change.LASTING


def test_requests_in_the_system_jump_about_and_are_no_reason_to_write() -> None:
    assert after(report=report(in_system=Known(30.0, AT_S))) is Change.NOTHING


def test_a_first_status_and_an_empty_one_are_written() -> None:
    assert change(None, status(plan(), None, NOW)) is Change.FACT
    assert change({}, status(plan(), None, NOW)) is Change.FACT


def test_a_status_is_as_old_as_its_decision_and_of_no_age_when_time_ran_back() -> None:
    first = status(steady(), None, NOW)
    assert age_s(first, status(steady(AT_S + HEARTBEAT_S), first, LATER)) == HEARTBEAT_S
    assert age_s(first, status(steady(AT_S - 3600), first, LATER)) == math.inf


@given(st.text(max_size=300), st.floats(), st.floats())
@settings(max_examples=150, deadline=None)
def test_any_numbers_and_texts_render(text: str, rate: float, load: float) -> None:
    odd = plan(
        decision=decision(message=text, at_s=rate),
        report=report(
            rate,
            in_system=Known(load, rate),
            latency_p99_s=Known(load, rate),
            predicted=replace(predicted(load), in_system=load, queue_wait_s=load),
            limits=Limits(rate_per_replica=load, max_stable_rate=rate),
        ),
    )
    first = status(odd, None, NOW)
    json.dumps(first, allow_nan=False)
    change(first, status(odd, first, LATER))
