"""Admission checks on the spec itself: waits, queues, floors, owners, what is not declared."""

from __future__ import annotations

import numpy as np

from sojourn.decide.proposal import Proposal
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.reasons import Reason
from sojourn.facts.replica import DynamicReplica
from sojourn.model import service_time
from sojourn.units import format_duration


def batch_wait_too_long(proposal: Proposal) -> Finding | None:
    """Dynamic batching: T_max above min(T_svc(B), SLO - T_svc(B)) makes load lower the latency."""
    replica, slo_s = proposal.service.replica, proposal.service.goal.latency_s
    if not isinstance(replica, DynamicReplica):
        return None
    service_s = float(service_time.service_s(replica.service, np.asarray(proposal.best_batch)))
    longest_s = service_s if slo_s is None else min(service_s, max(0.0, slo_s - service_s))
    if replica.max_wait_s <= longest_s * (1 + 1e-9):
        return None
    message = (
        f"maxBatchWait {format_duration(replica.max_wait_s)} is longer than a full batch gains: "
        f"at max batch {proposal.best_batch} a batch takes {format_duration(service_s)}. "
        f"Use at most {format_duration(longest_s)}."
    )
    return Finding(
        Reason.BATCH_WAIT_TOO_LONG,
        Verdict.WARN,
        "spec.engine.maxBatchWait",
        message,
        (("max_wait_s", replica.max_wait_s), ("longest_s", longest_s)),
    )


def queue_below_batch(proposal: Proposal) -> Finding | None:
    """K below B: a full batch never gathers."""
    capacity = proposal.service.replica.queue_capacity
    if capacity is None or capacity >= proposal.best_batch:
        return None
    message = (
        f"queueCapacity {capacity} is below max batch {proposal.best_batch}: a full batch never "
        f"gathers. Use at least {proposal.best_batch}, or max batch {capacity}."
    )
    return Finding(Reason.QUEUE_BELOW_BATCH, Verdict.WARN, "spec.engine.queueCapacity", message)


def zero_replicas_without_wake(proposal: Proposal) -> Finding | None:
    """A floor of 0 needs a signal that exists without pods."""
    declaration = proposal.service.declaration
    if declaration.scaling.min_replicas > 0 or declaration.metrics.arrival_rate_query:
        return None
    message = (
        "minReplicas 0 needs a wake source that exists without pods: give "
        "spec.metrics.arrivalRateQuery a gateway's counter, or set minReplicas to 1."
    )
    return Finding(Reason.MIN_REPLICAS_ZERO, Verdict.REJECT, "spec.scaling.minReplicas", message)


def target_has_other_owner(proposal: Proposal) -> Finding | None:
    """Somebody else scales the target: decided and reported, never written."""
    if not proposal.other_owners:
        return None
    target = proposal.service.declaration.target
    message = (
        f"{target.kind} {target.name} is already scaled by {', '.join(proposal.other_owners)}: "
        "decisions are reported and not written until one of them is removed."
    )
    return Finding(Reason.TARGET_CONFLICT, Verdict.WARN, "spec.scaleTargetRef", message)


def no_peak_declared(proposal: Proposal) -> Finding | None:
    """Stability cannot be judged before traffic is seen."""
    if proposal.judged is not None:
        return None
    message = (
        "stability cannot be judged before traffic is seen: declare spec.traffic.peakRate, the "
        "rate this service must survive."
    )
    return Finding(Reason.NO_PEAK_DECLARED, Verdict.WARN, "spec.traffic.peakRate", message)
