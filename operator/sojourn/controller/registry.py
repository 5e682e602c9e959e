"""The registry: every InferenceService and ServingProfile in memory, resolved once a change.

Fed by watch events, read by the loop and by the webhook; one event loop owns it, so no locks.
Work is done for what changed: an event costs O(1), a tick resolves only what is stale.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sojourn import api
from sojourn.controller.statuses import Shown
from sojourn.decide import resolve
from sojourn.decide.capacity import Serving
from sojourn.decide.resolve import Names, Resolved
from sojourn.errors import InvalidObject
from sojourn.facts.calibration import Calibration
from sojourn.facts.declaration import Declaration, ObjectRef
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.profile import Profile
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import Past
from sojourn.model.choose import model_for

Key = tuple[str, str]


@dataclass
class Entry:
    """One InferenceService with what earlier ticks left behind.

    Attributes:
        stale: the spec or its profile changed since it was resolved; a tick under way goes on with
            what it began with.
        shown: what this process wrote of it last; None when ``status`` is as it was read.
        differs_since_s: since when something lasting is not in the status; None when nothing is.
    """

    ref: ObjectRef
    past: Past
    declaration: Declaration | None = None
    problems: tuple[Finding, ...] = ()
    stale: bool = True
    resolved: Resolved | None = None
    serving: Serving | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    shown: Shown | None = None
    differs_since_s: float | None = None
    rate_per_s: float | None = None
    calibration: Calibration | None = None
    ticks: int = 0
    created_at: str = ""
    checked: tuple[Serving, object, tuple[Finding, ...]] | None = None
    watched_generation: int = 0
    fingerprint: tuple[object, ...] = ()
    rival: tuple[str, float] | None = None
    deleting: bool = False


class Registry:
    """All objects of our kinds that this process has seen."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._entries: dict[Key, Entry] = {}
        self._profiles: dict[Key, Profile] = {}
        self._by_profile: dict[Key, set[Key]] = defaultdict(set)
        self._by_target: dict[tuple[str, str, str], set[Key]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> Iterator[Entry]:
        """Every live entry, resolved; objects under deletion are left out."""
        for entry in list(self._entries.values()):
            if not entry.deleting:
                yield self._fresh(entry)

    def get(self, key: Key) -> Entry | None:
        """The entry of that key, resolved, or None."""
        entry = self._entries.get(key)
        return self._fresh(entry) if entry is not None else None

    def put(self, body: Mapping[str, Any], now_s: float) -> bool:
        """Take in an InferenceService as the API server holds it; True if what is read changed."""
        ref = _ref(body)
        entry = self._entry_of(ref, now_s)
        entry.created_at = str((body.get("metadata") or {}).get("creationTimestamp") or "")
        entry.deleting = bool((body.get("metadata") or {}).get("deletionTimestamp"))
        entry.status = entry.status or body.get("status") or {}
        entry.rival = _rival(entry, body.get("status") or {}, now_s) or entry.rival
        fingerprint = _fingerprint(body)
        if entry.fingerprint == fingerprint:
            return False
        entry.fingerprint = fingerprint
        self._unlink(entry)
        entry.ref, entry.stale = ref, True
        entry.calibration = None
        entry.declaration, entry.problems = read(body)
        self._link(entry)
        return True

    def _entry_of(self, ref: ObjectRef, now_s: float) -> Entry:
        """The entry of an object; a new one when another object had its name."""
        entry = self._entries.get(ref.key)
        if entry is None or entry.ref.uid != ref.uid:
            self._forget(ref.key)
            entry = Entry(ref, Past(since_s=now_s))
            self._entries[ref.key] = entry
        return entry

    def watched(self, body: Mapping[str, Any]) -> None:
        """Note that the watch, not a list, has brought this version of an object."""
        ref = _ref(body)
        entry = self._entries.get(ref.key)
        if entry is not None and entry.ref.uid == ref.uid:
            entry.watched_generation = ref.generation

    def unwatched(self) -> set[Key]:
        """Objects whose latest version came by a list and not, so far, by the watch."""
        return {
            key
            for key, entry in self._entries.items()
            if entry.watched_generation < entry.ref.generation
        }

    def drop(self, body: Mapping[str, Any]) -> None:
        """Forget an InferenceService that is gone."""
        ref = _ref(body)
        entry = self._entries.get(ref.key)
        if entry is not None and entry.ref.uid in ("", ref.uid):
            self._forget(ref.key)

    def keep_only(self, keys: set[Key]) -> None:
        """After a full list: forget what the list does not hold."""
        for key in set(self._entries) - keys:
            self._forget(key)

    def put_profile(self, body: Mapping[str, Any]) -> None:
        """Take in a ServingProfile; one that cannot be read counts as missing."""
        key = _ref(body).key
        try:
            self._profiles[key] = api.read_profile(body)
        except InvalidObject:
            self._profiles.pop(key, None)
        self._stale(key)

    def drop_profile(self, body: Mapping[str, Any]) -> None:
        """Forget a ServingProfile."""
        key = _ref(body).key
        self._profiles.pop(key, None)
        self._stale(key)

    def profile(self, declaration: Declaration) -> Profile | None:
        """The profile a declaration names, if it exists."""
        if declaration.profile_ref is None:
            return None
        return self._profiles.get((declaration.ref.namespace, declaration.profile_ref))

    def resolve(self, declaration: Declaration) -> Resolved:
        """Resolve a declaration against the catalogue and the known profiles."""
        return resolve.resolve(declaration, self._names, self.profile(declaration))

    def sharing_target(self, declaration: Declaration) -> tuple[str, ...]:
        """Other InferenceServices on the same target that go before this one.

        The oldest scales it, of one age the first by name; the next one takes over when it goes.
        Before an object that is not stored yet, all others go.
        """
        others = self._by_target.get(_target_key(declaration), set()) - {declaration.ref.key}
        entry = self._entries.get(declaration.ref.key)
        if entry is not None:
            others = {key for key in others if self._age(key) < self._age(declaration.ref.key)}
        return tuple(f"InferenceService {name}" for _, name in sorted(others))

    def _age(self, key: Key) -> tuple[bool, str, Key]:
        """RFC 3339 times of one zone sort as text; what is going goes last."""
        entry = self._entries[key]
        return entry.deleting, entry.created_at, key

    def scaling(self, kind: str, namespace: str, name: str) -> Declaration | None:
        """The declaration whose target is that workload; of several, the first by name."""
        keys = sorted(self._by_target.get((namespace, kind, name), ()))
        entry = self._entries.get(keys[0]) if keys else None
        return entry.declaration if entry is not None else None

    def rate_of(self, declaration: Declaration) -> float | None:
        """Rate of a live service at its last tick; None if unknown."""
        entry = self._entries.get(declaration.ref.key)
        return entry.rate_per_s if entry is not None else None

    def _fresh(self, entry: Entry) -> Entry:
        if not entry.stale:
            return entry
        entry.stale = False
        resolved = self.resolve(entry.declaration) if entry.declaration is not None else None
        service = resolved.service if resolved is not None else None
        serving = None
        if service is not None:
            tail_rule = service.declaration.scaling.tail_rule
            serving = Serving(service, model_for(service.replica, tail_rule))
        entry.resolved, entry.serving = resolved, serving
        return entry

    def _stale(self, profile_key: Key) -> None:
        for key in self._by_profile.get(profile_key, ()):
            self._entries[key].stale = True

    def _link(self, entry: Entry) -> None:
        if entry.declaration is None:
            return
        self._by_target[_target_key(entry.declaration)].add(entry.ref.key)
        if entry.declaration.profile_ref is not None:
            profile = (entry.ref.namespace, entry.declaration.profile_ref)
            self._by_profile[profile].add(entry.ref.key)

    def _unlink(self, entry: Entry) -> None:
        if entry.declaration is None:
            return
        _discard(self._by_target, _target_key(entry.declaration), entry.ref.key)
        if entry.declaration.profile_ref is not None:
            profile = (entry.ref.namespace, entry.declaration.profile_ref)
            _discard(self._by_profile, profile, entry.ref.key)

    def _forget(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._unlink(entry)


def read(body: Mapping[str, Any]) -> tuple[Declaration | None, tuple[Finding, ...]]:
    """The declaration of an object, or the findings that say what is wrong with it."""
    try:
        return api.read(body), ()
    except InvalidObject as exc:
        return None, tuple(
            Finding(Reason.INVALID_OBJECT, Verdict.REJECT, where, f"{where} {text}")
            for where, text in exc.problems
        )


def _rival(entry: Entry, status: Mapping[str, Any], now_s: float) -> tuple[str, float] | None:
    """Another installation that wrote a status after ours; None when this one is not."""
    ours, other = entry.status.get("controller"), status.get("controller")
    if not ours or not other or ours == other:
        return None
    # RFC 3339 in UTC sorts as text: what was written before ours is a predecessor's.
    later = _decided_at(status) > _decided_at(entry.status)
    return (str(other), now_s) if later else None


def _decided_at(status: Mapping[str, Any]) -> str:
    return str((status.get("lastDecision") or {}).get("at") or "")


def _ref(body: Mapping[str, Any]) -> ObjectRef:
    metadata = body.get("metadata") or {}
    return ObjectRef(
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or ""),
        uid=str(metadata.get("uid") or ""),
        generation=int(metadata.get("generation") or 0),
    )


def _fingerprint(body: Mapping[str, Any]) -> tuple[object, ...]:
    """What of an object is read: its spec by generation, and two annotations."""
    metadata = body.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    return (
        metadata.get("generation"),
        annotations.get(api.BYPASS_ANNOTATION),
        annotations.get(api.PAUSED_ANNOTATION),
    )


def _target_key(declaration: Declaration) -> tuple[str, str, str]:
    return declaration.ref.namespace, declaration.target.kind, declaration.target.name


def _discard(index: dict[Any, set[Key]], at: object, key: Key) -> None:
    index[at].discard(key)
    if not index[at]:
        del index[at]
