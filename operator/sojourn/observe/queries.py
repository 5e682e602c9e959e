"""The questions of a tick: as many for one service as for thousands.

Every answer is grouped by pod or by workload and joined to services from the pod cache. A question
covers all engines in use; roles within one answer are told apart by the label ``role``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from sojourn.engines import Engine, Metric, find
from sojourn.observe.promql import PromQL, either, labelled, seconds
from sojourn.observe.settings import ScrapeSettings


class Question(StrEnum):
    """What is asked each tick."""

    HEALTH = "health"
    OFFERED = "offered"
    IN_FLIGHT = "in flight"
    KV_USAGE = "KV usage"
    LATENCY = "latency"
    FIRST_TOKEN = "time to first token"
    OUTPUT_TOKEN = "time per output token"
    TOKENS = "tokens"
    PREEMPTIONS = "preemptions"


SELECTION = "selection"
"""Label of the series that answer for services with a ``spec.metrics.selector``: which of them."""


@dataclass(frozen=True)
class Selected:
    """Services that ask for the same further labels, and the engines they use."""

    labels: tuple[tuple[str, str], ...]
    engine_names: frozenset[str]


def questions(
    engine_names: frozenset[str], scrape: ScrapeSettings, selected: tuple[Selected, ...] = ()
) -> dict[Question, str]:
    """Each question's expression; questions no engine can answer are left out.

    Args:
        engine_names: engines of services without further labels.
        selected: asked within the same questions, each under its position as SELECTION.
    """
    asked: dict[Question, list[str]] = {}
    for question, expression in _questions(engine_names, (), scrape):
        asked.setdefault(question, []).append(expression)
    for number, some in enumerate(selected):
        for question, expression in _questions(some.engine_names, some.labels, scrape):
            told = labelled(expression, SELECTION, str(number))
            asked.setdefault(question, []).append(told)
    return {q: e[0] if len(e) == 1 else either(e) for q, e in asked.items()}


@lru_cache(maxsize=256)
def _questions(
    names: frozenset[str], labels: tuple[tuple[str, str], ...], scrape: ScrapeSettings
) -> tuple[tuple[Question, str], ...]:
    engines = [engine for engine in map(find, sorted(names)) if engine.metrics]
    if not engines:
        return ()
    asked: dict[Question, Callable[[PromQL, list[Engine]], str]] = {
        Question.HEALTH: _health,
        Question.OFFERED: _offered,
        Question.IN_FLIGHT: _in_flight,
        Question.KV_USAGE: _kv_usage,
        Question.LATENCY: _latency,
        Question.FIRST_TOKEN: _percentile("first_token"),
        Question.OUTPUT_TOKEN: _percentile("output_token"),
        Question.TOKENS: _tokens,
        Question.PREEMPTIONS: _preemptions,
    }
    promql = PromQL(scrape, labels)
    built = ((question, build(promql, engines)) for question, build in asked.items())
    return tuple((question, expression) for question, expression in built if expression)


def _offered(promql: PromQL, engines: list[Engine]) -> str:
    """Requests offered per second by pod: arrivals where counted, else completions and growth.

    Arrivals = completions + refusals + growth of (running + waiting) is an identity of counts, so
    it holds in overload, where completions alone stand still. Where a pod has no gauges only the
    completions are left, marked ``bound="lower"``. The role ``storm`` tells the most that is
    believed of a derived rate where refusals dominate.
    """
    return either(_offered_of(promql, engine) for engine in engines)


STORM = "storm"
"""Role of the largest believable rate of a pod that refuses more than it completes."""

_BELIEVED = 3
"""Times the completions: refused requests come back, and each return is counted again."""


def _offered_of(promql: PromQL, engine: Engine) -> str:
    completed = promql.role(engine, "completed", promql.rate)
    if not completed:
        return ""
    terms = [f"({completed})", *_growth(promql, engine)]
    refused = promql.role(engine, "rejected", promql.rate)
    if refused:
        # Engines before the counter have none: zero refusals with the pod's own labels.
        terms.append(f"({refused} or 0 * ({completed}))")
    arrivals = promql.role(engine, "arrivals", promql.rate)
    derived = either((arrivals, " + ".join(terms)))
    lower = labelled(f"({completed})", "bound", "lower")
    offered = f"({derived}) or on ({promql.pod}) {lower}"
    if not refused:
        return offered
    storm = f"{_BELIEVED} * ({completed}) and on ({promql.pod}) ({refused}) > ({completed})"
    return either((offered, labelled(f"({storm})", "role", STORM)))


def _growth(promql: PromQL, engine: Engine) -> Iterable[str]:
    """Growth of the gauges; an engine whose batches are its own business has only a queue."""
    roles = ("waiting",) if engine.whole_label else ("running", "waiting")
    return (f"({promql.role(engine, role, promql.slope)})" for role in roles)


def _in_flight(promql: PromQL, engines: list[Engine]) -> str:
    roles = []
    for role in ("running", "waiting"):
        gauges = either(promql.role(engine, role, promql.gauge) for engine in engines)
        if gauges:
            roles.append(labelled(gauges, "role", role))
    return either(roles)


def _kv_usage(promql: PromQL, engines: list[Engine]) -> str:
    """Fullest KV pool of a pod, 0 to 1: the mean over ranks would hide the full one."""
    shares = []
    for metric in (m for engine in engines for m in engine.names("kv_usage")):
        share = f"max by ({promql.pod}) ({promql.gauge(metric)})"
        if metric.divide_by:
            whole = f"max by ({promql.pod}) ({promql.select(metric.divide_by)})"
            share = f"{share} / ({whole} > 0)"
        shares.append(share)
    return either(shares)


@dataclass(frozen=True)
class _Beats:
    """Series that every scrape of an engine brings, as expressions over all of them."""

    promql: PromQL
    metrics: tuple[Metric, ...]

    def each(self, function: str, selected: str = "") -> str:
        """A function of every series, or of what is selected of it."""
        return either(f"{function}({self.promql.gauge(m)}{selected})" for m in self.metrics)

    @property
    def seen(self) -> str:
        """The last sample, of up to five minutes ago: it may be from before the window."""
        return either(self.promql.gauge(m) for m in self.metrics)

    @property
    def counts(self) -> str:
        """Samples in the window; no series where there are none."""
        return self.each("count_over_time", f"[{self.promql.window}]")

    @property
    def heads(self) -> str:
        """Series with a sample where the window begins.

        Without one a rate covers only what came after it: Prometheus extrapolates over a gap of
        1.1 intervals, not over more.
        """
        scrape = self.promql.scrape
        head_s = 1.1 * scrape.scrape_interval_s
        since = seconds(scrape.rate_window_s - head_s)
        return self.each("last_over_time", f"[{seconds(head_s)}] offset {since}")


def _health(promql: PromQL, engines: list[Engine]) -> str:
    """Only what is wrong with a pod's scrape; a healthy fleet answers nothing."""
    scrape, pod = promql.scrape, promql.pod
    beats = _Beats(promql, tuple(metric for engine in engines for metric in _heartbeat(engine)))
    by_pod = f"max by ({pod}) ({beats.counts})"
    # One lost scrape is usual; two of four leave a rate of two samples.
    enough = max(2, int(scrape.rate_window_s / scrape.scrape_interval_s) - 1)
    old = f"min by ({pod}) (time() - ({beats.each('timestamp')})) > {scrape.freshness_s:g}"
    empty = f"max by ({pod}) ({beats.seen}) unless {by_pod}"
    # A label of the engine's own is not on ``up``, which tells of the pod's scrape whatever it is.
    up = promql.once(PromQL(scrape).select("up"))
    copies = f"count by ({pod},instance) ({promql.once(promql.select('up'))}) > 1"
    wrong = {
        "stale": either((old, empty)),
        "short": f"{by_pod} < {enough}",
        "begun": f"max by ({pod}) (({beats.counts}) unless ({beats.heads}))",
        "down": f"max by ({pod}) ({up}) == 0",
        "doubled": f"max by ({pod}) ({copies}) and on ({pod}) ({beats.counts})",
    }
    completed = either(promql.role(engine, "completed", promql.gauge) for engine in engines)
    if completed:
        whole = f"{by_pod} >= {enough} and max by ({pod}) ({beats.heads})"
        wrong["uncounted"] = f"({whole}) unless on ({pod}) ({completed})"
    return either(labelled(expression, "role", role) for role, expression in wrong.items())


def _heartbeat(engine: Engine) -> tuple[Metric, ...]:
    for role in ("running", "waiting", "completed"):
        if role == "running" and engine.whole_label:
            continue
        if engine.names(role):
            return engine.names(role)
    return ()


def _latency(promql: PromQL, engines: list[Engine]) -> str:
    roles = []
    for role, probability in (("p50", 0.5), ("p99", 0.99)):
        found = either(promql.quantile(engine, "latency", probability) for engine in engines)
        if found:
            roles.append(labelled(found, "role", role))
    return either(roles)


def _percentile(role: str) -> Callable[[PromQL, list[Engine]], str]:
    def build(promql: PromQL, engines: list[Engine]) -> str:
        return either(promql.quantile(engine, role, 0.99) for engine in engines)

    return build


def _tokens(promql: PromQL, engines: list[Engine]) -> str:
    roles = []
    for role in ("prompt_tokens", "output_tokens"):
        found = either(promql.mean(engine, role) for engine in engines)
        if found:
            roles.append(labelled(found, "role", role))
    return either(roles)


def _preemptions(promql: PromQL, engines: list[Engine]) -> str:
    by_pod = either(promql.role(engine, "preemptions", promql.rate) for engine in engines)
    return promql.by_workload(by_pod) if by_pod else ""
