"""Field cases as decisions: what went wrong for others, tick by tick, on ``tests/data``' base.

T(B) = 50 ms + 0.5 ms B at max batch 32: one replica takes 484.8/s.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from sojourn.controller.clock import moved
from sojourn.decide.capacity import Serving
from sojourn.facts.declaration import Actuation, BatchPolicy
from sojourn.facts.plan import Plan
from sojourn.facts.policy import Policy
from sojourn.facts.reading import Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.service_time import LinearServiceTime
from sojourn.facts.situation import Past
from tests.unit.decide.builders import NOW_S, autoscaled, plan
from tests.unit.decide.world import World


@cache
def chat(lowest: int = 1, highest: int = 8, **scaling: Any) -> Serving:
    """The base of the field cases."""
    bounds = {"min_replicas": lowest, "max_replicas": highest, **scaling}
    return autoscaled(engine={"max_batch": 32}, scaling=bounds)


def told(done: Plan, kind: str) -> tuple[bool | None, Reason]:
    (found,) = [c for c in done.conditions if c.type == kind]
    return found.status, found.reason


def test_an_outage_keeps_every_replica_and_no_fallback_lowers_it() -> None:
    """FC-001, FC-003, FC-008."""
    world = World(chat(highest=12), 9)
    assert set(world.run(40)) == {9}
    assert world.writes == []


def test_an_outage_raises_a_service_to_its_floor_within_a_tick() -> None:
    """FC-004, and FC-009 from zero."""
    for replicas in (0, 1):
        world = World(chat(lowest=3), replicas)
        world.tick()
        assert world.replicas == 3


def test_one_known_signal_adds_and_never_removes_beside_a_missing_one() -> None:
    """FC-005: without the queue's gauge the rate is a lower bound."""
    world = World(chat(), 3)
    world.see(60.0, lower_bound=True)
    assert set(world.run(40)) == {3}
    world.see(1600.0, lower_bound=True)
    world.tick()
    assert world.replicas > 3


def test_the_first_request_at_zero_wakes_within_a_tick() -> None:
    """FC-034 and FC-035: what the gateway counted, whatever it answered."""
    world = World(chat(lowest=0), 0)
    world.see(0.0)
    assert set(world.run(3)) == {0}
    world.see(0.05)
    world.tick()
    assert world.replicas == 1


def test_a_service_on_its_way_up_from_zero_never_goes_back_before_it_was_ready() -> None:
    """FC-033 and FC-035: nine minutes of cold start and not one request served."""
    world = World(chat(lowest=0), 0, cold_start_s=540.0)
    world.see(0.05)
    world.tick()
    world.see(0.0)
    assert set(world.run(36)) == {1}
    assert 0 in world.run(40)


def test_a_scraped_service_without_requests_goes_to_its_floor_after_the_window() -> None:
    """FC-002 and FC-038: a true zero scales down; latency that is no number does not hold it."""
    world = World(chat(), 7)
    world.see(0.0)
    assert set(world.run(20)) == {7}
    assert world.run(3)[-1] == 1


def test_pods_that_load_for_minutes_are_asked_for_once() -> None:
    """FC-040."""
    world = World(chat(), 2, cold_start_s=240.0)
    world.see(1600.0)
    seen = world.run(16)
    assert 4 <= seen[-1] <= 5
    assert max(seen) == seen[-1]
    assert len(world.writes) == 1


def test_few_ready_pods_of_many_asked_for_undo_nothing() -> None:
    """FC-044."""
    world = World(chat(highest=2000), 1000)
    world.ready_at_s = [world.now_s - 100.0] * 40 + [float("inf")] * 960
    world.see(900 * 0.75 * 484.8)
    assert min(world.run(40)) >= 900


def test_unplaceable_pods_are_told_and_neither_multiplied_nor_withdrawn() -> None:
    """FC-066, FC-067 and FC-146: half an hour without a free node."""
    world = World(chat(), 4, stuck=True)
    world.ready_at_s = [0.0, 0.0, float("inf"), float("inf")]
    world.target = {"blocked": "Unschedulable: 0/4 nodes have nvidia.com/gpu"}
    world.see(1300.0)
    assert set(world.run(120)) == {4}
    assert told(world.tick(), "Ready") == (True, Reason.CAPACITY_BLOCKED)


def test_pending_pods_never_keep_a_scale_down_back() -> None:
    """FC-041."""
    world = World(chat(), 2)
    world.ready_at_s = [0.0, float("inf")]
    world.see(0.0)
    assert world.run(24)[-1] == 1


def test_noise_on_a_large_fleet_moves_it_little_and_seldom() -> None:
    """FC-046: +-15 % around 60 % of 500 replicas for half an hour."""
    chance = random.Random(46)
    world = World(chat(500, 2000), 500)
    for _ in range(120):
        world.see(0.6 * 500 * 484.8 * chance.uniform(0.85, 1.15))
        world.tick()
        assert 500 <= world.replicas <= 550
    assert world.reversals <= 2


def test_no_load_at_all_writes_nothing() -> None:
    """FC-047."""
    world = World(chat(), 1)
    world.see(0.0)
    world.run(200)
    assert world.writes == []


def test_the_published_value_is_stabilised_once_with_metric_actuation() -> None:
    """FC-147: 1600/s, then 60/s; an HPA that follows adds no window of its own."""
    world = World(chat(actuation=Actuation.METRIC), 5)
    world.see(1600.0)
    world.run(25)
    world.see(60.0)
    values = [world.tick().decision.after.replicas for _ in range(25)]
    assert set(values[:19]) == {5}
    assert values[-1] == 1
    assert world.writes == []


def test_more_than_the_maximum_goes_to_the_maximum_and_says_what_was_wanted() -> None:
    """FC-056: 9600/s."""
    world = World(chat(), 3)
    world.see(9600.0)
    done = [world.tick() for _ in range(3)][-1]
    assert world.replicas == 8
    assert told(done, "ScalingLimited") == (True, Reason.MAX_REPLICAS)
    (limited,) = [c for c in done.conditions if c.type == "ScalingLimited"]
    assert "27 wanted" in limited.message


def test_crash_looping_pods_of_a_rollout_are_not_answered_with_more() -> None:
    """FC-042."""
    world = World(chat(), 2)
    world.ready_at_s = [0.0, float("inf")]
    world.target = {"rollout_running": True}
    world.see(60.0)
    seen = world.run(20)
    assert set(seen) == {2}
    world.target["trouble"] = "chat-x: vllm is in CrashLoopBackOff, last OOMKilled (exit code 137)"
    (ready,) = [c for c in world.tick().conditions if c.type == "Ready"]
    assert ready.reason is Reason.PODS_PENDING
    assert "CrashLoopBackOff, last OOMKilled" in ready.message


PATIENT = Past(0.0, batch_wanted_since_s=NOW_S - 700)


def small_batch(rate: float = 900, quota: int | None = None, **target: Any) -> Plan:
    """A service at max batch 8 that has long wanted 32."""
    one = autoscaled(engine={"max_batch": 32, "min_batch": 1}, scaling={"max_replicas": 8})
    return plan(one, rate, 8, past=PATIENT, quota=quota, target={"max_batch": 8, **target})


def test_a_stuck_rollout_gets_no_second_one_and_replicas_still_follow() -> None:
    """FC-079."""
    assert small_batch().write_max_batch
    gated: dict[str, Any] = {
        "rollout_running": True,
        "blocked": "SchedulingGated: waiting for quota",
    }
    stuck = small_batch(**gated)
    assert not stuck.write_max_batch
    assert told(stuck, "Ready")[1] is Reason.CAPACITY_BLOCKED
    one = chat()
    busy = plan(one, 1600, 2, target={"rollout_running": True})
    assert (busy.decision.after.replicas or 0) > 2


def test_a_template_that_nobody_rolls_out_gets_no_new_max_batch() -> None:
    """A sibling of FC-079: paused, OnDelete or partitioned; the pods would go on with the old."""
    waits = small_batch(rollout_manual="the StatefulSet's update strategy is OnDelete")
    assert not waits.write_max_batch
    assert small_batch().write_max_batch


def test_a_rollout_whose_first_new_pod_quota_forbids_is_not_begun() -> None:
    """FC-144: eight replicas on a quota of eight."""
    assert small_batch(quota=9).write_max_batch
    refused = small_batch(quota=8)
    assert not refused.write_max_batch
    # The alternative that needs no room is allowed.
    assert small_batch(rate=300, quota=8, rollout_unavailable=1).write_max_batch


def test_no_second_step_down_while_pods_still_finish_long_answers() -> None:
    """FC-142."""
    world = World(chat(), 6)
    world.see(0.0)
    world.target = {"pods_terminating": 1}
    assert set(world.run(40)) == {6}
    world.target = {}
    assert world.run(1)[-1] == 1


def test_pods_of_a_lost_node_do_not_hold_a_scale_down_for_ever() -> None:
    """A sibling of FC-142: told to stop, never gone, because nobody is there to stop it."""
    world = World(chat(), 6)
    world.see(0.0)
    world.target = {"pods_terminating": 1, "finishing_until_s": world.now_s + 400.0}
    seen = world.run(60)
    assert set(seen[:30]) == {6}
    assert seen[-1] == 1


def test_every_condition_is_said_anew_when_the_fault_is_gone() -> None:
    """FC-090: an outage, then a return without traffic."""
    world = World(chat(), 2)
    held = [world.tick() for _ in range(20)][-1]
    assert told(held, "MetricsAvailable") == (False, Reason.PROMETHEUS_UNAVAILABLE)
    world.see(0.0)
    done = [world.tick() for _ in range(30)][-1]
    assert told(done, "MetricsAvailable") == (True, Reason.FRESH)
    assert told(done, "Ready")[0] is True
    assert told(done, "ScalingActive")[0] is True


def test_a_client_that_sets_replicas_back_is_named_and_never_raced() -> None:
    """FC-087: replicas 1 every 30 s, 20 times, under a load that needs 3."""
    world = World(chat(), 3)
    world.see(900.0)
    world.run(2)
    world.writes.clear()
    world.target = {"replicas_manager": "argocd-controller"}
    ticks = []
    for _ in range(20):
        world.set_replicas(1)
        ticks += [world.tick(), world.tick()]
    assert len(world.writes) == 20
    assert all(after == 3 for _, _, after in world.writes)
    (conflict,) = [c for c in ticks[-1].conditions if c.type == "Conflict"]
    assert (conflict.status, conflict.reason) == (True, Reason.EXTERNAL_WRITER)
    assert "argocd-controller" in conflict.message
    assert told(ticks[1], "Conflict")[0] is False


def test_an_hpa_on_the_target_makes_it_a_recommendation() -> None:
    """FC-077, FC-081: 40 ticks under load."""
    world = World(chat(), 1)
    world.see(1600.0)
    world.target = {"other_owners": ("ScaledObject chat",)}
    done = [world.tick() for _ in range(40)][-1]
    assert world.writes == []
    assert told(done, "Conflict") == (True, Reason.TARGET_CONFLICT)
    assert done.decision.after.replicas is not None
    assert done.decision.after.replicas > 1
    world.target = {}
    world.tick()
    assert world.replicas > 1


def test_overlapping_selectors_are_told_and_decide_nothing() -> None:
    """FC-080: told on both; pods are counted by owner, so replicas follow as always."""
    world = World(chat(), 1)
    world.see(1600.0)
    world.target = {"overlapping": ("Deployment b",)}
    done = world.tick()
    (conflict,) = [c for c in done.conditions if c.type == "Conflict"]
    assert (conflict.status, conflict.reason) == (True, Reason.SELECTOR_OVERLAP)
    assert "Deployment b" in conflict.message
    assert world.replicas > 1


def test_an_slo_that_a_lone_request_breaks_does_not_climb() -> None:
    """FC-050: 900 ms + 20 ms B against 800 ms, at 5/s for 40 ticks."""
    one = autoscaled(
        engine={"max_batch": 32},
        slo={"latency_s": 0.8},
        scaling={"max_replicas": 8},
        service_time=LinearServiceTime(0.9, 0.02),
    )
    world = World(one, 1)
    world.see(5.0)
    done = [world.tick() for _ in range(40)][-1]
    assert world.writes == []
    assert told(done, "SLOAttainable") == (False, Reason.SLO_UNREACHABLE)


def test_queueing_is_part_of_the_latency_that_is_kept() -> None:
    """FC-145: 435/s a replica, load 0.897."""
    one = autoscaled(engine={"max_batch": 32}, slo={"latency_s": 0.4}, scaling={"max_replicas": 8})
    done = plan(one, 870, 2)
    assert (done.decision.after.replicas or 0) >= 3


UNREAD = "the operator may not list resourcequotas (forbidden)"


@pytest.mark.parametrize("hold", [False, True])
def test_quotas_that_cannot_be_read_have_one_answer_and_it_is_told(hold: bool) -> None:
    """FC-063: nothing declares a quota here, so one setting says it for all: Ignore, or Hold."""
    world = World(chat(), 2, policy=Policy(hold_without_quota=hold))
    world.target = {"quota_unknown": UNREAD}
    world.see(1600.0)
    done = world.tick()
    (limited,) = [c for c in done.conditions if c.type == "ScalingLimited"]
    assert UNREAD in limited.message
    if hold:
        assert world.replicas == 2
        assert (limited.status, limited.reason) == (True, Reason.QUOTA)
    else:
        assert world.replicas >= 4
        assert limited.status is False
    world.see(0.0)
    assert world.run(50)[-1] == 1


@pytest.mark.parametrize("skew_s", [90.0, -90.0, -3600.0])
def test_a_clock_that_jumps_neither_scales_down_nor_writes_more_than_once_a_tick(
    skew_s: float,
) -> None:
    """FC-141."""
    world = World(chat(), 4)
    world.see(1300.0)
    world.run(30)
    before = len(world.writes)
    world.now_s += skew_s
    world.past = moved(world.past, skew_s)
    world.rate = Unknown(Reason.PROMETHEUS_UNAVAILABLE, f"clock differs by {skew_s:g} s")
    assert set(world.run(4)) == {4}
    world.see(1300.0)
    assert set(world.run(30)) == {4}
    assert len(world.writes) == before
    world.see(0.0)
    seen = world.run(23)
    assert set(seen[:19]) == {4}, "the whole window, not an hour less"
    assert seen[-1] == 1, "nor an hour more"


def test_a_restart_reads_the_pause_from_the_object_and_removes_nothing() -> None:
    """FC-039: what a status once said does not count."""
    world = World(chat(), 1)
    world.see(60.0)
    world.restart()
    assert set(world.run(40)) == {1}
    paused = World(replace_pause(chat()), 1)
    paused.see(4000.0)
    assert paused.run(5)[-1] == 1


def replace_pause(one: Serving) -> Serving:
    declaration = replace(one.service.declaration, paused=True)
    return replace(one, service=replace(one.service, declaration=declaration))


def test_fixed_batch_policy_never_rolls_out() -> None:
    one = autoscaled(
        engine={"max_batch": 32, "min_batch": 1}, scaling={"batch_policy": BatchPolicy.FIXED}
    )
    assert not plan(one, 900, 8, past=PATIENT, target={"max_batch": 8}).write_max_batch


def test_load_that_only_the_queue_shows_is_served() -> None:
    """FC-027: 480/s completed and 200/s of growth are 680/s offered; FC-028 the same at ten."""
    world = World(chat(), 1)
    world.see(680.0)
    world.tick()
    assert world.replicas >= 2
    full = World(chat(highest=20), 10)
    full.see(10 * 440.0)
    assert min(full.run(40)) >= 10
