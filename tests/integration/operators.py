"""The shipped base on a plane, its operators as processes, and a Service that leads to them.

``deploy/base`` is applied as it is but for its Deployment and PodDisruptionBudget: no kubelet runs
here. The API server calls the webhooks through the Service's name; the Service is played by a small
forwarder, which sends each new connection to a process that says it is ready, as kube-proxy does.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from tests.controlplane.access import environment
from tests.controlplane.components import LOOPBACK, free_ports
from tests.controlplane.plane import ControlPlane
from tests.controlplane.process import ManagedProcess, resident_bytes
from tests.controlplane.reaper import Reaper
from tests.waiting import eventually

REPOSITORY = Path(__file__).parents[2]
BASE = REPOSITORY / "deploy" / "base"
NAMESPACE = "sojourn-system"
SERVICE = "sojourn-webhook"
CONFIGURATION = "sojourn-validating"
READY_S = 60.0
NOT_HERE = ("Deployment", "PodDisruptionBudget")


@dataclass
class OneOperator:
    """One operator process and where it answers."""

    process: ManagedProcess
    webhook_port: int
    health_port: int
    metrics_port: int

    @property
    def ready(self) -> bool:
        """What the kubelet would ask."""
        return _answers(f"http://{LOOPBACK}:{self.health_port}/readyz") is not None

    def metrics(self) -> str:
        """Its own metrics, Prometheus text."""
        return _answers(f"http://{LOOPBACK}:{self.metrics_port}/metrics") or ""

    def metric(self, name: str) -> float:
        """One metric; ``name`` includes its labels."""
        for line in self.metrics().splitlines():
            if line.startswith(f"{name} "):
                return float(line.rsplit(" ", 1)[1])
        raise AssertionError(f"no metric {name}")

    @property
    def resident_mib(self) -> float:
        """Resident memory."""
        info = self.process.info
        assert info is not None
        return (resident_bytes(info.pid) or 0) / 2**20


@dataclass
class Forwarder:
    """A TCP port that leads each new connection to a ready operator."""

    port: int
    operators: list[OneOperator]
    _next: int = 0
    _ready: list[OneOperator] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _listener: socket.socket | None = None

    def start(self) -> None:
        """Listen, and look after readiness once in 100 ms, as endpoints follow readiness."""
        self._listener = socket.create_server((LOOPBACK, self.port), backlog=256)
        for work in (self._watch, self._accept):
            threading.Thread(target=work, daemon=True).start()

    def stop(self) -> None:
        """Stop listening."""
        self._ended.set()
        if self._listener is not None:
            self._listener.close()

    def _watch(self) -> None:
        while not self._ended.wait(0.1):
            self._ready = [one for one in list(self.operators) if one.ready]

    def _accept(self) -> None:
        assert self._listener is not None
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            ready = self._ready
            if not ready:
                client.close()
                continue
            self._next += 1
            try:
                port = ready[self._next % len(ready)].webhook_port
                server = socket.create_connection((LOOPBACK, port), timeout=2.0)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for source, sink in ((client, server), (server, client)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


class Operators:
    """A context manager: everything installed, ``count`` operators ready and reached.

    Args:
        webhook: settings of the webhook over the shipped ones.
        overlay: folder to apply in place of the base.
        direct: let the API server call the only operator without a forwarder between.
    """

    def __init__(
        self,
        plane: ControlPlane,
        count: int = 1,
        webhook: dict[str, Any] | None = None,
        overlay: Path = BASE,
        *,
        direct: bool = False,
    ) -> None:
        self.plane = plane
        self._count = count
        self._webhook = webhook or {}
        self._overlay = overlay
        self._reaper = Reaper()
        self.operators: list[OneOperator] = []
        self._made = 0
        (port,) = free_ports(1)
        self._forwarder = None if direct else Forwarder(port, self.operators)
        self.port = port

    def __enter__(self) -> Self:
        try:
            self.install()
            if self._forwarder is not None:
                self._forwarder.start()
            for _ in range(self._count):
                self.add()
            self.await_admission()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def install(self) -> None:
        """Apply what is shipped."""
        rendered = self.plane.kubectl("kustomize", str(self._overlay), check=True).stdout
        kept = [d for d in yaml.safe_load_all(rendered) if d and d["kind"] not in NOT_HERE]
        for document in kept:
            for webhook in document.get("webhooks", ()):
                webhook["clientConfig"]["service"]["port"] = self.port
        self.plane.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(kept), check=True)
        for kind in ("inferenceservices", "servingprofiles"):
            name = f"crd/{kind}.serving.sojourn.dev"
            self.plane.kubectl("wait", name, "--for=condition=Established", check=True)
        self.plane.route_to_loopback(NAMESPACE, SERVICE)

    def add(self) -> OneOperator:
        """Start one more operator; returns when it is ready."""
        webhook, health, metrics = free_ports(3)
        if self._forwarder is None:
            webhook = self.port
        self._made += 1
        name = f"sojourn-{self._made}"
        settings = self.plane.folder / f"{name}.yaml"
        settings.write_text(yaml.safe_dump(self._settings(webhook, health, metrics)))
        config = self.plane.service_account_kubeconfig(NAMESPACE, "sojourn")
        command = [str(Path(sys.executable).parent / "sojourn"), "operator"]
        command += ["--settings", str(settings), "--kubeconfig", str(config)]
        env = {**environment(self.plane.folder), **shipped_environment()}
        env |= {"POD_NAMESPACE": NAMESPACE, "POD_NAME": name}
        log = self.plane.folder / "logs" / f"{name}.log"
        process = ManagedProcess(name, command, log, env, self._reaper)
        one = OneOperator(process, webhook, health, metrics)
        process.start()
        self.operators.append(one)

        def ready() -> bool:
            process.fail_if_ended()
            return one.ready

        eventually(ready, READY_S, f"{name} is ready")
        return one

    def retire(self, one: OneOperator) -> None:
        """End an operator as the kubelet does: SIGTERM, then its end is awaited."""
        one.process.stop()
        self.operators.remove(one)

    def log(self) -> str:
        """What all operators have logged."""
        logs = sorted((self.plane.folder / "logs").glob("sojourn-*.log"))
        return "".join(path.read_text() for path in logs)

    def await_admission(self) -> None:
        """Wait until the API server refuses a bad object by our webhook."""

        def refuses() -> bool:
            answer = self.create("default", unstable("await-admission"), dry_run=True)
            return "denied the request: Unstable" in answer.stderr

        eventually(refuses, READY_S, "the API server reaches the webhook")

    def create(self, namespace: str, body: dict[str, Any], *, dry_run: bool = False) -> Any:
        """Create an object with kubectl."""
        options = ["--dry-run=server"] if dry_run else []
        return self.plane.kubectl(
            "create", "-n", namespace, "-f", "-", *options, input=json.dumps(body)
        )

    def close(self) -> None:
        """End the processes and take the webhooks away: without operators they refuse all."""
        for one in self.operators:
            one.process.stop()
        if self._forwarder is not None:
            self._forwarder.stop()
        for name in (CONFIGURATION, f"{CONFIGURATION}-guard"):
            self.plane.kubectl(
                "delete", "validatingwebhookconfiguration", name, "--ignore-not-found"
            )
        self._reaper.finish()

    def _settings(self, webhook: int, health: int, metrics: int) -> dict[str, Any]:
        shipped: dict[str, Any] = yaml.safe_load((BASE / "settings.yaml").read_text())
        shipped["prometheus"]["url"] = self.plane.prometheus_url
        shipped["webhook"] |= {"port": webhook, "address": LOOPBACK, "drain": "2s", **self._webhook}
        return shipped | {"healthPort": health, "metricsPort": metrics}


def shipped_environment() -> dict[str, str]:
    """What the shipped Deployment sets in the environment of the operator."""
    deployment = yaml.safe_load((BASE / "deployment.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one["value"] for one in container["env"] if "value" in one}


def service(name: str, **spec: Any) -> dict[str, Any]:
    """GPT-3 of the book at batch 8: valid and stable; parts of the spec may be replaced."""
    return {
        "apiVersion": "serving.sojourn.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": {
            "model": {"name": "GPT-3", "maxLength": 2048},
            "gpu": {"type": "A100-80GB", "tensorParallel": 8},
            "engine": {
                "name": "custom",
                "batching": "Dynamic",
                "maxBatchSize": {"min": 1, "max": 8},
                "maxBatchWait": "0s",
            },
            "slo": {"latency": "1s"},
            "traffic": {"peakRate": 100},
            "serviceTime": {"fixed": "50ms", "perRequest": "500us"},
            "scaleTargetRef": {"name": name},
            "scaling": {"minReplicas": 1, "maxReplicas": 1},
            **spec,
        },
    }


def unstable(name: str) -> dict[str, Any]:
    """The same pinned to batch 4: a load of 1.30."""
    body = service(name)
    body["spec"]["engine"]["maxBatchSize"] = {"min": 4, "max": 4}
    return body


@contextlib.contextmanager
def running(plane: ControlPlane, **options: Any) -> Iterator[Operators]:
    """Operators on a plane."""
    with Operators(plane, **options) as operators:
        yield operators


def _answers(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=2.0) as response:
            text: str = response.read().decode()
            return text
    except (urllib.error.URLError, OSError):
        return None


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while content := source.recv(65536):
            sink.sendall(content)
    for one in (source, sink):
        # The other direction's thread is woken by this; it may have done the same already.
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


def wait_until(moment_s: float) -> None:
    """Sleep until a moment of the monotonic clock: for load at a given rate."""
    time.sleep(max(0.0, moment_s - time.monotonic()))


def names_of(bodies: Sequence[dict[str, Any]]) -> list[str]:
    """Names of objects."""
    return [body["metadata"]["name"] for body in bodies]
