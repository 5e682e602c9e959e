"""The four writes: scale, max batch, status, event. Each is one request of its own manager."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sojourn.act.kube import APPLY, STEPS, Kube, Request, object_path
from sojourn.errors import ClusterUnavailable
from sojourn.facts.declaration import MaxBatchRef, ObjectRef, TargetRef
from sojourn.facts.plan import Event

GROUP_VERSION = "serving.sojourn.dev/v1alpha1"
STATUS_MANAGER = "sojourn"
SCALE_MANAGER = "sojourn-scale"
BATCH_MANAGER = "sojourn-batch"
EVENT_WINDOW_S = 3600.0
TEST_FAILED = "due to an error in our request"
"""All that the API server says of a test in a JSON patch that failed."""


async def write_scale(
    kube: Kube, namespace: str, target: TargetRef, before: int, replicas: int
) -> None:
    """Set the target's replicas through its scale subresource, if they are still as decided on.

    What was seen may be old: a watch may have lost its connection. Then 3 in place of 2 could take
    one of 4 away.

    Args:
        before: replicas that the decision was made on.

    Raises:
        ClusterUnavailable: the write did not succeed; status 409 when ``before`` is out of date.
    """
    path = object_path(target.api_version, target.kind, namespace, target.name) + "/scale"
    steps = (
        # The API leaves a zero out.
        {"op": "test", "path": "/spec/replicas", "value": before or None},
        {"op": "add", "path": "/spec/replicas", "value": replicas},
    )
    request = Request("PATCH", path, list(steps), STEPS, (("fieldManager", SCALE_MANAGER),))
    try:
        await kube.call(request)
    except ClusterUnavailable as exc:
        if exc.status != 422 or TEST_FAILED not in exc.why:
            raise
        why = f"not scaled: there are no longer the {before} replicas that were decided on"
        raise ClusterUnavailable(exc.what, why, 409) from exc


@dataclass(frozen=True)
class Variable:
    """The environment variable that holds max batch.

    ``reference.container`` must be the name of a container that exists in each of ``templates``
    (paths below ``spec``): applying an unknown name would create a container without an image.
    """

    target: TargetRef
    reference: MaxBatchRef
    templates: tuple[str, ...] = ("template",)


async def write_max_batch(kube: Kube, namespace: str, where: Variable, max_batch: int) -> None:
    """Set one environment variable by server-side apply; a conflict is the author's veto.

    Raises:
        ClusterUnavailable: the write did not succeed; status 409 when another manager owns it.
    """
    target, reference = where.target, where.reference
    path = object_path(target.api_version, target.kind, namespace, target.name)
    variable = {"name": reference.env, "value": str(max_batch)}
    container = {"name": reference.container, "env": [variable]}
    body = {
        "apiVersion": target.api_version,
        "kind": target.kind,
        "metadata": {"name": target.name, "namespace": namespace},
        "spec": _below(where.templates, {"spec": {"containers": [container]}}),
    }
    await kube.call(Request("PATCH", path, body, APPLY, (("fieldManager", BATCH_MANAGER),)))


def _below(paths: Iterable[str], content: Mapping[str, Any]) -> dict[str, Any]:
    """``content`` at each of the paths, fields joined by dots."""
    tree: dict[str, Any] = {}
    for path in paths:
        *above, last = path.split(".")
        branch = tree
        for field in above:
            branch = branch.setdefault(field, {})
        branch[last] = content
    return tree


async def write_status(kube: Kube, ref: ObjectRef, status: Mapping[str, Any]) -> None:
    """Apply the status of one InferenceService; its owner is ``sojourn`` alone.

    Raises:
        ClusterUnavailable: the write did not succeed; status 404 when the object is gone.
    """
    path = object_path(GROUP_VERSION, "InferenceService", ref.namespace, ref.name)
    body = {
        "apiVersion": GROUP_VERSION,
        "kind": "InferenceService",
        # The uid keeps a status from reaching a new object of the same name.
        "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid},
        "status": status,
    }
    query = (("fieldManager", STATUS_MANAGER), ("force", "true"))
    await kube.call(Request("PATCH", path + "/status", body, APPLY, query))


async def write_event(kube: Kube, ref: ObjectRef, event: Event, now_s: float, host: str) -> None:
    """Record an event about one InferenceService.

    The name is made of object, reason, text and hour, so that a repeat in the hour is refused as
    existing (409) instead of piling up.

    Raises:
        ClusterUnavailable: the write did not succeed.
    """
    seed = f"{ref.uid}/{event.reason}/{event.message}/{int(now_s // EVENT_WINDOW_S)}"
    digest = hashlib.sha256(seed.encode()).hexdigest()[:16]
    stamp = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{ref.name[:200]}.{digest}", "namespace": ref.namespace},
        "eventTime": stamp,
        "reportingController": "serving.sojourn.dev/sojourn",
        "reportingInstance": host[:128],
        "action": str(event.reason),
        "reason": str(event.reason),
        "note": event.message[:1024],
        "type": "Warning" if event.warning else "Normal",
        "regarding": {
            "apiVersion": GROUP_VERSION,
            "kind": "InferenceService",
            "namespace": ref.namespace,
            "name": ref.name,
            "uid": ref.uid,
        },
    }
    path = f"/apis/events.k8s.io/v1/namespaces/{ref.namespace}/events"
    await kube.call(Request("POST", path, body))
