"""Review: the answer to one admission request, from memory alone.

The same chain as ``sojourn validate``: no network call, no clock. ``prepare`` reads what may change
under our feet and belongs to the event loop, ``judged_at_once`` may; ``judge`` is arithmetic that
may take its time and may run in any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from sojourn import api
from sojourn.controller.at_once import AtOnce, NeedsTime
from sojourn.controller.registry import Registry, read
from sojourn.decide import admission, ratchet
from sojourn.decide.capacity import Serving
from sojourn.decide.proposal import Proposal
from sojourn.errors import InvalidObject, SojournError
from sojourn.facts.declaration import Declaration, TailRule
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.gpu import Gpu
from sojourn.facts.reasons import Reason
from sojourn.facts.replica import Replica
from sojourn.facts.situation import TargetPods
from sojourn.model.choose import model_for
from sojourn.model.protocol import QueueModel

BYPASS_HINT = (
    "To store it all the same, annotate it with "
    'serving.sojourn.dev/admission-bypass: "<reason>" (logged and counted).'
)

OwnersOf = Callable[[Declaration], tuple[str, ...]]
RateOf = Callable[[Declaration], float | None]
PodsOf = Callable[[Declaration], TargetPods]
ModelOf = Callable[[Replica, TailRule], QueueModel]


class Enforcement(StrEnum):
    """What a rejection does in a namespace (label ``serving.sojourn.dev/admission``)."""

    ENFORCE = "enforce"
    WARN = "warn"


@dataclass(frozen=True)
class Review:
    """One answer: denied with a text, or allowed; warnings either way.

    Attributes:
        denial: None when allowed.
        warnings: one line each.
        findings: everything found, as it was judged in the end.
        bypassed: the reason in the annotation that overruled a rejection; empty otherwise.
    """

    denial: str | None = None
    warnings: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    bypassed: str = ""

    @property
    def answer(self) -> str:
        """``denied``, ``bypassed``, ``warned`` or ``allowed``, for the counter."""
        if self.denial is not None:
            return "denied"
        if self.bypassed:
            return "bypassed"
        return "warned" if self.warnings else "allowed"

    @property
    def rejected(self) -> tuple[Finding, ...]:
        """The findings that deny, or would without the bypass."""
        return tuple(f for f in self.findings if f.verdict is Verdict.REJECT)


@dataclass(frozen=True)
class Case:
    """What one answer depends on, taken from memory at one moment.

    Attributes:
        declaration: None when the object cannot be read; then ``findings`` say why.
        old_body: the object as stored; None at a creation.
        untouched: the spec is the stored one: whatever is found, the request is not to blame.
        rate_per_s: the observed rate of a live service, or None.
        owners: who else scales the target.
        pods: what is known of the target's pods.
    """

    declaration: Declaration | None
    findings: tuple[Finding, ...] = ()
    old_body: Mapping[str, Any] | None = None
    untouched: bool = False
    rate_per_s: float | None = None
    owners: tuple[str, ...] = ()
    pods: TargetPods = field(default_factory=TargetPods)


def _not_known(_: Declaration) -> TargetPods:
    return TargetPods()


@dataclass(frozen=True)
class Reviewer:
    """Judges objects against a snapshot of the cluster.

    Attributes:
        owners_of: who else scales a declaration's target.
        rate_of: the observed rate of a live service, or None.
        pods_of: what is known of the pods of its target.
        model_of: the queueing model that answers for a replica.
    """

    registry: Registry
    gpus: tuple[Gpu, ...]
    owners_of: OwnersOf
    rate_of: RateOf
    pods_of: PodsOf = _not_known
    model_of: ModelOf = model_for

    def review(self, body: Mapping[str, Any], old: Mapping[str, Any] | None) -> Review:
        """The answer to a CREATE (``old`` is None) or an UPDATE of an InferenceService."""
        case = self.prepare(body, old)
        return self.judge(case) if case is not None else Review()

    def prepare(self, body: Mapping[str, Any], old: Mapping[str, Any] | None) -> Case | None:
        """What the answer depends on; None when it is allowed without a look: a deletion."""
        if _deleting(body):
            return None
        declaration, findings = read(body)
        untouched = old is not None and old.get("spec") == body.get("spec")
        if declaration is None:
            return Case(None, findings, old, untouched)
        return Case(
            declaration,
            old_body=old,
            untouched=untouched,
            rate_per_s=self.rate_of(declaration),
            owners=self.owners_of(declaration),
            pods=self.pods_of(declaration),
        )

    def judged_at_once(self, case: Case) -> Review | None:
        """The verdict on a case if nothing must be solved for it, below a millisecond; or None."""
        try:
            return replace(self, model_of=self._at_once).judge(case)
        except NeedsTime:
            return None

    def judge(self, case: Case) -> Review:
        """The verdict on a case."""
        try:
            return self._judged(case)
        except NeedsTime:
            raise
        except Exception:
            if case.untouched:
                return Review()  # A label or a finalizer must get through whatever breaks here.
            raise

    def _at_once(self, replica: Replica, tail_rule: TailRule) -> QueueModel:
        return AtOnce(self.model_of(replica, tail_rule))

    def _judged(self, case: Case) -> Review:
        findings = case.findings
        if case.declaration is not None:
            findings = self._findings(case.declaration, case)
        if case.untouched:
            findings = ratchet.excused(findings)
        elif case.old_body is not None and admission.denied(findings):
            findings = self._ratcheted(findings, case, case.old_body)
        return answer(findings, case.declaration.bypass if case.declaration else None)

    def _findings(self, declaration: Declaration, case: Case) -> tuple[Finding, ...]:
        """Everything found about a declaration that could be read."""
        try:
            return self._checked(declaration, case)
        except SojournError as exc:
            text = f"this combination cannot be judged: {exc}"
            return (Finding(Reason.INVALID_OBJECT, Verdict.REJECT, "spec", text),)

    def _checked(self, declaration: Declaration, case: Case) -> tuple[Finding, ...]:
        resolved = self.registry.resolve(declaration)
        service = resolved.service
        if service is None:
            return resolved.findings
        tail_rule = declaration.scaling.tail_rule
        proposal = Proposal(
            serving=Serving(service, self.model_of(service.replica, tail_rule)),
            observed_rate_per_s=case.rate_per_s,
            other_owners=case.owners,
            gpus=self.gpus,
            pods=case.pods,
        )
        return (*resolved.findings, *admission.admit(proposal))

    def _ratcheted(
        self, findings: tuple[Finding, ...], case: Case, old_body: Mapping[str, Any]
    ) -> tuple[Finding, ...]:
        old, old_findings = read(old_body)
        if old is not None:
            old_findings = self._findings(old, case)
        return ratchet.ratcheted(findings, old_findings, old, case.declaration)


def review_profile(body: Mapping[str, Any], old: Mapping[str, Any] | None) -> Review:
    """The answer to a CREATE or UPDATE of a ServingProfile."""
    if _deleting(body):
        return Review()
    findings = _profile_findings(body)
    if old is not None:
        same = old.get("spec") == body.get("spec")
        findings = ratchet.excused(findings) if same else findings
        findings = ratchet.ratcheted(findings, _profile_findings(old), None, None)
    return answer(findings, None)


def answer(findings: tuple[Finding, ...], bypass: str | None) -> Review:
    """What follows from findings.

    Args:
        bypass: the reason given in the bypass annotation; None without one.
    """
    warnings = admission.warnings(findings)
    if not admission.denied(findings):
        return Review(warnings=warnings, findings=findings)
    denial = admission.denial(findings)
    if bypass:
        told = tuple(f"admitted by bypass ({bypass}): {line}" for line in denial.splitlines())
        return Review(warnings=(*told, *warnings), findings=findings, bypassed=bypass)
    hint = BYPASS_HINT if admission.waivable(findings) else ""
    return Review(f"{denial}\n{hint}".rstrip(), warnings, findings)


def softened(review: Review) -> Review:
    """The answer in a namespace labelled ``warn``: what would deny warns."""
    if review.denial is None:
        return review
    lines = admission.denial(review.findings).splitlines()
    told = tuple(f"would be denied, but this namespace only warns: {line}" for line in lines)
    return replace(review, denial=None, warnings=(*told, *review.warnings))


def _profile_findings(body: Mapping[str, Any]) -> tuple[Finding, ...]:
    try:
        api.read_profile(body)
    except InvalidObject as exc:
        return tuple(
            Finding(Reason.INVALID_OBJECT, Verdict.REJECT, where, f"{where} {text}")
            for where, text in exc.problems
        )
    return ()


def _deleting(body: Mapping[str, Any]) -> bool:
    metadata = body.get("metadata")
    return isinstance(metadata, Mapping) and bool(metadata.get("deletionTimestamp"))
