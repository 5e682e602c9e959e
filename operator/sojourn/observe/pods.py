"""A pod as the signals need it: who it is and since when it serves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from sojourn.observe.promql import WORKLOAD_PATTERN

PodKey = tuple[str, str]
"""Namespace and name of a pod, or namespace and workload."""

_WORKLOAD = re.compile(WORKLOAD_PATTERN)


def workload_of(pod_name: str) -> str:
    """The workload a pod's name tells, by the same rule Prometheus is given.

    >>> workload_of("chat-7d9f8b6c5d-x2x4z")
    'chat'
    >>> workload_of("chat-0")
    'chat'
    """
    match = _WORKLOAD.fullmatch(pod_name)
    return match.group(1) if match else pod_name


@dataclass(frozen=True)
class Pod:
    """One pod of a target.

    Attributes:
        ready_at_s: since when it has been Ready; None when it is not.
        terminating: it was asked to go.
        gone_by_s: by when it must have gone, Unix seconds; None when it was not asked to.
        blocked: why it cannot be placed; empty when it can.
        trouble: why a container of it does not run; empty while one merely starts.
        address: its IP address; empty before it has one.
        incarnation: changes whenever a container of it starts anew.
        node: where it was placed; empty before.
    """

    namespace: str
    name: str
    ready_at_s: float | None = None
    terminating: bool = False
    blocked: str = ""
    address: str = ""
    incarnation: str = ""
    gone_by_s: float | None = None
    trouble: str = ""
    node: str = ""

    @property
    def key(self) -> PodKey:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def serves(self) -> bool:
        """Ready and not on its way out."""
        return self.ready_at_s is not None and not self.terminating


@dataclass(frozen=True)
class Pods:
    """The pods of one target.

    Attributes:
        live: all that exist.
        departed: names of the last ones that went: their counts of the window still belong to the
            demand, or every scale-down would look like a drop of the load.
        workloads: what the live pods' names tell of their workload; one name as a rule.
        ambiguous: those of them shared with pods of another owner.
    """

    namespace: str
    live: tuple[Pod, ...] = ()
    departed: tuple[str, ...] = ()
    workloads: frozenset[str] = frozenset()
    ambiguous: frozenset[str] = frozenset()

    @cached_property
    def serving(self) -> tuple[Pod, ...]:
        """Pods that serve."""
        return tuple(pod for pod in self.live if pod.serves)
