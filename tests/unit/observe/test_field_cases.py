"""Field cases of observation that have no other home."""

from __future__ import annotations

from typing import Any

import pytest

from sojourn.facts.reading import Known, Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import TargetState
from sojourn.observe.cluster import ClusterState
from sojourn.observe.records import record_of
from sojourn.observe.workloads import Workload
from tests.unit.observe.builders import cluster_of, declaration, deployment, metadata, pod
from tests.unit.observe.test_signals import evidence, pods, rate


def test_a_pod_label_with_a_rank_behind_it_is_not_the_pod_and_not_a_zero() -> None:
    """FC-025: the gateway counts ``chat-0-rank-0``, the engine ``chat-0``, 30 requests run."""
    seen = evidence(
        offered={"chat-0-rank-0": 1000.0}, running={"chat-0": 30.0}, waiting={"chat-0": 0.0}
    )
    found = rate(seen, pods("chat-0"))
    assert isinstance(found, Unknown)
    assert found.reason is Reason.NO_SERIES


def test_a_lazy_counter_of_a_scraped_idle_pod_is_a_zero_and_of_an_unseen_one_is_not() -> None:
    """FC-038, but for one thing: the case has ``up`` = 1 and no other series of the pod, and asks
    for a zero. Metrics that are switched off look the same (SGLang without ``--enable-metrics``),
    so one gauge of the engine must be there too; vLLM has its gauges from its start.
    """
    for engine in ("vllm", "sglang", "tgi"):
        uncounted = {"uncounted": {"chat-0"}}
        idle = evidence(uncounted, running={"chat-0": 0.0}, waiting={"chat-0": 0.0})
        found = rate(idle, pods("chat-0"), engine)
        assert isinstance(found, Known)
        assert (found.value, found.lower_bound) == (0, False)
        assert isinstance(rate(evidence(), pods("chat-0"), engine), Unknown)


def test_a_counter_dropped_on_its_way_is_no_zero_though_nothing_runs_just_now() -> None:
    """A sibling of FC-038: relabelling drops the counter, histograms of the requests remain."""
    dropped = evidence(
        {"uncounted": {"chat-0"}},
        running={"chat-0": 0.0},
        waiting={"chat-0": 0.0},
        prompt_tokens={"chat": 512.0},
    )
    assert isinstance(rate(dropped, pods("chat-0"), "vllm"), Unknown)


CHAT = declaration()
LATER = ("chat-7d9f8b6c5d-zzzzz",)


def seen(cluster: ClusterState) -> TargetState:
    found = cluster.target_state(CHAT)
    assert isinstance(found, TargetState), found
    return found


def waiting(why: str, **ended: Any) -> dict[str, Any]:
    status: dict[str, Any] = {"name": "vllm", "state": {"waiting": {"reason": why}}}
    if ended:
        status["lastState"] = {"terminated": ended}
    body = pod(LATER[0], ready_at_s=None)
    body["status"]["containerStatuses"] = [status]
    return body


@pytest.mark.parametrize(
    ("body", "told"),
    [
        pytest.param(
            waiting("CrashLoopBackOff", reason="OOMKilled", exitCode=137),
            "chat-7d9f8b6c5d-zzzzz: vllm is in CrashLoopBackOff, last OOMKilled (exit code 137)",
            id="FC-042 out of memory",
        ),
        pytest.param(
            waiting("ImagePullBackOff"),
            "chat-7d9f8b6c5d-zzzzz: vllm is in ImagePullBackOff",
            id="no image",
        ),
        pytest.param(waiting("ContainerCreating"), "", id="starting"),
        pytest.param(pod(LATER[0], ready_at_s=None), "", id="loading"),
    ],
)
def test_pods_that_were_placed_and_do_not_serve_say_why(body: dict[str, Any], told: str) -> None:
    cluster = cluster_of(pods=1)
    cluster.apply("Pod", "ADDED", body)
    assert seen(cluster).trouble == told
    assert seen(cluster).blocked == ""


def scoped(spec: dict[str, Any]) -> dict[str, Any]:
    full = {"requests.nvidia.com/gpu": "2"}
    return {
        "metadata": metadata("gpus", "team-a", "ResourceQuota"),
        "spec": spec,
        "status": {"hard": full, "used": full},
    }


def of_class(operator: str, *values: str) -> dict[str, Any]:
    chosen = {"scopeName": "PriorityClass", "operator": operator, "values": list(values)}
    return {"scopeSelector": {"matchExpressions": [chosen]}}


@pytest.mark.parametrize(
    ("spec", "priority", "expected"),
    [
        ({}, "", 2),
        ({"scopes": ["Terminating"]}, "", None),
        ({"scopes": ["BestEffort"]}, "", None),
        ({"scopes": ["NotTerminating", "NotBestEffort"]}, "", 2),
        (of_class("In", "batch"), "", None),
        (of_class("In", "batch"), "serving", None),
        (of_class("In", "serving", "batch"), "serving", 2),
        (of_class("NotIn", "batch"), "serving", 2),
        (of_class("NotIn", "serving"), "serving", None),
        (of_class("Exists"), "", None),
        (of_class("Exists"), "serving", 2),
        (of_class("DoesNotExist"), "serving", None),
    ],
)
def test_a_quota_of_other_pods_limits_nothing(
    spec: dict[str, Any], priority: str, expected: int | None
) -> None:
    """A sibling of FC-144: a full quota of batch jobs in the namespace."""
    cluster = cluster_of(pods=2)
    body = deployment(replicas=2)
    body["spec"]["template"]["spec"]["priorityClassName"] = priority
    cluster.apply("Deployment", "MODIFIED", body)
    cluster.apply("ResourceQuota", None, scoped(spec))
    assert cluster.quota_replicas(CHAT) == expected


@pytest.mark.parametrize(
    ("kind", "spec", "told"),
    [
        ("Deployment", {"paused": True}, "the Deployment is paused"),
        ("Deployment", {}, ""),
        ("StatefulSet", {"updateStrategy": {"type": "OnDelete"}}, "is OnDelete"),
        (
            "StatefulSet",
            {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}},
            "down to partition 2 only",
        ),
        ("StatefulSet", {"updateStrategy": {"type": "RollingUpdate"}}, ""),
    ],
)
def test_a_workload_that_does_not_roll_out_by_itself_is_known(
    kind: str, spec: dict[str, Any], told: str
) -> None:
    body = deployment()
    body["spec"] |= spec
    found = record_of(kind, body)
    assert isinstance(found, Workload)
    assert told in found.rollout_manual
    body["metadata"]["ownerReferences"] = [
        {"kind": "LLMInferenceService", "name": "chat", "uid": "u", "controller": True}
    ]
    owned = record_of(kind, body)
    assert isinstance(owned, Workload)
    assert "template is LLMInferenceService chat's" in owned.rollout_manual
    assert bool(found.rollout_manual) is bool(told)
