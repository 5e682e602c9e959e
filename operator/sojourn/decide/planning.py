"""Planning: one Situation gives one Plan. The corridor in one file.

hold? -> table -> behaviour, bounds, quota -> batch loop -> report.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sojourn.decide import batch_loop, batches, bounds, calibration, design_rate, holds, report
from sojourn.decide.batch_loop import BatchMove
from sojourn.decide.bounds import Bounded
from sojourn.decide.capacity import Serving
from sojourn.decide.design_rate import DesignRate
from sojourn.decide.holds import Held
from sojourn.decide.table import Live, Measured, Row, evaluate
from sojourn.facts.declaration import ObjectRef
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.plan import Clip, Decision, Event, Limits, Plan, Report, Setting
from sojourn.facts.policy import Policy
from sojourn.facts.reading import Known, Reading, Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.replica import DynamicReplica, OperatingPoint
from sojourn.facts.situation import Situation, TargetState
from sojourn.facts.sizing import Sizing
from sojourn.facts.sojourn import Sojourn
from sojourn.model import sizing, stability

P99 = 0.99
SETTLED_WINDOWS = 4
"""Latency is measured over longer windows than rates; a backlog must have left it too."""


@dataclass(frozen=True)
class _Course:
    """The decision under way: what is known about the live point."""

    situation: Situation
    target: TargetState
    policy: Policy
    design: DesignRate
    live: Live
    sizing: Sizing


def plan(
    situation: Situation, serving: Serving, policy: Policy, findings: tuple[Finding, ...] = ()
) -> Plan:
    """The plan of one service at one tick.

    Args:
        findings: of the re-check of its spec; a REJECT shows in conditions, replicas still follow
            the load, because what runs must not be hurt by what is written.
    """
    serving = calibration.calibrated(serving, situation.calibration)
    hold = holds.held(situation)
    if isinstance(situation.target, Unknown):
        return _held_plan(situation, None, hold or holds.Held(Reason.HOLD, ""), findings)
    if hold is not None:
        return _held_plan(situation, situation.target, hold, findings)
    return _decided(_course(situation, situation.target, serving, policy), findings)


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


def _course(situation: Situation, target: TargetState, serving: Serving, policy: Policy) -> _Course:
    rate = situation.signals.rate_per_s
    assert isinstance(rate, Known)  # holds.rate_unknown has answered the other case
    service_bounds = serving.service.bounds
    batch = target.max_batch or service_bounds.maximum
    design = design_rate.design_rate(
        rate.value,
        situation.past,
        policy.rate_window_s,
        serving.service.cold_start_s + policy.tick_s,
    )
    live = Live(serving, policy, design.rate_per_s, target.spec_replicas, batch)
    live = replace(live, measured=_measured(situation, target, live, design))
    constraint = batches.constraint_of(serving.service)
    answer = sizing.size(serving.queue, constraint, design.rate_per_s / serving.ranks)
    return _Course(situation, target, policy, design, live, answer)


def _measured(
    situation: Situation, target: TargetState, live: Live, design: DesignRate
) -> Measured | None:
    """The measured P99 if it misses the SLO and is of this very setting, else None."""
    goal, signals = situation.service.goal, situation.signals
    reading, bucket = signals.latency_p99_s, signals.latency_p99_bucket_s
    if goal.latency_s is None or goal.probability != P99 or isinstance(reading, Unknown):
        return None
    floor_s = bucket[0] if bucket is not None else reading.value
    if floor_s <= goal.latency_s or not _settled(situation, target, live.policy):
        return None
    predicted = _predicted(replace(live, rate_per_s=design.now_per_s))
    if predicted is None:
        return None
    return Measured(floor_s, predicted.latency.quantile_s(P99))


def _settled(situation: Situation, target: TargetState, policy: Policy) -> bool:
    """No change of setting within the windows that the percentile covers."""
    window_s = SETTLED_WINDOWS * policy.rate_window_s
    changes = [event.at_s for event in situation.past.scale_events]
    changes += [situation.past.since_s, situation.past.batch_changed_at_s or 0.0]
    quiet = situation.now_s - max(changes) >= window_s
    return quiet and not target.pods_pending and not target.rollout_running


def _decided(course: _Course, findings: tuple[Finding, ...]) -> Plan:
    situation, target, live = course.situation, course.target, course.live
    row = evaluate(live)
    bounded = bounds.bounded(situation, target, row.replicas, course.policy)
    wish = batches.wish(live, target.max_batch, course.sizing)
    move = batch_loop.move(situation, target, wish, course.policy)
    unwritten = holds.not_written(situation, target)
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
        report=_report(course),
        conditions=report.conditions(outcome),
        write_replicas=changes and unwritten is None,
        write_max_batch=move.write and unwritten is None,
        container=target.container,
        ready_replicas=target.ready_replicas,
        findings=findings,
    )
    return replace(written, events=_events(written, move))


def _decision(
    course: _Course, row: Row, bounded: Bounded, move: BatchMove, unwritten: Held | None
) -> Decision:
    target = course.target
    clips = bounded.clips
    if unwritten is not None and bounded.replicas != target.spec_replicas:
        clips = (*clips, Clip(unwritten.reason, target.spec_replicas, unwritten.message))
    parts = (row.message, course.design.text, move.message if move.write else "")
    return Decision(
        at_s=course.situation.now_s,
        row=row.reason,
        before=Setting(target.spec_replicas, target.max_batch),
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
        unwritten = holds.not_written(situation, target)
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
        container=target.container if target else None,
        ready_replicas=target.ready_replicas if target else None,
        findings=findings,
        events=events,
    )


def _report(course: _Course) -> Report:
    live, signals, sized = course.live, course.situation.signals, course.sizing
    batch = live.max_batch
    serving = live.serving
    limits = Limits(
        min_batch=sized.smallest_batch if sized.reachable else None,
        max_batch_for_slo=sized.largest_batch if sized.reachable else None,
        max_batch_for_memory=serving.service.bounds.kv_limit,
        rate_per_replica=live.goal_rate.rate_per_s,
        max_stable_rate=serving.service.declaration.scaling.max_replicas
        * serving.capacity_per_s(batch),
        binding=live.goal_rate.binding,
    )
    return Report(
        rate_per_s=signals.rate_per_s,
        latency_p50_s=signals.latency_p50_s,
        latency_p99_s=signals.latency_p99_s,
        in_system=_sum(signals.running, signals.waiting),
        predicted=_predicted(replace(live, rate_per_s=course.design.now_per_s)),
        regime=_regime(live),
        limits=limits,
    )


def _predicted(live: Live) -> Sojourn | None:
    if live.replicas <= 0 or live.rate_per_s <= 0 or live.utilisation >= 1:
        return None
    service = live.serving.service
    point = OperatingPoint(
        live.serving.replica(live.max_batch),
        live.rate_per_s,
        live.replicas * live.serving.ranks,
        service.declaration.traffic.routing,
    )
    return live.serving.queue.sojourn(point, tuple(sorted({0.5, service.goal.probability, P99})))


def _regime(live: Live) -> str | None:
    """The book's regime; it is stated for batches that start and end together."""
    replica = live.serving.replica(live.max_batch)
    if live.replicas <= 0 or not isinstance(replica, DynamicReplica):
        return None
    per_replica = live.rate_per_s / live.replicas
    if per_replica <= 0:
        return None
    return str(stability.regime(per_replica, replica.service, replica.max_batch))


def _events(written: Plan, move: BatchMove) -> tuple[Event, ...]:
    events = _scale_events(written.decision) if written.write_replicas else ()
    if written.write_max_batch:
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


def _sum(one: Reading, other: Reading) -> Reading:
    if isinstance(one, Unknown):
        return one
    if isinstance(other, Unknown):
        return other
    return Known(one.value + other.value, min(one.at_s, other.at_s))
