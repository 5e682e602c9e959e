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
from sojourn.decide.behaviour import rules_down
from sojourn.decide.capacity import Serving
from sojourn.facts.declaration import Behaviour, ScalingPolicy, ScalingRules
from sojourn.facts.plan import Plan
from sojourn.facts.reading import Known
from sojourn.facts.situation import Situation, TargetState
from tests.unit.decide.builders import autoscaled
from tests.unit.decide.world import BLIND, World

RATES = st.sampled_from([0, 5, 40, 90, 120, 200, 333, 480, 900, 1600, 4000])
"""A few rates, far apart and near: the model's answers are then computed once."""


@cache
def book(lowest: int, highest: int) -> Serving:
    """Capacity of a replica at max batch 8: 148/s; a short window, so that fewer are often due."""
    down = ScalingRules(45.0, (ScalingPolicy("Percent", 100, 15.0),))
    scaling = {"min_replicas": lowest, "max_replicas": highest, "behaviour": Behaviour(down=down)}
    return autoscaled(scaling=scaling)


class Histories(RuleBasedStateMachine):
    """Load, gaps, restarts, stuck pods, quotas, new specs and foreign writes, in any order."""

    @initialize(replicas=st.integers(1, 12))
    def begin(self, replicas: int) -> None:
        self.world = World(book(1, 20), replicas)
        self.blind_since_s: float | None = self.world.now_s
        self.last: tuple[Situation, Plan] | None = None

    @rule(rate=RATES, lower_bound=st.booleans())
    def load(self, rate: int, lower_bound: bool) -> None:
        self.world.see(float(rate), lower_bound=lower_bound)

    @rule()
    def gap(self) -> None:
        self.world.rate = BLIND

    @rule()
    def restart(self) -> None:
        self.world.restart()

    @rule(stuck=st.booleans())
    def stick(self, stuck: bool) -> None:
        self.world.stuck = stuck

    @rule(quota=st.one_of(st.none(), st.integers(0, 12)))
    def limit(self, quota: int | None) -> None:
        self.world.quota = quota

    @rule(lowest=st.integers(1, 6), more=st.integers(0, 15))
    def respecify(self, lowest: int, more: int) -> None:
        self.world.serving = book(lowest, lowest + more)

    @rule(replicas=st.integers(0, 25))
    def foreign_write(self, replicas: int) -> None:
        self.world.set_replicas(replicas)

    @rule(ticks=st.integers(1, 12))
    def time(self, ticks: int) -> None:
        for _ in range(ticks):
            before = self.world.situation
            done = self.world.tick()
            self.last = (before, done)
            self._written_within_bounds(before, done)
            self._never_fewer_without_evidence(before, done)
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
        if state.target.ready_replicas > 1:
            fewer = replace(state.target, ready_replicas=1, pods_pending=state.target.spec_replicas)
            assert _after(self._plan(replace(state, target=fewer))) == _after(done)

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
        """I1."""
        scaling = state.service.declaration.scaling
        if done.write_replicas:
            assert scaling.min_replicas <= _after(done) <= scaling.max_replicas

    def _never_fewer_without_evidence(self, state: Situation, done: Plan) -> None:
        """I2."""
        rate, target = state.signals.rate_per_s, state.target
        assert isinstance(target, TargetState)
        if not done.write_replicas or _after(done) >= target.spec_replicas:
            return
        assert isinstance(rate, Known)
        over = target.spec_replicas > state.service.declaration.scaling.max_replicas
        assert over or not rate.lower_bound
        window_s = rules_down(state.service.declaration.scaling.behaviour).stabilization_s
        assert over or state.now_s - state.past.since_s >= window_s
        youngest = target.youngest_ready_at_s
        assert over or youngest is None or state.now_s - youngest >= self.world.policy.rate_window_s

    def _held_at_or_above_the_floor(self, state: Situation, done: Plan) -> None:
        """I1: the floor holds with every metric unknown."""
        del done
        assert self.world.replicas >= state.service.declaration.scaling.min_replicas


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
