"""Service time of a running service, from what Prometheus remembers of it.

At each instant every pod shows how many requests ran together and how long a token took: pairs
along the very line that sizing needs, as far as the load has varied.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from sojourn import engines
from sojourn.cli.exits import UsageError
from sojourn.cli.profiling.points import Point
from sojourn.engines import Engine
from sojourn.observe.prometheus import PrometheusSource
from sojourn.observe.promql import PromQL
from sojourn.observe.settings import PrometheusSettings, ScrapeSettings

MOST_POINTS = 8
LEAST_SPREAD = 0.30
"""Of the numbers of requests together: with less a line through them means nothing."""


@dataclass(frozen=True)
class Past:
    """What is asked of Prometheus.

    Attributes:
        pods: regular expression of the pods' names.
        from_s, to_s: Unix seconds.
        instants: how many times in between are looked at.
    """

    settings: PrometheusSettings
    engine: str
    namespace: str
    pods: str
    from_s: float
    to_s: float
    instants: int = 60


async def read(past: Past) -> list[Point]:
    """Points of a service's past, at most eight, by rising batch.

    Raises:
        MetricsUnavailable: Prometheus gave no usable answer.
        UsageError: no samples, or a load that did not vary enough.
    """
    engine = engines.find(past.engine)
    running, step = expressions(past, engine)
    source = PrometheusSource(past.settings)
    pairs: list[tuple[float, float]] = []
    try:
        for at_s in np.linspace(past.from_s, past.to_s, past.instants).tolist():
            together = {_pod(s.labels): s.value for s in await source.query(running, at_s)}
            for series in await source.query(step, at_s):
                batch = together.get(_pod(series.labels), 0.0)
                if batch >= 1 and series.value > 0:
                    pairs.append((batch, series.value))
    finally:
        source.close()
    return summarised(pairs)


def expressions(past: Past, engine: Engine) -> tuple[str, str]:
    """PromQL for requests running and seconds a token takes, both by pod.

    Raises:
        UsageError: the engine does not export them.
    """
    matchers = (f'namespace="{past.namespace}"', f'pod=~"{past.pods}"')
    promql = PromQL(ScrapeSettings(matchers=matchers))
    steps = engine.names("output_token")
    running = promql.role(engine, "running", promql.gauge)
    if not steps or not running:
        raise UsageError(f"{engine.title} does not export what is needed: profile its endpoint")
    window = promql.latency_window
    smoothed = f"avg_over_time(({running})[{window}:])"
    total = promql.histogram_rate(steps[0], "_sum")
    count = promql.histogram_rate(steps[0], "_count")
    for older in steps[1:]:
        total = f"{total} or {promql.histogram_rate(older, '_sum')}"
        count = f"{count} or {promql.histogram_rate(older, '_count')}"
    return smoothed, f"{steps[0].scale:g} * ({total}) / (({count}) > 0)"


def summarised(pairs: Iterable[tuple[float, float]]) -> list[Point]:
    """Pairs of (requests together, seconds a token), gathered into groups of equal size.

    Raises:
        UsageError: too few, or too much alike.
    """
    ordered = sorted(pairs)
    if len(ordered) < 2 * MOST_POINTS:
        raise UsageError(
            f"{len(ordered)} samples with requests running: {2 * MOST_POINTS} are needed; ask for "
            "more hours, or check --pods and --namespace"
        )
    groups = np.array_split(np.asarray(ordered), MOST_POINTS)
    points = [
        Point(
            batch=float(np.mean(group[:, 0])),
            latency_s=float(np.median(group[:, 1])),
            output_token_s=float(np.median(group[:, 1])),
            samples=len(group),
        )
        for group in groups
    ]
    spread = points[-1].batch / points[0].batch - 1
    if spread < LEAST_SPREAD:
        raise UsageError(
            f"between {points[0].batch:.3g} and {points[-1].batch:.3g} requests ran together: a "
            f"spread of {spread:.0%}, {LEAST_SPREAD:.0%} is needed; profile its endpoint instead"
        )
    return points


def _pod(labels: object) -> str:
    return str(labels.get("pod", "")) if isinstance(labels, dict) else ""
