"""A cluster in memory for one service: what is written happens, pods take their time to serve.

It drives ``planning.plan`` and ``controller.past`` as a tick does, without Kopf or a network.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from sojourn.act.execute import Applied
from sojourn.controller import past as past_of
from sojourn.decide import planning
from sojourn.decide.capacity import Serving
from sojourn.facts.plan import Plan
from sojourn.facts.policy import Policy
from sojourn.facts.reading import Known, Reading, Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import Past, Signals, Situation, TargetState

BLIND = Unknown(Reason.PROMETHEUS_UNAVAILABLE, "connection refused")
START_S = 100_000.0


@dataclass
class World:
    """One service, its pods and the operator's memory of it.

    Attributes:
        serving: the service as resolved now.
        replicas: what the scale asks for.
        rate: what is observed.
        cold_start_s: from the write to a pod that serves.
        quota: replicas that quota allows; None when none binds.
        stuck: new pods stay pending.
        drain_s: how long a pod that served goes on finishing after it was taken away.
        target: what else the cluster shows of the target.
        writes: every write of the scale: (seconds, before, after).
    """

    serving: Serving
    replicas: int = 1
    rate: Reading = BLIND
    cold_start_s: float = 60.0
    quota: int | None = None
    stuck: bool = False
    drain_s: float = 0.0
    target: dict[str, Any] = field(default_factory=dict)
    now_s: float = START_S
    policy: Policy = field(default_factory=Policy)
    writes: list[tuple[float, int, int]] = field(default_factory=list)
    ready_at_s: list[float] = field(default_factory=list)
    gone_at_s: list[float] = field(default_factory=list)
    past: Past = field(default_factory=lambda: Past(since_s=START_S))

    def __post_init__(self) -> None:
        self.ready_at_s = [START_S - 3600.0] * self.replicas

    def see(self, rate_per_s: float, *, lower_bound: bool = False) -> None:
        """Observe that rate from now on."""
        self.rate = Known(rate_per_s, self.now_s, lower_bound=lower_bound)

    def set_replicas(self, replicas: int) -> None:
        """The scale asks for so many from now on; the oldest pods stay."""
        self.replicas = replicas
        oldest = sorted(self.ready_at_s)
        served = sum(at_s <= self.now_s for at_s in oldest[replicas:])
        self.gone_at_s += [self.now_s + self.drain_s] * served
        missing = replicas - len(oldest)
        self.ready_at_s = [*oldest[:replicas], *[self._new_s] * max(0, missing)]

    def hold_back(self, stuck: bool) -> None:
        """New pods stay pending from now on; or those that do start now."""
        self.stuck = stuck
        if not stuck:
            self.ready_at_s = [min(at_s, self._new_s) for at_s in self.ready_at_s]

    def crash(self, pods: int) -> None:
        """So many pods, the oldest first, start anew: the scale asks for as many as before."""
        oldest = sorted(self.ready_at_s)
        self.ready_at_s = [*oldest[pods:], *[self._new_s] * len(oldest[:pods])]

    @property
    def _new_s(self) -> float:
        """When a pod that starts now will serve."""
        return float("inf") if self.stuck else self.now_s + self.cold_start_s

    def restart(self) -> None:
        """The operator begins anew and remembers nothing."""
        self.past = Past(since_s=self.now_s)

    @property
    def situation(self) -> Situation:
        """What the next tick will look at."""
        serving = [at_s for at_s in self.ready_at_s if at_s <= self.now_s]
        target = TargetState(
            spec_replicas=self.replicas,
            ready_replicas=len(serving),
            pods_pending=self.replicas - len(serving),
            max_batch=self.serving.service.bounds.maximum,
            batch_referenced=True,
            container="engine",
            youngest_ready_at_s=max(serving, default=None),
            pods_terminating=sum(at_s > self.now_s for at_s in self.gone_at_s),
        )
        return Situation(
            service=self.serving.service,
            now_s=self.now_s,
            signals=Signals(rate_per_s=self.rate),
            target=replace(target, **self.target),
            past=self.past,
            quota_replicas=self.quota,
        )

    def tick(self) -> Plan:
        """One tick: decide, write what is to be written, remember; then the tick's time passes."""
        done = planning.plan(self.situation, self.serving, self.policy)
        after = done.decision.after.replicas
        if done.write_replicas:
            assert after is not None
            self.writes.append((self.now_s, self.replicas, after))
            self.set_replicas(after)
        self.past = past_of.after(self.past, Applied(done, scaled=done.write_replicas), self.now_s)
        self.now_s += self.policy.tick_s
        if isinstance(self.rate, Known):
            self.rate = Known(self.rate.value, self.now_s, self.rate.lower_bound)
        return done

    def run(self, ticks: int) -> list[int]:
        """So many ticks; the replicas after each."""
        seen = []
        for _ in range(ticks):
            self.tick()
            seen.append(self.replicas)
        return seen

    @property
    def reversals(self) -> int:
        """How often a write went the other way than the one before."""
        ways = [after > before for _, before, after in self.writes]
        return sum(one != other for one, other in pairwise(ways))
