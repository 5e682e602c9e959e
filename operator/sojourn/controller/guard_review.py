"""The optional guard of Deployments labelled ``serving.sojourn.dev/guard: enabled``.

Off unless its webhook is installed. It fails open: what it cannot read it lets pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sojourn import api
from sojourn.controller import review
from sojourn.controller.registry import Registry
from sojourn.controller.review import Review
from sojourn.decide import guard, ratchet
from sojourn.decide.capacity import Serving
from sojourn.decide.proposal import Proposal
from sojourn.errors import SojournError
from sojourn.facts.declaration import Declaration, ObjectRef
from sojourn.facts.finding import Finding
from sojourn.facts.gpu import Gpu
from sojourn.model.choose import model_for

KIND = "Deployment"
LABEL = "serving.sojourn.dev/guard"


@dataclass(frozen=True)
class Guard:
    """Judges the arguments of a Deployment by the memory model."""

    registry: Registry
    gpus: tuple[Gpu, ...]

    def review(
        self,
        body: Mapping[str, Any],
        old: Mapping[str, Any] | None,
        config: Mapping[str, str] | None = None,
    ) -> Review:
        """The answer to a CREATE (``old`` is None) or an UPDATE of a Deployment.

        Args:
            config: values of the engine container's ``envFrom``, when they are known.
        """
        metadata = body.get("metadata") or {}
        if metadata.get("deletionTimestamp"):
            return Review()
        if old is not None and _template(old) == _template(body):
            return Review()  # replicas, labels or status
        findings = self.findings(body, config)
        if old is not None:
            findings = ratchet.ratcheted(findings, self.findings(old, config), None, None)
        bypass = (metadata.get("annotations") or {}).get(api.BYPASS_ANNOTATION)
        return review.answer(findings, str(bypass) if bypass else None)

    def findings(
        self, body: Mapping[str, Any], config: Mapping[str, str] | None = None
    ) -> tuple[Finding, ...]:
        """What would keep the engine of a workload from starting.

        Args:
            config: as for ``review``.
        """
        workload = guard.workload_of(body, config)
        if workload is None:
            return ()
        metadata = body.get("metadata") or {}
        ref = ObjectRef(str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
        declared = self.registry.scaling(KIND, ref.namespace, ref.name)
        declaration = declared or guard.undeclared(workload, ref)
        if declaration is None:
            return ()
        try:
            return self._judged(guard.as_run(declaration, workload), workload)
        except SojournError:
            return ()

    def _judged(self, declaration: Declaration, workload: guard.Workload) -> tuple[Finding, ...]:
        service = self.registry.resolve(declaration).service
        if service is None:
            return ()
        proposal = Proposal(Serving(service, model_for(service.replica)), gpus=self.gpus)
        return guard.findings(workload, proposal)


def _template(body: Mapping[str, Any]) -> object:
    return (body.get("spec") or {}).get("template")
