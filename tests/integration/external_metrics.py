"""A metrics API server of our own: what the HPA controller asks is answered by a function.

The API server's aggregation layer sends ``external.metrics.k8s.io/v1beta1`` to it, as it would to
prometheus-adapter or KEDA; every question of the HPA controller is one reading of the metric.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.controlplane.components import LOOPBACK
from tests.controlplane.plane import ControlPlane
from tests.waiting import eventually

GROUP_VERSION = "external.metrics.k8s.io/v1beta1"
ROOT = f"/apis/{GROUP_VERSION}"
SERVICE = "external-metrics"
REGISTERED_S = 60.0

Answer = Callable[[str, str, str], float | None]
"""Namespace, metric, label selector -> the value; None answers with no series."""


class ExternalMetrics:
    """The server; ``asked`` holds the monotonic seconds and the answer of every question.

    Args:
        answer: asked for each reading, in the server's threads.
    """

    def __init__(self, plane: ControlPlane, answer: Answer) -> None:
        self.asked: list[tuple[float, float | None]] = []
        self._answer = answer
        pair = plane.authority.server(SERVICE, [f"{SERVICE}.kube-system.svc"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        self._server = ThreadingHTTPServer((LOOPBACK, 0), _handler(self))
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = int(self._server.server_address[1])

    def body(self, path: str) -> dict[str, Any]:
        """The answer to one GET: the discovery document, or a list of values."""
        url = urlsplit(path)
        parts = url.path.removeprefix(ROOT).strip("/").split("/")
        if len(parts) != 3:
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION,
                    "resources": []}  # fmt: skip
        _, namespace, metric = parts
        selector = parse_qs(url.query).get("labelSelector", [""])[0]
        value = self._answer(namespace, metric, selector)
        self.asked.append((time.monotonic(), value))
        return {
            "kind": "ExternalMetricValueList",
            "apiVersion": GROUP_VERSION,
            "metadata": {},
            "items": [] if value is None else [_item(metric, value)],
        }

    def serve(self) -> threading.Thread:
        """Answer in a thread of its own until closed."""
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def serving(plane: ControlPlane, answer: Answer) -> Iterator[ExternalMetrics]:
    """The server, registered with the plane's API server and available."""
    server = ExternalMetrics(plane, answer)
    thread = server.serve()
    try:
        plane.route_to_loopback("kube-system", SERVICE)
        plane.kubectl(
            "apply", "-f", "-", input=json.dumps(_registration(plane, server)), check=True
        )
        eventually(
            lambda: plane.kubectl("get", "--raw", ROOT).returncode == 0,
            REGISTERED_S,
            "the API server reaches the metrics server",
        )
        yield server
    finally:
        server.close()
        thread.join()


def _registration(plane: ControlPlane, server: ExternalMetrics) -> dict[str, Any]:
    group, version = GROUP_VERSION.split("/")
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{version}.{group}"},
        "spec": {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "caBundle": base64.b64encode(plane.ca_file.read_bytes()).decode(),
            "service": {"namespace": "kube-system", "name": SERVICE, "port": server.port},
        },
    }


def _item(metric: str, value: float) -> dict[str, Any]:
    return {
        "metricName": metric,
        "metricLabels": {},
        "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "value": f"{round(value * 1000)}m",
    }


def _handler(server: ExternalMetrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            text = json.dumps(server.body(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    return Handler
