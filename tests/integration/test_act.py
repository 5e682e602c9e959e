"""The writers and the lease on a real API server, under the shipped field managers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sojourn.act import writers
from sojourn.act.kube import Kube, Request
from sojourn.act.lease import Lease, LeaseSettings
from sojourn.errors import ClusterUnavailable
from sojourn.facts.declaration import MaxBatchRef, ObjectRef, TargetRef
from sojourn.facts.plan import Event
from sojourn.facts.reasons import Reason
from tests.controlplane.plane import ControlPlane

T = TypeVar("T")
TARGET = TargetRef("engine")
ENGINE = writers.Variable(TARGET, MaxBatchRef(container="engine"))
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: engine}
spec:
  replicas: 2
  selector: {matchLabels: {app: engine}}
  template:
    metadata: {labels: {app: engine}}
    spec:
      containers:
        - name: engine
          image: registry.example.com/engine:1
          args: ["--max-num-seqs=$(SOJOURN_MAX_BATCH)"]
"""


def run(kubeconfig: Path, work: Callable[[Kube], Awaitable[T]]) -> T:
    async def connected() -> T:
        kube = await Kube.connect(str(kubeconfig))
        try:
            return await work(kube)
        finally:
            await kube.close()

    return asyncio.run(connected())


@pytest.fixture
def deployment(control_plane: ControlPlane, namespace: str) -> Callable[[], Any]:
    control_plane.kubectl("apply", "-n", namespace, "-f", "-", input=DEPLOYMENT, check=True)
    return lambda: control_plane.get(
        "deployment", "engine", "-n", namespace, "--show-managed-fields"
    )


def managers(body: Any) -> dict[str, str]:
    return {m["manager"]: m["operation"] for m in body["metadata"]["managedFields"]}


def env_of(body: Any) -> list[dict[str, str]]:
    return list(body["spec"]["template"]["spec"]["containers"][0].get("env", []))


def test_scale_and_max_batch_have_managers_of_their_own_and_keep_each_others_fields(
    control_plane: ControlPlane, namespace: str, deployment: Callable[[], Any]
) -> None:
    async def both(kube: Kube) -> None:
        await writers.write_scale(kube, namespace, TARGET, 2, 5)
        await writers.write_max_batch(kube, namespace, ENGINE, 24)
        await writers.write_scale(kube, namespace, TARGET, 5, 4)
        await writers.write_max_batch(kube, namespace, ENGINE, 32)

    run(control_plane.kubeconfig, both)
    body = deployment()
    assert body["spec"]["replicas"] == 4
    assert env_of(body) == [{"name": "SOJOURN_MAX_BATCH", "value": "32"}]
    assert {"sojourn-scale", "sojourn-batch"} <= set(managers(body))


@pytest.mark.parametrize("there", [0, 2, 4])
def test_a_scale_that_changed_meanwhile_is_not_written(
    control_plane: ControlPlane, namespace: str, deployment: Callable[[], Any], there: int
) -> None:
    scale = ("scale", "deployment/engine", f"--replicas={there}", "-n", namespace)
    control_plane.kubectl(*scale, check=True)

    async def write(kube: Kube) -> None:
        for seen in {0, 1, 2, 4} - {there}:
            with pytest.raises(ClusterUnavailable, match="no longer") as caught:
                await writers.write_scale(kube, namespace, TARGET, seen, 3)
            assert caught.value.status == 409

    run(control_plane.kubeconfig, write)
    assert deployment()["spec"]["replicas"] == there

    async def write_what_is_seen(kube: Kube) -> None:
        await writers.write_scale(kube, namespace, TARGET, there, 3)

    run(control_plane.kubeconfig, write_what_is_seen)
    assert deployment()["spec"]["replicas"] == 3


def test_an_author_who_owns_the_variable_vetoes_max_batch(
    control_plane: ControlPlane, namespace: str, deployment: Callable[[], Any]
) -> None:
    mine = DEPLOYMENT + "          env: [{name: SOJOURN_MAX_BATCH, value: '8'}]\n"
    control_plane.kubectl(
        "apply", "-n", namespace, "--server-side", "--force-conflicts", "-f", "-",
        input=mine, check=True,
    )  # fmt: skip

    async def write(kube: Kube) -> None:
        await writers.write_max_batch(kube, namespace, ENGINE, 24)

    with pytest.raises(ClusterUnavailable) as caught:
        run(control_plane.kubeconfig, write)
    assert caught.value.status == 409
    assert env_of(deployment()) == [{"name": "SOJOURN_MAX_BATCH", "value": "8"}]


def test_the_authors_next_apply_keeps_our_replicas_and_variable(
    control_plane: ControlPlane, namespace: str, deployment: Callable[[], Any]
) -> None:
    async def both(kube: Kube) -> None:
        await writers.write_scale(kube, namespace, TARGET, 2, 5)
        await writers.write_max_batch(kube, namespace, ENGINE, 24)

    run(control_plane.kubeconfig, both)
    without_replicas = DEPLOYMENT.replace("  replicas: 2\n", "").replace("engine:1", "engine:2")
    control_plane.kubectl("apply", "-n", namespace, "-f", "-", input=without_replicas, check=True)
    body = deployment()
    assert env_of(body) == [{"name": "SOJOURN_MAX_BATCH", "value": "24"}]
    assert body["spec"]["template"]["spec"]["containers"][0]["image"].endswith("engine:2")


def test_a_repeated_event_of_the_hour_is_one_event(
    control_plane: ControlPlane, namespace: str
) -> None:
    ref = ObjectRef(namespace, "chat", "uid-1", 1)
    event = Event(Reason.SCALED_UP, "UtilizationHigh: 1 -> 2 replicas")

    async def twice(kube: Kube) -> None:
        await writers.write_event(kube, ref, event, 7200.0, "host")
        with pytest.raises(ClusterUnavailable) as caught:
            await writers.write_event(kube, ref, event, 7260.0, "host")
        assert caught.value.status == 409

    run(control_plane.kubeconfig, twice)
    events = control_plane.get("events", "-n", namespace)["items"]
    assert [e["reason"] for e in events] == ["ScaledUp"]


class Clock:
    """A monotonic clock that tests move."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def lease(kube: Kube, namespace: str, holder: str, clock: Clock) -> Lease:
    return Lease(kube, LeaseSettings(namespace, "sojourn", holder), clock)


def test_one_holder_at_a_time_and_a_silent_one_is_followed_after_its_time(
    control_plane: ControlPlane, namespace: str
) -> None:
    """FC-129: what counts is the time of the last renewal, not that somebody's pod is there."""

    async def race(kube: Kube) -> None:
        clock = Clock()
        first, second = lease(kube, namespace, "a", clock), lease(kube, namespace, "b", clock)
        assert await first.tend()
        assert not await second.tend()
        clock.now_s += 10
        assert await first.tend()
        assert not await second.tend()
        clock.now_s += 14
        assert not await second.tend()
        clock.now_s += 16
        assert await second.tend()
        assert not first.held
        assert not await first.tend()

    run(control_plane.kubeconfig, race)


def test_a_stopped_and_continued_process_does_not_hold_its_old_lease(
    control_plane: ControlPlane, namespace: str
) -> None:
    """FC-131: a renewal that did not happen in time ends the term, whatever the reason."""

    async def paused(kube: Kube) -> None:
        clock = Clock()
        one = lease(kube, namespace, "a", clock)
        assert await one.tend()
        clock.now_s += 60
        assert not one.held

    run(control_plane.kubeconfig, paused)


def test_a_released_lease_is_taken_at_once(control_plane: ControlPlane, namespace: str) -> None:
    async def handed_over(kube: Kube) -> None:
        clock = Clock()
        first, second = lease(kube, namespace, "a", clock), lease(kube, namespace, "b", clock)
        assert await first.tend()
        await first.release()
        assert not first.held
        assert await second.tend()
        spec = (
            await kube.call(
                Request(
                    "GET", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/sojourn"
                )
            )
        )["spec"]
        assert spec["holderIdentity"] == "b"
        assert spec["leaseTransitions"] == 1

    run(control_plane.kubeconfig, handed_over)


def test_missing_lease_rights_are_loud(control_plane: ControlPlane, namespace: str) -> None:
    """FC-128."""

    async def refused(kube: Kube) -> None:
        with pytest.raises(ClusterUnavailable) as caught:
            await lease(kube, namespace, "a", Clock()).tend()
        assert caught.value.status == 403

    run(control_plane.kubeconfig_for("nobody"), refused)
