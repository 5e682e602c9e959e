"""Admission: a chain of named checks; all findings are collected and returned together.

The same chain answers the webhook, ``sojourn validate`` and the operator's own re-check, so its
verdict on one object is one verdict, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from sojourn.decide import memory_checks, metrics_checks, queue_checks, spec_checks
from sojourn.decide.proposal import Proposal
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.memory import Fit
from sojourn.facts.reasons import Reason
from sojourn.facts.replica import ContinuousReplica

Check = Callable[[Proposal], Finding | None]

MEMORY: tuple[Check, ...] = (
    memory_checks.weights_or_request_exceed_memory,  # nothing else matters if it does not load
    memory_checks.contiguous_batch_exceeds_memory,
    memory_checks.startup_peak_exceeds_memory,
    memory_checks.memory_too_close,
    memory_checks.kv_below_max_batch,
    memory_checks.length_above_model,
    memory_checks.gpu_shared,
)
"""Does it start; also asked of a workload's own arguments by the guard."""

ADMISSION: tuple[Check, ...] = (
    *MEMORY,
    spec_checks.batch_above_batched_tokens,
    queue_checks.unstable_at_peak,  # with the best batch that fits
    queue_checks.slo_below_floor,
    queue_checks.slo_missed_at_peak,
    queue_checks.utilisation_above_target,
    spec_checks.batch_wait_too_long,
    spec_checks.queue_below_batch,
    metrics_checks.zero_replicas_without_wake,
    metrics_checks.query_counts_everybody,
    spec_checks.grace_too_short,
    spec_checks.target_has_other_owner,
    spec_checks.selectors_overlap,
    spec_checks.no_peak_declared,
)
"""In the order a reader cares: does it start, is it stable, is it fast, is it tidy."""


def admit(proposal: Proposal) -> tuple[Finding, ...]:
    """All findings of one proposal, in the chain's order."""
    return gathered(ADMISSION, _apart_from_memory(proposal))


def gathered(checks: Iterable[Check], proposal: Proposal) -> tuple[Finding, ...]:
    """What the checks find, in their order."""
    return tuple(finding for check in checks if (finding := check(proposal)))


def _apart_from_memory(proposal: Proposal) -> Proposal:
    """A model that does not load has no KV cache: its queue is judged by the declared batch.

    Else every such service would also be told that the one request it holds is too few.
    """
    service = proposal.service
    if service.memory.fit is not Fit.WONT_START:
        return proposal
    replica = service.replica
    if isinstance(replica, ContinuousReplica):
        replica = replace(replica, kv_tokens=None)
    bounds = replace(service.bounds, kv_limit=None)
    loaded = replace(service, replica=replica, bounds=bounds)
    return replace(proposal, serving=replace(proposal.serving, service=loaded))


def denied(findings: tuple[Finding, ...]) -> bool:
    """True when any finding is a REJECT."""
    return any(finding.verdict is Verdict.REJECT for finding in findings)


def denial(findings: tuple[Finding, ...]) -> str:
    """The text of a denial: each rejected reason with its message, one a line."""
    return "\n".join(f"{f.reason}: {f.message}" for f in findings if f.verdict is Verdict.REJECT)


def waivable(findings: tuple[Finding, ...]) -> bool:
    """True when the bypass annotation would admit it: an object that cannot be read it cannot."""
    rejected = (f.reason for f in findings if f.verdict is Verdict.REJECT)
    return Reason.INVALID_OBJECT not in rejected


def warnings(findings: tuple[Finding, ...]) -> tuple[str, ...]:
    """One line a warning, as kubectl prints them."""
    return tuple(f"{f.reason}: {f.message}" for f in findings if f.verdict is Verdict.WARN)
