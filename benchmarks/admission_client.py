"""A light HTTPS client and an open loop of requests: the load of ``benchmarks.admission``.

The machine is shared with what is measured, so the load must cost little: bytes are prepared
beforehand, connections are kept, and of an answer only what is asked for is read.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import ssl
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

CONNECTIONS = 64
PATIENCE_S = 30.0
LAST_CHUNK = b"0\r\n\r\n"


class ConnectionLost(Exception):
    """The peer closed the connection before the answer was complete."""


@dataclass(frozen=True)
class Answer:
    """Status and content of one answer."""

    status: int
    content: bytes


class Line(asyncio.Protocol):
    """One kept connection; one request at a time (HTTP/1.1, no pipelining)."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waiter: asyncio.Future[Answer] | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        answer = parsed(self._received)
        if answer is not None and self._waiter is not None and not self._waiter.done():
            self._received.clear()
            self._waiter.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(exc or ConnectionLost("closed by the peer"))
        self.ended.set_result(None)

    async def ask(self, request: bytes) -> Answer:
        """Send and await the answer.

        Raises:
            ConnectionLost, OSError: the connection ended first.
        """
        if self.ended.done() or self._transport is None:
            raise ConnectionLost("closed while idle")
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiter

    def abort(self) -> None:
        """Close now, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()


def parsed(received: bytes | bytearray) -> Answer | None:
    """The answer in what was received; None while it is incomplete.

    Content is JSON, in which a line feed is escaped: the last chunk cannot occur within it.
    """
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(received[:end]).lower()
    status, content = int(head[9:12]), bytes(received[end + 4 :])
    at = head.find(b"\r\ncontent-length:")
    if at >= 0:
        length = int(head[at + 17 :].split(b"\r\n", 1)[0])
        return Answer(status, content) if len(content) >= length else None
    return Answer(status, content) if content.endswith(LAST_CHUNK) else None


class Client:
    """Kept connections to one server, opened when needed, ``CONNECTIONS`` at most."""

    def __init__(self, url: str, tls: ssl.SSLContext, headers: Sequence[tuple[str, str]]) -> None:
        parts = urlsplit(url)
        assert parts.hostname and parts.port
        self._host, self._port, self._tls = parts.hostname, parts.port, tls
        held = (("Host", parts.netloc), ("Content-Type", "application/json"), *headers)
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in held)
        self._idle: list[Line] = []
        self._lines: set[Line] = set()
        self._places = asyncio.Semaphore(CONNECTIONS)
        self.opened = 0

    def post(self, path: str, body: str) -> bytes:
        """The bytes of a request."""
        content = body.encode()
        head = f"POST {path} HTTP/1.1\r\n{self._headers}Content-Length: {len(content)}\r\n\r\n"
        return head.encode() + content

    async def ask(self, request: bytes) -> Answer:
        """The answer, on the connection used last: few are kept busy, not all a little.

        Raises:
            TimeoutError: no answer in 30 s.
            ConnectionLost, OSError: the connection could not be had, or ended.
        """
        async with asyncio.timeout(PATIENCE_S), self._places:
            line = await self._line()
            try:
                answer = await line.ask(request)
            except BaseException:
                line.abort()
                raise
            self._idle.append(line)
            return answer

    async def close(self) -> None:
        """Close every connection and wait until each is."""
        for line in self._lines:
            line.abort()
        await asyncio.gather(*(line.ended for line in self._lines))

    async def _line(self) -> Line:
        while self._idle:
            line = self._idle.pop()
            if not line.ended.done():
                return line
        loop = asyncio.get_running_loop()
        _, line = await loop.create_connection(Line, self._host, self._port, ssl=self._tls)
        self._lines.add(line)
        self.opened += 1
        return line


@dataclass(frozen=True)
class Shot:
    """One object to ask about, as text, and the verdict it must get."""

    text: str
    valid: bool


Ask = Callable[[str], Awaitable[tuple[int, bool]]]
"""Status and whether it was admitted."""


@dataclass(frozen=True)
class Spent:
    """CPU seconds, of three of our processes and of programs that are not ours, in a time."""

    api_s: float = 0.0
    own_s: float = 0.0
    client_s: float = 0.0
    others_s: float = 0.0
    elapsed_s: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        pairs = zip(self._figures, other._figures, strict=True)
        return Spent(*(one + two for one, two in pairs))

    def __sub__(self, other: Spent) -> Spent:
        pairs = zip(self._figures, other._figures, strict=True)
        return Spent(*(one - two for one, two in pairs))

    @property
    def others_cpus(self) -> float:
        """CPUs that other programs took, on average."""
        return max(0.0, self.others_s / self.elapsed_s) if self.elapsed_s else 0.0

    @property
    def _figures(self) -> tuple[float, ...]:
        return self.api_s, self.own_s, self.client_s, self.others_s, self.elapsed_s


@dataclass(frozen=True)
class Meter:
    """Reads /proc: what a loaded machine does not change."""

    api: int
    own: int
    rest: tuple[int, ...]

    def now(self) -> Spent:
        """CPU seconds since each process began."""
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        idle = int(fields[3]) + int(fields[4])
        busy_s = (sum(map(int, fields[:8])) - idle) / os.sysconf("SC_CLK_TCK")
        api_s, own_s, client_s = (cpu_s(pid) for pid in (self.api, self.own, os.getpid()))
        ours_s = api_s + own_s + client_s + sum(cpu_s(pid) for pid in self.rest)
        return Spent(api_s, own_s, client_s, busy_s - ours_s, time.monotonic())


def cpu_s(pid: int) -> float:
    """CPU seconds a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Outcome:
    """Answers of one run, and what the processes spent meanwhile."""

    name: str
    sent: int = 0
    latencies_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    wrong: int = 0
    spent: Spent = field(default_factory=Spent)

    def quantile_ms(self, level: float) -> float:
        """Latency at a level, milliseconds; NaN without answers."""
        if not self.latencies_s:
            return float("nan")
        ordered = sorted(self.latencies_s)
        return 1e3 * ordered[min(len(ordered) - 1, int(level * len(ordered)))]

    def row(self) -> str:
        """One line of the table."""
        mean_ms = 1e3 * statistics.fmean(self.latencies_s) if self.latencies_s else float("nan")
        levels = "".join(f"{self.quantile_ms(level):9.1f}" for level in (0.5, 0.9, 0.99, 0.999))
        costs = (self.spent.api_s, self.spent.own_s, self.spent.client_s)
        each = "".join(f"{1e3 * cost_s / max(1, self.sent):8.2f}" for cost_s in costs)
        return (
            f"{self.name:<38}{self.sent:7}{mean_ms:8.1f}{levels}"
            f"{self.wrong:7}{len(self.errors):7}{each}{self.spent.others_cpus:8.1f}"
        )


HEADER = (
    f"{'run':<38}{'sent':>7}{'mean':>8}{'p50':>9}{'p90':>9}{'p99':>9}{'p99.9':>9}"
    f"{'wrong':>7}{'errors':>7}{'api':>8}{'own':>8}{'client':>8}{'others':>8}"
    "   (milliseconds; CPU a request of three processes; CPUs that other programs took)"
)


def joined(name: str, parts: Sequence[Outcome]) -> Outcome:
    """Several runs as one."""
    return Outcome(
        name,
        sum(part.sent for part in parts),
        [latency_s for part in parts for latency_s in part.latencies_s],
        [error for part in parts for error in part.errors],
        sum(part.wrong for part in parts),
        functools.reduce(Spent.__add__, (part.spent for part in parts)),
    )


async def fire(rate_per_s: float, shots: Sequence[Shot], ask: Ask) -> Outcome:
    """Open loop: requests leave at their time, whatever became of the earlier ones."""
    outcome = Outcome("", sent=len(shots))
    gc.collect()
    gc.freeze()
    began_s = time.monotonic()

    async def one(shot: Shot) -> None:
        sent_s = time.monotonic()
        try:
            status, admitted = await ask(shot.text)
        except (TimeoutError, ConnectionLost, OSError) as exc:
            outcome.errors.append(f"{type(exc).__name__}: {exc}")
            return
        outcome.latencies_s.append(time.monotonic() - sent_s)
        if status not in (200, 201, 403):
            outcome.errors.append(f"HTTP {status}")
        elif admitted is not shot.valid:
            outcome.wrong += 1

    async with asyncio.TaskGroup() as under_way:
        for i, shot in enumerate(shots):
            await asyncio.sleep(max(0.0, began_s + i / rate_per_s - time.monotonic()))
            under_way.create_task(one(shot))
    return outcome
