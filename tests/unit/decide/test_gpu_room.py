"""Too few GPUs: told always, binding only where no nodes come."""

from __future__ import annotations

from dataclasses import replace

from sojourn.decide import planning
from sojourn.facts.gpu import GpuRoom
from sojourn.facts.plan import Condition, Plan
from sojourn.facts.policy import Policy
from sojourn.facts.reasons import Reason
from tests.unit.decide.builders import autoscaled, situation

# The book's service: 8 GPUs a replica.
FULL = GpuRoom("A100-80GB", total=16, free=0, per_replica=8, placed=2, fits=2)
SERVICE = autoscaled()
HIGH = 8 * SERVICE.capacity_per_s(8)


def planned(room: GpuRoom | None, *, fixed: bool = False, rate: float = HIGH) -> Plan:
    state = replace(situation(SERVICE, rate, 2), gpus=room)
    return planning.plan(state, SERVICE, Policy(fixed_gpus=fixed))


def condition(plan: Plan, kind: str) -> Condition:
    return next(c for c in plan.conditions if c.type == kind)


def test_an_autoscaled_pool_is_asked_for_what_is_needed_and_the_shortage_is_told() -> None:
    unbound = planned(None)
    plan = planned(FULL)
    wanted = unbound.decision.after.replicas
    assert wanted is not None
    assert wanted > 2
    assert plan.decision.after == unbound.decision.after
    assert plan.write_replicas
    clip = plan.decision.limited_by[-1]
    assert (clip.reason, clip.replicas) == (Reason.CAPACITY, wanted)
    need = (wanted - 2) * 8
    assert clip.text == (
        f"{wanted} replicas need {need} GPUs more, 0 free of 16 A100-80GB: asked for all the same, "
        "nodes may come"
    )
    assert condition(plan, "ScalingLimited").reason is Reason.CAPACITY


def test_a_fixed_pool_is_not_asked_for_more_than_it_takes() -> None:
    plan = planned(replace(FULL, total=24, free=8, fits=3), fixed=True)
    assert plan.decision.after.replicas == 3
    assert plan.decision.limited_by[-1].reason is Reason.CAPACITY
    assert plan.decision.limited_by[-1].text.endswith(
        "8 free of 24 A100-80GB: the pool is fixed, 3 replicas asked for"
    )


def test_a_fixed_pool_takes_away_nothing_that_is_asked_for_already() -> None:
    plan = planned(replace(FULL, placed=1, fits=1), fixed=True)
    assert plan.decision.after.replicas == 2
    assert not plan.write_replicas


def test_where_the_gpus_suffice_or_are_not_known_nothing_is_told() -> None:
    for room in (None, replace(FULL, total=400, free=384, fits=50)):
        for fixed in (False, True):
            plan = planned(room, fixed=fixed)
            assert Reason.CAPACITY not in [clip.reason for clip in plan.decision.limited_by]


def test_a_scale_down_goes_on_in_a_full_pool() -> None:
    low = 0.2 * SERVICE.capacity_per_s(8)
    plan = planned(FULL, fixed=True, rate=low)
    assert plan.decision.after.replicas == 1
    assert plan.write_replicas


def test_memory_of_a_shared_card_is_not_judged_as_ones_own() -> None:
    """FC-070."""
    assert condition(planned(FULL), "MemoryFits").reason is not Reason.GPU_SHARED
    shared = condition(planned(replace(FULL, shared=True)), "MemoryFits")
    assert (shared.status, shared.reason) == (None, Reason.GPU_SHARED)
    assert shared.message.startswith("A100-80GB is shared by time-slicing or MPS")
