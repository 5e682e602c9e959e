"""Where Prometheus is and how it scrapes: the operator's settings, never a custom resource's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True)
class PrometheusSettings:
    """How Prometheus is reached.

    Attributes:
        url: base address, with a path for Mimir or VictoriaMetrics; credentials in it are refused.
        timeout_s: longest wait for a whole answer; the server is asked to give up a little earlier.
        connect_timeout_s: longest wait for a connection.
        threads: queries under way at once.
        bearer_token_file: read again for each query, so that a rotated token is used at once.
        username, password_file: basic authentication, the password read again for each query.
        ca_file: certificates trusted for the server; None for the system's.
        client_cert_file, client_key_file: the operator's own certificate (mutual TLS).
        verify: False trusts any certificate.
        headers: sent with each query, such as ``("X-Scope-OrgID", "team")``.
        parameters: sent with each query, such as ``("partial_response", "false")``.

    Raises:
        ValueError: the address is not http or https, or carries credentials.
    """

    url: str
    timeout_s: float = 10.0
    connect_timeout_s: float = 2.0
    threads: int = 3
    bearer_token_file: Path | None = None
    username: str | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    client_cert_file: Path | None = None
    client_key_file: Path | None = None
    verify: bool = True
    headers: tuple[tuple[str, str], ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the Prometheus address must be http(s)://host[:port][/path]")
        if parts.username or parts.password:
            raise ValueError("credentials belong in files, not in the Prometheus address")

    @property
    def host(self) -> str:
        """Host and port, for messages."""
        return urlsplit(self.url).netloc


@dataclass(frozen=True)
class ScrapeSettings:
    """What the operator may assume about the series it finds. Seconds.

    Attributes:
        window_s: window of rates; used as asked, but never below four scrapes.
        latency_window_s: window of latency percentiles and token means, which need more requests.
        scrape_interval_s: time between two scrapes of an engine.
        namespace_label, pod_label: labels that name a pod (``exported_namespace`` where the
            targets' own labels win).
        matchers: label matchers for every selector, such as ``cluster="a"``.
        replica_labels: labels in which copies of one series differ: HA pairs, and one pod scraped
            by several jobs.
        min_coverage: share of Ready pods that must be seen.
        custom_queries: whether ``spec.metrics.arrivalRateQuery`` is used at all. A query reads
            whatever the operator may read, so it is for clusters whose authors are trusted.
    """

    window_s: float = 60.0
    latency_window_s: float = 120.0
    scrape_interval_s: float = 15.0
    namespace_label: str = "namespace"
    pod_label: str = "pod"
    matchers: tuple[str, ...] = ()
    replica_labels: tuple[str, ...] = (
        "prometheus_replica",
        "prometheus",
        "replica",
        "job",
        "service",
        "endpoint",
    )
    min_coverage: float = 0.8
    custom_queries: bool = True

    @property
    def rate_window_s(self) -> float:
        """Window of rates: four scrapes at least, so that one lost scrape leaves a rate."""
        return max(self.window_s, 4 * self.scrape_interval_s)

    @property
    def freshness_s(self) -> float:
        """Oldest sample that is still evidence: two scrapes and a window, 90 s at most."""
        return min(90.0, 2 * self.scrape_interval_s + self.rate_window_s)

    @property
    def warm_up_s(self) -> float:
        """Age at which a pod's series fill the window: a scrape to appear, then the window."""
        return self.rate_window_s + self.scrape_interval_s
