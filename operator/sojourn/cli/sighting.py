"""One live service as the cluster shows it: its object, its target, what the operator last wrote.

Each part that cannot be read leaves a note in its place; what is missing is never made up.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sojourn import api
from sojourn.act.kube import object_path
from sojourn.api.resources import API_VERSION
from sojourn.catalogue import Catalogue
from sojourn.cli.cluster import Answer, Cluster, operator_settings
from sojourn.cli.given import Subject
from sojourn.errors import ClusterUnavailable, InvalidObject, UnitError
from sojourn.facts.declaration import Declaration
from sojourn.facts.policy import Policy
from sojourn.facts.profile import Profile
from sojourn.facts.situation import TargetState
from sojourn.observe import records, target
from sojourn.observe.pods import Pods
from sojourn.observe.workloads import Workload
from sojourn.units import parse_quantity


@dataclass(frozen=True)
class Sighting:
    """What was seen.

    Attributes:
        status: as the operator wrote it; empty if it never did.
        target: replicas and max batch; None if the target cannot be read.
        rate_per_s: the operator's; None if it does not know it.
        rate_from: where the rate comes from, for people.
        policy: thresholds of the operator's settings; the book's where they may not be read.
        notes: one line for each part that is missing, and what to do.
    """

    subject: Subject
    status: Mapping[str, Any]
    target: TargetState | None
    rate_per_s: float | None
    rate_from: str
    policy: Policy
    notes: tuple[str, ...]

    @property
    def replicas(self) -> int | None:
        """Replicas of the target, else those of the status."""
        if self.target is not None:
            return self.target.spec_replicas
        current = (self.status.get("replicas") or {}).get("current")
        return current if isinstance(current, int) else None

    @property
    def max_batch(self) -> int | None:
        """Max batch of the target, else that of the status; None if neither says."""
        if self.target is not None and self.target.max_batch is not None:
            return self.target.max_batch
        current = (self.status.get("maxBatch") or {}).get("current")
        return current if isinstance(current, int) else None


@dataclass(frozen=True)
class Sought:
    """Which service is looked for, and where the operator's settings are."""

    namespace: str
    name: str
    system: str = "sojourn-system"


async def see(cluster: Cluster, sought: Sought, rate_per_s: float | None) -> Sighting:
    """Look at one service.

    Args:
        rate_per_s: to use in place of the observed one; None for that of the status.

    Raises:
        ClusterUnavailable: the service cannot be read at all.
        InvalidObject: what the cluster stores cannot be read as one.
    """
    namespace, name = sought.namespace, sought.name
    path = object_path(API_VERSION, "InferenceService", namespace, name)
    found = await cluster.ask(path)
    if found.body is None:
        raise ClusterUnavailable(f"InferenceService {namespace}/{name}", _why(found), found.status)
    declaration = api.read(found.body)
    notes: list[str] = []
    profile = await _profile(cluster, declaration, notes)
    state = await _target(cluster, declaration, notes)
    status = found.body.get("status") or {}
    if not status:
        notes.append(
            "the service has no status: the operator does not run, or has not come to it yet "
            "(sojourn doctor)"
        )
    rate, rate_from = _rate(status, rate_per_s, declaration, notes)
    subject = Subject(declaration, profile, Catalogue(), from_flags=False)
    policy = await _policy(cluster, sought.system, notes)
    return Sighting(subject, status, state, rate, rate_from, policy, tuple(notes))


async def _policy(cluster: Cluster, system: str, notes: list[str]) -> Policy:
    settings = await operator_settings(cluster, system)
    declared = (settings or {}).get("thresholds") or {}
    if settings is None:
        notes.append(
            f"the operator's settings in {system} may not be read: the book's thresholds are shown"
        )
    usual = Policy()
    low = declared.get("lowUtilizationPercent", 100 * usual.low_utilisation)
    high = declared.get("highUtilizationPercent", 100 * usual.high_utilisation)
    try:
        return Policy(low_utilisation=float(low) / 100, high_utilisation=float(high) / 100)
    except (TypeError, ValueError) as exc:
        notes.append(f"the operator's thresholds are no thresholds: {exc}")
        return usual


def age_of(stamp: object) -> str:
    """How long ago an RFC 3339 time was; empty if it is none."""
    try:
        at = datetime.strptime(str(stamp), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return ""
    seconds = max(0.0, time.time() - at.timestamp())
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _why(answer: Answer) -> str:
    if answer.missing:
        return "does not exist, or its CRD is not installed (sojourn doctor)"
    if answer.forbidden:
        return f"may not be read: {answer.why}; ask for the role sojourn-view"
    return answer.why


async def _profile(cluster: Cluster, declaration: Declaration, notes: list[str]) -> Profile | None:
    if declaration.profile_ref is None:
        return None
    where = declaration.ref.namespace, declaration.profile_ref
    found = await cluster.ask(object_path(API_VERSION, "ServingProfile", *where))
    if found.body is None:
        notes.append(f"ServingProfile {'/'.join(where)} {_why(found)}: the time is estimated")
        return None
    try:
        return api.read_profile(found.body)
    except InvalidObject as exc:
        notes.append(f"ServingProfile {'/'.join(where)} cannot be read: {exc}")
        return None


async def _target(
    cluster: Cluster, declaration: Declaration, notes: list[str]
) -> TargetState | None:
    ref, namespace = declaration.target, declaration.ref.namespace
    path = object_path(ref.api_version, ref.kind, namespace, ref.name)
    found = await cluster.ask(path)
    record = None if found.body is None else records.record_of(ref.kind, found.body)
    if isinstance(record, Workload):
        state = target.state_of(declaration, record, Pods(namespace), ())
        return _with_ready(state, record.ready_replicas)
    scale = await cluster.ask(f"{path}/scale")
    if scale.body is not None:
        replicas = int((scale.body.get("spec") or {}).get("replicas") or 0)
        return TargetState(spec_replicas=replicas)
    notes.append(f"{ref.kind} {namespace}/{ref.name} {_why(scale)}: replicas as of the status")
    return None


def _with_ready(state: TargetState, ready: int) -> TargetState:
    pending = max(0, state.spec_replicas - ready)
    return replace(state, ready_replicas=ready, pods_pending=pending)


def _rate(
    status: Mapping[str, Any],
    given: float | None,
    declaration: Declaration,
    notes: list[str],
) -> tuple[float | None, str]:
    if given is not None:
        return given, "--rate"
    observed = status.get("rate") or {}
    if observed.get("state") in ("Known", "Zero"):
        try:
            value = parse_quantity(observed.get("value", 0))
        except UnitError:
            value = None
        if value is not None:
            age = age_of(observed.get("at"))
            return value, f"{observed.get('source', 'observed')}{', ' + age if age else ''}"
    if observed.get("state") == "Unknown":
        reason, why = observed.get("reason", ""), observed.get("message", "")
        notes.append(f"the rate is unknown: {reason}: {why}")
    declared = declaration.traffic.rate_per_s
    if declared is not None:
        notes.append("the declared rate stands in for the observed one; --rate takes another")
        return declared, "spec.traffic.rate"
    notes.append("no rate is known: --rate shows the table at one")
    return None, "unknown"
