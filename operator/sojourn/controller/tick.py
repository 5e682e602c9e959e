"""One tick: gather once for all services, decide purely, write what changed.

lease held? -> observe.gather(services) -> decide.planning.plan -> act.execute.apply. An exception
of one service stays that service's condition.
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sojourn.act.execute import Applied, Executor
from sojourn.controller import past as past_of
from sojourn.controller.own_metrics import OwnMetrics
from sojourn.controller.registry import Entry, Key, Registry
from sojourn.controller.statuses import Statuses, shown
from sojourn.decide import admission, bypass, calibration, planning, sharing
from sojourn.decide.capacity import Serving
from sojourn.decide.proposal import Proposal
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.gpu import Gpu
from sojourn.facts.plan import Plan
from sojourn.facts.policy import Policy
from sojourn.facts.reading import Known
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import Observation, Situation, TargetState
from sojourn.observe.gather import Gatherer
from sojourn.observe.quiet_collector import collector_paused

log = logging.getLogger(__name__)

SOLVING_S = 0.5
"""CPU seconds of a tick after which costly figures wait for the next; decisions do not."""

BEGINNING_S = 10.0
"""CPU seconds of a tick after which services never solved before are held until a later one."""

NOT_SEEN = Observation()
"""Of a service that was not there when the tick began to look."""

LEARN_EVERY = 20
"""Ticks between two calibrations: a line through hundreds of pairs moves slowly."""


RIVAL_S = 1200.0
"""Another installation that has written no status for so long has stopped: heartbeats come each 6
minutes at most."""


@dataclass(frozen=True)
class Corridor:
    """Everything a tick walks through.

    Attributes:
        identity: namespace and lease of this installation, written into each status.
    """

    registry: Registry
    gatherer: Gatherer
    executor: Executor
    policy: Policy
    gpus: tuple[Gpu, ...]
    metrics: OwnMetrics
    statuses: Statuses = field(default_factory=Statuses)
    identity: str = ""

    async def tick(self, now_s: float) -> list[Applied]:
        """Walk once through observe, decide and act for every service."""
        entries = list(self.registry.entries())
        observations = await self.observe(entries, now_s)
        # In a thread: the models' arithmetic must not keep the webhook from answering.
        plans = await asyncio.to_thread(self.plans, entries, observations, now_s)
        return await self.carry_out(entries, plans, now_s)

    async def observe(self, entries: list[Entry], now_s: float) -> dict[Key, Observation]:
        """Gather what is seen of every entry that could be read."""
        declarations = [e.declaration for e in entries if e.declaration is not None]
        owners = {d.ref.key: self.registry.sharing_target(d) for d in declarations}
        return await self.gatherer.gather(declarations, owners, now_s)

    async def carry_out(
        self, entries: list[Entry], plans: list[Plan], now_s: float
    ) -> list[Applied]:
        """Write what the plans ask for and what of the statuses is due, and remember it."""
        by_key = {entry.ref.key: entry for entry in entries}
        self.statuses.begin(len(entries), now_s)
        applied = await self.executor.apply(
            plans, lambda plan: self.status_of(by_key[plan.ref.key], plan, now_s), now_s
        )
        for done in applied:
            self._remember(by_key[done.plan.ref.key], done, now_s)
        self.metrics.ticked(applied)
        return applied

    def plans(
        self, entries: list[Entry], observations: Mapping[Key, Observation], now_s: float
    ) -> list[Plan]:
        """Decide on every entry from what was observed; pure but for what entries remember."""
        with collector_paused():  # thousands of plans stay until the tick's end
            return self._decided(entries, observations, now_s)

    def _decided(
        self, entries: list[Entry], observations: Mapping[Key, Observation], now_s: float
    ) -> list[Plan]:
        situations: dict[Key, Situation | None] = {}
        plans: dict[Key, Plan] = {}
        begun_s = time.thread_time()
        # Another service first each tick, so that the time for costly figures comes to all.
        first = int(now_s) * 997 % len(entries) if entries else 0
        for entry in (*entries[first:], *entries[:first]):
            key, spent_s = entry.ref.key, time.thread_time() - begun_s
            situation = self._situation(entry, observations.get(key, NOT_SEEN), now_s, spent_s)
            situations[key] = situation
            plans[key] = self._plan(entry, situation, now_s)
        cases = [(s, plans[key]) for key, s in situations.items() if s is not None]
        for key, quota in sharing.fair_quotas(cases).items():
            found, situation = self.registry.get(key), situations[key]
            if found is not None and situation is not None:
                less = replace(situation, quota_replicas=quota)
                plans[key] = self._plan(found, less, now_s)
        return list(plans.values())

    def _situation(
        self, entry: Entry, observation: Observation, now_s: float, spent_s: float
    ) -> Situation | None:
        """What one decision looks at, after ``spent_s`` of the tick's CPU time."""
        service = entry.resolved.service if entry.resolved is not None else None
        if service is None:
            return None
        situation = Situation(
            service=service,
            now_s=now_s,
            signals=observation.signals,
            target=observation.target,
            past=entry.past,
            quota_replicas=observation.quota_replicas,
            gpus=observation.gpus,
            calibration=entry.calibration,
            may_solve=spent_s <= SOLVING_S,
            may_begin=spent_s <= BEGINNING_S,
        )
        entry.past = past_of.with_sample(entry.past, situation)
        entry.ticks += 1
        if learns(entry):
            entry.calibration = calibration.calibrate(service, entry.past.service_samples)
        return situation

    def _plan(self, entry: Entry, situation: Situation | None, now_s: float) -> Plan:
        try:
            return self._decide(entry, situation, now_s)
        except Exception as exc:
            # One object's trouble must not stop the others: logged in full, told in short.
            log.exception("decision of %s/%s failed", *entry.ref.key)
            return planning.failed(entry.ref, f"{type(exc).__name__}: {exc}", now_s)

    def _decide(self, entry: Entry, situation: Situation | None, now_s: float) -> Plan:
        found = entry.resolved.findings if entry.resolved is not None else entry.problems
        if entry.serving is None or situation is None:
            return planning.unresolved(entry.ref, found, now_s)
        # What was bypassed, or admitted by an older release, is still checked and reported.
        if situation.may_begin or entry.serving.begun:
            found = (*found, *self._checked(entry, entry.serving, situation))
        if entry.rival is not None and situation.now_s - entry.rival[1] < RIVAL_S:
            found = (*found, rivalry(entry.rival[0]))
        plan = planning.plan(situation, entry.serving, self.policy, found)
        reason = situation.service.declaration.bypass
        if not reason:
            return plan
        return bypass.told(plan, reason, found, known=_has(entry, bypass.CONDITION))

    def _checked(self, entry: Entry, serving: Serving, situation: Situation) -> tuple[Finding, ...]:
        """Admission's findings, judged anew when the spec, the owners or the judged rate change."""
        target, rate = situation.target, situation.signals.rate_per_s
        owners = target.other_owners if isinstance(target, TargetState) else ()
        rate_per_s = rate.value if isinstance(rate, Known) else None
        traffic = serving.service.declaration.traffic
        declared = traffic.peak_rate_per_s is not None or traffic.rate_per_s is not None
        judged = (owners, None if declared else rate_per_s)
        known = entry.checked
        if known is None or known[0] is not serving or known[1] != judged:
            proposal = Proposal(serving, rate_per_s, owners, self.gpus)
            entry.checked = known = (serving, judged, tuple(admission.admit(proposal)))
        return known[2]

    def status_of(self, entry: Entry, plan: Plan, now_s: float) -> Mapping[str, Any] | None:
        """The status to write after a plan; None when nothing of it is due."""
        due = None if entry.deleting else self.statuses.due(entry, plan, now_s)
        return {"controller": self.identity, **due} if due and self.identity else due

    def _remember(self, entry: Entry, done: Applied, now_s: float) -> None:
        entry.past = past_of.after(entry.past, done, now_s)
        rate = done.plan.report.rate_per_s
        entry.rate_per_s = rate.value if isinstance(rate, Known) else None
        if done.status is not None:
            entry.status, entry.shown = done.status, shown(done.plan)
            entry.differs_since_s = None


def rivalry(other: str) -> Finding:
    """Two installations decide on one object: each undoes what the other does."""
    text = (
        f"the Sojourn of {other} decides on this object too: give each installation its own "
        "scope.namespaces"
    )
    return Finding(Reason.MULTIPLE_CONTROLLERS, Verdict.WARN, "status.controller", text)


def learns(entry: Entry) -> bool:
    """Whether a service calibrates in this tick of its own: once in ``LEARN_EVERY``.

    Not all in one: what is learned costs a solution of the queue and a status each.
    """
    return (entry.ticks + zlib.crc32(entry.ref.uid.encode())) % LEARN_EVERY == 0


def _has(entry: Entry, condition: str) -> bool:
    """Whether a condition is in the status as it was last read or written."""
    held = entry.status.get("conditions") or ()
    return any(one.get("type") == condition for one in held)
