"""What a plan tells people: the conditions of the status, one function each.

Every condition is stated at every decision, so none goes stale; its reason is of the one
enumeration and its message has the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from sojourn.decide import spec_checks
from sojourn.decide.holds import Held
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.memory import Fit
from sojourn.facts.plan import Condition, Decision
from sojourn.facts.reading import Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.service import Source
from sojourn.facts.situation import Situation, TargetState
from sojourn.units import format_gib

EVIDENCE_REASONS = frozenset(
    {
        Reason.PROMETHEUS_UNAVAILABLE,
        Reason.NO_SERIES,
        Reason.STALE_SERIES,
        Reason.NOT_A_NUMBER,
        Reason.WINDOW_NOT_FULL,
        Reason.LOW_COVERAGE,
        Reason.DUPLICATE_SERIES,
        Reason.NOT_OBSERVED,
    }
)


REVERTS_TOLD = 3


@dataclass(frozen=True)
class Outcome:
    """A decision with what led to it, for the conditions to look at."""

    situation: Situation
    decision: Decision
    findings: tuple[Finding, ...]
    hold: Held | None
    unwritten: Held | None
    slo_reachable: bool | None
    stable: bool | None


def conditions(outcome: Outcome) -> tuple[Condition, ...]:
    """Every condition of the API, in its order."""
    return (
        _ready(outcome),
        _able_to_scale(outcome),
        _scaling_active(outcome),
        _scaling_limited(outcome),
        _memory_fits(outcome),
        _stable(outcome),
        _slo_attainable(outcome),
        _metrics_available(outcome),
        _calibrated(outcome),
        _conflict(outcome),
    )


def unresolved(findings: tuple[Finding, ...]) -> tuple[Condition, ...]:
    """Conditions of an object that could not be resolved: not ready, and why."""
    first = findings[0]
    return (
        Condition("Ready", False, first.reason, first.message),
        Condition("ScalingActive", False, first.reason, "nothing is decided until this is mended"),
    )


def failed(message: str) -> tuple[Condition, ...]:
    """Conditions of a service whose decision failed: one object's trouble stays its own."""
    return (
        Condition("Ready", False, Reason.INTERNAL_ERROR, message),
        Condition("ScalingActive", False, Reason.INTERNAL_ERROR, "replicas are held"),
    )


def _ready(outcome: Outcome) -> Condition:
    rejected = [f for f in outcome.findings if f.verdict is Verdict.REJECT]
    if outcome.hold is not None:
        return Condition("Ready", False, outcome.hold.reason, outcome.hold.message)
    if rejected:
        return Condition("Ready", False, rejected[0].reason, rejected[0].message)
    target = outcome.situation.target
    if isinstance(target, TargetState) and target.blocked:
        text = f"{target.ready_replicas} of {target.spec_replicas} replicas serve: {target.blocked}"
        return Condition("Ready", target.ready_replicas > 0, Reason.CAPACITY_BLOCKED, text)
    if isinstance(target, TargetState) and target.pods_pending:
        text = f"{target.ready_replicas} of {target.spec_replicas} replicas serve"
        text += f": {target.trouble}" if target.trouble else ""
        return Condition("Ready", target.ready_replicas > 0, Reason.PODS_PENDING, text)
    return Condition("Ready", True, Reason.CONVERGED, "decided from fresh metrics of this target")


def _able_to_scale(outcome: Outcome) -> Condition:
    target = outcome.situation.target
    if isinstance(target, Unknown):
        return Condition("AbleToScale", False, target.reason, target.why)
    if outcome.unwritten is not None:
        return Condition("AbleToScale", False, outcome.unwritten.reason, outcome.unwritten.message)
    return Condition("AbleToScale", True, Reason.AS_DECLARED, "the target's scale can be written")


def _scaling_active(outcome: Outcome) -> Condition:
    if outcome.hold is not None:
        text = f"replicas are held: {outcome.hold.message}"
        return Condition("ScalingActive", False, outcome.hold.reason, text)
    return Condition("ScalingActive", True, outcome.decision.row, "the decision table is applied")


def _scaling_limited(outcome: Outcome) -> Condition:
    clips, target = outcome.decision.limited_by, outcome.situation.target
    if not clips:
        text = "no limit changed the decision"
        if isinstance(target, TargetState) and target.quota_unknown:
            text += f"; quotas limit nothing here, for {target.quota_unknown}"
        return Condition("ScalingLimited", False, Reason.UNLIMITED, text)
    return Condition("ScalingLimited", True, clips[-1].reason, clips[-1].text)


def _memory_fits(outcome: Outcome) -> Condition:
    memory = outcome.situation.service.memory
    text = (
        f"weights {format_gib(memory.weights_bytes)} of {format_gib(memory.budget_bytes)} a GPU, "
        f"KV pool {format_gib(memory.kv_pool_bytes)}"
    )
    room = outcome.situation.gpus
    if room is not None and room.shared:
        shared = f"{room.type} is shared by time-slicing or MPS: what others leave is not known; "
        return Condition("MemoryFits", None, Reason.GPU_SHARED, shared + text)
    if memory.fit is Fit.FITS:
        return Condition("MemoryFits", True, Reason.FITS, text)
    if memory.fit is Fit.TOO_CLOSE:
        return Condition("MemoryFits", None, Reason.MEMORY_TOO_CLOSE, text)
    return Condition("MemoryFits", False, Reason.WONT_START, text)


def _stable(outcome: Outcome) -> Condition:
    if outcome.stable is None:
        return Condition("Stable", None, Reason.NOT_OBSERVED, "no rate to judge stability at")
    if outcome.stable:
        return Condition("Stable", True, Reason.STABLE, "utilisation is below 1")
    return Condition("Stable", False, Reason.UNSTABLE, outcome.decision.message)


def _slo_attainable(outcome: Outcome) -> Condition:
    if outcome.slo_reachable is None:
        return Condition("SLOAttainable", None, Reason.NOT_OBSERVED, "not judged")
    if outcome.slo_reachable:
        return Condition(
            "SLOAttainable", True, Reason.ATTAINABLE, "replicas can be added until the SLO is kept"
        )
    text = "a lone request already takes longer than the SLO: sized by utilisation"
    return Condition("SLOAttainable", False, Reason.SLO_UNREACHABLE, text)


def _metrics_available(outcome: Outcome) -> Condition:
    rate = outcome.situation.signals.rate_per_s
    if isinstance(rate, Unknown):
        return Condition("MetricsAvailable", False, rate.reason, rate.why)
    if storm := outcome.situation.signals.retry_storm:
        return Condition("MetricsAvailable", True, Reason.RETRY_STORM, storm)
    return Condition("MetricsAvailable", True, Reason.FRESH, "the arrival rate is known")


def _calibrated(outcome: Outcome) -> Condition:
    learned = outcome.situation.calibration
    if learned is not None:
        reason = Reason.MEASURED_AGREES if learned.agrees else Reason.MEASURED_DISAGREES
        return Condition("Calibrated", True, reason, learned.text)
    sources = {e.source for e in outcome.situation.service.effective if e.name == "serviceTime"}
    if Source.ESTIMATED in sources:
        text = "service time is estimated from model and GPU: measure it with `sojourn profile`"
        return Condition("Calibrated", False, Reason.SERVICE_TIME_ESTIMATED, text)
    return Condition(
        "Calibrated", True, Reason.FROM_PROFILE, "service time is declared or measured"
    )


def _set_back(times: int, target: TargetState | Unknown) -> str:
    who = target.replicas_manager if isinstance(target, TargetState) else ""
    return (
        f"replicas were set back {times} times within an hour by {who or 'somebody else'}: "
        "take replicas out of its manifest, or let it ignore them"
    )


def _conflict(outcome: Outcome) -> Condition:
    target = outcome.situation.target
    owners = target.other_owners if isinstance(target, TargetState) else ()
    if owners:
        text = f"the target is also scaled by {', '.join(owners)}"
        return Condition("Conflict", True, Reason.TARGET_CONFLICT, text)
    rivals = [f for f in outcome.findings if f.reason is Reason.MULTIPLE_CONTROLLERS]
    if rivals:
        return Condition("Conflict", True, Reason.MULTIPLE_CONTROLLERS, rivals[0].message)
    reverts = len(outcome.situation.past.reverted_at_s)
    if reverts >= REVERTS_TOLD:
        text = _set_back(reverts, target)
        return Condition("Conflict", True, Reason.EXTERNAL_WRITER, text)
    if isinstance(target, TargetState) and target.overlapping:
        named = outcome.situation.service.declaration.target
        text = spec_checks.overlap(f"{named.kind} {named.name}", target.overlapping)
        return Condition("Conflict", True, Reason.SELECTOR_OVERLAP, text)
    return Condition("Conflict", False, Reason.NO_CONFLICT, "nobody else scales the target")
