"""Rollouts and certificate rotations under load: nobody valid is refused, nobody invalid stored."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import aiohttp
import pytest
from cryptography import x509

from sojourn.controller import certificates
from tests.controlplane.plane import ControlPlane
from tests.integration.operators import (
    CONFIGURATION,
    NAMESPACE,
    Operators,
    service,
    unstable,
)
from tests.waiting import eventually

pytestmark = pytest.mark.slow

RATE_PER_S = 5.0
SHORT_LIVED = {
    "certificateLife": "40s",
    "renewBefore": "20s",
    "overlap": "3s",
    "check": "1s",
    "probe": "5s",
}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as made:
        yield made


@dataclass
class Stream:
    """Valid and invalid creations in turn, dry run, at a steady rate; keeps what went wrong."""

    plane: ControlPlane
    sent: int = 0
    wrong: list[str] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Stream:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        assert self._thread is not None
        self._thread.join(60)

    async def _run(self) -> None:
        token = self.plane.kubectl("create", "token", "stream", check=True).stdout.strip()
        tls = ssl.create_default_context(cafile=str(self.plane.ca_file))
        url = (
            f"{self.plane.api_url}/apis/serving.sojourn.dev/v1alpha1/namespaces/default/"
            "inferenceservices?dryRun=All"
        )
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        async with aiohttp.ClientSession(headers=headers) as session:
            tasks = []
            while not self._ended.is_set():
                tasks.append(asyncio.create_task(self._one(session, url, tls)))
                await asyncio.sleep(1 / RATE_PER_S)
            await asyncio.gather(*tasks)

    async def _one(self, session: aiohttp.ClientSession, url: str, tls: ssl.SSLContext) -> None:
        number, self.sent = self.sent, self.sent + 1
        good = number % 2 == 0
        body = service(f"s{number}") if good else unstable(f"s{number}")
        async with session.post(url, data=json.dumps(body), ssl=tls) as answer:
            text = await answer.text()
        expected = answer.status == 201 if good else answer.status == 403 and "Unstable" in text
        if not expected:
            self.wrong.append(f"{number} ({'valid' if good else 'invalid'}): {text[:300]}")


@pytest.fixture(scope="module")
def stream_account(plane: ControlPlane) -> None:
    plane.kubectl("create", "serviceaccount", "stream", check=True)
    plane.kubectl(
        *("create", "clusterrolebinding", "stream", "--clusterrole=cluster-admin"),
        "--serviceaccount=default:stream",
        check=True,
    )


def serial_of_secret(plane: ControlPlane) -> int:
    import base64

    data = plane.get("secret", "sojourn-webhook-tls", "-n", NAMESPACE)["data"]
    return x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"])).serial_number


def serial_presented(port: int) -> int:
    pem = ssl.get_server_certificate(("127.0.0.1", port))
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def bundle(plane: ControlPlane) -> tuple[x509.Certificate, ...]:
    import base64

    webhooks = plane.get("validatingwebhookconfiguration", CONFIGURATION)["webhooks"]
    (one,) = {w["clientConfig"]["caBundle"] for w in webhooks}
    return certificates.authorities(base64.b64decode(one))


@pytest.mark.usefixtures("stream_account")
def test_three_rollouts_and_two_rotations_refuse_nobody_valid_and_store_nothing_invalid(
    plane: ControlPlane,
) -> None:
    # FC-094, and the webhook's gap on rollout or rotation.
    with Operators(plane, count=2, webhook=SHORT_LIVED) as operators, Stream(plane) as stream:
        seen: list[int] = [serial_of_secret(plane)]

        def rotated() -> bool:
            current = serial_of_secret(plane)
            presented = {serial_presented(one.webhook_port) for one in operators.operators}
            if current != seen[-1] and presented == {current} and len(bundle(plane)) == 1:
                seen.append(current)
                return True
            return False

        for _ in range(2):
            eventually(rotated, 90, "a new certificate is served by all and the old CA is gone")
        for _ in range(3):
            for old in list(operators.operators):
                operators.add()
                operators.retire(old)
        sent_before = stream.sent
        eventually(lambda: stream.sent > sent_before + 20, 30, "requests after the last rollout")
    assert stream.wrong == []
    assert stream.sent > 200
    assert len(set(seen)) == 3


def test_after_a_restart_the_same_ca_is_trusted(plane: ControlPlane) -> None:
    # FC-093: a CA in memory would be another one after every restart.
    with Operators(plane, direct=True) as operators:
        before = serial_of_secret(plane)
        (old,) = operators.operators
        old.process.kill()
        operators.operators.remove(old)
        operators.add()
        operators.await_admission()
        assert serial_of_secret(plane) == before


def test_while_nobody_answers_only_our_own_creations_and_updates_wait(
    plane: ControlPlane,
) -> None:
    # FC-097, FC-098.
    with Operators(plane, direct=True) as operators:
        assert operators.create("default", service("kept")).returncode == 0
        (one,) = operators.operators
        one.process.stop()
        operators.operators.remove(one)
        assert "failed calling webhook" in operators.create("default", service("late")).stderr
        update = plane.kubectl(
            *("patch", "infsvc", "kept", "--type=merge", "-p"),
            '{"spec":{"scaling":{"maxReplicas":2}}}',
        )
        assert "failed calling webhook" in update.stderr
        status = plane.kubectl(
            *("patch", "infsvc", "kept", "--subresource=status", "--type=merge", "-p"),
            '{"status":{"regime":"Unstable"}}',
        )
        assert status.returncode == 0, status.stderr
        deployment = ("create", "deployment", "free", "--image=x", "--replicas=0")
        assert plane.kubectl(*deployment).returncode == 0
        assert plane.kubectl("scale", "deployment", "free", "--replicas=1").returncode == 0
        assert plane.kubectl("delete", "infsvc", "kept", "--timeout=20s").returncode == 0
        operators.add()
        operators.await_admission()
