"""A Prometheus and an API server on the loopback, in processes of their own.

They answer as the real ones would, byte for byte in size, so that receiving, unpacking and parsing
are in the benchmark; the time of the servers themselves is not.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from benchmarks.fleet import SCRAPE, Load
from sojourn import engines
from sojourn.engines import Engine
from sojourn.observe.queries import Question, questions

Result = tuple[dict[str, str], float]


class Process:
    """A server in a process of its own.

    Attributes:
        url: where it listens.
    """

    def __init__(self, work: Callable[[Connection], None]) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs,), daemon=True)
        self._process.start()
        self.url = f"http://127.0.0.1:{self._pipe.recv()}"

    def ask(self, what: Any) -> Any:
        """Send something and wait for the answer."""
        self._pipe.send(what)
        return self._pipe.recv()

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()


@contextmanager
def prometheus() -> Iterator[Process]:
    """A Prometheus; give it the loads of a tick with ``ask`` before each."""
    process = Process(_serve_prometheus)
    try:
        yield process
    finally:
        process.stop()


@contextmanager
def apiserver() -> Iterator[Process]:
    """An API server that takes every write and answers with what was written."""
    process = Process(_serve_api)
    try:
        yield process
    finally:
        process.stop()


def answers(loads: list[Load], at_s: float) -> dict[str, bytes]:
    """The body of each question's answer, packed as Prometheus packs it, by expression."""
    names = frozenset(load.engine for load in loads)
    found: dict[Question, list[Result]] = {question: [] for question in Question}
    for load in loads:
        for question, results in _of(load, engines.find(load.engine)):
            found[question].extend(results)
    asked = questions(names, SCRAPE)
    return {asked[q]: _vector(results, at_s) for q, results in found.items() if q in asked}


def _of(load: Load, engine: Engine) -> Iterator[tuple[Question, list[Result]]]:
    """What one service adds to each answer."""
    pods = [{"namespace": load.namespace, "pod": pod} for pod in load.pods]
    workload = {"namespace": load.namespace, "workload": load.name}
    each = load.rate_per_s / max(1, len(pods))
    yield Question.OFFERED, [(pod, each) for pod in pods]
    for role, value in (("running", load.running), ("waiting", 0.0)):
        if engine.names(role):
            yield Question.IN_FLIGHT, [({**pod, "role": role}, value) for pod in pods]
    for role, question, value in (
        ("kv_usage", Question.KV_USAGE, 0.3733333333333333),
        ("first_token", Question.FIRST_TOKEN, load.p99_s / 7),
        ("output_token", Question.OUTPUT_TOKEN, 0.0213333333333333),
        ("preemptions", Question.PREEMPTIONS, 0.0),
    ):
        if engine.names(role):
            places = pods if question is Question.KV_USAGE else [workload]
            yield question, [(place, value) for place in places]
    if engine.names("latency"):
        shown = (("p50", load.p50_s), ("p99", load.p99_s))
        yield Question.LATENCY, [({**workload, "role": r}, value) for r, value in shown]
    for role in ("prompt_tokens", "output_tokens"):
        if engine.names(role):
            yield Question.TOKENS, [({**workload, "role": role}, 233.3333333333333)]


def _vector(results: Iterable[Result], at_s: float) -> bytes:
    result = [{"metric": labels, "value": [at_s, repr(value)]} for labels, value in results]
    document = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return gzip.compress(json.dumps(document, separators=(",", ":")).encode(), 1)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(200)
        for name, value in (*headers, ("Content-Type", "application/json")):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def received(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Prometheus(_Handler):
    def do_GET(self) -> None:
        self._answer(urlsplit(self.path).query)

    def do_POST(self) -> None:
        self._answer(self.received().decode())

    def _answer(self, parameters: str) -> None:
        query = parse_qs(parameters)["query"][0]
        bodies = self.server.bodies  # type: ignore[attr-defined]
        self.reply(bodies[query], ("Content-Encoding", "gzip"))


class _Api(_Handler):
    def do_PATCH(self) -> None:
        self.reply(self.received())

    def do_POST(self) -> None:
        self.do_PATCH()


def _listen(handler: type[_Handler]) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.bodies = {}  # type: ignore[attr-defined]
    Thread(target=server.serve_forever, daemon=True).start()
    return server


def _serve_prometheus(pipe: Connection) -> None:
    server = _listen(_Prometheus)
    pipe.send(server.server_address[1])
    while True:
        loads, at_s = pipe.recv()
        found = answers(loads, at_s)
        server.bodies = found  # type: ignore[attr-defined]
        pipe.send(sum(map(len, found.values())))


def _serve_api(pipe: Connection) -> None:
    pipe.send(_listen(_Api).server_address[1])
    pipe.recv()
