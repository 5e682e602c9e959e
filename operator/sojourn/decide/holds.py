"""What keeps the operator from scaling a service: missing evidence, or somebody's word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sojourn.facts.declaration import Actuation, Mode
from sojourn.facts.policy import Policy
from sojourn.facts.reading import Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import Past, Situation, TargetState

OVERDUE_S = 60.0
"""So long after its grace a pod that still exists finishes nothing any more."""


@dataclass(frozen=True)
class Held:
    """Why nothing is decided."""

    reason: Reason
    message: str


def target_unknown(situation: Situation) -> Held | None:
    """The target is missing, forbidden or not yet seen."""
    if isinstance(situation.target, Unknown):
        return Held(situation.target.reason, situation.target.why)
    return None


def switched_off(situation: Situation) -> Held | None:
    """Mode Off, or paused by annotation."""
    declaration = situation.service.declaration
    if declaration.paused:
        return Held(Reason.PAUSED, "annotation serving.sojourn.dev/paused is set")
    if declaration.scaling.mode is Mode.OFF:
        return Held(Reason.MODE_OFF, "spec.scaling.mode is Off")
    return None


def rate_unknown(situation: Situation) -> Held | None:
    """No evidence of the arrival rate: unknown is not zero."""
    rate = situation.signals.rate_per_s
    if isinstance(rate, Unknown):
        return Held(rate.reason, f"arrival rate unknown: {rate.why}")
    return None


HOLDS: tuple[Callable[[Situation], Held | None], ...] = (
    target_unknown,  # without it there is nothing to say about the rest
    switched_off,
    rate_unknown,
)


def held(situation: Situation) -> Held | None:
    """The first hold that applies, or None."""
    for hold in HOLDS:
        if found := hold(situation):
            return found
    return None


def not_begun(situation: Situation, *, begun: bool) -> Held | None:
    """A process that begins with thousands of services cannot solve all of them in one tick."""
    if situation.may_begin or begun:
        return None
    return Held(Reason.NOT_SOLVED, "its queue is not solved yet: others come first, this one soon")


def not_written(situation: Situation, target: TargetState) -> Held | None:
    """Why a decision is reported and nothing of it written: conflict or mode."""
    scaling = situation.service.declaration.scaling
    if target.other_owners:
        owners = ", ".join(target.other_owners)
        return Held(Reason.TARGET_CONFLICT, f"the target is also scaled by {owners}")
    if scaling.mode is Mode.RECOMMEND:
        return Held(Reason.RECOMMEND, "spec.scaling.mode is Recommend")
    return None


def scale_not_written(situation: Situation, target: TargetState) -> Held | None:
    """Why replicas are not written; with Metric actuation max batch still may be."""
    if situation.service.declaration.scaling.actuation is Actuation.METRIC:
        text = "spec.scaling.actuation is Metric: an HPA writes the scale"
        return not_written(situation, target) or Held(Reason.RECOMMEND, text)
    return not_written(situation, target)


def _overdue(situation: Situation, target: TargetState) -> bool:
    """Pods that should have gone: their node is lost, and they would hold scale-down for ever."""
    until_s = target.finishing_until_s
    return until_s is not None and situation.now_s > until_s + OVERDUE_S


def unbroken_since_s(past: Past, now_s: float, policy: Policy) -> float:
    """Since when the rate has been known without a gap, now that it is.

    A rate covers the window that ends with it: what was dark for longer than that and a tick was
    not seen by anybody.
    """
    last_s = past.since_s if past.decided_at_s is None else past.decided_at_s
    if past.decided_at_s is not None and now_s - last_s > policy.rate_window_s + policy.tick_s:
        return now_s
    return past.since_s if past.unbroken_since_s is None else past.unbroken_since_s


def no_scale_down(situation: Situation, target: TargetState, window_s: float) -> Held | None:
    """Evidence too thin to remove capacity, though enough to add it."""
    rate = situation.signals.rate_per_s
    if isinstance(rate, Unknown):
        return Held(Reason.EVIDENCE, rate.why)
    if rate.lower_bound:
        return Held(Reason.EVIDENCE, "the arrival rate is only a lower bound")
    if target.pods_terminating and not _overdue(situation, target):
        # They finish long answers; a second step before would hide how the first one went.
        return Held(Reason.EVIDENCE, f"{target.pods_terminating} pods are still finishing")
    youngest = target.youngest_ready_at_s
    if youngest is not None and situation.now_s - youngest < window_s:
        return Held(
            Reason.EVIDENCE,
            f"a serving pod is younger than the {window_s:g} s window of the rate",
        )
    return None
