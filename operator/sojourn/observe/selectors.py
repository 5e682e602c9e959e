"""Which workloads of a namespace select each other's pods.

A workload counts its pods by owner; an HPA, a Service or a dashboard counts them by labels, so two
that share pods by label are each given the other's load.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Generic, TypeVar

Labels = frozenset[tuple[str, str]]
K = TypeVar("K", bound=Hashable)


def labels_of(node: object) -> Labels:
    """Labels of a mapping such as ``matchLabels``."""
    held = node if isinstance(node, Mapping) else {}
    return frozenset((str(key), str(value)) for key, value in held.items())


def selector_of(spec: Mapping[str, Any]) -> Labels:
    """``matchLabels`` of a workload; its expressions only narrow them and are not followed."""
    selector = spec.get("selector")
    return labels_of(selector.get("matchLabels") if isinstance(selector, Mapping) else None)


def pod_labels_of(spec: Mapping[str, Any]) -> Labels:
    """Labels of the pods a workload makes."""
    template = spec.get("template")
    metadata = template.get("metadata") if isinstance(template, Mapping) else None
    return labels_of(metadata.get("labels") if isinstance(metadata, Mapping) else None)


class Selectors(Generic[K]):
    """Selectors and pod labels of the workloads of one namespace.

    Asking costs as much as the rarest label of a selector has workloads: each selector is filed
    under one of its labels, the one with the fewest at that time.
    """

    def __init__(self) -> None:
        self._known: dict[K, tuple[Labels, Labels]] = {}
        self._carrying: dict[tuple[str, str], set[K]] = {}
        self._selecting: dict[tuple[str, str], set[K]] = {}
        self._filed: dict[K, tuple[str, str]] = {}

    def put(self, key: K, selector: Labels, pod_labels: Labels) -> None:
        """Take in a workload, or what it is now."""
        if self._known.get(key) == (selector, pod_labels):
            return
        self.drop(key)
        self._known[key] = selector, pod_labels
        for pair in pod_labels:
            self._carrying.setdefault(pair, set()).add(key)
        if selector:
            under = min(sorted(selector), key=lambda pair: len(self._selecting.get(pair, ())))
            self._filed[key] = under
            self._selecting.setdefault(under, set()).add(key)

    def drop(self, key: K) -> None:
        """Forget a workload."""
        _, pod_labels = self._known.pop(key, (frozenset(), frozenset()))
        filed = (self._filed.pop(key),) if key in self._filed else ()
        for index, pairs in ((self._carrying, pod_labels), (self._selecting, filed)):
            for pair in pairs:
                index[pair].discard(key)
                if not index[pair]:
                    del index[pair]

    def overlapping(self, key: K) -> set[K]:
        """Workloads whose pods this one selects, and those that select this one's."""
        if key not in self._known:
            return set()
        selector, pod_labels = self._known[key]
        rarest = min((self._carrying.get(p, set()) for p in selector), key=len, default=set[K]())
        selected = {k for k in rarest if selector <= self._known[k][1]}
        near = {k for pair in pod_labels for k in self._selecting.get(pair, ())}
        selecting = {k for k in near if self._known[k][0] <= pod_labels}
        return (selected | selecting) - {key}

    def __len__(self) -> int:
        return len(self._known)
