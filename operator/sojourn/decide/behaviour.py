"""HPA autoscaling/v2 semantics: tolerance, stabilisation windows and rate policies.

The arithmetic follows the published algorithm of the horizontal pod autoscaler: recommendations
are remembered per direction, policies count from the replicas at the start of their period.
"""

from __future__ import annotations

import math

from sojourn.facts.declaration import (
    DEFAULT_DOWN,
    DEFAULT_UP,
    Behaviour,
    ScalingPolicy,
    ScalingRules,
)
from sojourn.facts.plan import Clip
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import Past


def rules_up(behaviour: Behaviour) -> ScalingRules:
    """Rules of scaling up: declared, else the defaults."""
    return behaviour.up or DEFAULT_UP


def rules_down(behaviour: Behaviour) -> ScalingRules:
    """Rules of scaling down: declared, else the defaults."""
    return behaviour.down or DEFAULT_DOWN


def tolerated(current: int, wanted: int, behaviour: Behaviour) -> tuple[int, Clip | None]:
    """The current replicas where the change wanted is within the tolerance of its direction.

    The HPA compares the unrounded need; a whole number of replicas is what the table answers.
    """
    rules = rules_up(behaviour) if wanted > current else rules_down(behaviour)
    if wanted == current or abs(wanted - current) > rules.tolerance * current:
        return wanted, None
    text = f"{current} of {wanted} wanted: within the tolerance of {rules.tolerance:.0%}"
    return current, Clip(Reason.TOLERANCE, current, text)


def stabilised(
    current: int, wanted: int, behaviour: Behaviour, past: Past, now_s: float
) -> tuple[int, Clip | None]:
    """Replicas after the stabilisation windows, and the clip if they held anything back.

    Up takes the least recommendation of its window, down the most. A process younger than the
    window has not seen all of it, so the current replicas count as one of its recommendations:
    a restart never scales down.
    """
    up, down = rules_up(behaviour), rules_down(behaviour)
    up_from, down_from = now_s - up.stabilization_s, now_s - down.stabilization_s
    upward = [wanted, *(r.replicas for r in past.recommendations if r.at_s > up_from)]
    downward = [wanted, *(r.replicas for r in past.recommendations if r.at_s > down_from)]
    if past.since_s > up_from:
        upward.append(wanted)
    if past.since_s > down_from:
        downward.append(current)
    result = current
    result = max(result, min(upward))
    result = min(result, max(downward)) if max(downward) < result else result
    if result == wanted:
        return result, None
    if wanted < current:
        held_by = f"largest need of the last {down.stabilization_s:g} s"
    else:
        held_by = f"least need of the last {up.stabilization_s:g} s"
    text = f"{result} of {wanted} wanted: {held_by}"
    return result, Clip(Reason.STABILIZATION, result, text)


def paced(
    current: int, wanted: int, behaviour: Behaviour, past: Past, now_s: float
) -> tuple[int, Clip | None]:
    """Replicas after the rate policies, and the clip if they held anything back."""
    if wanted == current:
        return wanted, None
    rising = wanted > current
    rules = rules_up(behaviour) if rising else rules_down(behaviour)
    limit = _limit(current, rules, past, now_s, rising=rising)
    allowed = min(wanted, max(limit, current)) if rising else max(wanted, min(limit, current))
    if allowed == wanted:
        return wanted, None
    return allowed, Clip(
        Reason.POLICY, allowed, f"{allowed} of {wanted} wanted: the scaling policies' pace"
    )


def _limit(current: int, rules: ScalingRules, past: Past, now_s: float, *, rising: bool) -> int:
    if rules.select == "Disabled" or not rules.policies:
        return current
    proposals = [_proposal(current, policy, past, now_s, rising) for policy in rules.policies]
    widest = (rules.select == "Max") == rising
    return max(proposals) if widest else min(proposals)


def _proposal(current: int, policy: ScalingPolicy, past: Past, now_s: float, rising: bool) -> int:
    changed = sum(e.change for e in past.scale_events if e.at_s > now_s - policy.period_s)
    start = current - changed
    if policy.type == "Pods":
        return start + policy.value if rising else start - policy.value
    if rising:
        # Ceil, as the HPA does: from 1 replica, 50 % must still allow a second one.
        return math.ceil(start * (1 + policy.value / 100))
    return math.trunc(start * (1 - policy.value / 100))
