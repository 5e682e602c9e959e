"""Targets of kinds that are not watched, read through the scale subresource of a fake API."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from kubernetes import client

from sojourn.facts.declaration import TargetRef
from sojourn.facts.reading import Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import TargetState
from sojourn.observe.gather import Gatherer
from sojourn.observe.prometheus import PrometheusSource
from sojourn.observe.scale_reader import Scale, ScaleReader, ScaleSettings
from sojourn.observe.settings import PrometheusSettings, ScrapeSettings
from tests.unit.observe.builders import NOW_S, declaration, pod, synced_cluster
from tests.unit.observe.fake_prometheus import FakePrometheus, Reply, document, vector

TARGET = TargetRef("chat", "workloads.x-k8s.io/v1alpha1", "RoleBasedGroup")
SERVICE = declaration(target=TARGET)
PATH = "/apis/workloads.x-k8s.io/v1alpha1/namespaces/team-a/rolebasedgroups/chat/scale"


def scale(replicas: int = 3, selector: str = "app=chat,role=leader") -> Reply:
    return document({"spec": {"replicas": replicas}, "status": {"selector": selector}})


def reader(url: str, **settings: Any) -> ScaleReader:
    configuration = client.Configuration()
    configuration.host = url
    configuration.retries = 0
    return ScaleReader(client.ApiClient(configuration), ScaleSettings(**settings))


def read(api: FakePrometheus, times: int = 1, **settings: Any) -> Scale | Unknown:
    scales = reader(api.url, **settings)

    async def run() -> Scale | Unknown:
        for _ in range(times):
            await scales.refresh([SERVICE])
        return scales.scale(SERVICE)

    try:
        return asyncio.run(run())
    finally:
        scales.close()


def test_replicas_and_the_selector_are_read(prometheus: FakePrometheus) -> None:
    prometheus.answer = lambda _: scale()
    assert read(prometheus) == Scale(3, ("app=chat", "role=leader"))
    assert [asked.path for asked in prometheus.asked] == [PATH]


def test_a_scale_is_read_once_an_interval(prometheus: FakePrometheus) -> None:
    prometheus.answer = lambda _: scale()
    read(prometheus, times=5)
    assert len(prometheus.asked) == 1


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(404, b"{}"), Reason.TARGET_MISSING),
        (Reply(403, b"{}"), Reason.TARGET_FORBIDDEN),
        (Reply(500, b"{}"), Reason.NOT_OBSERVED),
        (scale(selector=""), Reason.NOT_OBSERVED),
    ],
)
def test_what_cannot_be_read_is_unknown_with_its_reason(
    prometheus: FakePrometheus, reply: Reply, reason: Reason
) -> None:
    prometheus.answer = lambda _: reply
    found = read(prometheus)
    assert isinstance(found, Unknown)
    assert found.reason is reason


def test_an_api_that_hangs_costs_the_budget_of_a_tick(prometheus: FakePrometheus) -> None:
    let_go = threading.Event()
    prometheus.answer = lambda _: Reply(body=b"{}", hang=let_go)
    found = read(prometheus, budget_s=0.2)
    let_go.set()
    assert isinstance(found, Unknown)
    assert found.reason is Reason.NOT_OBSERVED


def test_a_reading_too_old_is_no_reading(prometheus: FakePrometheus) -> None:
    prometheus.answer = lambda _: scale()
    assert isinstance(read(prometheus, max_age_s=0.0), Unknown)


def test_the_targets_pods_are_found_by_the_selector(prometheus: FakePrometheus) -> None:
    def answer(asked: Any) -> Reply:
        return scale() if asked.path == PATH else vector()

    prometheus.answer = answer
    cluster = synced_cluster()
    for name, role in (("chat-0", "leader"), ("chat-0-1", "worker"), ("chat-1", "leader")):
        body = pod(name, owner=("StatefulSet", "chat"))
        body["metadata"]["labels"] = {"app": "chat", "role": role}
        cluster.apply("Pod", None, body)
    scales = reader(prometheus.url)

    async def run() -> Any:
        source = PrometheusSource(PrometheusSettings(prometheus.url))
        try:
            gatherer = Gatherer(cluster, source, ScrapeSettings(), scales)
            return await gatherer.gather([SERVICE], {SERVICE.ref.key: ("other",)}, NOW_S)
        finally:
            source.close()
            scales.close()

    state = asyncio.run(run())[SERVICE.ref.key].target
    assert isinstance(state, TargetState)
    assert (state.spec_replicas, state.ready_replicas, state.pods_pending) == (3, 2, 1)
    assert state.other_owners == ("other",)
