"""What ticks leave behind: all that later decisions ask for, and no more."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sojourn.act.execute import Applied
from sojourn.controller import past as past_of
from sojourn.decide import behaviour
from sojourn.facts.declaration import Behaviour, ScalingRules
from sojourn.facts.plan import Plan, Setting
from sojourn.facts.reading import Known
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import Past, Recommendation, Signals, Situation, TargetState
from tests.unit.decide.builders import NOW_S, autoscaled, plan

ONE = autoscaled()
DONE = plan(ONE, 400, 4)
TICK_S = 15.0


def wanting(replicas: int | None, now_s: float) -> Plan:
    """A plan whose model asks for so many replicas; None holds."""
    row = Reason.HOLD if replicas is None else Reason.STEADY
    decision = replace(DONE.decision, at_s=now_s, row=row, raw=Setting(replicas, 8))
    return replace(DONE, decision=decision)


@given(
    st.lists(st.one_of(st.none(), st.integers(1, 6)), max_size=60),
    st.sampled_from([0.0, 30.0, 300.0, 600.0]),
    st.sampled_from([0.0, 45.0, 300.0, 3600.0]),
)
def test_stabilisation_of_what_is_kept_is_that_of_every_recommendation(
    wishes: list[int | None], up_s: float, down_s: float
) -> None:
    rules = Behaviour(ScalingRules(up_s, ()), ScalingRules(down_s, ()))
    past, every = Past(0.0), Past(0.0)
    for number, wish in enumerate(wishes):
        now_s = NOW_S + number * TICK_S
        for wanted in (1, 3, 6):
            whole = behaviour.stabilised(3, wanted, rules, every, now_s)
            assert behaviour.stabilised(3, wanted, rules, past, now_s) == whole
        past = past_of.after(past, Applied(wanting(wish, now_s)), now_s)
        if wish is not None:
            more = Recommendation(now_s, wish)
            every = replace(every, recommendations=(*every.recommendations, more))


def test_a_flapping_need_leaves_two_recommendations_and_a_steady_one_a_single() -> None:
    flapping, steady = Past(0.0), Past(0.0)
    for number in range(100):
        now_s = NOW_S + number * TICK_S
        flapping = past_of.after(flapping, Applied(wanting(5 + number % 2, now_s)), now_s)
        steady = past_of.after(steady, Applied(wanting(5, now_s)), now_s)
    assert len(flapping.recommendations) == 2
    assert steady.recommendations == (Recommendation(NOW_S + 99 * TICK_S, 5),)


def test_samples_of_an_hour_are_kept_the_recent_ones_in_full() -> None:
    past = Past(0.0)
    for number in range(400):
        past = past_of.with_sample(past, observed(NOW_S + number * TICK_S, past))
    times = [sample.at_s - NOW_S for sample in past.service_samples]
    last_s = 399 * TICK_S
    assert len(times) <= past_of.SAMPLES_KEPT
    assert times[-40:] == [last_s - TICK_S * k for k in reversed(range(40))]
    assert last_s - 3600 <= times[0] <= last_s - 3000


def observed(now_s: float, past: Past) -> Situation:
    """A steady tick: 12 requests run on 4 replicas at 6/s."""
    signals = Signals(rate_per_s=Known(6.0, now_s), running=Known(12.0, now_s))
    target = TargetState(spec_replicas=4, ready_replicas=4)
    return Situation(ONE.service, now_s, signals, target, past)
