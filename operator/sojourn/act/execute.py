"""Carry out plans: writes of one service in order, services side by side, the lease at each write.

A write that fails is that service's condition and no one else's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sojourn.act import writers
from sojourn.act.kube import Kube
from sojourn.act.live_batch import LiveBatches
from sojourn.errors import ClusterUnavailable
from sojourn.facts.declaration import MaxBatchRef
from sojourn.facts.plan import Condition, Event, LiveBatch, Plan
from sojourn.facts.reasons import Reason

log = logging.getLogger(__name__)

StatusOf = Callable[[Plan], Mapping[str, Any] | None]
"""Renders the status to write, or None when nothing material changed."""


@dataclass(frozen=True)
class Applied:
    """What became of one plan.

    Attributes:
        plan: the plan, with a failed write told in its conditions.
        scaled: replicas were written.
        live_batch: max batch that every pod's engine was given; None when one lacks it.
        batch_written: max batch was written.
        status: the status written; None if none was.
    """

    plan: Plan
    scaled: bool = False
    batch_written: bool = False
    live_batch: int | None = None
    status: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Executor:
    """Writes plans to one cluster.

    Attributes:
        may_write: asked before every write; False stops it (the lease is gone).
        host: name of this process in events.
        live: speaks to engines that take a new max batch while they run.
    """

    kube: Kube
    may_write: Callable[[], bool]
    host: str
    live: LiveBatches = field(default_factory=LiveBatches)

    async def apply(
        self, plans: Iterable[Plan], status_of: StatusOf, now_s: float
    ) -> list[Applied]:
        """Carry out all plans; the answers are in the plans' order."""
        plans = list(plans)
        self.live.keep_only(p.ref.key for p in plans if p.live_max_batch is not None)
        return list(await asyncio.gather(*(self._one(plan, status_of, now_s) for plan in plans)))

    async def _one(self, plan: Plan, status_of: StatusOf, now_s: float) -> Applied:
        done = Applied(plan)
        if plan.write_replicas or plan.write_max_batch:
            done = await self._write_target(plan)
        if plan.live_max_batch is not None and self.may_write():
            done = await self._give_live(done, plan.live_max_batch)
        status = status_of(done.plan)
        if status is not None and self.may_write():
            try:
                await writers.write_status(self.kube, plan.ref, status)
            except ClusterUnavailable as exc:
                if exc.status != 404:  # gone: nobody is left to read it
                    log.warning("status of %s/%s: %s", *plan.ref.key, exc.why)
            else:
                done = replace(done, status=status)
        await self._tell(done, now_s)
        return done

    async def _write_target(self, plan: Plan) -> Applied:
        scaled = batch_written = False
        if plan.service is None or not self.may_write():
            return Applied(plan)
        declaration, namespace = plan.service.declaration, plan.ref.namespace
        before, after = plan.decision.before, plan.decision.after
        try:
            if plan.write_replicas and after.replicas is not None:
                change = before.replicas or 0, after.replicas
                await writers.write_scale(self.kube, namespace, declaration.target, *change)
                scaled = True
            if plan.write_max_batch and after.max_batch is not None and self.may_write():
                reference = declaration.engine.max_batch_ref
                reference = MaxBatchRef(reference.mode, plan.container, reference.env)
                variable = writers.Variable(declaration.target, reference, plan.templates)
                await writers.write_max_batch(self.kube, namespace, variable, after.max_batch)
                batch_written = True
        except ClusterUnavailable as exc:
            return Applied(_with_failure(plan, exc, scaled=scaled), scaled, batch_written)
        return Applied(plan, scaled, batch_written)

    async def _give_live(self, done: Applied, wanted: LiveBatch) -> Applied:
        outcome = await self.live.apply(done.plan.ref.key, wanted, self.may_write)
        if outcome.complete:
            return replace(done, live_batch=wanted.max_batch)
        kept = tuple(e for e in done.plan.events if e.reason is not Reason.BATCH_CHANGED)
        done = replace(done, plan=replace(done.plan, events=kept))
        if not outcome.why:
            return done
        plan = _without_ability(done.plan, Reason.LIVE_BATCH_FAILED, outcome.why)
        failed = Event(Reason.LIVE_BATCH_FAILED, outcome.why, warning=True)
        return replace(done, plan=replace(plan, events=(*kept, failed)))

    async def _tell(self, done: Applied, now_s: float) -> None:
        for event in done.plan.events:
            if not self.may_write():
                return
            try:
                await writers.write_event(self.kube, done.plan.ref, event, now_s, self.host)
            except ClusterUnavailable as exc:
                if exc.status not in (404, 409):
                    log.warning("event of %s/%s: %s", *done.plan.ref.key, exc.why)


def _with_failure(plan: Plan, error: ClusterUnavailable, *, scaled: bool) -> Plan:
    """The plan with the write that failed in its conditions and events."""
    veto = plan.write_max_batch and error.status == 409 and (scaled or not plan.write_replicas)
    reason = Reason.BATCH_FIELD_OWNED_ELSEWHERE if veto else Reason.WRITE_FAILED
    if error.status == 403:
        reason = Reason.TARGET_FORBIDDEN
    plan = _without_ability(plan, reason, error.why)
    kept = tuple(
        e for e in plan.events if scaled and e.reason in (Reason.SCALED_UP, Reason.SCALED_DOWN)
    )
    events = (*kept, Event(reason, error.why, warning=True))
    return replace(plan, events=events)


def _without_ability(plan: Plan, reason: Reason, why: str) -> Plan:
    """The plan with its condition AbleToScale false."""
    failed = Condition("AbleToScale", False, reason, why)
    conditions = tuple(failed if c.type == "AbleToScale" else c for c in plan.conditions)
    return replace(plan, conditions=conditions)
