"""The cluster as the watches tell it, in memory.

An event costs O(1); a question about a target costs its own pods. Until the first list of a kind
is complete nothing of it is missing: it has not been observed. One event loop owns it: no locks.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from sojourn.facts.declaration import Actuation, Declaration
from sojourn.facts.gpu import GpuRoom
from sojourn.facts.reading import Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import TargetPods, TargetState
from sojourn.observe import groups, target
from sojourn.observe.bodies import Body, Identity, identity_of
from sojourn.observe.gpu_ledger import Ask, GpuLedger
from sojourn.observe.gpus import Claim, Node, Slice
from sojourn.observe.pods import Pods
from sojourn.observe.records import Autoscaler, PodRecord, Quota, Record, record_of
from sojourn.observe.selectors import Selectors
from sojourn.observe.workloads import GROUPS, Workload

WATCHED: Final = (
    "Deployment",
    "StatefulSet",
    "ReplicaSet",
    GROUPS,
    "Pod",
    "HorizontalPodAutoscaler",
    "ResourceQuota",
    "Node",
    "ResourceSlice",
    "ResourceClaim",
)
_TARGETS: Final = ("Deployment", "StatefulSet", "ReplicaSet", GROUPS)
# As many departed pods are remembered by owner; their rates leave the window by themselves.
_REMEMBERED_PODS: Final = 32

Key = tuple[str, str, str]
"""Kind, namespace, name."""

_Where = TypeVar("_Where")


class ClusterState:
    """Workloads, pods, autoscalers, quotas and GPUs; feed it events, ask it about targets.

    Args:
        every_namespace: pods of all of them are watched; else nobody can tell which GPUs are free.
    """

    def __init__(self, *, every_namespace: bool = True) -> None:
        self._gpus = GpuLedger()
        self._every_namespace = every_namespace
        self._records: dict[Key, Record] = {}
        self._synced: set[str] = set()
        self._watched: set[str] = set()
        self._seen_at: dict[Key, int] = {}
        self.events_seen = 0
        self._forbidden: dict[tuple[str, str], str] = {}
        self._children: dict[str, set[Key]] = defaultdict(set)
        self._autoscalers: dict[Key, set[Key]] = defaultdict(set)
        self._quotas: dict[str, set[Key]] = defaultdict(set)
        self._departed: dict[str, deque[str]] = {}
        # Asked for several times a service and tick; any event makes them old.
        self._pods_memo: dict[Key, Pods] = {}
        self._selectors: dict[str, Selectors[Key]] = defaultdict(Selectors)
        # Owners of the pods that share a workload name: more than one makes it ambiguous.
        self._workload_owners: dict[tuple[str, str], dict[str, int]] = {}

    def apply(self, kind: str, event_type: str | None, body: Body) -> None:
        """Take in one watch event; ``event_type`` is None for an object of the first list."""
        identity = identity_of(kind, body)
        key = (kind, identity.namespace, identity.name)
        self.events_seen += 1
        self._watched.add(kind)
        self._seen_at[key] = self.events_seen
        if event_type == "DELETED":
            self._remove(key)
        else:
            self._put(kind, key, body)

    def _put(self, kind: str, key: Key, body: Body) -> None:
        self._pods_memo.clear()
        record = record_of(kind, body)
        if record is None:
            return
        self._forbidden.pop((kind, ""), None)
        self._forbidden.pop((kind, record.identity.namespace), None)
        old = self._records.get(key)
        if old is not None and old.identity != record.identity:
            self._remove(key)
            old = None
        self._records[key] = record
        self._keep_account(old, record)
        if isinstance(record, Workload) and record.selector:
            self._selectors[key[1]].put(key, record.selector, record.pod_labels)
        if old is None or isinstance(record, Autoscaler):
            if isinstance(old, Autoscaler):
                self._unlink(key, old)
            self._link(key, record)

    def replace(self, kind: str, bodies: Iterable[Body], since: int | None = None) -> None:
        """Take in a complete list: what it does not hold is gone, and the kind is synced.

        ``since`` is ``events_seen`` from before the list was asked for: what watches told later
        than that is newer than the list and stays. None takes the list as the newest.
        """
        newest = self.events_seen if since is None else since
        listed = set()
        for body in bodies:
            identity = identity_of(kind, body)
            key = (kind, identity.namespace, identity.name)
            listed.add(key)
            if self._seen_at.get(key, 0) <= newest:
                self._put(kind, key, body)
        self._remove_unlisted(kind, listed, newest)
        self._seen_at = {
            key: at for key, at in self._seen_at.items() if key[0] != kind or at > newest
        }
        self.mark_synced(kind)

    def _remove_unlisted(self, kind: str, listed: set[Key], newest: int) -> None:
        """Remove what a list does not hold, unless a watch told of it later than ``newest``."""
        for key in [key for key in self._records if key[0] == kind and key not in listed]:
            if self._seen_at.get(key, 0) <= newest:
                self._remove(key)

    def watched(self, kind: str) -> bool:
        """A watch has brought something of the kind: it follows it, if it lives."""
        return kind in self._watched

    def mark_synced(self, kind: str) -> None:
        """The first list of a kind is complete: from now on what is not there is missing."""
        self._synced.add(kind)
        self._forbidden = {key: why for key, why in self._forbidden.items() if key[0] != kind}

    def mark_forbidden(self, kind: str, why: str, namespace: str = "") -> None:
        """A kind cannot be watched; ``why`` names the verb and the resource."""
        self._forbidden[kind, namespace] = why

    def _forbids(self, kind: str, namespace: str) -> str:
        """Why a kind cannot be read in a namespace; empty when it can."""
        everywhere = self._forbidden.get((kind, ""), "")
        return everywhere or self._forbidden.get((kind, namespace), "")

    def synced(self, kind: str) -> bool:
        """True once a complete list of the kind was taken in."""
        return kind in self._synced

    def __len__(self) -> int:
        return len(self._records)

    def target_state(
        self, declaration: Declaration, sharing: tuple[str, ...] = ()
    ) -> TargetState | Unknown:
        """The workload a service scales; ``sharing`` names other services on the same target."""
        kind = declaration.target.kind
        for needed in (kind, "Pod", "HorizontalPodAutoscaler"):
            # Without the autoscalers nobody could tell whom we would fight.
            if why := self._forbids(needed, declaration.ref.namespace):
                return Unknown(Reason.TARGET_FORBIDDEN, why)
        if kind not in _TARGETS:
            return Unknown(Reason.NOT_OBSERVED, f"{kind} objects are not watched")
        workload = self._workload(declaration)
        if workload is None and kind not in self._synced:
            return Unknown(Reason.NOT_OBSERVED, f"the first list of {kind}s is not complete")
        if workload is None:
            where = f"{declaration.ref.namespace}/{declaration.target.name}"
            return Unknown(Reason.TARGET_MISSING, f"there is no {kind} {where}")
        if "Pod" not in self._synced:
            return Unknown(Reason.NOT_OBSERVED, "the first list of Pods is not complete")
        owners = (*self._other_autoscalers(declaration), *sharing)
        state = target.state_of(declaration, workload, self.pods_of(declaration), owners)
        unread = self._forbids("ResourceQuota", declaration.ref.namespace)
        overlapping = self._beside(declaration)
        if unread or overlapping:
            return replace(state, quota_unknown=unread, overlapping=overlapping)
        return state

    def target_pods(self, declaration: Declaration) -> TargetPods:
        """What admission asks about the target's pods."""
        workload = self._workload(declaration)
        grace_s = None if workload is None else workload.grace_s
        return TargetPods(grace_s, self._beside(declaration))

    def _beside(self, declaration: Declaration) -> tuple[str, ...]:
        """Workloads that share pods with the target by their labels."""
        namespace, target_ref = declaration.ref.namespace, declaration.target
        selectors = self._selectors.get(namespace)
        if selectors is None:
            return ()
        found = selectors.overlapping((target_ref.kind, namespace, target_ref.name))
        return tuple(f"{kind} {name}" for kind, _, name in sorted(found))

    def pods_of(self, declaration: Declaration) -> Pods:
        """The pods of a service's target, through their owner references; O(pods), then O(1)."""
        namespace = declaration.ref.namespace
        where = (declaration.target.kind, namespace, declaration.target.name)
        known = self._pods_memo.get(where)
        if known is not None:
            return known
        workload = self._workload(declaration)
        if workload is None:
            return Pods(namespace)
        records = self._replicas_of(workload)
        departed: tuple[str, ...] = ()
        if gone := self._departed.get(workload.identity.uid):
            names = {record.identity.name for record in records}
            departed = tuple(name for name in gone if name not in names)
        found = self._pods_memo[where] = self._pods(namespace, records, departed)
        return found

    def selected_pods(self, namespace: str, labels: tuple[str, ...]) -> Pods:
        """Pods that carry all of ``labels`` (``key=value``): for targets of kinds not watched."""
        wanted = set(labels)
        found = (
            record
            for key, record in self._records.items()
            if key[0] == "Pod" and key[1] == namespace
            if isinstance(record, PodRecord) and not record.finished
            if wanted.issubset(record.labels)
        )
        return self._pods(namespace, list(found), ())

    def quota_replicas(self, declaration: Declaration) -> int | None:
        """Replicas the namespace's quotas leave room for; None when none is known to bind."""
        workload = self._workload(declaration)
        if workload is None:
            return None
        quotas = [self._records[key] for key in self._quotas.get(declaration.ref.namespace, ())]
        here = len(self.pods_of(declaration).live)
        return target.quota_replicas(
            workload, here, [quota for quota in quotas if isinstance(quota, Quota)]
        )

    def gpu_room(self, declaration: Declaration, pods: Pods) -> GpuRoom | None:
        """Room for a service's replicas on GPUs of its type; None where that is not known.

        ``pods`` are those of its target, as ``pods_of`` gives them.
        """
        if "Node" not in self._synced or not self._every_namespace:
            return None
        per_pod, count = float(declaration.gpu.per_replica), 1
        workload = self._workload(declaration)
        if workload is not None:
            per_pod, count = target.gpus_of(workload, declaration)
        nodes = tuple(pod.node for pod in pods.live if pod.node)
        return self._gpus.room(Ask(declaration.gpu.type, max(1, int(per_pod)), count, nodes))

    def _pods(self, namespace: str, records: list[PodRecord], departed: tuple[str, ...]) -> Pods:
        workloads = frozenset(record.workload for record in records)
        owners = self._workload_owners
        return Pods(
            namespace=namespace,
            live=tuple(record.pod for record in records),
            departed=departed,
            workloads=workloads,
            ambiguous=frozenset(w for w in workloads if len(owners.get((namespace, w), ())) > 1),
        )

    def _workload(self, declaration: Declaration) -> Workload | None:
        key = (declaration.target.kind, declaration.ref.namespace, declaration.target.name)
        record = self._records.get(key)
        return record if isinstance(record, Workload) else None

    def _replicas_of(self, workload: Workload) -> list[PodRecord]:
        """One record a replica: its pod, or the leader that stands for its group."""
        records = [r for r in self._pods_under(workload.identity.uid) if not r.finished]
        if workload.identity.kind != GROUPS:
            return records
        return [
            groups.as_one(leader, list(self._pods_under(leader.identity.uid)), workload.pods)
            for leader in records
        ]

    def _pods_under(self, uid: str) -> Iterator[PodRecord]:
        for key in self._children.get(uid, ()):
            record = self._records[key]
            if isinstance(record, PodRecord):
                yield record
            elif isinstance(record, Workload):
                yield from self._pods_under(record.identity.uid)

    def _keep_account(self, old: Record | None, new: Record | None) -> None:
        """Tell the ledger of GPUs what came and what went."""
        for record, sign in ((old, -1), (new, +1)):
            if isinstance(record, PodRecord) and not record.finished and record.pod.node:
                self._gpus.hold(record.pod.node, record.devices, sign)
        if isinstance(new, Node | Slice | Claim):
            self._gpus.add(new)
        elif isinstance(old, Node | Slice | Claim):
            self._gpus.remove(old)

    def _other_autoscalers(self, declaration: Declaration) -> Iterator[str]:
        if declaration.scaling.actuation is Actuation.METRIC:
            return  # Then an HPA is the one who writes, on our behalf.
        where = (declaration.target.kind, declaration.ref.namespace, declaration.target.name)
        for key in sorted(self._autoscalers.get(where, ())):
            record = self._records[key]
            if isinstance(record, Autoscaler):
                yield record.shown

    def _link(self, key: Key, record: Record) -> None:
        identity = record.identity
        if isinstance(record, Autoscaler):
            self._autoscalers[_scaled(record)].add(key)
        elif isinstance(record, Quota):
            self._quotas[identity.namespace].add(key)
        elif identity.owner_uid:
            self._children[identity.owner_uid].add(key)
        if isinstance(record, PodRecord):
            self._count_owner(record, +1)

    def _unlink(self, key: Key, record: Record) -> None:
        identity = record.identity
        if isinstance(record, Autoscaler):
            _discard(self._autoscalers, _scaled(record), key)
        elif isinstance(record, Quota):
            _discard(self._quotas, identity.namespace, key)
        elif identity.owner_uid:
            _discard(self._children, identity.owner_uid, key)
        if isinstance(record, PodRecord):
            self._count_owner(record, -1)

    def _remove(self, key: Key) -> None:
        self._pods_memo.clear()
        record = self._records.pop(key, None)
        if record is None:
            return
        self._unlink(key, record)
        self._keep_account(record, None)
        if isinstance(record, PodRecord):
            root = self._root_uid(record.identity)
            if root:
                gone = self._departed.setdefault(root, deque(maxlen=_REMEMBERED_PODS))
                gone.append(record.identity.name)
        elif isinstance(record, Workload):
            self._departed.pop(record.identity.uid, None)
            self._selectors[key[1]].drop(key)
            if not self._selectors[key[1]]:
                del self._selectors[key[1]]

    def _root_uid(self, identity: Identity) -> str:
        """The Deployment behind a pod's ReplicaSet, or the pod's own controller."""
        where = (identity.owner_kind, identity.namespace, identity.owner_name)
        owner = self._records.get(where)
        if owner is None or owner.identity.owner_kind == "Pod":  # a group's worker counts nothing
            return ""
        return owner.identity.owner_uid or identity.owner_uid

    def _count_owner(self, record: PodRecord, change: int) -> None:
        identity, workload = record.identity, record.workload
        # The ReplicaSets of a Deployment come and go under its name and are one owner.
        ours = identity.owner_kind == "ReplicaSet" and identity.owner_name != workload
        owner = "Deployment" if ours else f"{identity.owner_kind} {identity.owner_name}"
        # Each group of a LeaderWorkerSet has a StatefulSet of its own for its workers.
        owner = groups.set_of(record.labels) or owner
        owners = self._workload_owners.setdefault((identity.namespace, workload), {})
        owners[owner] = owners.get(owner, 0) + change
        if owners[owner] <= 0:
            del owners[owner]
        if not owners:
            del self._workload_owners[identity.namespace, workload]


def _scaled(record: Autoscaler) -> Key:
    return record.target_kind, record.identity.namespace, record.target_name


def _discard(index: dict[_Where, set[Key]], where: _Where, key: Key) -> None:
    keys = index.get(where)
    if keys is not None:
        keys.discard(key)
        if not keys:
            del index[where]
