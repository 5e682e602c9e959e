"""LeaderWorkerSets: groups of pods as replicas, their GPUs, and where max batch is written."""

from __future__ import annotations

from typing import Any

import pytest

from sojourn.facts.declaration import TargetRef
from sojourn.facts.reading import Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import TargetState
from sojourn.observe.cluster import ClusterState
from tests.unit.observe.builders import LONG_AGO_S, declaration, metadata, pod, synced_cluster

CHAT = declaration(target=TargetRef("chat", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"))
KIND = "LeaderWorkerSet"
SERVE = ["vllm", "serve", "--max-num-seqs=$(SOJOURN_MAX_BATCH)"]


def template(command: list[str], gpus: int = 8) -> dict[str, Any]:
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.10.2",
        "command": command,
        "env": [{"name": "SOJOURN_MAX_BATCH", "value": "64"}],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    return {"spec": {"containers": [container]}}


def lws(replicas: int = 2, size: int = 4, **changes: Any) -> dict[str, Any]:
    """A LeaderWorkerSet at rest: a leader that serves, workers that join it."""
    parts = {
        "size": size,
        "leaderTemplate": template(SERVE),
        "workerTemplate": template(["ray", "start", "--block"]),
        **changes.pop("parts", {}),
    }
    return {
        "metadata": metadata("chat", "team-a", KIND),
        "spec": {
            "replicas": replicas,
            "leaderWorkerTemplate": {k: v for k, v in parts.items() if v is not None},
            **changes.pop("spec", {}),
        },
        "status": {
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": replicas,
            "observedGeneration": 1,
            **changes.pop("status", {}),
        },
    }


def member(name: str, owner: str, **changes: Any) -> dict[str, Any]:
    found = pod(name, owner=("StatefulSet", owner), **changes)
    found["metadata"]["labels"] = {"leaderworkerset.sigs.k8s.io/name": "chat"}
    return found


def worker(group: int, index: int, **changes: Any) -> dict[str, Any]:
    return member(f"chat-{group}-{index}", f"chat-{group}", **changes)


def with_groups(count: int = 2, size: int = 4, **changes: Any) -> ClusterState:
    """The objects its controller makes: a StatefulSet of leaders, and one of workers by leader."""
    cluster = synced_cluster()
    cluster.apply(KIND, None, lws(count, size, **changes))
    leaders = {"metadata": metadata("chat", "team-a", "StatefulSet", (KIND, "chat"))}
    cluster.apply("StatefulSet", None, leaders)
    for group in range(count):
        leader = f"chat-{group}"
        cluster.apply("Pod", None, member(leader, "chat"))
        workers = {"metadata": metadata(leader, "team-a", "StatefulSet", ("Pod", leader))}
        cluster.apply("StatefulSet", None, workers)
        for index in range(1, size):
            cluster.apply("Pod", None, worker(group, index))
    return cluster


def state(cluster: ClusterState) -> TargetState:
    found = cluster.target_state(CHAT)
    assert isinstance(found, TargetState), found
    return found


def test_a_replica_is_a_group_and_asks_for_the_gpus_of_all_its_pods() -> None:
    """FC-072."""
    cluster = with_groups(2, size=4)
    found = state(cluster)
    assert (found.spec_replicas, found.ready_replicas, found.pods_pending) == (2, 2, 0)
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    for name in range(12):
        body = {
            "metadata": {"name": f"n{name}", "labels": labels},
            "status": {"allocatable": {"nvidia.com/gpu": "8"}},
        }
        cluster.apply("Node", None, body)
    room = cluster.gpu_room(CHAT, cluster.pods_of(CHAT))
    assert room is not None
    assert (room.per_replica, room.fits) == (32, 3)


@pytest.mark.parametrize("fault", ["leader", "worker", "missing", "leaving"])
def test_a_group_serves_when_all_of_its_pods_do(fault: str) -> None:
    cluster = with_groups()
    match fault:
        case "leader":
            cluster.apply("Pod", "MODIFIED", member("chat-1", "chat", ready_at_s=None))
        case "worker":
            cluster.apply("Pod", "MODIFIED", worker(1, 3, ready_at_s=None))
        case "missing":
            cluster.apply("Pod", "DELETED", worker(1, 3))
        case "leaving":
            body = worker(1, 3)
            body["metadata"]["deletionTimestamp"] = "2026-09-21T00:00:00Z"
            cluster.apply("Pod", "MODIFIED", body)
    found = state(cluster)
    assert (found.ready_replicas, found.pods_pending) == (1, 1)
    assert found.pods_terminating == (fault == "leaving")


def test_a_group_is_as_young_as_its_last_pod_and_as_blocked_as_any() -> None:
    cluster = with_groups()
    assert state(cluster).youngest_ready_at_s == LONG_AGO_S
    cluster.apply("Pod", "MODIFIED", worker(0, 2, ready_at_s=LONG_AGO_S + 60))
    assert state(cluster).youngest_ready_at_s == LONG_AGO_S + 60
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}
    cluster.apply("Pod", "MODIFIED", worker(1, 1, ready_at_s=None, conditions=[waits]))
    assert state(cluster).blocked == "Unschedulable: no"


def test_pods_that_stand_for_replicas_are_as_many_as_the_scale_says() -> None:
    """FC-073."""
    body = lws(3, size=4)
    cluster = with_groups(3, size=4)
    assert len(cluster.pods_of(CHAT).live) == body["status"]["replicas"] == 3


def test_only_leaders_are_asked_for_metrics_and_their_names_are_not_ambiguous() -> None:
    pods = with_groups().pods_of(CHAT)
    assert sorted(one.name for one in pods.live) == ["chat-0", "chat-1"]
    assert (pods.workloads, pods.ambiguous) == (frozenset({"chat"}), frozenset())


def test_of_a_group_that_went_the_leader_alone_is_remembered() -> None:
    cluster = with_groups()
    for index in (1, 2, 3):
        cluster.apply("Pod", "DELETED", worker(1, index))
    cluster.apply("Pod", "DELETED", member("chat-1", "chat"))
    assert cluster.pods_of(CHAT).departed == ("chat-1",)


def test_a_larger_group_needs_more_of_the_quota_at_once() -> None:
    """FC-065."""
    cluster = with_groups(1, size=2)
    body = {
        "metadata": metadata("gpus", "team-a", "ResourceQuota"),
        "status": {
            "hard": {"requests.nvidia.com/gpu": "40", "pods": "100"},
            "used": {"requests.nvidia.com/gpu": "16", "pods": "2"},
        },
    }
    cluster.apply("ResourceQuota", None, body)
    assert cluster.quota_replicas(CHAT) == 2
    cluster.apply(KIND, "MODIFIED", lws(1, size=4))
    assert cluster.quota_replicas(CHAT) == 1


def test_a_quota_of_pods_counts_every_pod_of_a_group() -> None:
    cluster = with_groups(1, size=4)
    status = {"hard": {"pods": "11"}, "used": {"pods": "4"}}
    body = {"metadata": metadata("few", "team-a", "ResourceQuota"), "status": status}
    cluster.apply("ResourceQuota", None, body)
    assert cluster.quota_replicas(CHAT) == 2


def test_a_set_that_is_gone_is_missing() -> None:
    cluster = with_groups()
    cluster.apply(KIND, "DELETED", lws())
    found = cluster.target_state(CHAT)
    assert isinstance(found, Unknown)
    assert found.reason is Reason.TARGET_MISSING


BELOW = "leaderWorkerTemplate"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, (f"{BELOW}.leaderTemplate",)),
        ({"leaderTemplate": None, "workerTemplate": template(SERVE)}, (f"{BELOW}.workerTemplate",)),
        (
            {"workerTemplate": template(SERVE)},
            (f"{BELOW}.leaderTemplate", f"{BELOW}.workerTemplate"),
        ),
        ({"workerTemplate": template(["vllm", "serve", "--max-num-seqs=32"])}, ()),
        ({"leaderTemplate": template(["vllm", "serve"])}, ()),
    ],
    ids=["leader", "one template", "every rank", "ranks disagree", "not referenced"],
)
def test_max_batch_is_written_where_the_engine_reads_it(parts: Any, expected: Any) -> None:
    found = state(with_groups(parts=parts))
    assert found.batch_templates == expected
    assert found.batch_referenced is bool(expected)


@pytest.mark.parametrize(
    ("changes", "rolling"),
    [
        ({}, False),
        ({"status": {"updatedReplicas": 1}}, True),
        ({"status": {"observedGeneration": 0}}, True),
        ({"status": {"observedGeneration": None}}, False),
        ({"status": {"conditions": [{"type": "UpdateInProgress", "status": "True"}]}}, True),
        ({"spec": {"rolloutStrategy": {"rollingUpdateConfiguration": {"partition": 1}}}}, True),
    ],
    ids=["rest", "old groups", "not seen", "older release", "in progress", "partition"],
)
def test_a_rollout_of_groups_is_seen(changes: Any, rolling: bool) -> None:
    assert state(with_groups(**changes)).rollout_running is rolling


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [({}, 1), ({"maxUnavailable": 0, "maxSurge": 1}, 0), ({"maxUnavailable": "50%"}, 2)],
)
def test_groups_out_of_service_in_a_rollout_follow_the_strategy(
    configuration: Any, expected: int
) -> None:
    strategy = {"rolloutStrategy": {"rollingUpdateConfiguration": configuration}}
    assert state(with_groups(4, size=1, spec=strategy)).rollout_unavailable == expected
