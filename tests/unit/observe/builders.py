"""Objects as the API server and the custom resource would give them, in one line each."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sojourn.facts.declaration import (
    Declaration,
    DeclaredEngine,
    DeclaredGpu,
    DeclaredModel,
    MetricsSource,
    ObjectRef,
    Slo,
    TargetRef,
)
from sojourn.observe.cluster import WATCHED, ClusterState

NOW_S = 1_790_000_000.0
LONG_AGO_S = NOW_S - 3600


def iso(at_s: float) -> str:
    """As Kubernetes writes time."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def declaration(
    name: str = "chat",
    namespace: str = "team-a",
    *,
    engine: DeclaredEngine | None = None,
    target: TargetRef | None = None,
    query: str | None = None,
    model: str = "meta-llama/Llama-3.1-8B-Instruct",
) -> Declaration:
    """A service that scales the Deployment of its own name."""
    return Declaration(
        ref=ObjectRef(namespace, name),
        model=DeclaredModel(model),
        gpu=DeclaredGpu("H100-80GB"),
        slo=Slo(latency_s=1.0),
        target=target or TargetRef(name),
        engine=engine or DeclaredEngine(),
        metrics=MetricsSource(arrival_rate_query=query),
    )


def metadata(name: str, namespace: str, kind: str, owner: tuple[str, str] | None = None) -> Any:
    """Metadata with a uid made of kind and name; ``owner`` is (kind, name) of the controller."""
    found: dict[str, Any] = {"name": name, "namespace": namespace, "generation": 1}
    found["uid"] = f"{kind}/{namespace}/{name}"
    if owner is not None:
        reference = {"kind": owner[0], "name": owner[1], "controller": True}
        reference["uid"] = f"{owner[0]}/{namespace}/{owner[1]}"
        found["ownerReferences"] = [reference]
    return found


def deployment(
    name: str = "chat", namespace: str = "team-a", *, replicas: int = 2, container: Any = None
) -> dict[str, Any]:
    """A Deployment at rest with one vLLM container."""
    gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    main = {"name": "vllm", "image": "vllm/vllm-openai:v0.10.2", **gpu, **(container or {})}
    status = {"replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas}
    return {
        "metadata": metadata(name, namespace, "Deployment"),
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [main]}}},
        "status": {**status, "observedGeneration": 1},
    }


def replica_set(
    name: str = "chat-7d9f8b6c5d", namespace: str = "team-a", deployment: str = "chat"
) -> dict[str, Any]:
    """A Deployment's ReplicaSet."""
    return {"metadata": metadata(name, namespace, "ReplicaSet", ("Deployment", deployment))}


def pod(
    name: str,
    namespace: str = "team-a",
    *,
    owner: tuple[str, str] = ("ReplicaSet", "chat-7d9f8b6c5d"),
    ready_at_s: float | None = LONG_AGO_S,
    conditions: list[dict[str, str]] | None = None,
    spec: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A running pod, Ready since ``ready_at_s`` or not at all."""
    found = list(conditions or [])
    if ready_at_s is not None:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": iso(ready_at_s)}
        found.append(ready)
    return {
        "metadata": metadata(name, namespace, "Pod", owner),
        "spec": spec or {},
        "status": {"phase": "Running", "conditions": found},
    }


def pod_names(count: int, workload: str = "chat") -> list[str]:
    """Names as a ReplicaSet's controller makes them."""
    safe = "bcdfghjklmnpqrstvwxz2456789"
    return [f"{workload}-7d9f8b6c5d-{safe[i // 27]}{safe[i % 27]}kzq" for i in range(count)]


def synced_cluster() -> ClusterState:
    """Every kind listed, nothing in it."""
    cluster = ClusterState()
    for kind in WATCHED:
        cluster.mark_synced(kind)
    return cluster


def cluster_of(
    service: str = "chat", namespace: str = "team-a", *, pods: int = 2, container: Any = None
) -> ClusterState:
    """A cluster with one Deployment and its Ready pods."""
    cluster = synced_cluster()
    add_service(cluster, service, namespace, pods=pods, container=container)
    return cluster


def add_service(
    cluster: ClusterState, service: str, namespace: str, *, pods: int = 2, container: Any = None
) -> None:
    """One more Deployment with its ReplicaSet and Ready pods."""
    owner = f"{service}-7d9f8b6c5d"
    cluster.apply(
        "Deployment", None, deployment(service, namespace, replicas=pods, container=container)
    )
    cluster.apply("ReplicaSet", None, replica_set(owner, namespace, service))
    for name in pod_names(pods, service):
        cluster.apply("Pod", None, pod(name, namespace, owner=("ReplicaSet", owner)))
