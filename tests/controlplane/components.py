"""What is run: the command line of each component, its dependencies and its sign of readiness."""

import random
import socket
import ssl
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.controlplane import certificates, kubeconfig, nodes, prometheus
from tests.controlplane.certificates import Authority, KeyPair
from tests.controlplane.kubeconfig import Cluster

LOOPBACK = "127.0.0.1"
# Below Linux' range for outgoing connections (32768 on): no client of this machine takes a port
# between its choice and its use, or while Prometheus is stopped.
PORTS = range(15000, 32000)


class Component(StrEnum):
    ETCD = "etcd"
    APISERVER = "kube-apiserver"
    CONTROLLER_MANAGER = "kube-controller-manager"
    SCHEDULER = "kube-scheduler"
    KWOK = "kwok"
    PROMETHEUS = "prometheus"


ALL: tuple[Component, ...] = tuple(Component)
API_ONLY: tuple[Component, ...] = (Component.ETCD, Component.APISERVER)

# These exit or stall without an API server, so they start once it is ready.
CLIENTS: tuple[Component, ...] = (
    Component.CONTROLLER_MANAGER,
    Component.SCHEDULER,
    Component.KWOK,
)

AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
"""


@dataclass(frozen=True)
class Settings:
    """What a test may choose about the plane."""

    cold_start_s: float
    apiserver_flags: tuple[str, ...]
    prometheus: prometheus.PrometheusSettings
    controller_manager_flags: tuple[str, ...] = ()


def checked(components: Iterable[str]) -> tuple[Component, ...]:
    """The components in start order.

    Raises:
        ValueError: an unknown name, or a component without the one it needs.
    """
    chosen = {Component(name) for name in components}
    if Component.APISERVER in chosen and Component.ETCD not in chosen:
        raise ValueError("kube-apiserver needs etcd")
    if chosen.intersection(CLIENTS) and Component.APISERVER not in chosen:
        raise ValueError(f"{', '.join(CLIENTS)} need kube-apiserver")
    return tuple(component for component in ALL if component in chosen)


class Layout:
    """Where everything lies: ports, certificates, kubeconfigs and data under one folder."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        self.settings = settings
        self.logs = self._make("logs")
        self.targets = self._make("prometheus-targets")
        self.kubeconfigs = self._make("kubeconfigs")
        self.audit_log = folder / "audit.log"
        ports = free_ports(len(ALL) + 1)
        self.ports = dict(zip(ALL, ports, strict=False))
        self.etcd_peer_port = ports[-1]
        self.authority = Authority(folder / "certificates")
        names = (LOOPBACK, "localhost", "kubernetes", "kubernetes.default.svc")
        self.serving = self.authority.server("serving", names)
        self.tokens = certificates.signing_key(folder / "certificates")
        # The administrator asks: anonymous requests may be switched off by a flag.
        prober = self.authority.client("prober", ("system:masters",))
        self._probe = ssl.create_default_context(cafile=str(self.authority.ca_file))
        self._probe.load_cert_chain(prober.certificate, prober.key)
        self.cluster = Cluster(
            f"https://{LOOPBACK}:{self.ports[Component.APISERVER]}", self.authority.ca_file
        )
        self.admin = self.kubeconfig("admin", ("system:masters",))
        self.prometheus_config = folder / "prometheus.yaml"
        self.write_prometheus_config(settings.prometheus)

    def kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        """Write a kubeconfig with a fresh client certificate of a user in groups."""
        pair = self.authority.client(user, groups)
        path = self.kubeconfigs / f"{pair.certificate.stem}.json"
        return kubeconfig.with_certificate(path, self.cluster, pair)

    def write_prometheus_config(self, settings: prometheus.PrometheusSettings) -> None:
        self.prometheus_config.write_text(prometheus.configuration(settings, self.targets))

    def url(self, component: Component) -> str:
        """Base URL of a component on the loopback."""
        plain = component in (Component.ETCD, Component.KWOK, Component.PROMETHEUS)
        return f"{'http' if plain else 'https'}://{LOOPBACK}:{self.ports[component]}"

    def is_ready(self, component: Component) -> bool:
        """Whether the component's own readiness endpoint says so; False while it is silent."""
        path = {Component.PROMETHEUS: "/-/ready", Component.ETCD: "/health"}.get(component)
        path = path or ("/healthz" if component == Component.CONTROLLER_MANAGER else "/readyz")
        return responds(self.url(component) + path, self._probe)

    def command(self, component: Component) -> list[str]:
        """Arguments of the component, without the program itself."""
        match component:
            case Component.ETCD:
                return _etcd(self)
            case Component.APISERVER:
                return [*_apiserver(self), *self.settings.apiserver_flags]
            case Component.CONTROLLER_MANAGER:
                return [*_controller_manager(self), *self.settings.controller_manager_flags]
            case Component.SCHEDULER:
                return _client(self, component)
            case Component.KWOK:
                return _kwok(self)
            case Component.PROMETHEUS:
                return _prometheus(self)

    def _make(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir(parents=True, exist_ok=True)
        return path


def _etcd(layout: Layout) -> list[str]:
    client = layout.url(Component.ETCD)
    peer = f"http://{LOOPBACK}:{layout.etcd_peer_port}"
    return [
        "--name=plane",
        f"--data-dir={layout.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=plane={peer}",
        "--log-level=warn",
        # The data is thrown away: waiting for the disk would only make tests slow and uneven.
        "--unsafe-no-fsync",
        "--quota-backend-bytes=4294967296",
    ]


def _apiserver(layout: Layout) -> list[str]:
    policy = layout.folder / "audit-policy.yaml"
    policy.write_text(AUDIT_POLICY)
    return [
        f"--etcd-servers={layout.url(Component.ETCD)}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={layout.ports[Component.APISERVER]}",
        *_serving(layout.serving),
        f"--client-ca-file={layout.authority.ca_file}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={layout.tokens.certificate}",
        f"--service-account-signing-key-file={layout.tokens.key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        # A loopback address is no valid endpoint of the service `kubernetes`.
        "--endpoint-reconciler-type=none",
        f"--audit-policy-file={policy}",
        f"--audit-log-path={layout.audit_log}",
        # Written before the answer: what a test did is in the log once its call returned.
        "--audit-log-mode=blocking",
        "--audit-log-maxsize=4000",
        "--profiling=false",
    ]


def _controller_manager(layout: Layout) -> list[str]:
    return [
        *_client(layout, Component.CONTROLLER_MANAGER),
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={layout.tokens.key}",
        f"--root-ca-file={layout.authority.ca_file}",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]


def _client(layout: Layout, component: Component) -> list[str]:
    config = layout.kubeconfig(f"system:{component}")
    return [
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={layout.ports[component]}",
        *_serving(layout.serving),
        # One instance: waiting for a lease would delay every start.
        "--leader-elect=false",
        "--profiling=false",
    ]


def _kwok(layout: Layout) -> list[str]:
    stages = layout.folder / "stages.yaml"
    stages.write_text(nodes.render_stages(layout.settings.cold_start_s))
    return [
        f"--kubeconfig={layout.kubeconfig('system:kwok', ('system:masters',))}",
        f"--config={stages}",
        "--manage-all-nodes=true",
        "--cidr=10.128.0.0/14",
        "--node-ip=10.0.0.1",
        "--node-lease-duration-seconds=40",
        f"--server-address={LOOPBACK}:{layout.ports[Component.KWOK]}",
    ]


def _prometheus(layout: Layout) -> list[str]:
    return [
        f"--config.file={layout.prometheus_config}",
        f"--storage.tsdb.path={layout.folder / 'prometheus'}",
        f"--storage.tsdb.retention.time={layout.settings.prometheus.retention}",
        f"--web.listen-address={LOOPBACK}:{layout.ports[Component.PROMETHEUS]}",
        "--web.enable-lifecycle",
        # Unset, a new target waits up to 5 s for its first scrape.
        "--scrape.discovery-reload-interval="
        + prometheus.duration(layout.settings.prometheus.discovery_interval_s),
    ]


def _serving(pair: KeyPair) -> list[str]:
    return [f"--tls-cert-file={pair.certificate}", f"--tls-private-key-file={pair.key}"]


def free_ports(count: int) -> list[int]:
    """Distinct TCP ports of the loopback that nothing listens on.

    Raises:
        OSError: none is left.
    """
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"no {count} free ports between {PORTS.start} and {PORTS.stop}")


def responds(url: str, tls: ssl.SSLContext) -> bool:
    """Whether a GET of the URL is answered with success within a second."""
    try:
        with urllib.request.urlopen(url, timeout=1.0, context=tls):
            return True
    except OSError:  # refused, timed out, or an HTTP error: all of them are "not yet"
        return False
