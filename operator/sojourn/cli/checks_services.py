"""Every service: decided on by the operator, seen in Prometheus, its max batch tunable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sojourn import api
from sojourn.act.kube import object_path
from sojourn.api.resources import GROUP, INFERENCE_SERVICE, VERSION
from sojourn.cli.cluster import Cluster
from sojourn.cli.outcome import Outcome, Scope, fail, ok, skip, warn
from sojourn.errors import InvalidObject
from sojourn.facts.declaration import BatchPolicy, BatchRefMode, Declaration
from sojourn.facts.situation import TargetState
from sojourn.observe import records, target
from sojourn.observe.pods import Pods
from sojourn.observe.workloads import Workload

_REMEDIES = {
    "NoSeries": "scrape the pods: a PodMonitor or ServiceMonitor on the metrics port",
    "StaleSeries": "its scrapes have stopped: kubectl get podmonitor,servicemonitor",
    "PrometheusUnavailable": "mend prometheus.url in the operator's settings",
    "TargetMissing": "create it, or mend spec.scaleTargetRef",
    "TargetConflict": "delete the other autoscaler, or this service",
    "ServiceTimeEstimated": "measure it: sojourn profile --endpoint URL",
}
_GOOD_WHEN_FALSE = ("Conflict", "ScalingLimited")
_TOLD = ("Ready", "MetricsAvailable", "AbleToScale", "Conflict", "MemoryFits", "Stable")


async def services(cluster: Cluster, scope: Scope) -> list[Outcome]:
    """One line for each service that is well, one for each thing that is not."""
    where = f"/namespaces/{scope.namespace}" if scope.namespace else ""
    answer = await cluster.ask(f"/apis/{GROUP}/{VERSION}{where}/{INFERENCE_SERVICE.plural}")
    if answer.body is None:
        return [skip("services", f"may not be listed: {answer.why}")]
    items = answer.body.get("items") or []
    if not items:
        return [ok("services", "there are none yet")]
    outcomes: list[Outcome] = []
    for item in items:
        outcomes += await _service(cluster, item)
    return outcomes


async def _service(cluster: Cluster, body: Mapping[str, Any]) -> list[Outcome]:
    metadata = body.get("metadata") or {}
    subject = f"{metadata.get('namespace')}/{metadata.get('name')}"
    try:
        declaration = api.read(body)
    except InvalidObject as exc:
        return [
            fail(subject, f"cannot be read: {exc}", "mend the object: sojourn validate -f FILE")
        ]
    found = [*_conditions(subject, body.get("status") or {})]
    found += await _max_batch(cluster, subject, declaration)
    return found or [ok(subject, "decided on, metrics seen, max batch referenced")]


def _conditions(subject: str, status: Mapping[str, Any]) -> list[Outcome]:
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    if not conditions:
        remedy = "see the operator's line above"
        return [fail(subject, "has no status: the operator has not decided on it", remedy)]
    found: list[Outcome] = []
    for name in _TOLD:
        condition = conditions.get(name)
        if condition is None or _is_good(name, condition):
            continue
        reason = str(condition.get("reason"))
        text = f"{name}={condition.get('status')} ({reason}): {condition.get('message')}"
        remedy = _REMEDIES.get(reason, f"docs/reference/reasons.md#{reason.lower()}")
        make = warn if condition.get("status") == "Unknown" else fail
        if all(text.split(": ", 1)[-1] != other.text.split(": ", 1)[-1] for other in found):
            found.append(make(subject, text, remedy))
    return found


def _is_good(name: str, condition: Mapping[str, Any]) -> bool:
    good = "False" if name in _GOOD_WHEN_FALSE else "True"
    return bool(condition.get("status") == good)


async def _max_batch(cluster: Cluster, subject: str, declaration: Declaration) -> list[Outcome]:
    """The engine reads the variable that the operator writes."""
    engine, ref = declaration.engine, declaration.target
    fixed = declaration.scaling.batch_policy is BatchPolicy.FIXED
    if fixed or engine.max_batch_ref.mode is not BatchRefMode.ENV:
        return []
    path = object_path(ref.api_version, ref.kind, declaration.ref.namespace, ref.name)
    answer = await cluster.ask(path)
    record = records.record_of(ref.kind, answer.body) if answer.body else None
    if not isinstance(record, Workload):
        return []
    state: TargetState = target.state_of(declaration, record, Pods(declaration.ref.namespace), ())
    if state.batch_referenced:
        return []
    variable = engine.max_batch_ref.env
    text = f"no argument of {ref.kind} {ref.name} refers to $({variable}): max batch stays as it is"
    remedy = f"add --max-num-seqs=$({variable}) to its arguments, or set maxBatchPolicy: Fixed"
    return [warn(subject, text, remedy)]
