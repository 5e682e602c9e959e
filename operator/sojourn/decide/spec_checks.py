"""Admission checks on the spec itself: waits, queues, floors, owners, what is not declared."""

from __future__ import annotations

import math

import numpy as np

from sojourn.decide.lengths import NORMAL_P99
from sojourn.decide.proposal import Proposal
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.reasons import Reason
from sojourn.facts.replica import DynamicReplica
from sojourn.facts.service_time import TokenLengths
from sojourn.model import service_time
from sojourn.units import format_duration

ROUTED_S = 5.0
"""Until every router has heard that a pod is going; the usual preStop sleep."""


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


def batch_above_batched_tokens(proposal: Proposal) -> Finding | None:
    """A step that may hold fewer tokens than requests: vLLM ends at once (SchedulerConfig)."""
    engine = proposal.service.declaration.engine
    tokens, batch = engine.max_batched_tokens, engine.max_batch
    if engine.name != "vllm" or tokens is None or batch is None or tokens >= batch:
        return None
    message = (
        f"vLLM does not start with maxBatchedTokens {tokens} below max batch {batch}: each running "
        f"request needs a token of every step. Use at least {batch}, or max batch {tokens}."
    )
    numbers = (("max_batched_tokens", float(tokens)), ("max_batch", float(batch)))
    return Finding(
        Reason.WONT_START, Verdict.REJECT, "spec.engine.maxBatchedTokens", message, numbers
    )


def grace_too_short(proposal: Proposal) -> Finding | None:
    """A pod told to stop is killed before the longest answers are out."""
    grace_s = proposal.pods.grace_s
    if grace_s is None:
        return None
    longest_s = _answer_s(proposal)
    needed_s = longest_s + ROUTED_S
    if grace_s >= needed_s:
        return None
    target = proposal.service.declaration.target
    message = (
        f"terminationGracePeriodSeconds {grace_s:g} of {target.kind} {target.name} is shorter than "
        f"the P99 answer at max batch {proposal.best_batch}, {format_duration(longest_s)}, and "
        f"{ROUTED_S:g} s until no more requests are routed to a pod: scale-downs and rollouts cut "
        f"answers off. Set at least {math.ceil(needed_s)}."
    )
    numbers = (("grace_s", grace_s), ("answer_s", longest_s))
    return Finding(Reason.GRACE_TOO_SHORT, Verdict.WARN, "spec.scaleTargetRef", message, numbers)


def _answer_s(proposal: Proposal) -> float:
    """Time from a request's admission into the batch to its last token, at P99 of the tokens."""
    replica, batch = proposal.service.replica, proposal.best_batch
    if isinstance(replica, DynamicReplica):
        return float(service_time.service_s(replica.service, np.asarray(batch)))
    step_s = replica.iteration.fixed_s + replica.iteration.per_request_s * batch
    return step_s * _p99_tokens(replica.output)


def _p99_tokens(law: TokenLengths) -> float:
    """P99 of an output law; a histogram's own, else of the law through mean and variation."""
    if law.law == "histogram":
        share = np.cumsum(law.weights) / sum(law.weights)
        return float(law.values[min(int(np.searchsorted(share, 0.99)), len(law.values) - 1)])
    if law.law == "geometric" and law.mean > 1:
        return math.log(0.01) / math.log1p(-1 / law.mean)
    sigma = math.sqrt(math.log1p(law.scv))
    return law.mean * math.exp(NORMAL_P99 * sigma - sigma**2 / 2)


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


def selectors_overlap(proposal: Proposal) -> Finding | None:
    """Pods of the target carry another workload's labels, or the reverse."""
    others = proposal.pods.overlapping
    if not others:
        return None
    target = proposal.service.declaration.target
    message = (
        f"{overlap(f'{target.kind} {target.name}', others)} Give each a label of its own in its "
        "selector and its pod template."
    )
    return Finding(Reason.SELECTOR_OVERLAP, Verdict.WARN, "spec.scaleTargetRef", message)


def overlap(target: str, others: tuple[str, ...]) -> str:
    """What two workloads whose selectors overlap do to each other, as one sentence."""
    return (
        f"pods of {target} and of {', '.join(others)} match each other's selector: Sojourn tells "
        "them apart by their owner, an HPA or a Service does not."
    )


def no_peak_declared(proposal: Proposal) -> Finding | None:
    """Stability cannot be judged before traffic is seen."""
    if proposal.judged is not None:
        return None
    message = (
        "stability cannot be judged before traffic is seen: declare spec.traffic.peakRate, the "
        "rate this service must survive."
    )
    return Finding(Reason.NO_PEAK_DECLARED, Verdict.WARN, "spec.traffic.peakRate", message)
