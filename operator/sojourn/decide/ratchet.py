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
    old_reasons: frozenset[Reason],
    old: Declaration,
    new: Declaration,
) -> tuple[Finding, ...]:
    """The findings with old violations whose inputs are unchanged turned into warnings."""
    return tuple(
        replace(finding, verdict=Verdict.WARN)
        if _untouched(finding, old_reasons, old, new)
        else finding
        for finding in findings
    )


def _untouched(
    finding: Finding, old_reasons: frozenset[Reason], old: Declaration, new: Declaration
) -> bool:
    inputs = INPUTS.get(finding.reason)
    if finding.verdict is not Verdict.REJECT or inputs is None:
        return False
    return finding.reason in old_reasons and inputs(old) == inputs(new)
