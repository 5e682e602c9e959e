"""Kopf's handlers: watch events into memory.

``on.event`` only: Kopf then stores nothing on any object and adds no finalizer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import kopf

from sojourn import api
from sojourn.act.kube import Connection
from sojourn.controller.registry import Registry
from sojourn.observe.cluster import ClusterState

WATCHED = (
    ("apps", "v1", "deployments", "Deployment"),
    ("apps", "v1", "statefulsets", "StatefulSet"),
    ("apps", "v1", "replicasets", "ReplicaSet"),
    ("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet"),
    ("", "v1", "pods", "Pod"),
    ("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    ("", "v1", "resourcequotas", "ResourceQuota"),
    ("", "v1", "nodes", "Node"),
    ("resource.k8s.io", "v1", "resourceslices", "ResourceSlice"),
    ("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim"),
)
"""What the cluster state is made of: group, version, plural, kind."""

OLDER = {"resource.k8s.io": ("v1beta2", "v1beta1")}
"""Versions that clusters before 1.34 serve instead, newest first."""

EVERYWHERE = ("nodes", "resourceslices")
"""Resources that are in no namespace."""


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
    changed: Callable[[], None]


def register(handlers: kopf.OperatorRegistry, hub: Hub) -> None:
    """Put every handler into Kopf's registry."""
    _register_own_kinds(handlers, hub)
    for group, version, plural, kind in WATCHED:
        _register_cluster_kind(handlers, hub, (group, version, plural), kind)


def _register_own_kinds(handlers: kopf.OperatorRegistry, hub: Hub) -> None:
    @kopf.on.event(
        api.GROUP, api.VERSION, api.INFERENCE_SERVICE.plural, registry=handlers, id="service"
    )
    async def _service(event: Mapping[str, Any], **_: Any) -> None:
        body = event["object"]
        if event.get("type") == "DELETED":
            hub.registry.drop(body)
            return
        if hub.registry.put(body, time.time()):
            hub.changed()
        hub.registry.watched(body)

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
    # Of a group with older versions Kopf takes the one the cluster prefers.
    named = (group, plural) if group in OLDER else (group, version, plural)

    @kopf.on.event(*named, registry=handlers, id=f"watch-{plural}")
    async def _seen(event: Mapping[str, Any], **_: Any) -> None:
        hub.cluster.apply(kind, event.get("type"), event["object"])


def register_login(handlers: kopf.OperatorRegistry, connection: Callable[[], Connection]) -> None:
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


def settings_of() -> kopf.OperatorSettings:
    """Kopf's settings: time limits on every stream, no events, no peering, no webhook."""
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
    return settings
