"""The pydantic models as CustomResourceDefinitions: structural schemas, rules and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sojourn.api.resources import GROUP, INFERENCE_SERVICE, SERVING_PROFILE, VERSION, Resource
from sojourn.api.v1alpha1.base import Part
from sojourn.api.v1alpha1.profile import ServingProfileSpec
from sojourn.api.v1alpha1.service import InferenceServiceSpec
from sojourn.api.v1alpha1.status import InferenceServiceStatus, ServingProfileStatus

_FIRST = ("description", "type", "default", "enum", "required", "properties")
_DROPPED = frozenset({"title", "examples", "$defs", "propertyNames"})

_READY = '.status.conditions[?(@.type=="Ready")].status'
_SERVICE_COLUMNS = (
    ("Model", "string", ".spec.model.name", 0),
    ("GPU", "string", ".spec.gpu.type", 0),
    ("SLO", "string", ".spec.slo.latency", 0),
    ("Rate", "string", ".status.rate.value", 0),
    ("Util", "integer", ".status.utilizationPercent", 0),
    ("P99", "string", ".status.latency.predicted.p99", 0),
    ("Replicas", "integer", ".status.replicas.current", 0),
    ("Batch", "integer", ".status.maxBatch.current", 0),
    ("Ready", "string", _READY, 0),
    ("Limited-By", "string", ".status.limitedBy", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Desired", "integer", ".status.replicas.desired", 1),
    ("Min", "integer", ".spec.scaling.minReplicas", 1),
    ("Max", "integer", ".spec.scaling.maxReplicas", 1),
    ("Regime", "string", ".status.regime", 1),
    ("Row", "string", ".status.lastDecision.row", 1),
)
_PROFILE_COLUMNS = (
    ("Model", "string", ".spec.model", 0),
    ("GPU", "string", ".spec.gpu.type", 0),
    ("TP", "integer", ".spec.gpu.tensorParallel", 0),
    ("Fixed", "string", ".status.fixed", 0),
    ("Per-Request", "string", ".status.perRequest", 0),
    ("Error-Percent", "integer", ".status.maxRelativeErrorPercent", 0),
    ("Valid", "string", '.status.conditions[?(@.type=="Valid")].status', 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Engine", "string", ".spec.engine", 1),
)


def inference_service() -> dict[str, Any]:
    """The CustomResourceDefinition of InferenceService."""
    about = (
        "An inference service on GPUs: what is served, how fast it must be, and what may be"
        " changed to keep it so. Short name infsvc; KServe has a kind of the same name in another"
        " group."
    )
    schema = _root(about, InferenceServiceSpec, InferenceServiceStatus)
    return _definition(INFERENCE_SERVICE, schema, _SERVICE_COLUMNS)


def serving_profile() -> dict[str, Any]:
    """The CustomResourceDefinition of ServingProfile."""
    about = (
        "Measured service time of one model, GPU, parallelism, engine and request shape."
        " An InferenceService refers to it by profileRef."
    )
    schema = _root(about, ServingProfileSpec, ServingProfileStatus)
    return _definition(SERVING_PROFILE, schema, _PROFILE_COLUMNS)


def definitions() -> tuple[dict[str, Any], ...]:
    """Both definitions."""
    return inference_service(), serving_profile()


def _definition(
    resource: Resource, schema: Mapping[str, Any], columns: tuple[tuple[str, str, str, int], ...]
) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": resource.full_name,
            "labels": {"app.kubernetes.io/name": "sojourn"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.singular,
                "shortNames": [resource.short_name],
                "categories": ["sojourn"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(*column) for column in columns],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _column(name: str, kind: str, path: str, priority: int) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path}
    return column | ({"priority": priority} if priority else {})


def _root(about: str, spec: type[Part], status: type[Part]) -> dict[str, Any]:
    return {
        "description": about,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}."},
            "kind": {"type": "string", "description": "Kind of the object."},
            "metadata": {"type": "object"},
            "spec": schema_of(spec),
            "status": schema_of(status),
        },
    }


def schema_of(part: type[Part]) -> dict[str, Any]:
    """Structural OpenAPI schema of one part, without references."""
    whole = part.model_json_schema(by_alias=True, mode="validation")
    return _structural(whole, whole.get("$defs", {}))


def _structural(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """One schema node with references put in place and null alternatives taken out.

    What stands beside a reference or an alternative belongs to the field, so it wins over what
    the type says of itself.
    """
    if "$ref" in node:
        referred = definitions[node["$ref"].rsplit("/", 1)[-1]]
        return _structural(_merged(referred, node, "$ref"), definitions)
    only = _alternative(node)
    if only is not None:
        return _structural(_merged(only, node, "anyOf"), definitions)
    plain = {name: value for name, value in node.items() if name not in _DROPPED}
    _settle_default(plain)
    if plain.get("additionalProperties") is False:
        del plain["additionalProperties"]
    for name in ("items", "additionalProperties"):
        if name in plain:
            plain[name] = _structural(plain[name], definitions)
    if "properties" in plain:
        plain["properties"] = {
            name: _structural(field, definitions) for name, field in plain["properties"].items()
        }
    return _in_order(plain)


def _in_order(node: Mapping[str, Any]) -> dict[str, Any]:
    """The names that tell most first, the others as they come."""
    first = [name for name in _FIRST if name in node]
    return {name: node[name] for name in dict.fromkeys((*first, *node))}


def _alternative(node: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a field that may be null is otherwise; None where nothing may be null."""
    null = {"type": "null"}
    alternatives: Sequence[Mapping[str, Any]] = node.get("anyOf", ())
    if null not in alternatives:
        return None
    (only,) = (one for one in alternatives if one != null)
    return only


def _merged(inner: Mapping[str, Any], outer: Mapping[str, Any], without: str) -> dict[str, Any]:
    return {**inner, **{name: value for name, value in outer.items() if name != without}}


def _settle_default(node: dict[str, Any]) -> None:
    """No default where there is none; of an object, the fields that have one.

    The defaults of an object's fields are repeated in the object's own, because the API server
    judges a default by the rules before it fills in what the default leaves out.
    """
    default = node.get("default")
    if isinstance(default, dict):
        default = {name: value for name, value in default.items() if value is not None}
    if default in (None, [], {}, ""):
        node.pop("default", None)
    else:
        node["default"] = default
