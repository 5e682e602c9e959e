"""A Plan as the status people read: stable, under 8 kB, by the conventions of Kubernetes.

Fields without a value are left out, so that server-side apply removes them. What of a new status
is worth a write is said in ``changes``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from sojourn.api.v1alpha1.status import MOST_CHANGES, MOST_EFFECTIVE, MOST_FINDINGS
from sojourn.facts.finding import Finding
from sojourn.facts.memory import MemoryAnswer
from sojourn.facts.plan import Condition, Decision, Limits, Plan, Report, Setting
from sojourn.facts.reading import Known, Reading, Unknown
from sojourn.facts.service import Effective
from sojourn.facts.sojourn import Latency, Sojourn
from sojourn.units import GIB, format_duration, format_quantity

MOST_BYTES = 8000
"""Of the status as JSON; etcd, watches and ``kubectl get -o yaml`` all carry it."""

_TEXT_LIMITS = (1024, 512, 256, 128, 64, 24)
_SHORT = 64
_LARGEST = 1e15
"""Beyond it a number is a fault of its source, and no integer of the schema."""
_SOURCE = "Prometheus"


def status(plan: Plan, previous: Mapping[str, Any] | None, now: str) -> dict[str, Any]:
    """The status of one InferenceService after one decision.

    Texts are cut to 1 kB, and further only where the whole would exceed 8 kB.

    Args:
        previous: the status before, for history and transition times; None if there is none.
        now: RFC 3339 time of this decision, such as ``2026-01-31T08:00:00Z``.
    """
    rendered = _rendered(plan, previous or {}, now, _TEXT_LIMITS[0])
    for limit in _TEXT_LIMITS[1:]:
        if _size(rendered) < MOST_BYTES:
            break
        rendered = _rendered(plan, previous or {}, now, limit)
    return rendered


def _size(rendered: Mapping[str, Any]) -> int:
    return len(json.dumps(rendered, ensure_ascii=False).encode())


def _rendered(plan: Plan, previous: Mapping[str, Any], now: str, limit: int) -> dict[str, Any]:
    decision, report, service = plan.decision, plan.report, plan.service
    clips = [str(clip.reason) for clip in decision.limited_by]
    return _present(
        observedGeneration=plan.ref.generation,
        replicas=_present(
            current=decision.before.replicas,
            ready=plan.ready_replicas,
            desired=decision.after.replicas,
        ),
        maxBatch=_max_batch(plan),
        rate=_rate(report.rate_per_s, limit),
        utilizationPercent=_percent(_utilisation(report)),
        regime=report.regime,
        latency=_latency(report),
        littlesLaw=_littles_law(plan),
        memory=_memory(service.memory) if service else None,
        limits=_limits(report.limits),
        limitedBy=(clips[0] if clips else report.limits.binding),
        lastDecision=_change(decision, now, limit)
        | _present(raw=_setting(decision.raw), limitedBy=clips),
        history=_history(plan, previous, now, limit),
        effective=_effective(service.effective if service else ()),
        findings=[_finding(finding, limit) for finding in plan.findings[:MOST_FINDINGS]],
        conditions=_conditions(plan, previous, now, limit),
    )


def _present(**fields: Any) -> dict[str, Any]:
    """The fields that have a value; 0 and False are values, an empty list or object is not."""
    return {
        name: value
        for name, value in fields.items()
        if value is not None and value not in ([], {}, "")
    }


def _cut(text: str, limit: int) -> str:
    """At most ``limit`` bytes of UTF-8, the last of them an ellipsis where something is missing."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit:
        return encoded.decode()
    return encoded[: limit - 3].decode("utf-8", "ignore") + "…"


def _time(at_s: float) -> str | None:
    try:
        return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return None


def _max_batch(plan: Plan) -> dict[str, Any] | None:
    before, after = plan.decision.before.max_batch, plan.decision.after.max_batch
    if before is None and after is None:
        return None
    changing = plan.write_max_batch or plan.rollout_running
    return _present(current=before, desired=after, changing=changing)


def _rate(rate: Reading, limit: int) -> dict[str, Any]:
    if isinstance(rate, Unknown):
        return _present(
            state=rate.state, reason=str(rate.reason), message=_cut(rate.why, min(limit, 256))
        )
    return _present(
        state=rate.state,
        value=_quantity(rate.value),
        source=_SOURCE,
        at=_time(rate.at_s),
    )


def _utilisation(report: Report) -> float | None:
    if report.utilisation is not None:
        return report.utilisation
    return report.predicted.utilisation if report.predicted else None


def _percent(fraction: float | None) -> int | None:
    return None if fraction is None else _count(100 * fraction)


def _latency(report: Report) -> dict[str, Any]:
    measured = _present(
        p50=_measured_duration(report.latency_p50_s), p99=_measured_duration(report.latency_p99_s)
    )
    return _present(
        predicted=_predicted(report.predicted) if report.predicted else None, measured=measured
    )


def _predicted(answer: Sojourn) -> dict[str, Any]:
    return _present(
        p50=_quantile(answer.latency, 0.50),
        p99=_quantile(answer.latency, 0.99),
        waiting=_duration(answer.queue_wait_s),
        batching=_duration(answer.batch_wait_s),
        service=_duration(answer.service_s),
    )


def _quantile(latency: Latency, probability: float) -> str | None:
    try:
        return _duration(latency.quantile_s(probability))
    except KeyError:
        return None


def _measured_duration(reading: Reading) -> str | None:
    return _duration(reading.value) if isinstance(reading, Known) else None


def _duration(seconds: float) -> str | None:
    return None if math.isnan(seconds) else format_duration(seconds)


def _littles_law(plan: Plan) -> dict[str, Any]:
    report, replicas = plan.report, plan.decision.before.replicas
    predicted = None
    if report.predicted and replicas:
        predicted = _quantity(round(report.predicted.in_system * replicas, 1))
    measured = None
    if isinstance(report.in_system, Known):
        measured = _quantity(round(report.in_system.value, 1))
    if predicted is None and measured is None:
        return {}
    return _present(
        predictedInSystem=predicted,
        measuredInSystem=measured,
        agrees=report.littles_law_agrees,
    )


def _memory(answer: MemoryAnswer) -> dict[str, Any]:
    return _present(
        verdict=str(answer.fit),
        weightsPerGPU=_gib(answer.weights_bytes),
        kvPerGPU=_gib(answer.kv_pool_bytes),
        kvBytesPerToken=_count(answer.kv_bytes_per_token),
        kvTokens=_count(answer.kv_tokens),
        maxConcurrent=_count(answer.max_concurrent),
    )


def _gib(size_bytes: float) -> str | None:
    return f"{size_bytes / GIB:.1f}Gi" if abs(size_bytes) < _LARGEST else None


def _count(number: float) -> int | None:
    return max(0, round(number)) if abs(number) < _LARGEST else None


def _limits(limits: Limits) -> dict[str, Any]:
    return _present(
        minBatch=limits.min_batch,
        maxBatchForSLO=limits.max_batch_for_slo,
        maxBatchForMemory=limits.max_batch_for_memory,
        ratePerReplica=_quantity(limits.rate_per_replica),
        maxStableRate=_quantity(limits.max_stable_rate),
        binding=limits.binding,
    )


def _quantity(value: float | None) -> str | None:
    return None if value is None or not abs(value) < _LARGEST else format_quantity(value)


def _setting(setting: Setting) -> dict[str, Any]:
    return _present(replicas=setting.replicas, maxBatch=setting.max_batch)


def _change(decision: Decision, now: str, limit: int) -> dict[str, Any]:
    """What a decision and a change of the history have in common; ``from`` and ``to`` always."""
    return {
        "at": _time(decision.at_s) or now,
        "row": str(decision.row),
        "from": _setting(decision.before),
        "to": _setting(decision.after),
        "message": _cut(decision.message, limit),
    }


def _history(plan: Plan, previous: Mapping[str, Any], now: str, limit: int) -> list[dict[str, Any]]:
    """The latest changes, newest first: carried over, with this decision's when it writes one."""
    carried = [dict(one) for one in objects_in(previous.get("history"))]
    for one in carried:
        one["message"] = _cut(str(one.get("message", "")), min(limit, 256))
    if plan.write_replicas or plan.write_max_batch:
        change = _change(plan.decision, now, min(limit, 256))
        if not (carried and _same_change(carried[0], change)):
            carried = [change, *carried]
    return carried[:MOST_CHANGES]


def _same_change(known: Mapping[str, Any], change: Mapping[str, Any]) -> bool:
    """A write that failed is decided again; that is one change, not many."""
    return all(known.get(name) == change[name] for name in ("row", "from", "to"))


def _effective(inputs: Iterable[Effective]) -> dict[str, Any]:
    return {
        _cut(one.name, _SHORT): {"value": _cut(one.value, _SHORT), "source": str(one.source)}
        for one in tuple(inputs)[:MOST_EFFECTIVE]
    }


def _finding(finding: Finding, limit: int) -> dict[str, Any]:
    return _present(
        reason=str(finding.reason),
        verdict=str(finding.verdict),
        field=_cut(finding.field, 128),
        message=_cut(finding.message, limit),
    )


def _conditions(
    plan: Plan, previous: Mapping[str, Any], now: str, limit: int
) -> list[dict[str, Any]]:
    before = {one.get("type"): one for one in objects_in(previous.get("conditions"))}
    return [
        condition_entry(condition, before.get(condition.type, {}), plan.ref.generation, now, limit)
        for condition in plan.conditions
    ]


def condition_entry(
    condition: Condition, before: Mapping[str, Any], generation: int, now: str, limit: int
) -> dict[str, Any]:
    """One condition as Kubernetes has it; its transition time is kept while its status is.

    Args:
        before: the condition of that type in the previous status; empty if there is none.
        limit: most bytes of the message.
    """
    held = "Unknown" if condition.status is None else str(condition.status)
    since = before.get("lastTransitionTime") if before.get("status") == held else None
    return {
        "type": condition.type,
        "status": held,
        "reason": str(condition.reason),
        "message": _cut(condition.message, limit),
        "observedGeneration": generation,
        "lastTransitionTime": since or now,
    }


def objects_in(value: object) -> list[Mapping[str, Any]]:
    """The objects of a list, and nothing where a previous status holds something else."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
