"""The invariants I1, I2, I4 and I5 over random histories, and quiet under noise."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from sojourn.decide import planning
from sojourn.decide.behaviour import rules_down, rules_up
from sojourn.decide.capacity import Serving
from sojourn.facts.declaration import Behaviour, ScalingPolicy, ScalingRules
from sojourn.facts.plan import Plan
from sojourn.facts.reading import Known
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import Situation, TargetState
from tests.unit.decide.builders import autoscaled
from tests.unit.decide.world import BLIND, World

RATES = st.sampled_from([0, 5, 40, 90, 120, 200, 333, 480, 900, 1600, 4000])
"""A few rates, far apart and near: the model's answers are then computed once."""


DRAINS_S = st.sampled_from([0.0, 90.0])

PACE = ScalingPolicy("Pods", 4, 60.0)
"""Of services that scale up at a pace; the others take every step at once."""


@cache
def book(lowest: int, highest: int, *, paced: bool = False) -> Serving:
    """Capacity of a replica at max batch 8: 148/s; a short window, so that fewer are often due."""
    down = ScalingRules(45.0, (ScalingPolicy("Percent", 100, 15.0),))
    up = ScalingRules(0.0, (PACE,)) if paced else None
    behaviour = Behaviour(up=up, down=down)
    return autoscaled(
        scaling={"min_replicas": lowest, "max_replicas": highest, "behaviour": behaviour}
    )


class Histories(RuleBasedStateMachine):
    """Load, gaps, restarts, pods that wait, crash and drain, quotas, new specs, foreign writes.

    Attributes:
        asked: (seconds, replicas) of every answer of the table this process has given.
        changes: (seconds, change in replicas) of every write of this process.
    """

    @initialize(replicas=st.integers(1, 12), drain_s=DRAINS_S)
    def begin(self, replicas: int, drain_s: float) -> None:
        self.world = World(book(1, 20), replicas, drain_s=drain_s)
        self.last: tuple[Situation, Plan] | None = None
        self.asked: list[tuple[float, int]] = []
        self.changes: list[tuple[float, int]] = []

    @rule(rate=RATES, lower_bound=st.booleans())
    def load(self, rate: int, lower_bound: bool) -> None:
        self.world.see(float(rate), lower_bound=lower_bound)

    @rule()
    def gap(self) -> None:
        self.world.rate = BLIND

    @rule()
    def restart(self) -> None:
        self.world.restart()
        self.asked, self.changes = [], []

    @rule(stuck=st.booleans())
    def stick(self, stuck: bool) -> None:
        self.world.hold_back(stuck)

    @rule(pods=st.integers(1, 20))
    def crash(self, pods: int) -> None:
        self.world.crash(pods)

    @rule(cold_start_s=st.sampled_from([0.0, 60.0, 300.0]), drain_s=DRAINS_S)
    def pod_times(self, cold_start_s: float, drain_s: float) -> None:
        self.world.cold_start_s, self.world.drain_s = cold_start_s, drain_s

    @rule(quota=st.one_of(st.none(), st.integers(0, 12)))
    def limit(self, quota: int | None) -> None:
        self.world.quota = quota

    @rule(lowest=st.integers(0, 6), more=st.integers(1, 15), paced=st.booleans())
    def respecify(self, lowest: int, more: int, paced: bool) -> None:
        self.world.serving = book(lowest, lowest + more, paced=paced)

    @rule(replicas=st.integers(0, 25))
    def foreign_write(self, replicas: int) -> None:
        self.world.set_replicas(replicas)

    @rule(rate=RATES)
    def quiet_then_gap(self, rate: int) -> None:
        """Little load, too short for a scale-down, and then none is known."""
        self.load(rate, lower_bound=False)
        self.time(2)
        self.gap()

    @rule(lowest=st.integers(1, 6))
    def floor_raised_unseen(self, lowest: int) -> None:
        self.gap()
        self.respecify(lowest, 10, paced=False)
        self.time(1)

    @rule(rates=st.lists(RATES, min_size=2, max_size=4), ticks=st.integers(3, 6))
    def treads(self, rates: list[int], ticks: int) -> None:
        for rate in rates:
            self.load(rate, lower_bound=False)
            self.time(ticks)

    @rule(rate=RATES, highest=st.integers(1, 5))
    def wake(self, rate: int, highest: int) -> None:
        """A service asleep, and then load."""
        self.world.serving = book(0, highest)
        self.world.set_replicas(0)
        self.load(rate, lower_bound=False)
        self.time(1)

    @rule(rate=RATES)
    def crowd(self, rate: int) -> None:
        """A load that a service which scales at a pace follows in several steps."""
        self.respecify(1, 15, paced=True)
        self.load(rate, lower_bound=False)
        self.time(3)

    @rule(ticks=st.integers(1, 12))
    def time(self, ticks: int) -> None:
        for _ in range(ticks):
            before = self.world.situation
            done = self.world.tick()
            self.last = (before, done)
            if done.decision.row is not Reason.HOLD:
                self.asked.append((before.now_s, done.decision.raw.replicas or 0))
            self._written_within_bounds(before, done)
            self._never_fewer_without_evidence(before, done)
            self._never_below_what_the_window_needed(before, done)
            self._at_the_pace_of_the_policies(before, done)
            self._held_at_or_above_the_floor(before, done)

    @precondition(lambda self: self.last is not None)
    @invariant()
    def more_load_never_gives_fewer_replicas(self) -> None:
        """I4."""
        assert self.last is not None
        state, done = self.last
        rate = state.signals.rate_per_s
        if isinstance(rate, Known):
            busier = replace(rate, value=1.5 * rate.value + 20)
            more = self._plan(replace(state, signals=replace(state.signals, rate_per_s=busier)))
            assert _after(more) >= _after(done)

    @precondition(lambda self: self.last is not None)
    @invariant()
    def pending_pods_count_as_coming_capacity(self) -> None:
        """I4: what is asked for depends on the scale, not on the pods that serve yet."""
        assert self.last is not None
        state, done = self.last
        assert isinstance(state.target, TargetState)
        asked_for = state.target.spec_replicas
        for ready in {1, asked_for} if state.target.ready_replicas else ():
            pods = replace(state.target, ready_replicas=ready, pods_pending=asked_for - ready)
            other = self._plan(replace(state, target=pods))
            assert other.decision.raw == done.decision.raw
            assert _after(other) == _after(done)

    @precondition(lambda self: self.last is not None)
    @invariant()
    def a_second_tick_at_the_same_instant_writes_nothing_more(self) -> None:
        """I5: what was written is what was wanted; the same evidence asks for no other."""
        assert self.last is not None
        state, done = self.last
        assert isinstance(state.target, TargetState)
        if done.write_replicas and _after(done) > state.target.spec_replicas:
            there = replace(state.target, spec_replicas=_after(done), pods_pending=_after(done))
            again = self._plan(replace(state, target=there, past=self.world.past))
            assert not again.write_replicas or _after(again) > _after(done)

    def _plan(self, state: Situation) -> Plan:
        serving = Serving(state.service, self.world.serving.queue)
        return planning.plan(state, serving, self.world.policy)

    def _written_within_bounds(self, state: Situation, done: Plan) -> None:
        """I1; and a service on its way up from zero does not go back before it was ready."""
        scaling, target = state.service.declaration.scaling, state.target
        assert isinstance(target, TargetState)
        if done.write_replicas:
            assert scaling.min_replicas <= _after(done) <= scaling.max_replicas
            assert _after(done) > 0 or target.ready_replicas > 0

    def _never_fewer_without_evidence(self, state: Situation, done: Plan) -> None:
        """I2."""
        if not _fewer_by_load(state, done):
            return
        rate, target = state.signals.rate_per_s, state.target
        assert isinstance(target, TargetState)
        assert isinstance(rate, Known)
        assert not rate.lower_bound
        assert not target.pods_terminating
        window_s = rules_down(state.service.declaration.scaling.behaviour).stabilization_s
        assert state.now_s - state.past.since_s >= window_s
        youngest = target.youngest_ready_at_s
        assert youngest is None or state.now_s - youngest >= self.world.policy.rate_window_s

    def _never_below_what_the_window_needed(self, state: Situation, done: Plan) -> None:
        """I2 over time: every answer of the stabilisation window allows what is written."""
        if not _fewer_by_load(state, done):
            return
        scaling = state.service.declaration.scaling
        begins_s = state.now_s - rules_down(scaling.behaviour).stabilization_s
        needed = max(replicas for at_s, replicas in self.asked if at_s > begins_s)
        assert _after(done) >= min(needed, scaling.max_replicas)
        # A rate covers its window; what was dark for longer was not seen at all.
        seen_s, policy = state.now_s, self.world.policy
        for at_s in (*(at_s for at_s, _ in reversed(self.asked)), state.past.since_s):
            if seen_s - at_s > policy.rate_window_s + policy.tick_s:
                break
            seen_s = at_s
        assert seen_s <= begins_s

    def _at_the_pace_of_the_policies(self, state: Situation, done: Plan) -> None:
        """I5: what is under way counts; no period sees more pods added than its policy allows."""
        scaling, target = state.service.declaration.scaling, state.target
        assert isinstance(target, TargetState)
        if not done.write_replicas:
            return
        self.changes.append((state.now_s, _after(done) - target.spec_replicas))
        rises = _after(done) > max(target.spec_replicas, scaling.min_replicas)
        if rises and rules_up(scaling.behaviour).policies == (PACE,):
            begins_s = state.now_s - PACE.period_s
            assert sum(n for at_s, n in self.changes if at_s > begins_s) <= PACE.value

    def _held_at_or_above_the_floor(self, state: Situation, done: Plan) -> None:
        """I1: the floor holds with every metric unknown."""
        del done
        assert self.world.replicas >= state.service.declaration.scaling.min_replicas


def _fewer_by_load(state: Situation, done: Plan) -> bool:
    """Fewer are written, and not because there were more than ``maxReplicas``."""
    target = state.target
    assert isinstance(target, TargetState)
    over = target.spec_replicas > state.service.declaration.scaling.max_replicas
    return done.write_replicas and _after(done) < target.spec_replicas and not over


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=50, stateful_step_count=30)


class _LongHistories(Histories):
    """The same, for longer."""


TestLongHistories = pytest.mark.slow(_LongHistories.TestCase)
TestLongHistories.settings = settings(max_examples=300, stateful_step_count=50)


def _after(done: Plan) -> int:
    return done.decision.after.replicas or 0


@pytest.mark.parametrize("load", [0.3, 0.55, 0.7, 0.84])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_noise_of_15_percent_for_half_an_hour_reverses_at_most_twice(
    load: float, seed: int
) -> None:
    """FC-046, in small: the load of 10 replicas with noise, 120 ticks."""
    chance = random.Random(seed)
    one = autoscaled(scaling={"min_replicas": 1, "max_replicas": 40})
    world = World(one, 10)
    level = load * 10 * one.capacity_per_s(8)
    for _ in range(120):
        world.see(level * chance.uniform(0.85, 1.15))
        world.tick()
    assert world.reversals <= 2
    assert all(before != after for _, before, after in world.writes)


@pytest.mark.parametrize("rate", [0, 20, 95, 480, 1234, 5000])
def test_constant_load_settles_and_then_nothing_is_written(rate: int) -> None:
    """I5; FC-047 is the row without load."""
    world = World(autoscaled(scaling={"min_replicas": 1, "max_replicas": 40}), 4)
    world.see(float(rate))
    world.run(40)  # the stabilisation window, and what policies pace
    settled = len(world.writes)
    world.run(80)
    assert len(world.writes) == settled
    ways = [after > before for _, before, after in world.writes]
    assert all(one == other for one, other in pairwise(ways))
