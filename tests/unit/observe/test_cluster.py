"""The cluster in memory: events in, target states out."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.facts.declaration import (
    Actuation,
    Declaration,
    DeclaredEngine,
    MaxBatchRef,
    Scaling,
    TargetRef,
)
from sojourn.facts.reading import Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import TargetState
from sojourn.observe.cluster import ClusterState
from tests.unit.observe.builders import (
    LONG_AGO_S,
    NOW_S,
    add_service,
    cluster_of,
    declaration,
    deployment,
    metadata,
    pod,
    pod_names,
    replica_set,
    synced_cluster,
)

CHAT = declaration()
GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/4 nodes have nvidia.com/gpu",
}


def state(cluster: ClusterState, of: Declaration = CHAT) -> TargetState:
    found = cluster.target_state(of)
    assert isinstance(found, TargetState), found
    return found


def unknown(cluster: ClusterState, of: Declaration = CHAT) -> Unknown:
    found = cluster.target_state(of)
    assert isinstance(found, Unknown), found
    return found


def test_before_the_first_list_a_target_is_not_observed_and_after_it_missing() -> None:
    cluster = ClusterState()
    assert unknown(cluster).reason is Reason.NOT_OBSERVED
    cluster.mark_synced("Deployment")
    found = unknown(cluster)
    assert found.reason is Reason.TARGET_MISSING
    assert found.why == "there is no Deployment team-a/chat"


def test_a_target_without_the_list_of_pods_is_not_observed() -> None:
    cluster = ClusterState()
    cluster.apply("Deployment", None, deployment())
    cluster.mark_synced("Deployment")
    assert unknown(cluster).reason is Reason.NOT_OBSERVED


def test_a_forbidden_kind_says_so_until_an_event_of_it_arrives() -> None:
    cluster = synced_cluster()
    cluster.mark_forbidden("Deployment", "watch deployments is forbidden in team-a")
    found = unknown(cluster)
    assert found.reason is Reason.TARGET_FORBIDDEN
    assert "watch deployments" in found.why
    cluster.apply("Deployment", "ADDED", deployment())
    assert state(cluster).spec_replicas == 2


@pytest.mark.parametrize("kind", ["Pod", "HorizontalPodAutoscaler"])
def test_what_a_target_is_judged_by_may_not_be_forbidden(kind: str) -> None:
    cluster = cluster_of(pods=1)
    cluster.mark_forbidden(kind, f"list of {kind}s is forbidden")
    assert unknown(cluster).reason is Reason.TARGET_FORBIDDEN


def test_forbidden_quotas_are_told_and_forbidden_nodes_miss_nobody() -> None:
    cluster = cluster_of(pods=1)
    cluster.mark_forbidden("Node", "list of nodes is forbidden")
    assert state(cluster).quota_unknown == ""
    cluster.mark_forbidden("ResourceQuota", "list of resourcequotas is forbidden")
    assert state(cluster).quota_unknown == "list of resourcequotas is forbidden"


def test_a_kind_that_is_not_watched_is_not_observed() -> None:
    other = declaration(target=TargetRef("chat", "serving.example.com/v1", "Rollout"))
    assert unknown(synced_cluster(), other).reason is Reason.NOT_OBSERVED


def test_ready_and_pending_pods_are_counted_through_the_replica_set() -> None:
    cluster = cluster_of(pods=3)
    third = pod_names(3)[2]
    cluster.apply("Pod", "MODIFIED", pod(third, ready_at_s=None))
    found = state(cluster)
    assert (found.spec_replicas, found.ready_replicas, found.pods_pending) == (3, 2, 1)
    assert found.youngest_ready_at_s == LONG_AGO_S


def test_a_pod_on_its_way_out_no_longer_serves() -> None:
    cluster = cluster_of(pods=2)
    leaving = pod(pod_names(2)[0])
    leaving["metadata"]["deletionTimestamp"] = "2026-09-21T00:00:00Z"
    cluster.apply("Pod", "MODIFIED", leaving)
    assert (state(cluster).ready_replicas, state(cluster).pods_terminating) == (1, 1)
    assert state(cluster).finishing_until_s == 1789948800.0


def test_a_finished_pod_is_no_pod() -> None:
    cluster = cluster_of(pods=1)
    ended = pod("chat-7d9f8b6c5d-zzzzz", ready_at_s=None)
    ended["status"]["phase"] = "Failed"
    cluster.apply("Pod", "ADDED", ended)
    assert len(cluster.pods_of(CHAT).live) == 1


@pytest.mark.parametrize("first", ["Deployment", "ReplicaSet", "Pod"])
def test_the_order_of_the_lists_does_not_matter(first: str) -> None:
    events = {
        "Deployment": [deployment(replicas=1)],
        "ReplicaSet": [replica_set()],
        "Pod": [pod(pod_names(1)[0])],
    }
    cluster = synced_cluster()
    for kind in sorted(events, key=lambda k: k != first):
        for body in events[kind]:
            cluster.apply(kind, None, body)
    assert state(cluster).ready_replicas == 1


def test_a_stateful_sets_pods_are_its_own() -> None:
    cluster = synced_cluster()
    cluster.apply("StatefulSet", None, deployment(replicas=1))
    cluster.apply("Pod", None, pod("chat-0", owner=("StatefulSet", "chat")))
    of = declaration(target=TargetRef("chat", kind="StatefulSet"))
    cluster.apply("StatefulSet", None, {**deployment(replicas=1), **stateful_metadata()})
    assert state(cluster, of).ready_replicas == 1


def stateful_metadata() -> Any:
    return {"metadata": metadata("chat", "team-a", "StatefulSet")}


def test_pods_of_the_same_name_in_another_namespace_are_another_services() -> None:
    cluster = cluster_of(pods=2)
    add_service(cluster, "chat", "team-b", pods=5)
    assert state(cluster).ready_replicas == 2
    assert state(cluster, declaration(namespace="team-b")).ready_replicas == 5


def test_a_deleted_pod_is_remembered_as_departed_until_its_name_returns() -> None:
    cluster = cluster_of(pods=2)
    gone = pod_names(2)[1]
    cluster.apply("Pod", "DELETED", pod(gone))
    pods = cluster.pods_of(CHAT)
    assert [p.name for p in pods.live] == pod_names(1)
    assert pods.departed == (gone,)
    cluster.apply("Pod", "ADDED", pod(gone))
    assert cluster.pods_of(CHAT).departed == ()


def test_a_recreated_target_starts_anew() -> None:
    cluster = cluster_of(pods=2)
    again = deployment(replicas=7)
    again["metadata"]["uid"] = "another"
    cluster.apply("Deployment", "MODIFIED", again)
    found = state(cluster)
    assert (found.spec_replicas, found.ready_replicas) == (7, 0)


def test_a_pod_adopted_by_another_owner_moves_there() -> None:
    cluster = cluster_of(pods=1)
    add_service(cluster, "other", "team-a", pods=0)
    adopted = pod(pod_names(1)[0], owner=("ReplicaSet", "other-7d9f8b6c5d"))
    cluster.apply("Pod", "MODIFIED", adopted)
    assert state(cluster).ready_replicas == 0
    assert state(cluster, declaration("other")).ready_replicas == 1


def test_a_complete_list_forgets_what_it_does_not_hold() -> None:
    """FC-124: deletions during a gap of the watch."""
    cluster = cluster_of(pods=3)
    cluster.replace("Pod", [pod(name) for name in pod_names(1)])
    assert state(cluster).ready_replicas == 1
    cluster.replace("Deployment", [])
    assert unknown(cluster).reason is Reason.TARGET_MISSING


def test_what_a_watch_told_after_a_list_was_asked_for_is_newer_than_the_list() -> None:
    cluster = cluster_of(pods=3)
    old, deleted, other = pod_names(3)
    before = cluster.events_seen
    listed = [pod(old), pod(deleted), pod(other)]
    cluster.apply("Pod", "DELETED", pod(deleted))
    cluster.apply("Pod", "MODIFIED", pod(other, ready_at_s=None))
    cluster.apply("Pod", "ADDED", pod("chat-7d9f8b6c5d-zzzzz"))
    cluster.replace("Pod", listed, before)
    live = {p.name: p.serves for p in cluster.pods_of(CHAT).live}
    assert live == {old: True, other: False, "chat-7d9f8b6c5d-zzzzz": True}
    cluster.replace("Pod", listed, cluster.events_seen)
    assert {p.name for p in cluster.pods_of(CHAT).live} == {old, deleted, other}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"replicas": 4, "updatedReplicas": 4, "observedGeneration": 1}, False),
        ({"replicas": 4, "updatedReplicas": 1, "observedGeneration": 1}, True),
        ({"replicas": 4, "updatedReplicas": 4, "observedGeneration": 0}, True),
        ({"replicas": 2, "updatedReplicas": 2, "observedGeneration": 1}, False),
        ({"observedGeneration": 1}, False),
    ],
    ids=["at rest", "old pods left", "change not seen", "scaling up", "no pods yet"],
)
def test_a_rollout_runs_while_old_pods_are_left(status: Any, expected: bool) -> None:
    cluster = synced_cluster()
    cluster.apply("Deployment", None, {**deployment(replicas=4), "status": status})
    assert state(cluster).rollout_running is expected


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([UNSCHEDULABLE], "Unschedulable: 0/4 nodes have nvidia.com/gpu"),
        ([GATED], "SchedulingGated: no message"),
        ([], ""),
    ],
    ids=["FC-041", "FC-067", "starting"],
)
def test_pods_that_cannot_be_placed_say_why(conditions: Any, expected: str) -> None:
    cluster = cluster_of(pods=1)
    waiting = pod("chat-7d9f8b6c5d-zzzzz", ready_at_s=None, conditions=conditions)
    cluster.apply("Pod", "ADDED", waiting)
    assert state(cluster).blocked == expected


def test_pods_that_cannot_be_created_say_why() -> None:
    """FC-066."""
    cluster = synced_cluster()
    body = deployment()
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
    body["status"]["conditions"] = [{**failure, "message": "exceeded quota: gpus"}]
    cluster.apply("Deployment", None, body)
    assert state(cluster).blocked == "FailedCreate: exceeded quota: gpus"


def autoscaler(name: str, target: str = "chat", owner: tuple[str, str] | None = None) -> Any:
    reference = {"kind": "Deployment", "name": target}
    return {
        "metadata": metadata(name, "team-a", "HorizontalPodAutoscaler", owner),
        "spec": {"scaleTargetRef": reference},
    }


def test_other_owners_of_the_scale_are_named() -> None:
    cluster = cluster_of()
    cluster.apply("HorizontalPodAutoscaler", None, autoscaler("own"))
    by_keda = autoscaler("keda-hpa-chat", owner=("ScaledObject", "chat-scaler"))
    cluster.apply("HorizontalPodAutoscaler", None, by_keda)
    cluster.apply("HorizontalPodAutoscaler", None, autoscaler("other", target="other"))
    found = cluster.target_state(CHAT, ("InferenceService twin",))
    assert isinstance(found, TargetState)
    assert found.other_owners == (
        "ScaledObject chat-scaler",
        "HorizontalPodAutoscaler own",
        "InferenceService twin",
    )


def test_an_autoscaler_that_moves_to_another_target_leaves_this_one() -> None:
    cluster = cluster_of()
    cluster.apply("HorizontalPodAutoscaler", None, autoscaler("a"))
    cluster.apply("HorizontalPodAutoscaler", "MODIFIED", autoscaler("a", target="other"))
    assert state(cluster).other_owners == ()
    cluster.apply("HorizontalPodAutoscaler", "MODIFIED", autoscaler("a"))
    cluster.apply("HorizontalPodAutoscaler", "DELETED", autoscaler("a"))
    assert state(cluster).other_owners == ()


def test_an_autoscaler_that_writes_on_our_behalf_is_no_conflict() -> None:
    cluster = cluster_of()
    cluster.apply("HorizontalPodAutoscaler", None, autoscaler("ours"))
    by_metric = replace(CHAT, scaling=Scaling(actuation=Actuation.METRIC))
    assert state(cluster, by_metric).other_owners == ()


REFERENCED = {
    "args": ["--max-num-seqs=$(SOJOURN_MAX_BATCH)"],
    "env": [{"name": "SOJOURN_MAX_BATCH", "value": "64"}],
}


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        (REFERENCED, (64, True, "vllm")),
        ({"args": ["--max-num-seqs=32"]}, (32, False, "vllm")),
        ({"args": ["--max-num-seqs=$(SOJOURN_MAX_BATCH)"]}, (None, True, "vllm")),
        ({}, (None, False, "vllm")),
        ({"name": "main", "image": "own/engine:1"}, (None, False, "main")),
    ],
    ids=["referenced", "literal", "not defined", "default", "unknown image, only container"],
)
def test_max_batch_is_what_the_engine_runs_with(container: Any, expected: Any) -> None:
    found = state(cluster_of(pods=1, container=container))
    assert (found.max_batch, found.batch_referenced, found.container) == expected


def test_a_container_named_in_the_spec_has_to_exist() -> None:
    cluster = cluster_of(pods=1, container=REFERENCED)
    wanted = DeclaredEngine(max_batch_ref=MaxBatchRef(container="nobody"))
    found = state(cluster, declaration(engine=wanted))
    assert (found.container, found.max_batch, found.batch_referenced) == (None, None, False)


def test_a_new_template_is_read_anew() -> None:
    cluster = cluster_of(pods=1, container=REFERENCED)
    assert state(cluster).max_batch == 64
    env = [{"name": "SOJOURN_MAX_BATCH", "value": "16"}]
    cluster.apply("Deployment", "MODIFIED", deployment(container={**REFERENCED, "env": env}))
    assert state(cluster).max_batch == 16


def test_the_engines_version_comes_from_the_image() -> None:
    assert state(cluster_of(pods=1)).engine_version == "0.10.2"
    assert (
        state(cluster_of(pods=1, container={"image": "vllm/vllm-openai:latest"})).engine_version
        is None
    )


def quota(hard: dict[str, str], used: dict[str, str], name: str = "gpus") -> Any:
    return {
        "metadata": metadata(name, "team-a", "ResourceQuota"),
        "status": {"hard": hard, "used": used},
    }


@pytest.mark.parametrize(
    ("quotas", "expected"),
    [
        ([], None),
        ([quota({"requests.nvidia.com/gpu": "8"}, {"requests.nvidia.com/gpu": "2"})], 8),
        ([quota({"requests.nvidia.com/gpu": "8"}, {"requests.nvidia.com/gpu": "8"})], 2),
        ([quota({"requests.nvidia.com/gpu": "4"}, {"requests.nvidia.com/gpu": "8"})], 2),
        ([quota({"requests.cpu": "8"}, {})], None),
        ([quota({"pods": "3"}, {"pods": "2"})], 3),
        (
            [
                quota({"requests.nvidia.com/gpu": "8"}, {"requests.nvidia.com/gpu": "2"}),
                quota({"count/pods": "5"}, {"count/pods": "2"}, "pods"),
            ],
            5,
        ),
        ([quota({"requests.nvidia.com/gpu": "many"}, {})], None),
    ],
    ids=["none", "room", "full", "over", "other resource", "pods", "tightest", "unreadable"],
)
def test_quota_replicas_are_those_here_and_as_many_as_fit(quotas: Any, expected: Any) -> None:
    cluster = cluster_of(pods=2)
    for body in quotas:
        cluster.apply("ResourceQuota", None, body)
    assert cluster.quota_replicas(CHAT) == expected


def test_a_replica_of_two_gpus_needs_two_of_the_quota() -> None:
    two = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    cluster = cluster_of(pods=1, container=two)
    body = quota({"requests.nvidia.com/gpu": "8"}, {"requests.nvidia.com/gpu": "3"})
    cluster.apply("ResourceQuota", None, body)
    assert cluster.quota_replicas(CHAT) == 1 + 2


def test_two_workloads_whose_pods_names_collide_are_ambiguous() -> None:
    cluster = cluster_of(pods=1)
    assert cluster.pods_of(CHAT).ambiguous == frozenset()
    stranger = pod("chat-0", owner=("StatefulSet", "chat"))
    cluster.apply("Pod", "ADDED", stranger)
    assert cluster.pods_of(CHAT).ambiguous == frozenset({"chat"})
    cluster.apply("Pod", "DELETED", stranger)
    assert cluster.pods_of(CHAT).ambiguous == frozenset()


def test_a_rollouts_two_replica_sets_are_one_owner() -> None:
    cluster = cluster_of(pods=1)
    cluster.apply("ReplicaSet", "ADDED", replica_set("chat-5f6b7c8d9b"))
    surge = pod("chat-5f6b7c8d9b-bcdfg", owner=("ReplicaSet", "chat-5f6b7c8d9b"), ready_at_s=NOW_S)
    cluster.apply("Pod", "ADDED", surge)
    assert cluster.pods_of(CHAT).ambiguous == frozenset()
    assert state(cluster).ready_replicas == 2
    assert state(cluster).youngest_ready_at_s == NOW_S


@given(st.integers(0, 10_000))
@settings(max_examples=30)
def test_any_order_of_events_ends_where_a_fresh_list_would(seed: int) -> None:
    chance = random.Random(seed)
    cluster, names, live = cluster_of(pods=0), pod_names(6), set()
    for _ in range(40):
        name = chance.choice(names)
        if name in live and chance.random() < 0.5:
            cluster.apply("Pod", "DELETED", pod(name))
            live.discard(name)
        else:
            cluster.apply("Pod", "ADDED", pod(name))
            live.add(name)
        assert {p.name for p in cluster.pods_of(CHAT).live} == live, "every event counts at once"
    fresh = cluster_of(pods=0)
    for name in live:
        fresh.apply("Pod", None, pod(name))
    assert cluster.target_state(CHAT) == fresh.target_state(CHAT)
    assert len(cluster) == len(fresh)


@pytest.mark.parametrize("body", [{}, {"metadata": {}}, {"metadata": {"name": "x"}, "spec": None}])
@pytest.mark.parametrize(
    "kind", ["Pod", "Deployment", "HorizontalPodAutoscaler", "ResourceQuota", "Node", "Secret"]
)
def test_an_object_with_nothing_in_it_is_taken_in(kind: str, body: Any) -> None:
    cluster = ClusterState()
    cluster.apply(kind, "ADDED", body)
    cluster.apply(kind, "DELETED", body)
    assert len(cluster) == 0
