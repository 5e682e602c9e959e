"""Gather once for all services: a handful of queries, then a join in memory.

The health question goes first. When it gets no answer nothing else is asked in that tick, so an
outage costs one request a tick and the loop is never late for it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sojourn import engines
from sojourn.engines import Engine
from sojourn.errors import MetricsUnavailable
from sojourn.facts.declaration import Declaration
from sojourn.facts.reading import Known, Reading, Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import Observation, Signals, TargetState
from sojourn.observe import custom
from sojourn.observe.cluster import ClusterState
from sojourn.observe.evidence import Evidence, add_answer
from sojourn.observe.pods import Pods
from sojourn.observe.prometheus import PrometheusSource, QueryRefused, Series
from sojourn.observe.queries import Question, Selected, questions
from sojourn.observe.scale_reader import ScaleReader
from sojourn.observe.settings import ScrapeSettings
from sojourn.observe.signals import View, all_unknown, engine_signals, unavailable

Key = tuple[str, str]

log = logging.getLogger(__name__)

# Beyond this the ages of samples mean nothing.
_LARGEST_SKEW_S = 30.0
# So many services or series are worked on before others get their turn on the loop.
_CHUNK = 250
# Different selectors asked for in a tick: each repeats the questions within the same queries.
_MOST_SELECTORS = 50
_SERIES_CHUNK = 5000


class Gatherer:
    """Brings one Observation a service and tick."""

    def __init__(
        self,
        cluster: ClusterState,
        source: PrometheusSource,
        scrape: ScrapeSettings,
        scales: ScaleReader | None = None,
    ) -> None:
        self._cluster = cluster
        self._source = source
        self._scrape = scrape
        self._scales = scales
        self._templates = custom.Templates()
        self._sparse = False
        self._outage = ""
        self._selections: dict[tuple[tuple[str, str], ...], int] = {}

    async def gather(
        self,
        declarations: Sequence[Declaration],
        sharing: Mapping[Key, tuple[str, ...]],
        now_s: float,
    ) -> dict[Key, Observation]:
        """Observations by ``(namespace, name)``; never raises for a service or for an outage.

        ``sharing`` names the other services on a service's target; ``now_s`` is Unix seconds.
        """
        evidence, _ = await asyncio.gather(
            self._evidence(declarations, now_s), self._refresh(declarations)
        )
        self._tell_of_outage(evidence if isinstance(evidence, str) else "")
        observed: dict[Key, Observation] = {}
        for number, declaration in enumerate(declarations):
            key = declaration.ref.key
            observed[key] = self._observe(declaration, sharing.get(key, ()), evidence)
            if number % _CHUNK == _CHUNK - 1:
                await asyncio.sleep(0)
        return observed

    def _observe(
        self, declaration: Declaration, sharing: tuple[str, ...], evidence: Evidence | str
    ) -> Observation:
        target, pods = self._target(declaration, sharing)
        if isinstance(evidence, str):
            signals = unavailable(evidence)
        elif (part := self._part(declaration, evidence)) is None:
            why = f"more than {_MOST_SELECTORS} different spec.metrics.selector are in use"
            signals = all_unknown(Unknown(Reason.NO_SERIES, f"{why}: this one is not asked for"))
        else:
            signals = self._signals(declaration, target, pods, part)
        return Observation(
            signals,
            target,
            self._cluster.quota_replicas(declaration),
            self._cluster.gpu_room(declaration, pods),
        )

    def _part(self, declaration: Declaration, evidence: Evidence) -> Evidence | None:
        """The evidence of a service's own series; None when they were not asked for."""
        labels = declaration.metrics.selector
        if not labels:
            return evidence
        number = self._selections.get(labels)
        return None if number is None else evidence.part(str(number))

    def _asked(self, declarations: Sequence[Declaration]) -> dict[Question, str]:
        """The tick's questions, those for further labels within them."""
        engines_of: dict[tuple[tuple[str, str], ...], set[str]] = defaultdict(set)
        for declaration in declarations:
            name = _engine(declaration.engine.name).name
            engines_of[declaration.metrics.selector].add(name)
        plain = frozenset(engines_of.pop((), ()))
        first = sorted(engines_of)[:_MOST_SELECTORS]
        self._selections = {labels: number for number, labels in enumerate(first)}
        selected = (Selected(labels, frozenset(engines_of[labels])) for labels in first)
        return questions(plain, self._scrape, tuple(selected))

    def _target(
        self, declaration: Declaration, sharing: tuple[str, ...]
    ) -> tuple[TargetState | Unknown, Pods]:
        if self._scales is not None and self._scales.reads(declaration.target.kind):
            scale = self._scales.scale(declaration)
            if isinstance(scale, Unknown):
                return scale, Pods(declaration.ref.namespace)
            pods = self._cluster.selected_pods(declaration.ref.namespace, scale.labels)
            return scale.state(pods, sharing), pods
        state = self._cluster.target_state(declaration, sharing)
        return state, self._cluster.pods_of(declaration)

    def _signals(
        self,
        declaration: Declaration,
        target: TargetState | Unknown,
        pods: Pods,
        evidence: Evidence,
    ) -> Signals:
        if isinstance(target, Unknown):
            return all_unknown(target)
        engine = _engine(declaration.engine.name)
        signals = engine_signals(View(engine, pods, evidence, self._scrape))
        if declaration.metrics.arrival_rate_query and self._scrape.custom_queries:
            rate = _custom_rate(evidence, declaration.ref.key, signals.rate_per_s)
            counted_apart = isinstance(rate, Known) and not rate.lower_bound
            storm = "" if counted_apart else signals.retry_storm
            return replace(signals, rate_per_s=rate, retry_storm=storm)
        return signals

    async def _refresh(self, declarations: Sequence[Declaration]) -> None:
        if self._scales is not None:
            await self._scales.refresh(declarations)

    async def _evidence(self, declarations: Sequence[Declaration], now_s: float) -> Evidence | str:
        """The tick's evidence, or why there is none at all."""
        evidence = Evidence(now_s)
        asked = self._asked(declarations)
        if Question.HEALTH in asked:
            # Alone and first: it tells whether Prometheus answers at all, and what arrives after it
            # can only make the others fuller than it says.
            await self._ask(evidence, Question.HEALTH, asked.pop(Question.HEALTH))
            if Question.HEALTH in evidence.failed:
                return evidence.failed[Question.HEALTH]
        skew_s = self._source.clock_skew_s
        if abs(skew_s) > _LARGEST_SKEW_S:
            return f"Prometheus' clock differs from ours by {skew_s:.0f} s"
        rest = [self._ask(evidence, question, text) for question, text in asked.items()]
        await asyncio.gather(*rest, self._ask_custom(evidence, declarations))
        self._warn_of_sparse_series(evidence)
        return evidence

    def _tell_of_outage(self, why: str) -> None:
        """Log that metrics went and came back, once each, not in every tick between."""
        if why and not self._outage:
            log.warning("no metrics, so nothing is scaled down until they are back: %s", why)
        elif self._outage and not why:
            log.warning("metrics are back")
        self._outage = why

    def _warn_of_sparse_series(self, evidence: Evidence) -> None:
        """Say once that most series are too sparse: then no window is ever full, and nobody knows.

        One restarted pod is no reason; a scrape interval that is not Prometheus' own is.
        """
        sparse = 2 * len(evidence.wrong.get("short", ())) > len(evidence.values("running")) > 0
        if sparse and not self._sparse:
            log.warning(
                "most series hold too few samples for a window of %g s at one scrape each %g s, so "
                "nothing is scaled down: is the scrape interval in the settings Prometheus' own?",
                self._scrape.rate_window_s,
                self._scrape.scrape_interval_s,
            )
        self._sparse = sparse

    async def _ask(self, evidence: Evidence, question: Question, expression: str) -> None:
        try:
            series = await self._source.query(expression, evidence.at_s)
        except MetricsUnavailable as error:
            evidence.failed[question] = error.why
        else:
            for start in range(0, len(series), _SERIES_CHUNK):
                some = series[start : start + _SERIES_CHUNK]
                add_answer(evidence, question, some, self._scrape)
                await asyncio.sleep(0)

    async def _ask_custom(self, evidence: Evidence, declarations: Sequence[Declaration]) -> None:
        asking = {d.ref.key: d for d in declarations if d.metrics.arrival_rate_query}
        if not asking or not self._scrape.custom_queries:
            return
        this_round = custom.plan(list(asking.values()), self._templates)
        for key, why in this_round.without.items():
            evidence.custom[key] = _no_query(why)
        if this_round.alone is not None:
            key, expression = this_round.alone
            template = asking[key].metrics.arrival_rate_query or ""
            await self._try_template(evidence, template, key, expression)
        if this_round.together:
            refused = await self._ask_rates(evidence, this_round.together)
            if refused is not None:
                # Each passed alone, so one depends on its service's names: try all again.
                self._templates.passed.clear()

    async def _try_template(
        self, evidence: Evidence, template: str, key: Key, expression: str
    ) -> None:
        """Ask what was never asked by itself, and keep whether Prometheus takes it."""
        refused = await self._ask_rates(evidence, {key: expression})
        if refused is not None:
            self._templates.refused[template] = refused
        elif not _unavailable(evidence.custom[key]):
            self._templates.passed.add(template)

    async def _ask_rates(self, evidence: Evidence, expressions: Mapping[Key, str]) -> str | None:
        """Ask for the rates of several services; why the query was refused, if it was."""
        refused = None
        outcome = _no_query("the query found no series")
        series: list[Series] = []
        try:
            query = custom.batch(list(expressions.values()))
            series = await self._source.query(query, evidence.at_s)
        except QueryRefused as error:
            refused, outcome = error.why, _no_query(error.why)
        except MetricsUnavailable as error:
            outcome = Unknown(Reason.PROMETHEUS_UNAVAILABLE, error.why)
        evidence.custom.update(dict.fromkeys(expressions, outcome))
        evidence.custom.update(custom.answers(series))
        return refused


def _no_query(why: str) -> Unknown:
    return Unknown(Reason.NO_SERIES, f"arrivalRateQuery: {why}")


def _unavailable(outcome: float | Unknown) -> bool:
    return isinstance(outcome, Unknown) and outcome.reason is Reason.PROMETHEUS_UNAVAILABLE


def _engine(name: str) -> Engine:
    """The engine of that name; one nobody described has no metrics of its own."""
    try:
        return engines.find(name)
    except engines.EngineUnknown:
        return engines.find("custom")


def _custom_rate(evidence: Evidence, key: Key, derived: Reading) -> Reading:
    """The author's own rate; without it the engines' count, which sees no refused request."""
    outcome = evidence.custom.get(key, _no_query("the query was not asked"))
    if isinstance(outcome, float):
        if 0 <= outcome < math.inf:
            return Known(outcome, evidence.at_s)
        why = "arrivalRateQuery: the value is no finite, non-negative number"
        outcome = Unknown(Reason.NOT_A_NUMBER, why)
    if isinstance(derived, Known):
        return Known(derived.value, derived.at_s, lower_bound=True)
    return outcome
