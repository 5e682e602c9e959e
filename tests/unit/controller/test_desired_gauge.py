"""The gauge an HPA follows: there with a fresh decision, gone with anything less."""

from __future__ import annotations

from sojourn.act.execute import Applied
from sojourn.controller import past as past_of
from sojourn.controller.own_metrics import OwnMetrics
from sojourn.decide import behaviour
from sojourn.decide.capacity import Serving
from sojourn.facts.declaration import Actuation, Behaviour, ScalingPolicy, ScalingRules
from sojourn.facts.plan import Plan
from sojourn.facts.reading import Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import Past
from tests.unit.decide.builders import NOW_S, autoscaled, plan

BLIND = Unknown(Reason.NO_SERIES, "no series")
METRIC = autoscaled(scaling={"actuation": Actuation.METRIC})


def desired(metrics: OwnMetrics) -> float | None:
    labels = {"namespace": "prod", "name": "gpt3"}
    return metrics.registry.get_sample_value("sojourn_desired_replicas", labels)


def test_the_gauge_has_the_decided_replicas_and_nothing_while_held() -> None:
    """FC-012: what is not known is not published as a healthy value."""
    metrics = OwnMetrics()
    metrics.ticked([Applied(plan(METRIC, 400, 2))])
    assert desired(metrics) == 4
    metrics.ticked([Applied(plan(METRIC, BLIND, 2))])
    assert desired(metrics) is None


def test_a_process_that_lost_the_lease_publishes_no_replicas() -> None:
    metrics = OwnMetrics()
    metrics.ticked([Applied(plan(METRIC, 400, 2))])
    metrics.lease_lost()
    assert desired(metrics) is None
    assert metrics.registry.get_sample_value("sojourn_leader") == 0


def test_with_metric_actuation_max_batch_is_written_and_the_scale_is_not() -> None:
    one = autoscaled(engine={"max_batch": 32}, scaling={"actuation": Actuation.METRIC})
    done = plan(one, 400, 2, target={"max_batch": None})
    assert done.write_max_batch
    assert not done.write_replicas


def test_what_an_hpa_did_on_our_metric_counts_for_the_policies_pace() -> None:
    two_a_minute = ScalingRules(0.0, (ScalingPolicy("Pods", 2, 60.0),))
    rules = Behaviour(up=two_a_minute)
    one = autoscaled(scaling={"actuation": Actuation.METRIC, "behaviour": rules})
    past = past_of.after(Past(0.0), Applied(_at(one, 3)), NOW_S)
    past = past_of.after(past, Applied(_at(one, 5)), NOW_S + 15)
    assert [event.change for event in past.scale_events] == [2]
    assert behaviour.paced(5, 9, rules, past, NOW_S + 30)[0] == 5


def _at(one: Serving, replicas: int) -> Plan:
    return plan(one, 900, replicas)
