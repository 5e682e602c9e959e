"""The load of ``benchmarks.admission``: what it counts must be what was answered."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from benchmarks.admission import REVIEW, shots
from benchmarks.admission_client import Answer, Client, Shot, fire, joined, parsed
from tests.unit.controller.test_server import Running, running

HEAD = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "received",
    [
        b"HTTP/1.1 20",
        HEAD + b"Content-Length: 4\r\n",
        HEAD + b"Content-Length: 4\r\n\r\n{}",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
    ],
)
def test_an_answer_is_waited_for_until_it_is_whole(received: bytes) -> None:
    assert parsed(received) is None


def test_an_answer_is_whole_by_its_length_or_its_last_chunk() -> None:
    assert parsed(HEAD + b"content-length: 2\r\n\r\n{}") == Answer(201, b"{}")
    chunked = parsed(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
    assert chunked is not None
    assert chunked.status == 201


async def asked(one: Running, shot: list[Shot], path: str = "/validate") -> tuple[int, list[str]]:
    """How many verdicts were wrong, and the errors, of objects put to a server."""
    client = Client(one.url(), one.trusted, ())

    async def ask(text: str) -> tuple[int, bool]:
        answer = await client.ask(client.post(path, f"{REVIEW}{text}}}}}"))
        if answer.status != 200:
            return answer.status, False
        return answer.status, bool(json.loads(answer.content)["response"]["allowed"])

    outcome = await fire(500.0, shot, ask)
    await client.close()
    assert outcome.sent == len(shot)
    return outcome.wrong, joined("both", (outcome,)).errors


@pytest.mark.asyncio
async def test_verdicts_other_than_expected_are_counted(tmp_path: Path) -> None:
    right = shots(1, 40)
    assert {shot.valid for shot in right} == {True, False}
    turned = [Shot(shot.text, not shot.valid) for shot in right[:7]]
    async with running(tmp_path) as one:
        assert await asked(one, right) == (0, [])
        assert await asked(one, turned + right[7:]) == (7, [])


@pytest.mark.asyncio
async def test_refused_connections_and_other_statuses_are_errors(tmp_path: Path) -> None:
    async with running(tmp_path) as one:
        _, errors = await asked(one, shots(1, 3), "/nowhere")
        assert errors == ["HTTP 404"] * 3
        await one.server.stop()
        _, errors = await asked(one, shots(1, 3))
        assert [error.split(":")[0] for error in errors] == ["ConnectionRefusedError"] * 3


@pytest.mark.asyncio
async def test_the_load_waits_for_no_answer() -> None:
    # Open loop: all requests are under way before the first is answered.
    under_way, all_sent = 0, asyncio.Event()

    async def ask(_: str) -> tuple[int, bool]:
        nonlocal under_way
        under_way += 1
        if under_way == 5:
            all_sent.set()
        await all_sent.wait()
        return 201, True

    async with asyncio.timeout(30):
        outcome = await fire(1000.0, [Shot("{}", True)] * 5, ask)
    assert len(outcome.latencies_s) == 5
