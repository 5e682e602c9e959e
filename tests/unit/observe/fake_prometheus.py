"""A Prometheus on the loopback that answers what a test says and remembers what it was asked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Asked:
    """One request as the server saw it."""

    method: str
    path: str
    parameters: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Reply:
    """One answer. ``drip_s`` waits between bytes; ``hang`` answers only once it is set."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    drip_s: float = 0.0
    hang: threading.Event | None = None


def vector(*series: tuple[Mapping[str, str], object], at_s: float | None = None) -> Reply:
    """A successful answer with these series."""
    at = time.time() if at_s is None else at_s
    result = [{"metric": dict(labels), "value": [at, str(value)]} for labels, value in series]
    return document({"status": "success", "data": {"resultType": "vector", "result": result}})


def document(body: Any, status: int = 200) -> Reply:
    """Any JSON answer."""
    return Reply(status, json.dumps(body).encode(), (("Content-Type", "application/json"),))


@dataclass
class FakePrometheus:
    """Set ``answer`` to decide; read ``asked`` afterwards. ``shift_s`` moves its clock."""

    url: str
    answer: Callable[[Asked], Reply] = field(default=lambda _: vector())
    asked: list[Asked] = field(default_factory=list)
    shift_s: float = 0.0

    @property
    def queries(self) -> list[str]:
        """Every expression it was asked."""
        return [asked.parameters.get("query", "") for asked in self.asked]


@contextmanager
def running() -> Iterator[FakePrometheus]:
    """A fake that listens until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    fake = FakePrometheus(f"http://127.0.0.1:{server.server_address[1]}")
    server.fake = fake  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve(urlsplit(self.path).query)

    def do_POST(self) -> None:
        self._serve(self.rfile.read(int(self.headers["Content-Length"])).decode())

    def _serve(self, parameters: str) -> None:
        fake: FakePrometheus = self.server.fake  # type: ignore[attr-defined]
        found = {name: values[-1] for name, values in parse_qs(parameters).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, urlsplit(self.path).path, found, headers)
        fake.asked.append(asked)
        reply = fake.answer(asked)
        if reply.hang is not None:
            reply.hang.wait(30)
        try:
            self._write(reply)
        except OSError:
            self.close_connection = True  # The client gave up, as some tests want it to.

    def _write(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if not reply.drip_s:
            self.wfile.write(reply.body)
            return
        for position in range(len(reply.body)):
            self.wfile.write(reply.body[position : position + 1])
            self.wfile.flush()
            time.sleep(reply.drip_s)

    def date_time_string(self, timestamp: float | None = None) -> str:
        fake: FakePrometheus = self.server.fake  # type: ignore[attr-defined]
        return super().date_time_string((timestamp or time.time()) + fake.shift_s)

    def log_message(self, format: str, *args: Any) -> None:
        pass
