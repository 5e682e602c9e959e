"""Pods' metrics on the loopback: one server, one path a pod, values that move with time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Page = Callable[[float], str]
"""Text of /metrics, given the seconds since the pod appeared; a failure becomes a 500."""


@dataclass
class PodExporter:
    """Serve pods' pages; ``targets`` is what Prometheus' discovery is told."""

    address: str
    pages: dict[str, tuple[float, Page]] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, namespace: str, pod: str, page: Page, **labels: str) -> None:
        """One more pod, or a copy of one when only ``labels`` differ."""
        path = f"/{namespace}/{pod}"
        self.pages[path] = (time.time(), page)
        found = {"namespace": namespace, "pod": pod, "job": "engines", **labels}
        group = {"targets": [self.address], "labels": {**found, "__metrics_path__": path}}
        self.groups["/".join(found.values())] = group

    def replace(self, namespace: str, pod: str, page: Page) -> None:
        """Another page for a pod, from the beginning."""
        self.pages[f"/{namespace}/{pod}"] = (time.time(), page)

    def take_away(self, namespace: str, pod: str) -> None:
        """Prometheus is no longer told of the pod."""
        for key, group in list(self.groups.items()):
            if (group["labels"]["namespace"], group["labels"]["pod"]) == (namespace, pod):
                del self.groups[key]

    @property
    def targets(self) -> list[Any]:
        """Groups for Prometheus' file discovery."""
        return list(self.groups.values())


@contextmanager
def running() -> Iterator[PodExporter]:
    """An exporter that listens until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    exporter = PodExporter(f"127.0.0.1:{server.server_address[1]}")
    server.exporter = exporter  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield exporter
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # Prometheus keeps its connections: a thread a pod, not a scrape

    def do_GET(self) -> None:
        exporter: PodExporter = self.server.exporter  # type: ignore[attr-defined]
        since_s, page = exporter.pages.get(self.path, (0.0, _nobody))
        try:
            body, status = page(time.time() - since_s), 200
        except LookupError:
            body, status = "", 500
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _nobody(_: float) -> str:
    raise LookupError


def broken(_: float) -> str:
    """A pod whose /metrics fails."""
    raise LookupError


def fixed(text: str) -> Page:
    """The same text at every scrape."""
    return lambda _: text


BOUNDS_S = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Vllm:
    """A vLLM engine seen from outside; rates per second, or levels.

    Attributes:
        started: completions before the first scrape, to tell a counter's value from its rate.
        latency_s: latency of every request; None counts no request in the histogram.
        kv_names: which of the two names of KV usage it exports.
        ranks: data-parallel ranks, each with these numbers.
        refused_per_s: None for a release that does not count what it refuses.
    """

    completed_per_s: float = 0.0
    running: float = 0.0
    waiting: float = 0.0
    waiting_growth_per_s: float = 0.0
    kv: str = "0.5"
    kv_names: tuple[str, ...] = ("kv_cache_usage_perc",)
    started: int = 100_000
    latency_s: float | None = None
    ranks: int = 1
    own_labels: str = ""
    refused_per_s: float | None = None

    def __call__(self, age_s: float) -> str:
        """The page at that age."""
        return "\n".join(line for rank in range(self.ranks) for line in self._lines(rank, age_s))

    def _lines(self, rank: int, age_s: float) -> Iterator[str]:
        labels = f'model_name="chat-8b",engine="{rank}"{self.own_labels}'
        done = self.started + int(self.completed_per_s * age_s)
        waiting = self.waiting + int(self.waiting_growth_per_s * age_s)
        yield f'vllm:request_success_total{{{labels},finished_reason="stop"}} {done}'
        yield f'vllm:request_success_total{{{labels},finished_reason="length"}} 0'
        yield f"vllm:num_requests_running{{{labels}}} {self.running}"
        yield f"vllm:num_requests_waiting{{{labels}}} {waiting}"
        if self.refused_per_s is not None:
            refused = self.started + int(self.refused_per_s * age_s)
            yield f'vllm:admission_rejections_total{{{labels},reason="queue"}} {refused}'
        for name in self.kv_names:
            yield f"vllm:{name}{{{labels}}} {self.kv}"
        for bound in (*BOUNDS_S, float("inf")):
            slow = self.latency_s is None or self.latency_s > bound
            le = "+Inf" if bound == float("inf") else f"{bound:g}"
            count = 0 if slow and le != "+Inf" else done
            yield f'vllm:e2e_request_latency_seconds_bucket{{{labels},le="{le}"}} {count}'
        for name, tokens in (("prompt", 700), ("generation", 200)):
            yield f"vllm:request_{name}_tokens_sum{{{labels}}} {done * tokens}"
            yield f"vllm:request_{name}_tokens_count{{{labels}}} {done}"
