"""A Plan as a status, and when that status is worth a write."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.api.status import MOST_BYTES, changed_materially, status
from sojourn.api.v1alpha1.status import InferenceServiceStatus
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.plan import Clip, Condition, Limits
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
    assert changed_materially(odd, status(plan(), odd, NOW))


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


def after(seconds: float, rate_per_s: float = 38.4, **changes: Any) -> bool:
    """Whether a steady plan that much later is written."""
    first = status(steady(), None, NOW)
    new = status(steady(AT_S + seconds, rate_per_s, **changes), first, LATER)
    return changed_materially(first, new)


@pytest.mark.parametrize(
    ("seconds", "rate_per_s", "due"),
    [
        pytest.param(15, 38.4, False, id="steady"),
        pytest.param(285, 38.4, False, id="steady for nearly 5 minutes"),
        pytest.param(300, 38.4, True, id="heartbeat"),
        pytest.param(285, 39.5, False, id="3 percent never before the heartbeat"),
        pytest.param(15, 42.0, False, id="9 percent not within a minute"),
        pytest.param(75, 42.0, True, id="9 percent after a minute"),
        pytest.param(15, 90.0, True, id="doubled at once"),
        pytest.param(-3600, 38.4, True, id="clock set back"),
    ],
)
def test_numbers_are_written_when_they_moved(seconds: float, rate_per_s: float, due: bool) -> None:
    assert after(seconds, rate_per_s) is due


def test_zero_and_unknown_are_written_at_once() -> None:
    assert after(15, 0.0)
    blind = replace(report(), rate_per_s=Unknown(Reason.STALE_SERIES, "no sample in 300 s"))
    assert after(15, report=blind)


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
        pytest.param({"report": report(limits=Limits(binding="Blocking"))}, id="binding bound"),
        pytest.param({"ref": replace(plan().ref, generation=8)}, id="generation"),
    ],
)
def test_facts_are_written_at_once(changes: dict[str, Any]) -> None:
    assert after(15, **changes)


def test_figures_inside_messages_are_no_reason_to_write() -> None:
    words = (replace(CONDITIONS[0], message="load 0.71 at 38.4/s"), *CONDITIONS[1:])
    other = (replace(CONDITIONS[0], message="load 0.72 at 39.1/s"), *CONDITIONS[1:])
    first = status(steady(conditions=words), None, NOW)
    new = status(steady(AT_S + 15, conditions=other), first, LATER)
    assert not changed_materially(first, new)


def test_requests_in_the_system_jump_about_and_are_no_reason_to_write() -> None:
    assert not after(75, report=report(in_system=Known(30.0, AT_S)))


def test_a_first_status_and_an_empty_one_are_written() -> None:
    assert changed_materially(None, status(plan(), None, NOW))
    assert changed_materially({}, status(plan(), None, NOW))


def test_heartbeats_of_many_services_do_not_fall_into_one_tick() -> None:
    first = status(steady(), None, NOW)
    new = status(steady(AT_S + 315), first, LATER)
    due = sum(changed_materially(first, new, f"prod/s{i}") for i in range(1000))
    assert 150 < due < 400


def test_steady_ticks_with_jitter_write_once_in_five_minutes() -> None:
    written, kept = 0, status(steady(), None, NOW)
    for tick in range(1, 101):
        rate_per_s = 38.4 * (1 + 0.02 * math.sin(tick))
        new = status(steady(AT_S + 15 * tick, rate_per_s), kept, LATER)
        if changed_materially(kept, new, "prod/chat"):
            written, kept = written + 1, new
    assert written <= 5


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
    changed_materially(first, status(odd, first, LATER))
