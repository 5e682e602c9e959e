"""Names of our custom resources: group, version, kinds, annotations and labels."""

from __future__ import annotations

from dataclasses import dataclass

GROUP = "serving.sojourn.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

BYPASS_ANNOTATION = f"{GROUP}/admission-bypass"
"""Its value is the reason why the admission verdicts of this object are waived."""

PAUSED_ANNOTATION = f"{GROUP}/paused"
"""``"true"``: nothing is written to the target; the status still is."""

ADMISSION_LABEL = f"{GROUP}/admission"
"""On a namespace: ``enforce``, ``warn`` or ``off``."""


@dataclass(frozen=True)
class Resource:
    """One kind and its names."""

    kind: str
    plural: str
    singular: str
    short_name: str

    @property
    def full_name(self) -> str:
        """Name no other group can take: ``inferenceservices.serving.sojourn.dev``."""
        return f"{self.plural}.{GROUP}"


INFERENCE_SERVICE = Resource("InferenceService", "inferenceservices", "inferenceservice", "infsvc")
SERVING_PROFILE = Resource("ServingProfile", "servingprofiles", "servingprofile", "sprof")
