"""Small pieces of PromQL, each one sentence of a query.

Alternatives (an old and a new name) are joined by ``or`` after they were summed by pod, so that a
pod that exports both is counted once. Copies of one series (HA pairs, two jobs on one pod) are
joined by ``max without`` their labels before anything is summed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sojourn.engines import Engine, Metric
from sojourn.observe.settings import ScrapeSettings

# Letters and digits of names the API server makes: no vowels, no 0, 1 or 3.
_SAFE = "[bcdfghjklmnpqrstvwxz2456789]"
WORKLOAD_PATTERN = f"(.+?)(?:-{_SAFE}{{6,10}})?(?:-{_SAFE}{{5}}|(?:-[0-9]+)+)"


def seconds(value: float) -> str:
    """A PromQL duration."""
    return f"{round(value * 1000)}ms"


def either(expressions: Iterable[str]) -> str:
    """The first of several alternatives that a pod has; empty if there is none."""
    return " or ".join(f"({e})" for e in expressions if e)


def matcher(label: str, value: str) -> str:
    r"""``label="value"``, where the value stays inside its quotes whatever it holds.

    >>> print(matcher("service", 'a"b'))
    service="a\u0022b"
    """
    kept = (c if c.isascii() and (c.isalnum() or c in " _-.:/@") else _escape(c) for c in value)
    return f'{label}="{"".join(kept)}"'


def _escape(character: str) -> str:
    number = ord(character)
    if 0xD800 <= number <= 0xDFFF:  # half a character: no text of Prometheus holds one
        number = 0xFFFD
    return f"\\U{number:08x}" if number > 0xFFFF else f"\\u{number:04x}"


def labelled(expression: str, label: str, value: str) -> str:
    """The same series with one more label."""
    return f'label_replace({expression},"{label}","{value}","","")'


@dataclass(frozen=True)
class PromQL:
    """Expressions under one set of scrape settings.

    ``labels`` are carried by the series asked for, besides those of a pod.
    """

    scrape: ScrapeSettings
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def pod(self) -> str:
        """Labels of a pod, for ``by``."""
        return f"{self.scrape.namespace_label},{self.scrape.pod_label}"

    @property
    def window(self) -> str:
        """Window of rates."""
        return seconds(self.scrape.rate_window_s)

    @property
    def latency_window(self) -> str:
        """Window of percentiles and means."""
        wide = max(self.scrape.latency_window_s, self.scrape.rate_window_s)
        return seconds(wide)

    def select(self, name: str, match: str = "") -> str:
        """Series of a name that belong to pods."""
        matchers = [m for m in (match, *self.scrape.matchers) if m]
        matchers += [matcher(label, value) for label, value in self.labels]
        matchers.append(f'{self.scrape.pod_label}!=""')
        return f"{name}{{{','.join(matchers)}}}"

    def once(self, expression: str) -> str:
        """One of each set of copies."""
        return f"max without ({','.join(self.scrape.replica_labels)}) ({expression})"

    def by_pod(self, engine: Engine, expression: str) -> str:
        """A count of a pod: data-parallel ranks add up, other ranks repeat each other."""
        if engine.rank_label:
            return f"sum by ({self.pod}) (max by ({self.pod},{engine.rank_label}) ({expression}))"
        if engine.whole_label:
            inner = f"sum by ({self.pod},{engine.whole_label}) ({self.once(expression)})"
            return f"max by ({self.pod}) ({inner})"
        return f"sum by ({self.pod}) ({self.once(expression)})"

    def rate(self, metric: Metric, suffix: str = "") -> str:
        """Growth of a counter per second."""
        return f"rate({self.select(metric.name + suffix, metric.match)}[{self.window}])"

    def slope(self, metric: Metric) -> str:
        """Growth of a gauge per second, fitted over the window."""
        return f"deriv({self.select(metric.name, metric.match)}[{self.window}])"

    def gauge(self, metric: Metric) -> str:
        """A gauge as it is."""
        return self.select(metric.name, metric.match)

    def role(self, engine: Engine, role: str, of: Callable[[Metric], str]) -> str:
        """A role of an engine by pod, newest name first; empty when the engine has no such role."""
        return either(self.by_pod(engine, of(metric)) for metric in engine.names(role))

    def by_workload(self, expression: str, *labels: str) -> str:
        """Sum over the pods of a workload, told by the pods' names.

        Percentiles of 25,000 pods would be half a million buckets a tick; by workload Prometheus
        answers one number a service. Two workloads whose pods' names cannot be told apart are
        found by the caller, who knows the owners.
        """
        pod = self.scrape.pod_label
        named = f'label_replace({expression},"workload","$1","{pod}","(.+)")'
        named = f'label_replace({named},"workload","$1","{pod}","{WORKLOAD_PATTERN}")'
        by = ",".join((self.scrape.namespace_label, "workload", *labels))
        return f"sum by ({by}) ({named})"

    def histogram_rate(self, metric: Metric, suffix: str, *labels: str) -> str:
        """Growth of one part of a histogram by pod."""
        selected = self.select(metric.name + suffix, metric.match)
        rate = self.once(f"rate({selected}[{self.latency_window}])")
        return f"sum by ({','.join((self.pod, *labels))}) ({rate})"

    def quantile(self, engine: Engine, role: str, probability: float) -> str:
        """A percentile by workload, in seconds; empty when the engine has no such histogram."""
        metrics = engine.names(role)
        if not metrics:
            return ""
        parts = either(self.histogram_rate(m, "_bucket", "le") for m in metrics)
        buckets = self.by_workload(parts, "le")
        scale = f" * {metrics[0].scale:g}" if metrics[0].scale != 1.0 else ""
        return f"histogram_quantile({probability:g},{buckets}){scale}"

    def mean(self, engine: Engine, role: str) -> str:
        """The mean of a histogram by workload; a workload without observations has none."""
        metrics = engine.names(role)
        if not metrics:
            return ""
        total = self.by_workload(either(self.histogram_rate(m, "_sum") for m in metrics))
        count = self.by_workload(either(self.histogram_rate(m, "_count") for m in metrics))
        return f"{total} / ({count} > 0)"
