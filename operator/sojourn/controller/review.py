"""Review: the answer to one admission request, from memory alone.

The same chain as ``sojourn validate``: no network call, no clock. Kopf hands the objects over;
nothing of Kopf is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sojourn.controller.registry import Registry, read
from sojourn.decide import admission, ratchet
from sojourn.decide.capacity import Serving
from sojourn.decide.proposal import Proposal
from sojourn.errors import InvalidObject
from sojourn.facts.declaration import Declaration
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.gpu import Gpu
from sojourn.facts.reasons import Reason
from sojourn.model.choose import model_for

BYPASS_HINT = (
    "To store it all the same, annotate it with "
    'serving.sojourn.dev/admission-bypass: "<reason>" (logged and counted).'
)

OwnersOf = Callable[[Declaration], tuple[str, ...]]
RateOf = Callable[[Declaration], float | None]


@dataclass(frozen=True)
class Review:
    """One answer: denied with a text, or allowed; warnings either way.

    Attributes:
        denial: None when allowed.
        warnings: one line each.
        findings: everything found, for logs and counters.
        bypassed: a rejection was overruled by the annotation.
    """

    denial: str | None = None
    warnings: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    bypassed: bool = False

    @property
    def answer(self) -> str:
        """``denied``, ``bypassed``, ``warned`` or ``allowed``, for the counter."""
        if self.denial is not None:
            return "denied"
        if self.bypassed:
            return "bypassed"
        return "warned" if self.warnings else "allowed"


@dataclass(frozen=True)
class Reviewer:
    """Judges objects against a snapshot of the cluster.

    Attributes:
        owners_of: who else scales a declaration's target.
        rate_of: the observed rate of a live service, or None.
    """

    registry: Registry
    gpus: tuple[Gpu, ...]
    owners_of: OwnersOf
    rate_of: RateOf

    def review(self, body: Mapping[str, Any], old: Mapping[str, Any] | None) -> Review:
        """The answer to a CREATE (``old`` is None) or an UPDATE of an InferenceService."""
        if (body.get("metadata") or {}).get("deletionTimestamp"):
            return Review()  # never in the way of a deletion
        if old is not None and _spec(old) == _spec(body):
            return Review()  # metadata or status only
        declaration, findings = read(body)
        if declaration is not None:
            findings = self.findings(declaration)
            findings = self._ratcheted(findings, declaration, old)
        return _answer(declaration, findings)

    def findings(self, declaration: Declaration) -> tuple[Finding, ...]:
        """Everything found about a declaration that could be read."""
        resolved = self.registry.resolve(declaration)
        service = resolved.service
        if service is None:
            return resolved.findings
        tail_rule = declaration.scaling.tail_rule
        proposal = Proposal(
            serving=Serving(service, model_for(service.replica, tail_rule)),
            observed_rate_per_s=self.rate_of(declaration),
            other_owners=self.owners_of(declaration),
            gpus=self.gpus,
        )
        return (*resolved.findings, *admission.admit(proposal))

    def _ratcheted(
        self, findings: tuple[Finding, ...], new: Declaration, old_body: Mapping[str, Any] | None
    ) -> tuple[Finding, ...]:
        if old_body is None or not admission.denied(findings):
            return findings
        old, _ = read(old_body)
        if old is None:
            return findings
        reasons = frozenset(f.reason for f in self.findings(old) if f.verdict is Verdict.REJECT)
        return ratchet.ratcheted(findings, reasons, old, new)


def review_profile(body: Mapping[str, Any], read_profile: Callable[[object], object]) -> Review:
    """The answer to a CREATE or UPDATE of a ServingProfile."""
    try:
        read_profile(body)
    except InvalidObject as exc:
        lines = [f"{Reason.INVALID_OBJECT}: {where} {text}" for where, text in exc.problems]
        return Review(denial="\n".join(lines))
    return Review()


def _answer(declaration: Declaration | None, findings: tuple[Finding, ...]) -> Review:
    warnings = admission.warnings(findings)
    if not admission.denied(findings):
        return Review(warnings=warnings, findings=findings)
    denial = admission.denial(findings)
    if declaration is not None and declaration.bypass:
        told = f"admitted by bypass ({declaration.bypass}): {denial}"
        return Review(warnings=(told, *warnings), findings=findings, bypassed=True)
    return Review(f"{denial}\n{BYPASS_HINT}", warnings, findings)


def _spec(body: Mapping[str, Any]) -> object:
    return body.get("spec")
