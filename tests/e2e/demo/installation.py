"""Sojourn on a plane, as a user would install it, with the operator as a process beside it.

``deploy/base`` is applied as shipped, but for two things a loopback without a kubelet needs: no
Deployment (its containers would not run), and webhooks called by URL in place of a Service. The
operator runs under the shipped ServiceAccount, so what it may do is what the shipped roles grant.
"""

import re
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from tests.controlplane.access import Access, environment
from tests.controlplane.components import LOOPBACK, free_ports
from tests.controlplane.process import ManagedProcess
from tests.controlplane.reaper import Reaper
from tests.waiting import eventually

REPOSITORY = Path(__file__).parents[3]
BASE = REPOSITORY / "deploy" / "base"
EXAMPLES = REPOSITORY / "deploy" / "examples"
NAMESPACE = "sojourn-system"
ACCOUNT = "sojourn"
WEBHOOKS = "sojourn-validating"
NOT_HERE = ("Deployment", "PodDisruptionBudget")
READY_S = 60.0
TRACEBACK = re.compile(r"^Traceback \(most recent call last\)", re.MULTILINE)


@dataclass(frozen=True)
class Pace:
    """How fast the operator lives in the demo; a cluster's defaults are 15 s, 60 s and more.

    Attributes, in seconds: time between two ticks, between two scrapes, window of rates, how long
    another max batch must be wanted, least time between two of its changes, quiet after a scaling.
    """

    tick_s: float = 2.0
    scrape_s: float = 0.5
    window_s: float = 3.0
    latency_window_s: float = 10.0
    batch_patience_s: float = 8.0
    batch_interval_s: float = 60.0
    quiet_s: float = 6.0


class Installation:
    """CRDs, roles, webhook configuration and a running operator; a context manager.

    Args:
        plane: a running control plane with a Prometheus.
        pace: written into the operator's settings.
        api_url, prometheus_url: where the operator reaches them; empty means directly.
    """

    def __init__(
        self,
        plane: Access,
        pace: Pace | None = None,
        *,
        api_url: str = "",
        prometheus_url: str = "",
    ) -> None:
        self.plane = plane
        self.pace = pace or Pace()
        self._api_url = api_url
        self._prometheus_url = prometheus_url or plane.prometheus_url
        webhook, health, metrics = free_ports(3)
        self._ports = {"webhook": webhook, "health": health, "metrics": metrics}
        self.log = plane.folder / "logs" / "sojourn.log"
        self._reaper = Reaper()
        self._process: ManagedProcess | None = None
        self._starts = 0

    def __enter__(self) -> Self:
        try:
            self._apply()
            self.start()
            eventually(self.leads, READY_S, "the operator holds the lease")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def start(self) -> None:
        """Start the operator; returns when it is ready and answers admission.

        Raises:
            ComponentFailed: it ended at once.
            AssertionError: it was not ready in time.
        """
        self._starts += 1
        self._process = self._new_process(f"{ACCOUNT}-{self._starts}")
        self._process.start()
        self.await_ready()

    def kill(self) -> None:
        """End the operator with SIGKILL."""
        self._running().kill()

    def stop(self) -> None:
        """End the operator with SIGTERM."""
        self._running().stop()

    def await_ready(self) -> None:
        """Wait until the operator is ready and its webhook is called with trust."""
        process = self._running()

        def ready() -> bool:
            process.fail_if_ended()
            return self._answers(f"http://{LOOPBACK}:{self._ports['health']}/readyz")

        eventually(ready, READY_S, "the operator is ready")
        eventually(self._admits, READY_S, "the API server reaches the operator's webhook")

    def leads(self) -> bool:
        """Whether the operator holds the lease and acts."""
        return self.metric("sojourn_leader") == 1.0

    def metrics(self) -> str:
        """The operator's own metrics, Prometheus text."""
        url = f"http://{LOOPBACK}:{self._ports['metrics']}/metrics"
        with urllib.request.urlopen(url, timeout=5.0) as response:
            text: str = response.read().decode()
            return text

    def metric(self, name: str) -> float:
        """One of its metrics without labels."""
        found = re.search(rf"^{name} (\S+)$", self.metrics(), re.MULTILINE)
        assert found, f"the operator has no metric {name}"
        return float(found[1])

    def log_text(self) -> str:
        """Everything the operator has logged."""
        return self.log.read_text() if self.log.exists() else ""

    def tracebacks(self) -> list[str]:
        """Tracebacks in its log, each with the lines that follow."""
        text = self.log_text()
        return [text[m.start() : m.start() + 2000] for m in TRACEBACK.finditer(text)]

    def _apply(self) -> None:
        rendered = self.plane.kubectl("kustomize", str(BASE), check=True).stdout
        documents = [fitted(d, self._ports["webhook"]) for d in yaml.safe_load_all(rendered) if d]
        kept = [document for document in documents if document["kind"] not in NOT_HERE]
        text = yaml.safe_dump_all(kept)
        crds = [d["metadata"]["name"] for d in kept if d["kind"] == "CustomResourceDefinition"]
        # Names of a new kind are refused until its definition is established.
        self.plane.kubectl("apply", "-f", "-", input=text, check=True)
        for name in crds:
            self.plane.kubectl("wait", f"crd/{name}", "--for=condition=Established", check=True)

    def _running(self) -> ManagedProcess:
        assert self._process is not None, "the operator was not started"
        return self._process

    def _new_process(self, pod: str) -> ManagedProcess:
        """A process of another name each time, as a pod that replaces a dead one has."""
        folder = self.plane.folder
        config = self.plane.service_account_kubeconfig(NAMESPACE, ACCOUNT, self._api_url)
        settings = folder / "sojourn-settings.yaml"
        settings.write_text(yaml.safe_dump(self._settings()))
        program = Path(sys.executable).parent / "sojourn"
        command = [str(program), "operator"]
        command += ["--settings", str(settings), "--kubeconfig", str(config)]
        env = {**environment(folder), "POD_NAMESPACE": NAMESPACE, "POD_NAME": pod}
        return ManagedProcess("sojourn", command, self.log, env, self._reaper)

    def _settings(self) -> dict[str, Any]:
        shipped: dict[str, Any] = yaml.safe_load((BASE / "settings.yaml").read_text())
        pace = self.pace
        shipped["prometheus"] |= {
            "url": self._prometheus_url,
            "scrapeInterval": f"{pace.scrape_s:g}s",
            "window": f"{pace.window_s:g}s",
            "latencyWindow": f"{pace.latency_window_s:g}s",
        }
        shipped["webhook"] |= {"port": self._ports["webhook"], "address": LOOPBACK}
        return shipped | {
            "tick": f"{pace.tick_s:g}s",
            "healthPort": self._ports["health"],
            "metricsPort": self._ports["metrics"],
            "thresholds": {
                "batchPatience": f"{pace.batch_patience_s:g}s",
                "batchInterval": f"{pace.batch_interval_s:g}s",
                "quiet": f"{pace.quiet_s:g}s",
            },
        }

    def _admits(self) -> bool:
        answer = self.plane.kubectl(
            "create", "--dry-run=server", "-f", str(EXAMPLES / "gpt3.yaml"), "-n", "default"
        )
        assert answer.returncode == 0 or "AlreadyExists" in answer.stderr, answer.stderr
        return True

    def _answers(self, url: str) -> bool:
        try:
            with urllib.request.urlopen(url, timeout=2.0):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()  # nothing it holds outlives the plane or the next start
        self.plane.kubectl("delete", "lease", "sojourn", "-n", NAMESPACE, "--ignore-not-found")
        # Without the operator its webhook would refuse every object of our kinds.
        self.plane.kubectl(
            "delete", "validatingwebhookconfiguration", WEBHOOKS, "--ignore-not-found"
        )
        self._reaper.finish()


def fitted(document: dict[str, Any], port: int) -> dict[str, Any]:
    """A shipped object; webhooks call the loopback in place of the operator's Service."""
    if document["kind"] != "ValidatingWebhookConfiguration":
        return document
    for webhook in document["webhooks"]:
        service: Mapping[str, Any] = webhook["clientConfig"].pop("service")
        webhook["clientConfig"]["url"] = f"https://{LOOPBACK}:{port}{service['path']}"
    return document
