"""The admission server over TLS, as the API server calls it."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509

from sojourn.catalogue import Catalogue
from sojourn.controller import certificates
from sojourn.controller.guard_review import Guard
from sojourn.controller.own_metrics import OwnMetrics
from sojourn.controller.registry import Registry
from sojourn.controller.review import Reviewer
from sojourn.controller.server import WORKERS, AdmissionServer
from sojourn.controller.trust import Served
from sojourn.facts.replica import OperatingPoint, Replica
from sojourn.facts.sojourn import LatencyGoal, ReplicaRate, Sojourn
from sojourn.model.exact_model import ExactModel
from tests.controlplane.components import free_ports
from tests.integration.operators import service, unstable
from tests.open_sockets import connected_at
from tests.unit.decide.test_admission_guard import MODEL, deployment

NAMES = Catalogue()
Ask = Callable[..., Any]


def pair() -> Served:
    made = certificates.issue(("localhost",), datetime.now(UTC))
    return Served(made.certificate_pem, made.key_pem, made.ca_pem)


def review_of(body: dict[str, Any] | None, **request: Any) -> dict[str, Any]:
    body = body and {**body, "metadata": {**body["metadata"], "namespace": "default"}}
    kind = (body or {}).get("kind", "InferenceService")
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u1",
            "kind": {"group": "serving.sojourn.dev", "kind": kind},
            "operation": "CREATE",
            "namespace": "default",
            "name": "chat",
            "userInfo": {"username": "jane"},
            "object": body,
            **request,
        },
    }


class Running:
    """A server with a client that trusts the certificate it was started with."""

    def __init__(self, folder: Path, reviewer: Reviewer | None = None) -> None:
        registry = Registry(NAMES)
        own = Reviewer(registry, NAMES.gpus(), registry.sharing_target, lambda _: None)
        self.metrics = OwnMetrics()
        self.server = AdmissionServer(
            reviewer or own, Guard(registry, NAMES.gpus()), self.metrics, folder
        )
        self.served = pair()
        self.trusted = ssl.create_default_context(cadata=self.served.bundle_pem.decode())
        (self.port,) = free_ports(1)

    def url(self, path: str = "/validate") -> str:
        return f"https://localhost:{self.port}{path}"

    def counted(self, answer: str) -> float:
        return (
            self.metrics.registry.get_sample_value("sojourn_admissions_total", {"answer": answer})
            or 0.0
        )

    async def post(
        self, session: aiohttp.ClientSession, body: Any, path: str = "/validate"
    ) -> aiohttp.ClientResponse:
        data = body if isinstance(body, str) else json.dumps(body)
        return await session.post(self.url(path), data=data, ssl=self.trusted)


@asynccontextmanager
async def running(folder: Path, reviewer: Reviewer | None = None) -> AsyncIterator[Running]:
    made = Running(folder, reviewer)
    made.server.use(made.served)
    await made.server.start("localhost", made.port)
    try:
        yield made
    finally:
        await made.server.stop()


async def answered(folder: Path, body: Any, path: str = "/validate") -> dict[str, Any]:
    async with running(folder) as one, aiohttp.ClientSession() as session:
        response: dict[str, Any] = (await (await one.post(session, body, path)).json())["response"]
        return response


@pytest.mark.asyncio
async def test_a_denial_carries_uid_code_and_causes(tmp_path: Path) -> None:
    response = await answered(tmp_path, review_of(unstable("chat")))
    assert (response["uid"], response["allowed"]) == ("u1", False)
    assert response["status"]["code"] == 403
    assert response["status"]["details"]["causes"][0]["reason"] == "Unstable"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "request_",
    [
        pytest.param({"operation": "DELETE", "object": None}, id="FC-105 DELETE"),
        pytest.param({"operation": "UPDATE", "subResource": "status"}, id="FC-105 status"),
        pytest.param({"operation": "UPDATE", "subResource": "scale"}, id="FC-105 scale"),
        pytest.param({"operation": "CONNECT"}, id="CONNECT"),
    ],
)
async def test_what_is_not_ours_to_judge_is_allowed(
    tmp_path: Path, request_: dict[str, Any]
) -> None:
    response = await answered(tmp_path, review_of(unstable("chat"), **request_))
    assert response == {"uid": "u1", "allowed": True}


@pytest.mark.asyncio
async def test_the_path_of_a_namespace_that_warns_never_denies(tmp_path: Path) -> None:
    response = await answered(tmp_path, review_of(unstable("chat")), "/warn")
    assert response["allowed"]
    assert "would be denied" in response["warnings"][0]


@pytest.mark.asyncio
async def test_a_deployment_is_judged_by_the_guard(tmp_path: Path) -> None:
    body = deployment([MODEL, "--max-model-len=131072"])
    response = await answered(tmp_path, review_of(body), "/guard")
    assert response["status"]["details"]["causes"][0]["reason"] == "WontStart"


@pytest.mark.asyncio
async def test_a_bypass_is_written_into_the_audit_log(tmp_path: Path) -> None:
    body = unstable("chat")
    body["metadata"]["annotations"] = {"serving.sojourn.dev/admission-bypass": "trial"}
    response = await answered(tmp_path, review_of(body))
    assert response["allowed"]
    assert response["auditAnnotations"] == {"bypassed": "Unstable", "bypass-reason": "trial"}


@pytest.mark.asyncio
@pytest.mark.parametrize("body", ["", "[]", "{}", '{"request": {}}', '{"request": 1}', "\x00"])
async def test_what_is_no_review_is_a_bad_request(tmp_path: Path, body: str) -> None:
    async with running(tmp_path) as one, aiohttp.ClientSession() as session:
        assert (await one.post(session, body)).status == 400


def faulty() -> Reviewer:
    def broken(_: object) -> float | None:
        raise RuntimeError("a fault of ours")

    return Reviewer(Registry(NAMES), (), lambda _: (), broken)


@pytest.mark.asyncio
async def test_a_fault_of_ours_is_a_denial_with_a_mark_for_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, faulty()) as one, aiohttp.ClientSession() as session:
        answer = await one.post(session, review_of(service("chat")))
        status = (await answer.json())["response"]["status"]
        assert one.counted("failed") == 1
    assert status["reason"] == "InternalError"
    mark = status["message"].rsplit(" ", 1)[1]
    assert mark in caplog.text
    assert "a fault of ours" not in status["message"]


@pytest.mark.asyncio
async def test_a_denial_is_one_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await answered(tmp_path, review_of(unstable("chat"), dryRun=True))
    lines = [r.message for r in caplog.records if "admission" in r.message]
    assert lines == [
        "admission denied: CREATE InferenceService default/chat by jane (dry run): Unstable"
    ]


@pytest.mark.asyncio
async def test_a_new_certificate_is_presented_while_open_connections_stay(tmp_path: Path) -> None:
    async with running(tmp_path) as one, aiohttp.ClientSession() as kept:
        assert (await one.post(kept, review_of(service("a")))).status == 200
        fresh = pair()
        one.server.use(fresh)
        assert (await one.post(kept, review_of(service("b")))).status == 200
        pem = await asyncio.to_thread(ssl.get_server_certificate, ("localhost", one.port))
        presented = x509.load_pem_x509_certificate(pem.encode())
        assert presented == x509.load_pem_x509_certificate(fresh.certificate_pem)


@pytest.mark.asyncio
async def test_when_it_has_stopped_no_connection_is_open(tmp_path: Path) -> None:
    async with running(tmp_path) as one, aiohttp.ClientSession() as kept:
        assert (await one.post(kept, review_of(service("a")))).status == 200
        assert connected_at(one.port)
        await one.server.stop()
        assert not [held for held in connected_at(one.port) if held.getsockname()[1] == one.port]


@pytest.mark.asyncio
async def test_while_draining_it_answers_and_lets_connections_end(tmp_path: Path) -> None:
    async with running(tmp_path) as one, aiohttp.ClientSession() as session:
        one.server.drain()
        answer = await one.post(session, review_of(service("a")))
        assert (await answer.json())["response"]["allowed"]
        assert answer.headers["Connection"] == "close"


@dataclass(frozen=True)
class Held:
    """The exact model, but nothing is solved before the release."""

    asked: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    released: threading.Event = field(default_factory=threading.Event)
    name: str = "Held"

    def sojourn(self, point: OperatingPoint, probabilities: Sequence[float]) -> Sojourn:
        self.asked.release()
        assert self.released.wait(10)
        return ExactModel().sojourn(point, probabilities)

    def max_rate(self, replica: Replica, goal: LatencyGoal, dispersion: float = 1.0) -> ReplicaRate:
        return ExactModel().max_rate(replica, goal, dispersion)


@pytest.mark.asyncio
async def test_what_must_be_solved_keeps_no_other_waiting(tmp_path: Path) -> None:
    held, registry = Held(), Registry(NAMES)
    reviewer = Reviewer(
        registry, NAMES.gpus(), lambda _: (), lambda _: None, model_of=lambda *_: held
    )
    # A timer longer than the SLO: the percentile must be known. More than there are threads.
    slow = [
        service("slow", slo={"latency": "106ms"}, traffic={"peakRate": 90 + i})
        for i in range(WORKERS + 1)
    ]
    async with running(tmp_path, reviewer) as one, aiohttp.ClientSession() as session:

        async def ask(body: dict[str, Any]) -> dict[str, Any]:
            answer = await (await one.post(session, review_of(body))).json()
            response: dict[str, Any] = answer["response"]
            return response

        solving = [asyncio.create_task(ask(body)) for body in slow]
        try:
            for _ in range(WORKERS):
                assert await asyncio.to_thread(held.asked.acquire, timeout=10)
            assert (await ask(service("quick")))["allowed"]
            assert not any(task.done() for task in solving)
        finally:
            held.released.set()
        for task in solving:
            assert (await task)["warnings"][0].startswith("SLOMissedAtPeak")
