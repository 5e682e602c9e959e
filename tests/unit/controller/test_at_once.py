"""What the event loop answers by itself, and what it leaves to a thread."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from sojourn.catalogue import Catalogue
from sojourn.controller.at_once import AtOnce, NeedsTime
from sojourn.controller.registry import Registry
from sojourn.controller.review import Case, Reviewer
from sojourn.facts.replica import DynamicReplica
from sojourn.facts.service_time import LinearServiceTime
from sojourn.facts.sojourn import LatencyGoal
from sojourn.model.continuous import ContinuousModel
from sojourn.model.exact_model import ExactModel
from tests.integration.operators import service
from tests.unit.controller import specs

NAMES = Catalogue()
FRESH = itertools.count(1)
REPLICA = DynamicReplica(LinearServiceTime(0.05, 0.0005), max_batch=8)


def reviewer() -> Reviewer:
    registry = Registry(NAMES)
    return Reviewer(registry, NAMES.gpus(), registry.sharing_target, lambda _: None)


def near_its_slo() -> dict[str, Any]:
    """At a rate that no other test has asked about: no bound clears it, so it must be solved."""
    rate = f"{91 + next(FRESH) / 1000:.3f}"
    body = service("slow", slo={"latency": "106ms"}, traffic={"peakRate": rate})
    return {**body, "metadata": {**body["metadata"], "namespace": "default"}}


def case_of(body: dict[str, Any], old: dict[str, Any] | None = None) -> Case:
    case = reviewer().prepare(body, old)
    assert case is not None
    return case


def test_a_service_far_from_its_slo_is_judged_at_once() -> None:
    case = case_of(service("far", slo={"latency": "5s"}))
    assert reviewer().judged_at_once(case) == reviewer().judge(case)


def test_what_must_be_solved_is_not_judged_at_once_but_is_remembered_then() -> None:
    case = case_of(near_its_slo())
    assert reviewer().judged_at_once(case) is None
    solved = reviewer().judge(case)
    assert reviewer().judged_at_once(case) == solved


def test_an_untouched_spec_that_must_be_solved_is_not_waved_through_at_once() -> None:
    body = near_its_slo()
    case = case_of({**body, "metadata": {**body["metadata"], "labels": {"a": "b"}}}, body)
    assert case.untouched
    assert reviewer().judged_at_once(case) is None


def test_what_is_judged_at_once_is_what_a_thread_would_say() -> None:
    rng = random.Random(11)
    at_once = 0
    for number in range(300):
        body = specs.sensible(rng, f"s{number}")
        case = reviewer().prepare(body, None)
        if case is None:
            continue
        told = reviewer().judged_at_once(case)
        at_once += told is not None
        assert told is None or told == reviewer().judge(case)
    assert at_once > 150


@pytest.mark.parametrize("model", [ExactModel(), ContinuousModel()])
def test_it_equals_the_model_it_stands_for_and_no_other(model: Any) -> None:
    every: set[Any] = {ExactModel(), ExactModel(precise=True), ContinuousModel()}
    others = every - {model}
    assert {AtOnce(model): "known"}[model] == "known"
    assert AtOnce(model) == AtOnce(model)
    assert AtOnce(model).name == model.name
    for other in others:
        assert AtOnce(model) != other
        assert AtOnce(model) != AtOnce(other)


def test_a_load_limit_alone_is_told_at_once_and_a_latency_is_not() -> None:
    load = LatencyGoal(max_utilisation=0.8, max_blocking=1.0)
    prompt = AtOnce(ExactModel())
    assert prompt.max_rate(REPLICA, load) == ExactModel().max_rate(REPLICA, load)
    with pytest.raises(NeedsTime):
        prompt.max_rate(REPLICA, LatencyGoal(latency_s=1.0, max_utilisation=0.8, max_blocking=1.0))
    with pytest.raises(NeedsTime):
        prompt.max_rate(REPLICA, LatencyGoal(max_utilisation=0.8, max_blocking=0.01))
