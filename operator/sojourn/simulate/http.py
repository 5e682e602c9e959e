"""HTTP face of the simulated pods: metrics by pod, and their targets for Prometheus' http_sd.

``GET /metrics/<namespace>/<pod>`` renders one engine; ``GET /targets`` lists the pods in the form
of Prometheus' HTTP service discovery, all on this server's address, with ``__metrics_path__`` and
the labels a PodMonitor would give. One port serves every pod.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType

from aiohttp import web

from sojourn.simulate.engine import SimulatedEngine


@dataclass(frozen=True)
class PodTarget:
    """One pod as Prometheus sees it.

    Attributes:
        namespace: its namespace.
        pod: its name.
        container: container that serves the metrics.
        engine: what renders them.
        labels: pod labels to copy; names are changed as Prometheus does (``a.b/c`` -> ``a_b_c``).
    """

    namespace: str
    pod: str
    container: str
    engine: SimulatedEngine
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Where its metrics are."""
        return f"/metrics/{self.namespace}/{self.pod}"


def label_name(kubernetes_name: str) -> str:
    """Prometheus' spelling of a Kubernetes label's name."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", kubernetes_name)


class MetricsServer:
    """Serves metrics and targets on the loopback; an asynchronous context manager.

    Args:
        host: address to listen on.
        port: 0 picks a free one, see ``address`` once started.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._host = host
        self._port = port
        self._pods: dict[tuple[str, str], PodTarget] = {}
        app = web.Application()
        app.router.add_get("/targets", self._targets)
        app.router.add_get("/metrics/{namespace}/{pod}", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)

    def add(self, target: PodTarget) -> None:
        """Serve a pod from now on; a pod of the same name is replaced."""
        self._pods[target.namespace, target.pod] = target

    def remove(self, namespace: str, pod: str) -> None:
        """Stop serving a pod; unknown pods are ignored."""
        self._pods.pop((namespace, pod), None)

    @property
    def address(self) -> str:
        """``host:port`` it listens on, once started."""
        return f"{self._host}:{self._port}"

    async def __aenter__(self) -> MetricsServer:
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        self._port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        info = request.match_info
        target = self._pods.get((info["namespace"], info["pod"]))
        if target is None:
            raise web.HTTPNotFound(text="no such pod\n")
        return web.Response(
            text=target.engine.render_metrics(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def _targets(self, _: web.Request) -> web.Response:
        return web.json_response([self._target(target) for target in self._pods.values()])

    def _target(self, target: PodTarget) -> dict[str, object]:
        copied = {label_name(name): value for name, value in target.labels.items()}
        own = {
            "__metrics_path__": target.path,
            "namespace": target.namespace,
            "pod": target.pod,
            "container": target.container,
        }
        return {"targets": [self.address], "labels": {**copied, **own}}
