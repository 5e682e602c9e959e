"""Prometheus gone, the operator killed: capacity is held, and all is as before afterwards."""

import time

from tests.controlplane.components import Component
from tests.controlplane.plane import ControlPlane
from tests.e2e.demo import scenario
from tests.e2e.demo.stage import Stage
from tests.e2e.house import House, throughout
from tests.waiting import eventually

SETTLED_S = 40.0
TOLD_S = 20.0
TAKEOVER_S = 30.0
HELD_TICKS = 10  # 20 s: longer than the stabilisation window of 12 s and the rate's window of 3 s
LOAD_S = 600.0
TWO_REPLICAS_PER_S = 180.0  # a replica carries 148


def loaded(house: House, namespace: str) -> Stage:
    """GPT-3 on two replicas, under a load that needs both, and reported Ready."""
    stage = house.stage(namespace, [scenario.gpt3((TWO_REPLICAS_PER_S,), (LOAD_S,))])
    stage.start()
    front = house.fleet.front((namespace, "gpt3"))
    eventually(lambda: front.ready == 2, SETTLED_S, "two replicas serve")
    eventually(
        lambda: house.condition(namespace, "gpt3", "MetricsAvailable").get("status") == "True",
        SETTLED_S,
        "metrics are available",
    )
    return stage


def test_replicas_are_held_without_prometheus_and_follow_the_load_when_it_returns(
    house: House, control_plane: ControlPlane, namespace: str
) -> None:
    stage = loaded(house, namespace)
    control_plane.stop(Component.PROMETHEUS)
    try:
        eventually(
            lambda: house.condition(namespace, "gpt3", "MetricsAvailable").get("status") == "False",
            TOLD_S,
            "MetricsAvailable is False",
        )
        told = house.condition(namespace, "gpt3", "MetricsAvailable")
        assert told["reason"] == "PrometheusUnavailable"
        assert told["message"]
        # The load ends unseen: what is not known is not zero.
        stage.stop()
        throughout(
            HELD_TICKS, house, lambda: house.replicas(namespace, "gpt3") == 2, "replicas are held"
        )
    finally:
        control_plane.start(Component.PROMETHEUS)
    stage.start()
    # Two scrapes make the first rate; the two ticks count from there.
    rate = f'rate(vllm:request_success_total{{namespace="{namespace}"}}[3s])'
    eventually(lambda: control_plane.prometheus_query(rate), TOLD_S, "Prometheus has rates again")
    ticks = house.ticks()
    eventually(
        lambda: house.condition(namespace, "gpt3", "MetricsAvailable").get("status") == "True",
        TOLD_S,
        "MetricsAvailable is True again",
    )
    assert house.ticks() - ticks <= 2
    stage.stop()
    eventually(lambda: house.replicas(namespace, "gpt3") == 1, SETTLED_S, "idle needs one replica")
    assert house.installation.tracebacks() == []


def test_a_killed_operator_is_replaced_and_takes_nothing_away(house: House, namespace: str) -> None:
    stage = loaded(house, namespace)
    since = house.plane.audit_position()
    killed_at_s = time.monotonic()
    house.installation.kill()
    house.installation.start()
    eventually(house.installation.leads, TAKEOVER_S, "a new leader")
    eventually(lambda: house.ticks() >= 1, TOLD_S, "the new leader decides")
    assert time.monotonic() - killed_at_s < TAKEOVER_S
    throughout(
        HELD_TICKS, house, lambda: house.replicas(namespace, "gpt3") >= 2, "nothing is taken away"
    )
    written = house.writes(namespace, since)
    assert [e for e in written if e["objectRef"].get("subresource") == "scale"] == []
    assert house.installation.metric("sojourn_blind_scale_downs_total") == 0.0
    assert house.installation.tracebacks() == []
    stage.stop()
