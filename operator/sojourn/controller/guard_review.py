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
from sojourn.decide import guard, guard_workload, ratchet
from sojourn.decide.capacity import Serving
from sojourn.decide.guard_workload import Workload
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
        config_maps: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Review:
        """The answer to a CREATE (``old`` is None) or an UPDATE of a workload.

        Args:
            config_maps: data of the namespace's ConfigMaps by name. The operator has none: it
                reads no ConfigMaps, and what they set is not judged.
        """
        metadata = body.get("metadata") or {}
        if metadata.get("deletionTimestamp"):
            return Review()
        if old is not None and _templates(old) == _templates(body):
            return Review()  # replicas, labels or status
        findings = self.findings(body, config_maps)
        if old is not None:
            findings = ratchet.ratcheted(findings, self.findings(old, config_maps), None, None)
        bypass = (metadata.get("annotations") or {}).get(api.BYPASS_ANNOTATION)
        return review.answer(findings, str(bypass) if bypass else None)

    def findings(
        self,
        body: Mapping[str, Any],
        config_maps: Mapping[str, Mapping[str, str]] | None = None,
    ) -> tuple[Finding, ...]:
        """What would keep the engine of a workload from starting.

        Args:
            config_maps: as for ``review``.
        """
        missing = "the operator does not read" if config_maps is None else "is not among the files"
        workload = guard_workload.workload_of(body, config_maps, missing)
        if workload is None:
            return ()
        ref = _ref(body)
        kind = str(body.get("kind") or KIND)
        declared = self.registry.scaling(kind, ref.namespace, ref.name)
        declaration = declared or guard.undeclared(workload, ref)
        found = guard.unreadable(workload)
        if declaration is None or not guard.judgeable(workload):
            return found
        try:
            return (*self._judged(guard.as_run(declaration, workload), workload), *found)
        except SojournError:
            return found

    def _judged(self, declaration: Declaration, workload: Workload) -> tuple[Finding, ...]:
        resolved = self.registry.resolve(declaration)
        service = resolved.service
        if service is None:
            return guard.impossible(workload, resolved.findings)
        proposal = Proposal(Serving(service, model_for(service.replica)), gpus=self.gpus)
        return guard.findings(workload, proposal)


def _templates(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The pod templates of a workload; all of its spec for a kind that has them elsewhere."""
    kind = str(body.get("kind") or KIND)
    paths = guard_workload.TEMPLATES.get(kind, (("spec",),))
    return [guard_workload.at(body, *path) for path in paths]


def _ref(body: Mapping[str, Any]) -> ObjectRef:
    metadata = body.get("metadata") or {}
    return ObjectRef(str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
