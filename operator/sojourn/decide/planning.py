"""Planning: one Situation gives one Plan. The corridor in one file.

hold? -> survey -> table -> behaviour, bounds, quota -> batch loop -> report.
"""

from __future__ import annotations

from dataclasses import replace

from sojourn.decide import (
    batch_loop,
    batches,
    bounds,
    calibration,
    holds,
    live_batch,
    report,
    survey,
)
from sojourn.decide.batch_loop import BatchMove
from sojourn.decide.bounds import Bounded
from sojourn.decide.capacity import Serving
from sojourn.decide.holds import Held
from sojourn.decide.survey import Survey
from sojourn.decide.table import Row, evaluate
from sojourn.facts.declaration import ObjectRef
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.plan import Clip, Decision, Event, Plan, Report, Setting
from sojourn.facts.policy import Policy
from sojourn.facts.reading import Reading, Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import Situation, TargetState


def plan(
    situation: Situation, serving: Serving, policy: Policy, findings: tuple[Finding, ...] = ()
) -> Plan:
    """The plan of one service at one tick.

    Args:
        findings: of the re-check of its spec; a REJECT shows in conditions, replicas still follow
            the load, because what runs must not be hurt by what is written.
    """
    hold = holds.held(situation) or holds.not_begun(situation, begun=serving.begun)
    serving = calibration.calibrated(serving, situation.calibration)
    if isinstance(situation.target, Unknown):
        return _held_plan(situation, None, hold or holds.Held(Reason.HOLD, ""), findings)
    if hold is not None:
        return _held_plan(situation, situation.target, hold, findings)
    return _decided(survey.take(situation, situation.target, serving, policy), findings)


def unresolved(ref: ObjectRef, findings: tuple[Finding, ...], now_s: float) -> Plan:
    """The plan of an object that could not be read or resolved: its status says why."""
    rejected = [f for f in findings if f.verdict is Verdict.REJECT] or list(findings)
    message = "; ".join(f.message for f in rejected)
    return Plan(
        ref=ref,
        service=None,
        decision=_hold_decision(now_s, Setting(None, None), message),
        report=_blank_report(Unknown(rejected[0].reason, message)),
        conditions=report.unresolved(tuple(rejected)),
        findings=findings,
        events=(Event(rejected[0].reason, message, warning=True),),
    )


def failed(ref: ObjectRef, message: str, now_s: float) -> Plan:
    """The plan of a service whose decision raised: held, and said so."""
    return Plan(
        ref=ref,
        service=None,
        decision=_hold_decision(now_s, Setting(None, None), message),
        report=_blank_report(Unknown(Reason.INTERNAL_ERROR, message)),
        conditions=report.failed(message),
        events=(Event(Reason.INTERNAL_ERROR, message, warning=True),),
    )


def _decided(course: Survey, findings: tuple[Finding, ...]) -> Plan:
    situation, target, live = course.situation, course.target, course.live
    wish = batches.wish(live, live_batch.running(situation, target), course.sizing)
    move = batch_loop.move(situation, target, wish, course.policy)
    row = live_batch.row(situation, live, move.max_batch) if move.live else evaluate(live)
    bounded = bounds.bounded(situation, target, row.replicas, course.policy)
    unwritten = holds.scale_not_written(situation, target)
    decision = _decision(course, row, bounded, move, unwritten)
    changes = decision.after.replicas != target.spec_replicas
    outcome = report.Outcome(
        situation,
        decision,
        findings,
        hold=None,
        unwritten=unwritten,
        slo_reachable=live.goal_rate.reachable,
        stable=live.utilisation < 1 or bounded.replicas > live.replicas,
    )
    written = Plan(
        ref=situation.service.declaration.ref,
        service=situation.service,
        decision=decision,
        report=survey.figures(course),
        conditions=report.conditions(outcome),
        write_replicas=changes and unwritten is None,
        write_max_batch=move.write and holds.not_written(situation, target) is None,
        live_max_batch=live_batch.wanted(situation, target, move.max_batch),
        container=target.container,
        templates=target.batch_templates,
        ready_replicas=target.ready_replicas,
        findings=findings,
        rollout_running=target.rollout_running,
        figures=course.known,
        unbroken_since_s=holds.unbroken_since_s(situation.past, situation.now_s, course.policy),
    )
    events = _events(written, move)
    return replace(written, events=events) if events else written


def _decision(
    course: Survey, row: Row, bounded: Bounded, move: BatchMove, unwritten: Held | None
) -> Decision:
    target = course.target
    clips = bounded.clips
    if unwritten is not None and bounded.replicas != target.spec_replicas:
        clips = (*clips, Clip(unwritten.reason, target.spec_replicas, unwritten.message))
    moves = move.write or (move.live and move.reason is Reason.BATCH_CHANGED)
    parts = (row.message, course.design.text, move.message if moves else "")
    return Decision(
        at_s=course.situation.now_s,
        row=row.reason,
        before=Setting(target.spec_replicas, live_batch.running(course.situation, target)),
        after=Setting(bounded.replicas, move.max_batch),
        raw=Setting(row.replicas, course.sizing.batch),
        message="; ".join(part for part in parts if part),
        limited_by=clips,
    )


def _held_plan(
    situation: Situation, target: TargetState | None, hold: Held, findings: tuple[Finding, ...]
) -> Plan:
    """Hold: the floor is kept, nothing else is touched."""
    before = Setting(None, None)
    bounded = Bounded(0, ())
    unwritten = None
    if target is not None:
        before = Setting(target.spec_replicas, target.max_batch)
        bounded = bounds.floor_only(situation, target)
        unwritten = holds.scale_not_written(situation, target)
    off = hold.reason in (Reason.PAUSED, Reason.MODE_OFF)
    rises = target is not None and bounded.replicas > target.spec_replicas and not off
    after = replace(before, replicas=bounded.replicas) if rises else before
    decision = Decision(
        situation.now_s, Reason.HOLD, before, after, before, hold.message, bounded.clips
    )
    outcome = report.Outcome(situation, decision, findings, hold, unwritten, None, None)
    writes = rises and unwritten is None
    events = _scale_events(decision) if writes else ()
    return Plan(
        ref=situation.service.declaration.ref,
        service=situation.service,
        decision=decision,
        report=_blank_report(situation.signals.rate_per_s),
        conditions=report.conditions(outcome),
        write_replicas=writes,
        live_max_batch=live_batch.wanted(situation, target, situation.past.live_batch)
        if target
        else None,
        container=target.container if target else None,
        ready_replicas=target.ready_replicas if target else None,
        findings=findings,
        events=events,
    )


def _events(written: Plan, move: BatchMove) -> tuple[Event, ...]:
    events = _scale_events(written.decision) if written.write_replicas else ()
    changes = written.live_max_batch is not None and move.reason is Reason.BATCH_CHANGED
    if written.write_max_batch or (changes and move.message):
        events = (*events, Event(Reason.BATCH_CHANGED, move.message))
    return events


def _scale_events(decision: Decision) -> tuple[Event, ...]:
    before, after = decision.before.replicas or 0, decision.after.replicas or 0
    reason = Reason.SCALED_UP if after > before else Reason.SCALED_DOWN
    clips = "".join(f" ({clip.text})" for clip in decision.limited_by)
    text = f"{decision.row}: {before} -> {after} replicas: {decision.message}{clips}"
    return (Event(reason, text),)


def _hold_decision(now_s: float, setting: Setting, message: str) -> Decision:
    return Decision(now_s, Reason.HOLD, setting, setting, setting, message)


def _blank_report(rate: Reading) -> Report:
    unknown = Unknown(Reason.NOT_OBSERVED, "not evaluated while held")
    return Report(rate, unknown, unknown, unknown)
