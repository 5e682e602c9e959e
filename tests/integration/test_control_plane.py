"""The control plane itself: what every other integration test relies on."""

import base64
import functools
import json
import math
import ssl
import threading
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane import nodes
from tests.controlplane.components import Component
from tests.controlplane.errors import KubectlFailed
from tests.controlplane.fixtures import COLD_START_S
from tests.controlplane.plane import ControlPlane
from tests.controlplane.prometheus import PrometheusSettings
from tests.waiting import eventually

REPOSITORY = Path(__file__).parents[2]
SETTLED_S = 30.0


def deployment(replicas: int, **annotations: str) -> str:
    labels = {"app": "engine"}
    container = {
        "name": "engine",
        "image": "engine:1",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    return json.dumps(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "engine"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels, "annotations": annotations},
                    "spec": {"containers": [container]},
                },
            },
        }
    )


def ready_replicas(plane: ControlPlane, namespace: str) -> int:
    status = plane.get("deployment", "engine", "-n", namespace)["status"]
    return int(status.get("readyReplicas", 0))


def pods(plane: ControlPlane, namespace: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = plane.get("pods", "-n", namespace)["items"]
    return items


def settled_at(plane: ControlPlane, namespace: str, replicas: int) -> bool:
    return ready_replicas(plane, namespace) == len(pods(plane, namespace)) == replicas


def test_a_deployment_of_three_becomes_ready_after_the_cold_start(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.kubectl(
        "apply", "-n", namespace, "-f", "-", input=deployment(replicas=3), check=True
    )
    eventually(
        lambda: ready_replicas(control_plane, namespace) == 3, SETTLED_S, "3 replicas are Ready"
    )
    there = pods(control_plane, namespace)
    assert len({pod["status"]["podIP"] for pod in there}) == 3
    for pod in there:
        (status,) = pod["status"]["containerStatuses"]
        assert (status["ready"], status["started"]) == (True, True)
        began = datetime.fromisoformat(status["state"]["running"]["startedAt"])
        (ready,) = (one for one in pod["status"]["conditions"] if one["type"] == "Ready")
        took_s = (datetime.fromisoformat(ready["lastTransitionTime"]) - began).total_seconds()
        # The API drops fractions of a second at both ends: never less than the whole seconds.
        assert took_s >= math.floor(COLD_START_S) >= 1
        assert "reason" not in ready


def test_a_pod_s_annotation_sets_its_own_cold_start(
    control_plane: ControlPlane, namespace: str
) -> None:
    slow = deployment(1, **{nodes.COLD_START_ANNOTATION: "1h"})
    control_plane.kubectl("apply", "-n", namespace, "-f", "-", input=slow, check=True)
    eventually(
        lambda: [pod["status"]["phase"] for pod in pods(control_plane, namespace)] == ["Running"],
        SETTLED_S,
        "the slow pod runs",
    )
    # A pod with the plane's own cold start that starts later is Ready earlier.
    control_plane.kubectl("run", "usual", "-n", namespace, "--image=engine:1", check=True)
    control_plane.kubectl("wait", "pod/usual", "-n", namespace, "--for=condition=Ready", check=True)
    ready = {pod["metadata"]["name"]: nodes.is_ready(pod) for pod in pods(control_plane, namespace)}
    assert sorted(ready.values()) == [False, True]
    assert ready["usual"]


def test_the_scale_subresource_adds_and_removes_pods(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.kubectl("apply", "-n", namespace, "-f", "-", input=deployment(1), check=True)
    for replicas in (4, 1):
        control_plane.kubectl(
            "scale", "deployment/engine", "-n", namespace, f"--replicas={replicas}", check=True
        )
        eventually(
            functools.partial(settled_at, control_plane, namespace, replicas),
            SETTLED_S,
            f"{replicas} pods, all Ready",
        )


def test_pods_beyond_the_gpus_there_are_stay_pending(
    control_plane: ControlPlane, namespace: str
) -> None:
    gpus = sum(
        int(node["status"]["allocatable"].get("nvidia.com/gpu", 0))
        for node in control_plane.get("nodes")["items"]
    )
    control_plane.kubectl(
        "apply", "-n", namespace, "-f", "-", input=deployment(gpus + 1), check=True
    )

    def rest_unschedulable() -> bool:
        # Pods of earlier tests may hold GPUs too: how many is not this test's business.
        pending = [pod for pod in pods(control_plane, namespace) if "nodeName" not in pod["spec"]]
        ready = ready_replicas(control_plane, namespace)
        return len(pending) >= 1 and ready + len(pending) == gpus + 1

    eventually(rest_unschedulable, SETTLED_S, f"at most {gpus} pods Ready, the rest without a GPU")


def test_the_horizontal_pod_autoscaler_is_running(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.kubectl("apply", "-n", namespace, "-f", "-", input=deployment(1), check=True)
    control_plane.kubectl(
        "autoscale", "deployment/engine", "-n", namespace, "--max=3", "--cpu=50%", check=True
    )

    def judged() -> bool:
        hpa = control_plane.get("hpa", "engine", "-n", namespace)
        return "AbleToScale" in {one["type"] for one in hpa["status"].get("conditions", ())}

    eventually(judged, SETTLED_S, "the HPA has the condition AbleToScale")


def test_a_service_account_may_do_what_its_role_grants_and_no_more(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.kubectl("create", "serviceaccount", "reader", "-n", namespace, check=True)
    config = control_plane.service_account_kubeconfig(namespace, "reader")
    refused = control_plane.kubectl("get", "pods", "-n", namespace, config=config)
    assert refused.returncode == 1
    assert "(Forbidden)" in refused.stderr
    assert f"system:serviceaccount:{namespace}:reader" in refused.stderr

    for command in (
        ("create", "role", "reader", "--verb=list", "--resource=pods"),
        (
            "create",
            "rolebinding",
            "reader",
            "--role=reader",
            f"--serviceaccount={namespace}:reader",
        ),
    ):
        control_plane.kubectl(*command, "-n", namespace, check=True)

    def allowed() -> bool:
        return control_plane.kubectl("get", "pods", "-n", namespace, config=config).returncode == 0

    eventually(allowed, SETTLED_S, "the role takes effect")
    with pytest.raises(KubectlFailed, match="Forbidden"):
        control_plane.kubectl("get", "secrets", "-n", namespace, config=config, check=True)


def test_a_user_without_roles_is_known_and_refused(
    control_plane: ControlPlane, namespace: str
) -> None:
    config = control_plane.kubeconfig_for("jane", ["team-a"])
    refused = control_plane.kubectl("get", "pods", "-n", namespace, config=config)
    assert 'User "jane" cannot list resource "pods"' in refused.stderr
    who = control_plane.kubectl("auth", "whoami", "-o", "json", config=config, check=True)
    assert "team-a" in json.loads(who.stdout)["status"]["userInfo"]["groups"]


def test_the_audit_log_names_verb_user_and_object_of_a_write(
    control_plane: ControlPlane, namespace: str
) -> None:
    config = control_plane.kubeconfig_for("jane", ["system:masters"])
    command = ("create", "configmap", "marked", "-n", namespace)
    control_plane.kubectl(*command, check=True)
    between = control_plane.audit_position()
    control_plane.kubectl("delete", *command[1:], config=config, check=True)

    def writes(since: int) -> list[tuple[str, str]]:
        return [
            (event["verb"], event["user"]["username"])
            for event in control_plane.audit_events(since)
            if event.get("objectRef", {}).get("name") == "marked"
            and event["objectRef"]["namespace"] == namespace
            and event["verb"] not in ("get", "watch")  # kubectl looks whether it is gone
        ]

    assert writes(since=0) == [("create", "admin"), ("delete", "jane")]
    assert writes(since=between) == [("delete", "jane")]


class _Exporter(BaseHTTPRequestHandler):
    """Metrics, and at /targets itself as http_sd gives it."""

    def do_GET(self) -> None:
        kind, body = "text/plain; version=0.0.4", b"# TYPE answer gauge\nanswer 42\n"
        if self.path == "/targets":
            group = {"targets": [self.headers["Host"]], "labels": {"job": "found"}}
            kind, body = "application/json", json.dumps([group]).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def exporter() -> Iterator[str]:
    """host:port of something to scrape."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Exporter) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_prometheus_scrapes_registered_targets_and_survives_a_stop(
    control_plane: ControlPlane, namespace: str, exporter: str
) -> None:
    labels = {"job": "engines", "namespace": namespace, "pod": "engine-0"}
    query = f'answer{{job="engines",namespace="{namespace}",pod="engine-0"}}'
    control_plane.prometheus_targets([{"targets": [exporter], "labels": labels}], name=namespace)

    def answer() -> list[str]:
        return [sample["value"][1] for sample in control_plane.prometheus_query(query)]

    eventually(lambda: answer() == ["42"], SETTLED_S, "the target is scraped")
    address = control_plane.prometheus_url
    control_plane.stop(Component.PROMETHEUS)
    with pytest.raises(OSError, match="refused"):
        control_plane.prometheus_query(query)
    control_plane.start(Component.PROMETHEUS)
    assert control_plane.prometheus_url == address
    older = f"count_over_time({query}[5m]) >= 2"
    eventually(lambda: control_plane.prometheus_query(older), SETTLED_S, "old samples are there")
    control_plane.prometheus_targets([], name=namespace)
    eventually(lambda: answer() == [], SETTLED_S, "the target is gone")


def test_prometheus_finds_targets_by_http_discovery(
    control_plane: ControlPlane, exporter: str
) -> None:
    control_plane.prometheus_configure(
        PrometheusSettings(http_sd_urls=(f"http://{exporter}/targets",))
    )
    eventually(
        lambda: control_plane.prometheus_query('answer{job="found"}'),
        SETTLED_S,
        "the discovered target is scraped",
    )
    control_plane.prometheus_configure(PrometheusSettings())
    eventually(
        lambda: control_plane.prometheus_query('answer{job="found"}') == [],
        SETTLED_S,
        "the discovered target is gone",
    )


class _Denial(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = {"code": 403, "message": "no configmaps today"}
        review["response"] = {
            "uid": review.pop("request")["uid"],
            "allowed": False,
            "status": status,
        }
        body = json.dumps(review).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def webhook_configuration(plane: ControlPlane, namespace: str, port: int) -> str:
    service = {"namespace": namespace, "name": "hook", "port": port}
    authority = base64.b64encode(plane.ca_file.read_bytes()).decode()
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
    }
    webhook = {
        "name": "hook.sojourn.test",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "clientConfig": {"service": service, "caBundle": authority},
    }
    return json.dumps(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": namespace},
            "webhooks": [webhook],
        }
    )


def test_a_webhook_behind_a_service_is_reached_on_the_loopback(
    control_plane: ControlPlane, namespace: str
) -> None:
    pair = control_plane.authority.server("hook", [f"hook.{namespace}.svc"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    control_plane.kubectl("create", "service", "clusterip", "hook", "--tcp=443", "-n", namespace)
    control_plane.route_to_loopback(namespace, "hook")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Denial) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        configuration = webhook_configuration(control_plane, namespace, server.server_port)
        control_plane.kubectl("create", "-f", "-", input=configuration, check=True)

        def answer() -> str:
            create = ("create", "configmap", "refused", "-n", namespace, "--dry-run=server")
            return control_plane.kubectl(*create).stderr

        eventually(lambda: "no configmaps today" in answer(), SETTLED_S, "the webhook denies")
        control_plane.kubectl("delete", "validatingwebhookconfiguration", namespace, check=True)
        server.shutdown()
        thread.join()
