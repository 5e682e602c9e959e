"""Ratcheting: an update is not blamed for what it does not touch.

An object that already violates a rule may be edited elsewhere; only a change of the fields behind
the violation is judged. Otherwise nobody, the operator included, could mend such an object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sojourn.facts.declaration import Declaration
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.reasons import Reason


def _memory(d: Declaration) -> object:
    return d.model, d.gpu, replace(d.engine, queue_capacity=None, max_batch_wait_s=None)


def _load(d: Declaration) -> object:
    return (
        _memory(d),
        d.engine,
        d.traffic,
        d.service_time,
        d.profile_ref,
        d.scaling.max_replicas,
        d.scaling.target_utilisation,
    )


INPUTS: dict[Reason, Callable[[Declaration], object]] = {
    Reason.MODEL_UNKNOWN: lambda d: d.model,
    Reason.GPU_UNKNOWN: lambda d: d.gpu,
    Reason.WONT_START: _memory,
    Reason.OUT_OF_MEMORY: _memory,
    Reason.UNSTABLE: _load,
    Reason.SLO_UNREACHABLE: lambda d: (_load(d), d.slo),
    Reason.MIN_REPLICAS_ZERO: lambda d: (d.scaling.min_replicas, d.metrics),
}
"""What each rejection is computed from."""


def ratcheted(
    findings: tuple[Finding, ...],
    old_findings: tuple[Finding, ...],
    old: Declaration | None,
    new: Declaration | None,
) -> tuple[Finding, ...]:
    """The findings with old violations whose inputs are unchanged turned into warnings.

    Args:
        old_findings: what is found about the stored object today.
        old, new: None when that object cannot be read; then a violation is an old one when the
            stored object has the same, word for word.
    """
    rejected = tuple(f for f in old_findings if f.verdict is Verdict.REJECT)

    def is_old(finding: Finding) -> bool:
        if any((f.reason, f.field, f.message) == _told(finding) for f in rejected):
            return True
        inputs = INPUTS.get(finding.reason)
        if inputs is None or old is None or new is None:
            return False
        return any(f.reason is finding.reason for f in rejected) and inputs(old) == inputs(new)

    return tuple(_excused(f) if is_old(f) else f for f in findings)


def excused(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings of an update that leaves the spec alone: nothing of it is to blame."""
    return tuple(_excused(finding) for finding in findings)


def _told(finding: Finding) -> tuple[Reason, str, str]:
    return finding.reason, finding.field, finding.message


def _excused(finding: Finding) -> Finding:
    """A rejection as the warning it is when the request did not cause it."""
    if finding.verdict is not Verdict.REJECT:
        return finding
    text = f"{finding.message} (It is stored so already, and this request does not change it.)"
    return replace(finding, verdict=Verdict.WARN, message=text)
