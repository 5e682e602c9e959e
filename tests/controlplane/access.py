"""What a test does with a running plane: kubectl, identities, nodes, audit log, Prometheus."""

import json
import os
import secrets
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.controlplane import kubeconfig, nodes, prometheus
from tests.controlplane.certificates import Authority
from tests.controlplane.components import LOOPBACK, Component, Layout
from tests.controlplane.errors import ControlPlaneError, KubectlFailed
from tests.controlplane.nodes import NodeShape
from tests.controlplane.prometheus import PrometheusSettings, TargetGroup
from tests.waiting import eventually

KUBECTL_TIMEOUT_S = 120.0
NODE_TIMEOUT_S = 60.0
ACCOUNT_TIMEOUT_S = 30.0
RELOAD_TIMEOUT_S = 10.0
DEFAULT_SHAPE = NodeShape()


def environment(folder: Path) -> dict[str, str]:
    """The environment of every program: kubectl's cache and the like stay in ``folder``."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder)}


class Access:
    """The public face of a plane, apart from its life cycle."""

    _layout: Layout | None = None
    _kubectl_program: Path | None = None
    _runs_controllers = False

    @property
    def layout(self) -> Layout:
        """Every path and port.

        Raises:
            ControlPlaneError: the plane was not started.
        """
        if self._layout is None:
            raise ControlPlaneError("the control plane is not running: use it in a `with` block")
        return self._layout

    @property
    def folder(self) -> Path:
        """Data, logs (``logs/<component>.log``), certificates and kubeconfigs."""
        return self.layout.folder

    @property
    def api_url(self) -> str:
        return self.layout.cluster.url

    @property
    def ca_file(self) -> Path:
        """Certificate (PEM) of the authority behind every serving certificate of the plane."""
        return self.layout.authority.ca_file

    @property
    def authority(self) -> Authority:
        """Issues further certificates, e.g. for a webhook server under test."""
        return self.layout.authority

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of a cluster administrator (group system:masters)."""
        return self.layout.admin

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """Kubeconfig of any user in any groups; it may do what RBAC grants them, no more."""
        return self.layout.kubeconfig(user, groups)

    def service_account_kubeconfig(self, namespace: str, name: str, url: str = "") -> Path:
        """Kubeconfig with a token (1 h) of an existing service account.

        Args:
            url: where the API is reached, for one that is reached through a proxy.

        Raises:
            KubectlFailed: no such service account.
        """
        token = self.kubectl("create", "token", name, "-n", namespace, "--duration=1h", check=True)
        path = self.layout.kubeconfigs / f"service-account-{namespace}-{name}.json"
        cluster = self.layout.cluster
        cluster = replace(cluster, url=url or cluster.url)
        return kubeconfig.with_token(path, cluster, token.stdout.strip())

    def kubectl(
        self,
        *arguments: str,
        input: str | None = None,
        check: bool = False,
        config: Path | None = None,
        timeout_s: float = KUBECTL_TIMEOUT_S,
    ) -> "subprocess.CompletedProcess[str]":
        """Run kubectl as the administrator, or with another kubeconfig.

        Args:
            input: text for standard input, for ``-f -``.
            check: raise when kubectl ends with an error.
            timeout_s: seconds.

        Raises:
            KubectlFailed: ``check`` and a non-zero exit code.
            subprocess.TimeoutExpired: kubectl did not end in time.
        """
        if self._kubectl_program is None:
            raise ControlPlaneError("this control plane runs no kube-apiserver")
        result = subprocess.run(
            [self._kubectl_program, f"--kubeconfig={config or self.kubeconfig}", *arguments],
            input=input or "",  # never this process' own standard input
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            env=environment(self.folder),
        )
        if check and result.returncode != 0:
            raise KubectlFailed(arguments, result.returncode, result.stderr)
        return result

    def get(self, *arguments: str) -> Any:
        """The parsed answer of ``kubectl get ... -o json``: one object, or a List with ``items``.

        Raises:
            KubectlFailed: not found, or refused.
        """
        return json.loads(self.kubectl("get", *arguments, "-o", "json", check=True).stdout)

    def create_namespace(self, prefix: str = "test") -> str:
        """A new namespace with a unique name, ready for pods; returns the name."""
        name = f"{prefix}-{secrets.token_hex(3)}"
        self.kubectl("create", "namespace", name, check=True)
        if self._runs_controllers:
            # Pods are refused until the controller manager has made the default account.
            eventually(
                lambda: self.kubectl("get", "sa", "default", "-n", name).returncode == 0,
                ACCOUNT_TIMEOUT_S,
                f"namespace {name} has its default service account",
            )
        return name

    def add_nodes(
        self, count: int, shape: NodeShape = DEFAULT_SHAPE, prefix: str = "gpu"
    ) -> list[str]:
        """Add simulated machines, named ``prefix-<n>`` after those there are; returns the names.

        They are Ready and open to pods on return.

        Raises:
            AssertionError: they were not Ready within 60 s.
        """
        there = {item["metadata"]["name"] for item in self.get("nodes")["items"]}
        free = (f"{prefix}-{number}" for number in range(len(there) + count))
        names = [name for name in free if name not in there][:count]
        items = [nodes.manifest(name, shape) for name in names]
        document = {"apiVersion": "v1", "kind": "List", "items": items}
        self.kubectl("create", "-f", "-", input=json.dumps(document), check=True)
        eventually(lambda: self._open_nodes() >= set(names), NODE_TIMEOUT_S, "new nodes are Ready")
        return names

    def route_to_loopback(self, namespace: str, service: str) -> None:
        """Let the API server reach a webhook of a service at 127.0.0.1, on the port it names.

        A webhook configuration that refers to the service then works unchanged: its
        ``clientConfig.service.port`` is where the server under test listens, with a certificate for
        ``<service>.<namespace>.svc``. An existing service of that name is replaced.

        Raises:
            KubectlFailed: no such namespace.
        """
        # No kube-proxy runs, so a cluster address leads nowhere; endpoints may not be loopback
        # addresses. The API server resolves a service of type ExternalName by itself.
        self.kubectl(
            "delete", "service", service, "-n", namespace, "--ignore-not-found", check=True
        )
        create = ("create", "service", "externalname", service, "--external-name", LOOPBACK)
        self.kubectl(*create, "-n", namespace, check=True)

    def _open_nodes(self) -> set[str]:
        # A Ready node keeps its not-ready taint until the controller manager takes it away.
        return {
            node["metadata"]["name"]
            for node in self.get("nodes")["items"]
            if not node["spec"].get("taints") and nodes.is_ready(node)
        }

    def audit_position(self) -> int:
        """Where the audit log ends now, in bytes; for ``audit_events(since=...)``."""
        log = self.layout.audit_log
        return log.stat().st_size if log.exists() else 0

    def audit_events(self, since: int = 0) -> Iterator[dict[str, Any]]:
        """Audit events (audit.k8s.io/v1, level Metadata) from a position on, to the log's end.

        An event is written before its request is answered.
        """
        with self.layout.audit_log.open("rb") as log:
            log.seek(since)
            for line in log:
                if line.endswith(b"\n"):  # otherwise it is being written right now
                    yield json.loads(line)

    @property
    def prometheus_url(self) -> str:
        return self.layout.url(Component.PROMETHEUS)

    def prometheus_targets(self, groups: Sequence[TargetGroup], name: str = "targets") -> None:
        """Replace the scrape targets registered under ``name``; no groups take them away."""
        prometheus.write_targets(self.layout.targets, name, groups)

    def prometheus_configure(self, settings: PrometheusSettings) -> None:
        """Replace Prometheus' settings while it runs; ``retention`` counts from its next start.

        Raises:
            OSError: Prometheus does not answer, or refuses them (HTTP 500).
        """
        self.layout.write_prometheus_config(settings)
        request = urllib.request.Request(f"{self.prometheus_url}/-/reload", method="POST")
        with urllib.request.urlopen(request, timeout=RELOAD_TIMEOUT_S):
            pass

    def prometheus_query(self, expression: str) -> list[dict[str, Any]]:
        """The ``result`` of an instant query.

        Raises:
            OSError: Prometheus does not answer, or refuses the expression (HTTP 400).
        """
        return prometheus.query(self.prometheus_url, expression)
