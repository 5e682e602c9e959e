"""From the table's answer to the replicas written: behaviour, bounds, quota, GPUs; clips told."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sojourn.decide import behaviour, holds
from sojourn.facts.plan import Clip
from sojourn.facts.policy import Policy
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import Situation, TargetState


@dataclass(frozen=True)
class Bounded:
    """Replicas after every limit, and the limits that changed them, in order."""

    replicas: int
    clips: tuple[Clip, ...]


def bounded(situation: Situation, target: TargetState, wanted: int, policy: Policy) -> Bounded:
    """Apply evidence, tolerance, stabilisation, policies, floor, ceiling, quota, GPUs, in order.

    A fewer-replicas answer without evidence becomes the current replicas; the floor holds always,
    and so does the ceiling, except that nothing is removed on missing evidence.
    """
    scaling = situation.service.declaration.scaling
    current, clips = target.spec_replicas, []

    def note(clip: Clip | None) -> None:
        if clip is not None:
            clips.append(clip)

    replicas = wanted
    thin = holds.no_scale_down(situation, target, policy.rate_window_s)
    if thin is not None and replicas < current:
        note(Clip(thin.reason, current, f"{current} of {wanted} wanted: {thin.message}"))
        replicas = current
    replicas, clip = behaviour.tolerated(current, replicas, scaling.behaviour)
    note(clip)
    since_s = holds.unbroken_since_s(situation.past, situation.now_s, policy)
    seen = replace(situation.past, since_s=since_s)
    replicas, clip = behaviour.stabilised(
        current, replicas, scaling.behaviour, seen, situation.now_s
    )
    note(clip)
    replicas, clip = behaviour.paced(
        current, replicas, scaling.behaviour, situation.past, situation.now_s
    )
    note(clip)
    if replicas > scaling.max_replicas:
        replicas = scaling.max_replicas
        note(Clip(Reason.MAX_REPLICAS, replicas, f"{wanted} wanted, maxReplicas {replicas}"))
    if replicas < scaling.min_replicas:
        replicas = scaling.min_replicas
        note(Clip(Reason.MIN_REPLICAS, replicas, f"{wanted} wanted, minReplicas {replicas}"))
    if replicas == 0 < current and target.ready_replicas == 0:
        # A service on its way up from zero must have been ready once before it may go back.
        replicas = min(current, 1)
        note(Clip(Reason.EVIDENCE, replicas, f"{replicas} of 0 wanted: no replica was ready yet"))
    allowed = _within_quota(situation, target, Bounded(replicas, tuple(clips)), policy)
    return _within_gpus(situation, current, allowed, policy)


def floor_only(situation: Situation, target: TargetState) -> Bounded:
    """Replicas while held: the current ones, raised to the floor, never lowered."""
    floor = situation.service.declaration.scaling.min_replicas
    if target.spec_replicas >= floor:
        return Bounded(target.spec_replicas, ())
    text = f"{target.spec_replicas} run, minReplicas {floor}"
    return Bounded(floor, (Clip(Reason.MIN_REPLICAS, floor, text),))


def _within_quota(
    situation: Situation, target: TargetState, answer: Bounded, policy: Policy
) -> Bounded:
    """Quota stops growth; it never removes what runs, and the floor is asked for all the same.

    One that cannot be read stops it only where the settings say so: the API server keeps it anyway.
    """
    quota = situation.quota_replicas
    unread = target.quota_unknown if policy.hold_without_quota else ""
    if quota is None and not unread:
        return answer
    floor = situation.service.declaration.scaling.min_replicas
    allowed = max(quota or 0, target.spec_replicas, floor)
    if answer.replicas <= allowed:
        return answer
    why = f"{unread}: held at" if unread else "quota allows"
    text = f"{answer.replicas} wanted, {why} {allowed}"
    return Bounded(allowed, (*answer.clips, Clip(Reason.QUOTA, allowed, text)))


def _within_gpus(situation: Situation, current: int, answer: Bounded, policy: Policy) -> Bounded:
    """Too few GPUs are told. They bound only a fixed pool.

    Elsewhere pods that wait are what makes the cluster's autoscaler bring nodes: to ask for fewer
    would be to get none.
    """
    room = situation.gpus
    if room is None or answer.replicas <= room.fits:
        return answer
    short = room.shortage(answer.replicas)
    if not policy.fixed_gpus:
        text = f"{short}: asked for all the same, nodes may come"
        return Bounded(
            answer.replicas, (*answer.clips, Clip(Reason.CAPACITY, answer.replicas, text))
        )
    floor = situation.service.declaration.scaling.min_replicas
    allowed = min(answer.replicas, max(room.fits, current, floor))
    text = f"{short}: the pool is fixed, {allowed} replicas asked for"
    return Bounded(allowed, (*answer.clips, Clip(Reason.CAPACITY, allowed, text)))
