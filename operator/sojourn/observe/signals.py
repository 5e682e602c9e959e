"""From a tick's evidence to the signals of one service, each a value, a true zero or unknown.

Missing evidence is never read as little load: a pod that was not seen makes a sum a lower bound,
and too many of them make it unknown.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property

from sojourn.engines import Engine
from sojourn.facts.reading import Known, Reading, Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import Signals
from sojourn.observe.evidence import Evidence
from sojourn.observe.pods import Pod, PodKey, Pods
from sojourn.observe.queries import STORM, Question
from sojourn.observe.settings import ScrapeSettings

_SHOWN_PODS = 3
_LOWEST = -sys.float_info.max
"""Below no finite number."""


@dataclass(frozen=True)
class View:
    """One service's part of the evidence."""

    engine: Engine
    pods: Pods
    evidence: Evidence
    scrape: ScrapeSettings

    @cached_property
    def serving(self) -> tuple[tuple[Pod, PodKey], ...]:
        """Pods that serve, with their keys."""
        return tuple((pod, pod.key) for pod in self.pods.serving)

    @cached_property
    def keys(self) -> tuple[PodKey, ...]:
        """Keys of the pods that serve."""
        return tuple(key for _, key in self.serving)

    @cached_property
    def young(self) -> frozenset[PodKey]:
        """Pods whose series cannot fill the window yet."""
        wrong = self.evidence.wrong
        # Looked up one by one: the sets are the whole fleet's, and this is one service.
        short, begun = wrong.get("short", ()), wrong.get("begun", ())
        old_at_s = self.evidence.at_s - self.scrape.warm_up_s
        return frozenset(
            key
            for pod, key in self.serving
            if (pod.ready_at_s or 0.0) > old_at_s or key in short or key in begun
        )

    @cached_property
    def returning(self) -> tuple[tuple[Pod, float], ...]:
        """Serving pods that refuse more than they complete, and the rate not believed of each."""
        caps, offered = self.evidence.values(STORM), self.evidence.values(Question.OFFERED.value)
        if not caps:
            return ()
        cut = ((pod, offered.get(key, 0.0) - caps[key]) for pod, key in self.serving if key in caps)
        return tuple((pod, above) for pod, above in cut if 0 < above < math.inf)


def engine_signals(view: View) -> Signals:
    """Every signal of a service from its own pods' metrics."""
    running = _summed(view, "running", Question.IN_FLIGHT)
    waiting = _summed(view, "waiting", Question.IN_FLIGHT)
    p99 = _by_workload(view, "p99", Question.LATENCY, "latency")
    return Signals(
        rate_per_s=_still_in_flight(_offered(view), running, waiting),
        running=running,
        waiting=waiting,
        kv_usage=_kv_usage(view),
        latency_p50_s=_by_workload(view, "p50", Question.LATENCY, "latency"),
        latency_p99_s=p99,
        first_token_p99_s=_by_workload(
            view, Question.FIRST_TOKEN.value, Question.FIRST_TOKEN, "first_token"
        ),
        output_token_p99_s=_by_workload(
            view, Question.OUTPUT_TOKEN.value, Question.OUTPUT_TOKEN, "output_token"
        ),
        prompt_tokens=_by_workload(view, "prompt_tokens", Question.TOKENS),
        output_tokens=_by_workload(view, "output_tokens", Question.TOKENS),
        preemptions_per_s=_by_workload(view, Question.PREEMPTIONS.value, Question.PREEMPTIONS),
        latency_p99_bucket_s=_bucket(view.engine.bounds_s.get("latency", ()), p99),
        retry_storm=_retry_storm(view),
    )


def unavailable(why: str) -> Signals:
    """All signals unknown because Prometheus gave no usable answer."""
    return all_unknown(Unknown(Reason.PROMETHEUS_UNAVAILABLE, why))


def all_unknown(unknown: Unknown) -> Signals:
    """Every signal unknown for one reason."""
    apart = ("latency_p99_bucket_s", "retry_storm")
    readings = {f.name: unknown for f in fields(Signals) if f.name not in apart}
    return replace(Signals(), **readings)  # type: ignore[arg-type]


def _offered(view: View) -> Reading:
    if not view.engine.names("completed"):
        return Unknown(
            Reason.NO_SERIES,
            f"{view.engine.title} counts no requests: give spec.metrics.arrivalRateQuery",
        )
    reading = _summed(view, Question.OFFERED.value, Question.OFFERED)
    if not isinstance(reading, Known):
        return reading
    total = reading.value + _taken_by_leaving_per_s(view)
    incomplete = reading.lower_bound or any(key in view.evidence.lower for _, key in view.serving)
    # What was cut off may be new demand as well as old requests that return.
    cut = sum(cut for _, cut in view.returning)
    # Noise of a fitted slope can take an idle service a hair below zero.
    return Known(max(total - cut, 0.0), reading.at_s, lower_bound=incomplete or cut > 0)


def _taken_by_leaving_per_s(view: View) -> float:
    """What pods on their way out received within the window: demand of the window too."""
    offered = view.evidence.values(Question.OFFERED.value)
    leaving = [pod.name for pod in view.pods.live if not pod.serves]
    gone = ((view.pods.namespace, name) for name in (*view.pods.departed, *leaving))
    counted = (offered.get(key, 0.0) for key in gone if not view.evidence.has("stale", key))
    return sum(value for value in counted if math.isfinite(value))


def _retry_storm(view: View) -> str:
    """What is said of pods whose counted rate is not believed."""
    storm = view.returning
    if not storm:
        return ""
    cut = sum(cut for _, cut in storm)
    return (
        f"{_named([pod for pod, _ in storm])} refuse more requests than they complete: {cut:.1f}/s "
        "are taken for retries, and the rate for 3 x completions"
    )


def _still_in_flight(rate: Reading, running: Reading, waiting: Reading) -> Reading:
    """No arrivals while requests are being served is a lull at best: not a reason to shrink."""
    if not isinstance(rate, Known) or rate.value > 0:
        return rate
    in_flight = [r.value for r in (running, waiting) if isinstance(r, Known)]
    return Known(rate.value, rate.at_s, lower_bound=rate.lower_bound or sum(in_flight) > 0)


def _kv_usage(view: View) -> Reading:
    reading = _summed(view, Question.KV_USAGE.value, Question.KV_USAGE)
    if not isinstance(reading, Known):
        return reading
    usage = view.evidence.values(Question.KV_USAGE.value)
    seen = [usage[key] for _, key in view.serving if _usable(usage.get(key))]
    return Known(max(seen, default=0.0), reading.at_s, lower_bound=reading.lower_bound)


def _summed(view: View, role: str, question: Question) -> Reading:
    """Sum over the serving pods, if enough of them were seen."""
    unusable = _no_sum(view, question)
    if unusable is not None:
        return unusable
    floor = _LOWEST if question is Question.OFFERED else 0.0
    values = _values(view, role)
    whole = _whole_sum(view, values, floor)
    if whole is not None:
        return Known(whole, view.evidence.at_s, lower_bound=bool(view.young))
    return _sum_of_seen(view, role, values, floor)


def _no_sum(view: View, question: Question) -> Unknown | None:
    """Why no sum over the serving pods would be right, whatever was seen of them."""
    evidence, serving = view.evidence, view.serving
    for asked in (Question.HEALTH, question):
        if asked in evidence.failed:
            return Unknown(Reason.PROMETHEUS_UNAVAILABLE, evidence.failed[asked])
    if not serving:
        return Unknown(Reason.NO_SERIES, "no pod serves: only a gateway could see requests")
    copied = evidence.wrong.get("doubled", ())
    doubled = [pod for pod, key in serving if key in copied] if copied else ()
    if not doubled:
        return None
    return Unknown(
        Reason.DUPLICATE_SERIES,
        f"each series of {_named(doubled)} is there twice: name the label in which the copies "
        "differ in the operator's replica labels",
    )


def _whole_sum(view: View, values: Mapping[PodKey, float], floor: float) -> float | None:
    """The sum where nothing is wrong with any pod, as is the rule: one look tells; else None."""
    found = [values[key] for key in view.keys if key in values]
    total = sum(found)
    if len(found) < len(view.keys) or not math.isfinite(total) or min(found) < floor:
        return None
    stale = view.evidence.wrong.get("stale")
    return total if not stale or stale.isdisjoint(view.keys) else None


def _sum_of_seen(view: View, role: str, values: Mapping[PodKey, float], floor: float) -> Reading:
    """The sum of the pods with a fresh value from ``floor`` up; unknown when too few have one."""
    stale = view.evidence.wrong.get("stale", ())
    total, missing = 0.0, []
    for pod, key in view.serving:
        value = values.get(key, math.nan)
        if key in stale or not floor <= value < math.inf:
            missing.append((pod, key))
        else:
            total += value
    late = [pod for pod, key in missing if key not in view.young]
    seen = len(view.serving) - len(missing)
    if not seen or seen < view.scrape.min_coverage * (seen + len(late)):
        return _unseen(view, role, late, [pod for pod, _ in missing])
    return Known(total, view.evidence.at_s, lower_bound=bool(view.young or missing))


def _values(view: View, role: str) -> Mapping[PodKey, float]:
    """Values of a role; zero for a counter that a lazy engine has not created yet.

    One whose requests have left other traces was created, and dropped on its way here.
    """
    values = view.evidence.values(role)
    if not view.engine.lazy or role != Question.OFFERED.value or _served_before(view):
        return values
    counted = {key: values[key] for _, key in view.serving if key in values}
    return {**dict.fromkeys(_idle(view), 0.0), **counted}


def _idle(view: View) -> Iterator[PodKey]:
    """Pods seen over a whole window without a counter, that hold no request."""
    uncounted = view.evidence.wrong.get("uncounted", ())
    for key in view.keys if uncounted else ():
        if key not in uncounted:
            continue
        gauges = [view.evidence.values(role).get(key) for role in ("running", "waiting")]
        seen = [gauge for gauge in gauges if gauge is not None]
        if seen and not any(seen):
            yield key


def _served_before(view: View) -> bool:
    """Whether a histogram that grows with requests is there: a NaN of it counts too."""
    keys = [(view.pods.namespace, workload) for workload in view.pods.workloads]
    roles = ("p99", "prompt_tokens", "output_tokens")
    return any(key in view.evidence.values(role) for role in roles for key in keys)


def _unseen(view: View, role: str, late: list[Pod], missing: list[Pod]) -> Unknown:
    """Why a sum is unknown, from the commonest fault of the pods that are not seen."""
    serving = len(view.serving)
    if not late:
        return Unknown(
            Reason.WINDOW_NOT_FULL,
            f"{_named(missing)} became ready less than {view.scrape.warm_up_s:g} s ago",
        )
    faults = Counter(_fault(view, role, pod) for pod in late)
    reason, text = faults.most_common(1)[0][0]
    why = f"{text}: {_named(late)}"
    if len(missing) < serving:
        share = f"{serving - len(missing)} of {serving} pods were seen"
        return Unknown(
            Reason.LOW_COVERAGE, f"{share}, {view.scrape.min_coverage:.0%} needed; {why}"
        )
    return Unknown(reason, why)


def _fault(view: View, role: str, pod: Pod) -> tuple[Reason, str]:
    evidence = view.evidence
    if evidence.has("down", pod.key):
        return Reason.NO_SERIES, "Prometheus cannot scrape"
    if evidence.has("stale", pod.key):
        limit = f"{min(view.scrape.freshness_s, view.scrape.rate_window_s):g} s"
        return Reason.STALE_SERIES, f"no sample within {limit}"
    if pod.key in evidence.values(role):
        return Reason.NOT_A_NUMBER, "the value is no finite, non-negative number"
    if evidence.values("running").get(pod.key):
        return Reason.NO_SERIES, "requests are running but none is counted"
    return Reason.NO_SERIES, f"Prometheus has no {view.engine.title} series"


def _by_workload(view: View, role: str, question: Question, bounds: str = "") -> Reading:
    """A percentile, mean or sum that Prometheus already joined by workload."""
    if question in view.evidence.failed:
        return Unknown(Reason.PROMETHEUS_UNAVAILABLE, view.evidence.failed[question])
    pods = view.pods
    if pods.ambiguous:
        shared = min(pods.ambiguous)
        why = f"pods named {shared}-... belong to several workloads"
        return Unknown(Reason.DUPLICATE_SERIES, why)
    values = view.evidence.values(role)
    found = [values[key] for name in pods.workloads if (key := (pods.namespace, name)) in values]
    if not found:
        return Unknown(Reason.NO_SERIES, f"no series for {question.value}")
    finite = [value for value in found if _usable(value)]
    if not finite:
        return Unknown(Reason.NOT_A_NUMBER, "no request finished in the window")
    # Pods whose names do not tell their workload answer one by one: the worst of them counts.
    value = max(finite)
    at_bound = value in view.engine.bounds_s.get(bounds, ())
    return Known(value, view.evidence.at_s, lower_bound=at_bound)


def _bucket(bounds_s: tuple[float, ...], reading: Reading) -> tuple[float, float] | None:
    """The bucket a percentile was interpolated in; its value is exact only to these bounds."""
    if not bounds_s or not isinstance(reading, Known):
        return None
    if reading.lower_bound:
        return reading.value, math.inf
    above = next((bound for bound in bounds_s if bound >= reading.value), math.inf)
    below = max((bound for bound in bounds_s if bound < reading.value), default=0.0)
    return below, above


def _usable(value: float | None) -> bool:
    return value is not None and 0 <= value < math.inf


def _named(pods: Iterable[Pod]) -> str:
    names = [pod.name for pod in pods]
    more = f" and {len(names) - _SHOWN_PODS} more" if len(names) > _SHOWN_PODS else ""
    return ", ".join(names[:_SHOWN_PODS]) + more
