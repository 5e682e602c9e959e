"""Prometheus or the API server gone, the operator killed: capacity is held, and all returns."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.controlplane.components import Component
from tests.controlplane.plane import ControlPlane
from tests.controlplane.proxy import Proxy
from tests.e2e.demo import scenario
from tests.e2e.demo.pages import Spoilt
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

SERVER_ERROR = (
    b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/html\r\n"
    b"Content-Length: 22\r\nConnection: close\r\n\r\n<h1>out of memory</h1>"
)


def loaded(house: House, namespace: str) -> Stage:
    """GPT-3 on two replicas, under a load that needs both, and reported Ready."""
    stage = house.stage(namespace, [scenario.gpt3((TWO_REPLICAS_PER_S,), (LOAD_S,))])
    stage.start()
    front = house.fleet.front((namespace, "gpt3"))
    eventually(lambda: front.ready == 2, SETTLED_S, "two replicas serve")
    await_metrics(house, namespace, "True")
    return stage


def scale_writes(house: House, namespace: str, since: int) -> list[dict[str, Any]]:
    """The operator's writes of replicas."""
    written = house.writes(namespace, since)
    return [event for event in written if event["objectRef"].get("subresource") == "scale"]


def await_metrics(house: House, namespace: str, status: str, *reasons: str) -> None:
    """Wait until MetricsAvailable has that status, with one of the reasons and a message."""

    def told() -> bool:
        condition = house.condition(namespace, "gpt3", "MetricsAvailable")
        assert condition.get("status") == status, condition
        assert not reasons or condition["reason"] in reasons, condition
        assert condition["message"], condition
        return True

    eventually(told, TOLD_S, f"MetricsAvailable is {status} {reasons}")


def await_rates(house: House, namespace: str) -> None:
    """Wait until Prometheus has rates: two scrapes make the first one."""
    rate = f'rate(vllm:request_success_total{{namespace="{namespace}"}}[3s]) > 0'
    eventually(lambda: house.plane.prometheus_query(rate), TOLD_S, "Prometheus has rates")


def stopped(house: House) -> Callable[[], None]:
    house.plane.stop(Component.PROMETHEUS)
    return lambda: house.plane.start(Component.PROMETHEUS)


def hanging(house: House) -> Callable[[], None]:
    house.prometheus.hold()
    return house.prometheus.restore


def failing(house: House) -> Callable[[], None]:
    house.prometheus.answer(SERVER_ERROR)
    return house.prometheus.restore


@pytest.mark.parametrize(
    ("begin", "held_ticks"),
    [
        (stopped, HELD_TICKS),
        # Each tick waits 10 s for an answer.
        pytest.param(hanging, 3, marks=pytest.mark.slow),
        pytest.param(failing, HELD_TICKS, marks=pytest.mark.slow),
    ],
)
def test_replicas_are_held_without_prometheus_and_follow_the_load_when_it_returns(
    house: House,
    namespace: str,
    begin: Callable[[House], Callable[[], None]],
    held_ticks: int,
) -> None:
    stage = loaded(house, namespace)
    since = house.plane.audit_position()
    end = begin(house)
    try:
        await_metrics(house, namespace, "False", "PrometheusUnavailable")
        # The load ends unseen: what is not known is not zero.
        stage.stop()
        throughout(
            held_ticks, house, lambda: house.replicas(namespace, "gpt3") == 2, "replicas are held"
        )
    finally:
        end()
    stage.start()
    await_rates(house, namespace)
    ticks = house.ticks()
    await_metrics(house, namespace, "True")
    assert house.ticks() - ticks <= 2
    assert scale_writes(house, namespace, since) == []
    stage.stop()
    eventually(lambda: house.replicas(namespace, "gpt3") == 1, SETTLED_S, "idle needs one replica")
    assert house.installation.metric("sojourn_blind_scale_downs_total") == 0.0
    assert house.installation.tracebacks() == []


@pytest.mark.slow
def test_replicas_are_held_while_pages_are_empty_stale_or_no_numbers(house: House) -> None:
    told = {
        Spoilt.EMPTY: ("NoSeries", "LowCoverage"),
        Spoilt.NOT_A_NUMBER: ("NotANumber",),
        Spoilt.STALE: ("StaleSeries",),
    }
    # All at once, each in a namespace of its own: a page's fault is its own service's.
    spaces = {how: house.plane.create_namespace("spoilt") for how in told}
    stages = {how: loaded(house, namespace) for how, namespace in spaces.items()}
    since = house.plane.audit_position()
    for how, namespace in spaces.items():
        house.fleet.spoil(namespace, how)
    for how, namespace in spaces.items():
        await_metrics(house, namespace, "False", *told[how])
        stages[how].stop()
    throughout(
        HELD_TICKS,
        house,
        lambda: {house.replicas(namespace, "gpt3") for namespace in spaces.values()} == {2},
        "replicas are held",
    )
    for how, namespace in spaces.items():
        stages[how].start()
        house.fleet.spoil(namespace, None)
    for namespace in spaces.values():
        await_rates(house, namespace)
    ticks = house.ticks()
    for namespace in spaces.values():
        await_metrics(house, namespace, "True")
    assert house.ticks() - ticks <= 2
    for how, namespace in spaces.items():
        assert scale_writes(house, namespace, since) == []
        stages[how].stop()
        house.plane.kubectl("delete", "namespace", namespace, "--wait=false")
    assert house.installation.metric("sojourn_blind_scale_downs_total") == 0.0
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


@pytest.mark.parametrize(
    "fault",
    [
        cut_off,
        pytest.param(hold, marks=pytest.mark.slow),
        pytest.param(slow, marks=pytest.mark.slow),
    ],
)
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
