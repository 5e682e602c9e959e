"""A tick's answers, indexed by pod and workload."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sojourn.facts.reading import Unknown
from sojourn.observe.pods import PodKey
from sojourn.observe.prometheus import Series
from sojourn.observe.queries import SELECTION, Question
from sojourn.observe.settings import ScrapeSettings

Values = dict[PodKey, float]


@dataclass
class Evidence:
    """Everything Prometheus said at one instant.

    Attributes:
        at_s: instant of evaluation, Unix seconds.
        failed: questions without an answer, and why.
        by_role: values by pod or workload, under the question's or the answer's role.
        lower: pods of which only completions are counted.
        wrong: pods by what is wrong with their scrape: stale (no recent sample), short (samples
            are missing), begun (the series begins within the window), down, doubled; and uncounted
            (seen over the whole window, and no request was ever counted).
        custom: outcome of ``arrivalRateQuery`` by service.
        parts: evidence of series with further labels, by the selection that asked for them.
    """

    at_s: float
    failed: dict[Question, str] = field(default_factory=dict)
    by_role: dict[str, Values] = field(default_factory=dict)
    lower: set[PodKey] = field(default_factory=set)
    wrong: dict[str, set[PodKey]] = field(default_factory=dict)
    custom: dict[tuple[str, str], float | Unknown] = field(default_factory=dict)
    parts: dict[str, Evidence] = field(default_factory=dict)

    def part(self, selection: str) -> Evidence:
        """The evidence of one selection; what failed, failed for all."""
        if selection not in self.parts:
            self.parts[selection] = Evidence(self.at_s, self.failed, custom=self.custom)
        return self.parts[selection]

    def values(self, role: str) -> Mapping[PodKey, float]:
        """Values of a role; empty when nothing was answered."""
        return self.by_role.get(role, {})

    def has(self, fault: str, pod: PodKey) -> bool:
        """True when that is wrong with the pod's scrape."""
        return pod in self.wrong.get(fault, ())


def add_answer(
    evidence: Evidence, question: Question, answer: Iterable[Series], scrape: ScrapeSettings
) -> None:
    """Index one answer; O(series). A pod that appears twice counts once, with its larger value."""
    # Run 100,000 times a tick: everything that does not depend on the series is looked up before.
    namespace_label, pod_label = scrape.namespace_label, scrape.pod_label
    oldest_at_s, here = evidence.at_s - scrape.freshness_s, question.value
    every, faults = evidence, question is Question.HEALTH
    for labels, value, at_s in answer:
        evidence = every.part(labels[SELECTION]) if SELECTION in labels else every
        name = labels.get("workload") or labels.get(pod_label, "")
        key = (labels.get(namespace_label, ""), name)
        role = labels.get("role", here)
        if faults:
            evidence.wrong.setdefault(role, set()).add(key)
            continue
        values = evidence.by_role.get(role)
        if values is None:
            values = evidence.by_role[role] = {}
        known = values.get(key)
        # A NaN compares false, so it never replaces a number but a number replaces it.
        if known is None or value > known or math.isnan(known):
            values[key] = value
        if "bound" in labels:
            evidence.lower.add(key)
        if at_s < oldest_at_s:
            evidence.wrong.setdefault("stale", set()).add(key)
