"""Prometheus or the API server gone, the operator killed: capacity is held, and all returns."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.controlplane.components import Component
from tests.controlplane.plane import ControlPlane
from tests.controlplane.proxy import Proxy
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


FOUR_ARE_FEW_PER_S = 533.0  # a load of 0.90 on four: five are needed, of two that are all 0.90: 3


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


def scale_writes(house: House, namespace: str, since: int) -> list[dict[str, Any]]:
    """The operator's writes of replicas."""
    written = house.writes(namespace, since)
    return [event for event in written if event["objectRef"].get("subresource") == "scale"]


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
    assert scale_writes(house, namespace, since) == []
    assert house.installation.metric("sojourn_blind_scale_downs_total") == 0.0
    assert house.installation.tracebacks() == []
    stage.stop()


def cut_off(proxy: Proxy) -> None:
    proxy.cut()


def hold(proxy: Proxy) -> None:
    proxy.hold()


def slow(proxy: Proxy) -> None:
    proxy.slow(4.0)  # there and back 8 s: a look at the lease and its renewal outlive it


@pytest.mark.parametrize("fault", [cut_off, hold, slow])
def test_an_operator_that_cannot_renew_its_lease_stops_and_returns_with_fresh_eyes(
    house: House,
    control_plane: ControlPlane,
    namespace: str,
    fault: Callable[[Proxy], None],
) -> None:
    stage = loaded(house, namespace)
    front = house.fleet.front((namespace, "gpt3"))
    since = house.plane.audit_position()
    fault(house.api)
    try:
        eventually(lambda: not house.installation.leads(), TAKEOVER_S, "it does not lead")
        ticks = house.ticks()
        # Somebody helps by hand, and the load has grown meanwhile: all of it unseen.
        house.plane.kubectl("scale", "deployment/gpt3", "--replicas=4", "-n", namespace, check=True)
        eventually(lambda: front.ready == 4, SETTLED_S, "four replicas serve")
        stage.stop()
        stage.cast([scenario.gpt3((FOUR_ARE_FEW_PER_S,), (LOAD_S,))])
        stage.start()
        rate = f'sum(rate(vllm:request_success_total{{namespace="{namespace}"}}[3s])) > 520'
        eventually(lambda: control_plane.prometheus_query(rate), TOLD_S, "Prometheus sees the load")
        assert not house.installation.leads()
        assert house.ticks() - ticks <= 1  # the one that was under way
        ticks = house.ticks()
        assert scale_writes(house, namespace, since) == []
    finally:
        house.api.restore()
    least = 4

    def sees_five_are_needed() -> bool:
        nonlocal least
        least = min(least, house.replicas(namespace, "gpt3"))
        return house.replicas(namespace, "gpt3") == 5

    eventually(sees_five_are_needed, TAKEOVER_S, "it adds the replica that is missing")
    assert least == 4
    assert house.ticks() - ticks <= 2
    throughout(
        HELD_TICKS, house, lambda: house.replicas(namespace, "gpt3") >= 4, "nothing is taken away"
    )
    assert house.installation.metric("sojourn_blind_scale_downs_total") == 0.0
    assert house.installation.tracebacks() == []
    stage.stop()
