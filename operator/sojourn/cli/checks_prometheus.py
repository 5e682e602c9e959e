"""Whether Prometheus answers and knows the engines' metrics, asked as the cluster reaches it.

An address inside the cluster is asked through the API server's proxy of services, so that the
doctor works from a laptop.
"""

from __future__ import annotations

import re
import time
from urllib.parse import quote, urlsplit

from sojourn import engines
from sojourn.cli.cluster import Cluster
from sojourn.cli.outcome import Outcome, Scope, fail, ok, skip, warn
from sojourn.errors import MetricsUnavailable
from sojourn.observe.prometheus import PrometheusSource
from sojourn.observe.settings import PrometheusSettings

_INSIDE = re.compile(r"^(?P<service>[a-z0-9-]+)\.(?P<namespace>[a-z0-9-]+)(\.svc.*)?$")
_SUBJECT = "Prometheus"


async def examine(cluster: Cluster, scope: Scope, url: str) -> list[Outcome]:
    """Whether it answers, and whether any engine's requests are seen."""
    query = _heartbeats(scope.namespace)
    inside = _INSIDE.match(urlsplit(url).hostname or "")
    if inside is None or scope.prometheus is not None:
        counted = await _asked_directly(url, query)
    else:
        counted = await _asked_by_proxy(cluster, url, inside, query)
    if isinstance(counted, Outcome):
        return [counted]
    answers = ok(_SUBJECT, f"{urlsplit(url).netloc} answers")
    if counted == 0:
        text = "no series of any known engine carries a pod label"
        remedy = "scrape the engine's pods: a PodMonitor or ServiceMonitor on the metrics port"
        return [answers, warn("metrics", text, remedy)]
    return [answers, ok("metrics", f"{counted:.0f} engine pods are seen")]


def _heartbeats(namespace: str | None) -> str:
    """PromQL that counts the pods whose running or waiting requests are scraped."""
    names = sorted(
        {
            metric.name
            for engine in engines.all_engines().values()
            for role in ("running", "waiting")
            for metric in engine.names(role)
        }
    )
    where = f',namespace="{namespace}"' if namespace else ""
    pattern = "|".join(names)
    return f'count(count by (namespace,pod) ({{__name__=~"{pattern}",pod!=""{where}}}))'


async def _asked_directly(url: str, query: str) -> float | Outcome:
    try:
        settings = PrometheusSettings(url=url)
    except ValueError as exc:
        return fail(_SUBJECT, str(exc), "mend prometheus.url in the operator's settings")
    source = PrometheusSource(settings)
    try:
        series = await source.query(query, time.time())
    except MetricsUnavailable as exc:
        remedy = "mend prometheus.url in the operator's settings, or give --prometheus URL"
        return fail(_SUBJECT, exc.why, remedy)
    finally:
        source.close()
    return series[0].value if series else 0.0


async def _asked_by_proxy(
    cluster: Cluster, url: str, inside: re.Match[str], query: str
) -> float | Outcome:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    scheme = "https:" if parts.scheme == "https" else ""
    where = f"/api/v1/namespaces/{inside['namespace']}/services"
    target = f"{scheme}{inside['service']}:{port}/proxy{parts.path.rstrip('/')}/api/v1/query"
    answer = await cluster.ask(f"{where}/{target}?query={quote(query)}")
    if answer.forbidden:
        return skip(_SUBJECT, f"asking {parts.netloc} through the API server is not allowed to us")
    if answer.body is None:
        remedy = "mend prometheus.url in the operator's settings, or its Service"
        return fail(_SUBJECT, f"{parts.netloc} does not answer: {answer.why}", remedy)
    result = (answer.body.get("data") or {}).get("result") or []
    return float(result[0]["value"][1]) if result else 0.0
