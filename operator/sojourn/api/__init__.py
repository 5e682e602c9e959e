"""Api: the custom resources as users write and read them, and nothing that decides.

``read`` and ``read_profile`` turn an object into facts, ``status`` turns a Plan into a status,
``crd`` renders the schemas. A field is added in one place, the pydantic model under ``v1alpha1``:
its description, default, limits and rules are what the API server, the command line and the
reference page use. Only facts, units, errors and pydantic are imported here.
"""

from sojourn.api.reading import read, read_profile
from sojourn.api.resources import (
    BYPASS_ANNOTATION,
    GROUP,
    INFERENCE_SERVICE,
    PAUSED_ANNOTATION,
    SERVING_PROFILE,
    VERSION,
)

__all__ = [
    "BYPASS_ANNOTATION",
    "GROUP",
    "INFERENCE_SERVICE",
    "PAUSED_ANNOTATION",
    "SERVING_PROFILE",
    "VERSION",
    "read",
    "read_profile",
]
