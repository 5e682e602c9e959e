"""The trace of a bypass: a condition as long as it waives something, one event when it begins."""

from __future__ import annotations

from dataclasses import replace

from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.plan import Condition, Event, Plan
from sojourn.facts.reasons import Reason

CONDITION = "AdmissionBypassed"


def told(plan: Plan, reason: str | None, findings: tuple[Finding, ...], *, known: bool) -> Plan:
    """The plan with what the bypass annotation waives in its conditions.

    Args:
        reason: what the annotation gives as its reason; None without one.
        findings: of the re-check: what admission would say today.
        known: the condition is in the status already, so the event was sent.
    """
    waived = tuple(f.reason for f in findings if f.verdict is Verdict.REJECT)
    if not reason or not waived:
        return plan
    names = ", ".join(dict.fromkeys(map(str, waived)))
    text = f"{names} waived by annotation: {reason}"
    condition = Condition(CONDITION, True, Reason.BYPASSED, text)
    events = plan.events if known else (*plan.events, Event(Reason.BYPASSED, text, warning=True))
    return replace(plan, conditions=(*plan.conditions, condition), events=events)
