"""A thousand services under constant load: nothing is written, and no more questions are asked."""

import json
import re
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sojourn.api.changes import DRIFT
from sojourn.units import parse_quantity
from tests.controlplane.plane import ControlPlane
from tests.controlplane.prometheus import PrometheusSettings, TargetGroup
from tests.e2e.demo.client import GROUP, Client
from tests.e2e.demo.installation import Installation, Pace
from tests.e2e.house import OPERATOR
from tests.waiting import eventually

pytestmark = pytest.mark.scale

FEW, MANY = 10, 1000
RATE_PER_S = 10.0
PACE = Pace(tick_s=5.0, scrape_s=5.0, window_s=20.0, latency_window_s=20.0)
READY_S = 300.0
STEADY_TICKS = 10
CHUNK = 250
NODES = 6

_EXPOSITION = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{model_name="m",engine="0"}} 1
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{model_name="m",engine="0"}} 0
# TYPE vllm:request_success counter
vllm:request_success_total{{model_name="m",engine="0",finished_reason="stop"}} {count:.0f}
"""


class _Constant(BaseHTTPRequestHandler):
    """Any path: the metrics of an engine that has served RATE_PER_S since its start."""

    protocol_version = "HTTP/1.1"
    began_s = time.monotonic()

    def do_GET(self) -> None:
        count = RATE_PER_S * (time.monotonic() - self.began_s)
        body = _EXPOSITION.format(count=count).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A scrape that is cut off at the end is no news."""


@pytest.fixture
def engines() -> Iterator[str]:
    """host:port that answers for every pod."""
    with _Server(("127.0.0.1", 0), _Constant) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    args = ["--max-num-seqs=8"]
    container = {"name": "engine", "image": "vllm/vllm-openai:v0.11.0", "args": args}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": spec,
    }


def service(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "serving.sojourn.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": {
            "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"},
            "gpu": {"type": "A100-80GB"},
            "engine": {
                "name": "vllm",
                "batching": "Dynamic",
                "maxBatchSize": {"min": 8, "max": 8},
                "maxBatchWait": "5ms",
            },
            "slo": {"latency": "1s"},
            "traffic": {"rate": 10, "peakRate": 20},
            "serviceTime": {"fixed": "50ms", "perRequest": "500us"},
            "scaleTargetRef": {"name": name},
            "scaling": {"maxReplicas": 4},
        },
    }


class Crowd:
    """Many services, their targets and their metrics, in one namespace."""

    def __init__(self, plane: ControlPlane, namespace: str, engines: str) -> None:
        self.plane = plane
        self.client = Client(plane.kubeconfig)
        self.namespace = namespace
        self._engines = engines
        self._names: list[str] = []

    def grow(self, count: int) -> None:
        """Bring the crowd to ``count`` services, all with a Ready pod that is scraped."""
        fresh = [f"llm{number:04d}" for number in range(len(self._names), count)]
        self._names += fresh
        for begin in range(0, len(fresh), CHUNK):
            names = fresh[begin : begin + CHUNK]
            self._create([deployment(name) for name in names])
            self._create([service(name) for name in names])
        eventually(lambda: len(self.pods()) == count, READY_S, f"{count} pods are Ready")
        groups: list[TargetGroup] = [
            {
                "targets": [self._engines],
                "labels": {
                    "namespace": self.namespace,
                    "pod": pod,
                    "container": "engine",
                    "__metrics_path__": f"/metrics/{pod}",
                },
            }
            for pod in self.pods()
        ]
        self.plane.prometheus_targets(groups, name=self.namespace)

    def pods(self) -> list[str]:
        """Names of the Ready pods."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        found = self.client.items(path)
        return [
            pod["metadata"]["name"]
            for pod in found
            if any(
                c["type"] == "Ready" and c["status"] == "True"
                for c in pod["status"].get("conditions", ())
            )
        ]

    def rows(self) -> list[str]:
        """Rows of the services' last decisions."""
        found = self.client.items(f"{GROUP}/namespaces/{self.namespace}/inferenceservices")
        return [one.get("status", {}).get("lastDecision", {}).get("row", "") for one in found]

    def await_steady(self) -> None:
        """Wait until every service is Steady."""

        def steady() -> bool:
            rows = Counter(self.rows())
            assert rows == {"Steady": len(self._names)}, rows
            return True

        eventually(steady, READY_S, "every service is Steady", poll_s=1.0)

    def await_settled(self) -> None:
        """Wait until every status shows the constant rate.

        A new pod's rate is low until its window is full, and a number that drifted is written once
        the status is a minute old: until then a write is no write of a steady service.
        """

        def settled() -> bool:
            found = self.client.items(f"{GROUP}/namespaces/{self.namespace}/inferenceservices")
            values = [one["status"]["rate"].get("value", "0") for one in found]
            away = [v for v in values if abs(parse_quantity(v) / RATE_PER_S - 1) > DRIFT]
            assert not away, (len(away), away[:5])
            return True

        eventually(settled, READY_S, "every status shows the constant rate", poll_s=2.0)

    def clear(self) -> None:
        """Take the targets away; the namespace goes with its fixture."""
        self.plane.prometheus_targets([], name=self.namespace)

    def _create(self, items: list[dict[str, Any]]) -> None:
        document = {"apiVersion": "v1", "kind": "List", "items": items}
        text = json.dumps(document)
        command = ("create", "-n", self.namespace, "-f", "-")
        self.plane.kubectl(*command, input=text, check=True, timeout_s=READY_S)


def queries(plane: ControlPlane) -> float:
    """Instant queries Prometheus has answered."""
    with urllib.request.urlopen(f"{plane.prometheus_url}/metrics", timeout=10.0) as response:
        text = response.read().decode()
    counted = re.findall(
        r'^prometheus_http_requests_total\{[^}]*handler="/api/v1/query"[^}]*\} (\S+)', text, re.M
    )
    return sum(map(float, counted))


def ticked(installation: Installation) -> float:
    return installation.metric("sojourn_tick_seconds_count")


def await_tick(installation: Installation, count: int = 1) -> None:
    until = ticked(installation) + count
    limit_s = READY_S + count * PACE.tick_s
    eventually(lambda: ticked(installation) >= until, limit_s, f"{count} ticks")


def queries_a_tick(plane: ControlPlane, installation: Installation) -> float:
    await_tick(installation)
    began, ticks = queries(plane), ticked(installation)
    await_tick(installation, 4)
    return (queries(plane) - began) / (ticked(installation) - ticks)


def writes_of_ticks(
    plane: ControlPlane, installation: Installation, count: int
) -> list[tuple[str, str | None]]:
    """What the operator writes, leases apart, during the next ticks."""
    since = plane.audit_position()
    await_tick(installation, count)
    return [
        (event["verb"], event["objectRef"].get("name"))
        for event in plane.audit_events(since)
        if event["user"]["username"] == OPERATOR
        and event["verb"] not in ("get", "list", "watch")
        and event["objectRef"]["resource"] != "leases"
    ]


def test_a_thousand_steady_services_cost_no_write_and_no_further_query(
    control_plane: ControlPlane, namespace: str, engines: str
) -> None:
    control_plane.add_nodes(NODES, prefix="scale")
    control_plane.prometheus_configure(PrometheusSettings(scrape_interval_s=PACE.scrape_s))
    crowd = Crowd(control_plane, namespace, engines)
    try:
        with Installation(control_plane, PACE) as installation:
            crowd.grow(FEW)
            crowd.await_steady()
            few = queries_a_tick(control_plane, installation)
            crowd.grow(MANY)
            crowd.await_steady()
            many = queries_a_tick(control_plane, installation)
            assert 1 <= many <= 12
            assert many == pytest.approx(few, abs=0.5)

            crowd.await_settled()
            # The last statuses written on the way up are brought up to date once, then it is quiet.
            eventually(
                lambda: not writes_of_ticks(control_plane, installation, 2),
                READY_S,
                "two ticks without a write",
            )
            assert writes_of_ticks(control_plane, installation, STEADY_TICKS) == []
            assert installation.tracebacks() == []
    finally:
        crowd.clear()
        control_plane.prometheus_configure(PrometheusSettings())
