"""Services that share a quota: room goes to the most important, and no more than there is."""

from __future__ import annotations

from dataclasses import replace

from sojourn.decide import planning, sharing
from sojourn.facts.declaration import ObjectRef
from sojourn.facts.policy import Policy
from tests.unit.decide.builders import autoscaled, situation


def case(name: str, priority: int, rate: float, replicas: int, quota: int) -> sharing.Case:
    one = autoscaled(ref=ObjectRef("prod", name, name, 1), scaling={"priority": priority})
    state = situation(one, rate, replicas, quota=quota)
    return state, planning.plan(state, one, Policy())


def test_the_more_important_service_takes_the_room_and_the_other_what_is_left() -> None:
    # Both see 3 free replicas of 8 GPUs; each wants 2 and 3 more.
    low = case("a", 0, 600, 1, 4)
    high = case("b", 10, 320, 1, 4)
    assert low[1].decision.after.replicas == 4
    assert high[1].decision.after.replicas == 3
    lowered = sharing.fair_quotas([low, high])
    assert lowered == {("prod", "a"): 2}


def test_room_for_all_lowers_nobody() -> None:
    assert sharing.fair_quotas([case("a", 0, 300, 1, 20), case("b", 0, 300, 1, 20)]) == {}


def test_services_of_other_namespaces_do_not_compete() -> None:
    one, other = case("a", 0, 600, 1, 3), case("b", 0, 600, 1, 3)
    apart = (other[0], replace(other[1], ref=ObjectRef("test", "b", "b", 1)))
    assert sharing.fair_quotas([one, apart]) == {}
