"""Kopf's handlers: watch events into memory, admission requests to the reviewer.

``on.event`` only: Kopf then stores nothing on any object and adds no finalizer.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import kopf

from sojourn import api
from sojourn.act.kube import Connection
from sojourn.controller.own_metrics import OwnMetrics
from sojourn.controller.registry import Registry
from sojourn.controller.review import Review, Reviewer, review_profile
from sojourn.observe.cluster import ClusterState

log = logging.getLogger(__name__)

WATCHED = (
    ("apps", "v1", "deployments", "Deployment"),
    ("apps", "v1", "statefulsets", "StatefulSet"),
    ("apps", "v1", "replicasets", "ReplicaSet"),
    ("", "v1", "pods", "Pod"),
    ("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    ("", "v1", "resourcequotas", "ResourceQuota"),
    ("", "v1", "nodes", "Node"),
)
"""What the cluster state is made of: group, version, plural, kind."""


class EndlessBackoffs:
    """Pauses between a watch's retries, without end: a watcher that gives up never comes back."""

    def __iter__(self) -> Iterator[float]:
        pause_s = 1.0
        while True:
            yield pause_s
            pause_s = min(30.0, pause_s * 2)


@dataclass(frozen=True)
class Hub:
    """What the handlers write to and ask."""

    registry: Registry
    cluster: ClusterState
    reviewer: Reviewer
    metrics: OwnMetrics
    changed: Callable[[], None]


def register(handlers: kopf.OperatorRegistry, hub: Hub) -> None:
    """Put every handler into Kopf's registry."""
    _register_own_kinds(handlers, hub)
    for group, version, plural, kind in WATCHED:
        _register_cluster_kind(handlers, hub, (group, version, plural), kind)
    _register_admission(handlers, hub)


def _register_own_kinds(handlers: kopf.OperatorRegistry, hub: Hub) -> None:
    @kopf.on.event(
        api.GROUP, api.VERSION, api.INFERENCE_SERVICE.plural, registry=handlers, id="service"
    )
    async def _service(event: Mapping[str, Any], **_: Any) -> None:
        body = event["object"]
        if event.get("type") == "DELETED":
            hub.registry.drop(body)
        elif hub.registry.put(body, time.time()):
            hub.changed()

    @kopf.on.event(
        api.GROUP, api.VERSION, api.SERVING_PROFILE.plural, registry=handlers, id="profile"
    )
    async def _profile(event: Mapping[str, Any], **_: Any) -> None:
        if event.get("type") == "DELETED":
            hub.registry.drop_profile(event["object"])
        else:
            hub.registry.put_profile(event["object"])


def _register_cluster_kind(
    handlers: kopf.OperatorRegistry, hub: Hub, resource: tuple[str, str, str], kind: str
) -> None:
    group, version, plural = resource

    @kopf.on.event(group, version, plural, registry=handlers, id=f"watch-{plural}")
    async def _seen(event: Mapping[str, Any], **_: Any) -> None:
        hub.cluster.apply(kind, event.get("type"), event["object"])


def _register_admission(handlers: kopf.OperatorRegistry, hub: Hub) -> None:
    @kopf.on.validate(
        api.GROUP, api.VERSION, api.INFERENCE_SERVICE.plural, registry=handlers, id="validate"
    )
    async def _validate(
        *, body: kopf.Body, warnings: list[str], **request: Any
    ) -> None:
        operation, old = request.get("operation"), request.get("old")
        if operation in ("CREATE", "UPDATE"):
            previous = dict(old) if operation == "UPDATE" and old is not None else None
            _reply(hub, lambda: hub.reviewer.review(dict(body), previous), warnings)

    @kopf.on.validate(
        api.GROUP, api.VERSION, api.SERVING_PROFILE.plural, registry=handlers, id="validate-profile"
    )
    async def _validate_profile(
        *, body: kopf.Body, warnings: list[str], **request: Any
    ) -> None:
        if request.get("operation") in ("CREATE", "UPDATE"):
            _reply(hub, lambda: review_profile(dict(body), api.read_profile), warnings)


def _reply(hub: Hub, reviewed: Callable[[], Review], warnings: list[str]) -> None:
    try:
        review = reviewed()
    except Exception as exc:
        mark = secrets.token_hex(4)
        log.exception("admission failed, error %s", mark)
        hub.metrics.admissions.labels("failed").inc()
        text = f"InternalError: admission failed; see the operator's log for error {mark}"
        raise kopf.AdmissionError(text, code=500) from exc
    hub.metrics.admissions.labels(review.answer).inc()
    warnings.extend(review.warnings)
    if review.bypassed:
        log.warning("admission bypassed: %s", review.warnings[0])
    if review.denial is not None:
        # 403 makes kubectl print "(Forbidden)"; Kopf's default of 500 reads like a crash.
        raise kopf.AdmissionError(review.denial, code=403)


def register_login(
    handlers: kopf.OperatorRegistry, connection: Callable[[], Connection]
) -> None:
    """Let Kopf log in with the same credentials as our own client."""

    @kopf.on.login(registry=handlers, id="login")
    async def _login(**_: Any) -> kopf.ConnectionInfo:
        access = connection()
        return kopf.ConnectionInfo(
            server=access.server,
            ca_path=access.ca_file,
            certificate_path=access.certificate_file,
            private_key_path=access.key_file,
            scheme="Bearer" if access.token else None,
            token=access.token,
        )


def settings_of(server: kopf.WebhookServer | None) -> kopf.OperatorSettings:
    """Kopf's settings: time limits on every stream, no events, no peering, no managed webhook."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = EndlessBackoffs()
    settings.networking.enforce_retry_after = True
    settings.process.ultimate_exiting_timeout = 20
    settings.admission.server = server
    return settings
