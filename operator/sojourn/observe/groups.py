"""Groups of a LeaderWorkerSet: a leader's pod and its workers' as one replica."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sojourn.observe.pods import Pod
from sojourn.observe.records import PodRecord

_SET_LABEL = "leaderworkerset.sigs.k8s.io/name="


def set_of(labels: Iterable[str]) -> str:
    """The label (``key=value``) that names the LeaderWorkerSet of a pod; empty for other pods."""
    return next((label for label in labels if label.startswith(_SET_LABEL)), "")


def as_one(leader: PodRecord, workers: list[PodRecord], size: int) -> PodRecord:
    """The leader's pod, as ready, as placed and as blocked as its whole group of ``size`` pods.

    It serves since the last of its pods is ready; only leaders have an engine's metrics.
    """
    pods = [leader.pod, *(worker.pod for worker in workers if not worker.finished)]
    complete = len(pods) >= size
    group = replace(
        leader.pod,
        ready_at_s=_ready_at_s(pods) if complete else None,
        terminating=any(pod.terminating for pod in pods),
        gone_by_s=_gone_by_s(pods),
        blocked=next((pod.blocked for pod in pods if pod.blocked), ""),
        node=leader.pod.node if complete and all(pod.node for pod in pods) else "",
    )
    return replace(leader, pod=group)


def _gone_by_s(pods: list[Pod]) -> float | None:
    """When the last of the pods that were told to stop is gone, Unix seconds; None for none."""
    return max((pod.gone_by_s for pod in pods if pod.gone_by_s), default=None)


def _ready_at_s(pods: list[Pod]) -> float | None:
    """Since when all pods are ready, Unix seconds; None while one is not."""
    ready_at_s = [pod.ready_at_s for pod in pods if pod.ready_at_s is not None]
    return max(ready_at_s) if len(ready_at_s) == len(pods) else None
