"""A bypass leaves a trace in condition and event."""

from __future__ import annotations

from dataclasses import replace

from sojourn.decide import admission, bypass
from sojourn.facts.plan import Plan
from sojourn.facts.reasons import Reason
from tests.unit.decide.builders import autoscaled, plan, proposal

FINDINGS = admission.admit(proposal(engine={"min_batch": 4, "max_batch": 4}))
PLAN: Plan = replace(plan(autoscaled(), 100.0, 1), events=())


def test_what_is_waived_is_a_condition_and_once_an_event() -> None:
    told = bypass.told(PLAN, "load test", FINDINGS, known=False)
    assert told.conditions[-1].type == "AdmissionBypassed"
    assert told.conditions[-1].message == "Unstable waived by annotation: load test"
    assert [event.reason for event in told.events] == [Reason.BYPASSED]
    assert bypass.told(PLAN, "load test", FINDINGS, known=True).events == ()


def test_an_annotation_that_waives_nothing_is_not_mentioned() -> None:
    assert bypass.told(PLAN, "just in case", (), known=False) == PLAN
    assert bypass.told(PLAN, None, FINDINGS, known=False) == PLAN
