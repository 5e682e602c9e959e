"""ValidatingAdmissionPolicies for clusters that run without webhooks, from the CRD's own rules.

The first policy repeats every rule of the schema, so that it also holds on a cluster whose CRD is
an older one. The second does the arithmetic that needs no catalogue and no model: stability and the
SLO's floor of services whose service time is declared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sojourn.api import crd
from sojourn.api.resources import (
    BYPASS_ANNOTATION,
    GROUP,
    INFERENCE_SERVICE,
    SERVING_PROFILE,
    VERSION,
    Resource,
)
from sojourn.api.v1alpha1.profile import ServingProfileSpec
from sojourn.api.v1alpha1.service import InferenceServiceSpec

LABEL = "serving.sojourn.dev/admission"
_SELF = re.compile(r"\bself\b")
_OLD_SELF = re.compile(r"\boldSelf\b")


@dataclass(frozen=True)
class Place:
    """Where a part of the schema stands.

    Attributes:
        path: its CEL expression, such as ``object.spec.slo``; below a list, the item's.
        shown: the same for people.
        present: conditions under which there is anything to judge.
        within: the list whose items are judged; empty outside lists.
    """

    path: str
    shown: str
    present: tuple[str, ...] = ()
    within: str = ""


def validations(schema: Mapping[str, Any]) -> list[dict[str, str]]:
    """Every rule of a spec's schema as a policy's validation."""
    return [
        {"expression": _expression(rule["rule"], place), "message": _message(rule, place)}
        for part, place in _parts(schema, Place("object.spec", "spec"))
        for rule in part.get("x-kubernetes-validations", ())
    ]


def documents() -> tuple[dict[str, Any], ...]:
    """Policies and their bindings."""
    kinds = ((INFERENCE_SERVICE, InferenceServiceSpec), (SERVING_PROFILE, ServingProfileSpec))
    made: list[dict[str, Any]] = []
    for resource, spec in kinds:
        name = f"sojourn-{resource.singular}-rules"
        made += _policy(name, resource, {"validations": validations(crd.schema_of(spec))})
    made += _policy("sojourn-inferenceservice-arithmetic", INFERENCE_SERVICE, ARITHMETIC)
    return tuple(made)


# Nanoseconds: the durations' own text may be of any unit, and CEL has no seconds with a fraction.
ARITHMETIC: dict[str, Any] = {
    "matchConditions": [
        {
            "name": "has-a-declared-service-time",
            "expression": "has(object.spec.serviceTime)",
        },
        {
            "name": "is-not-bypassed",
            "expression": "!(has(object.metadata.annotations)"
            f" && '{BYPASS_ANNOTATION}' in object.metadata.annotations)",
        },
        {
            "name": "is-not-being-deleted",
            "expression": "!has(object.metadata.deletionTimestamp)",
        },
        {
            "name": "changes-the-spec",
            "expression": "oldObject == null || oldObject.spec != object.spec",
        },
    ],
    "variables": [
        {
            "name": "fixed",
            "expression": "double(int(dyn(duration(object.spec.serviceTime.fixed))))",
        },
        {
            "name": "each",
            "expression": "double(int(dyn(duration(object.spec.serviceTime.perRequest))))",
        },
        {
            "name": "batch",
            "expression": "has(object.spec.engine.maxBatchSize)"
            " && has(object.spec.engine.maxBatchSize.max)"
            " ? double(object.spec.engine.maxBatchSize.max) : 0.0",
        },
        {
            "name": "rate",
            "expression": "has(object.spec.traffic) && has(object.spec.traffic.peakRate)"
            " ? quantity(string(object.spec.traffic.peakRate)).asApproximateFloat()"
            " : has(object.spec.traffic) && has(object.spec.traffic.rate)"
            " ? quantity(string(object.spec.traffic.rate)).asApproximateFloat() : 0.0",
        },
        {
            "name": "replicas",
            "expression": "has(object.spec.scaling)"
            " ? double(object.spec.scaling.maxReplicas) : 1.0",
        },
        {
            "name": "load",
            "expression": "variables.batch == 0.0 ? 0.0 : variables.rate / 1e9"
            " * (variables.fixed + variables.each * variables.batch)"
            " / (variables.replicas * variables.batch)",
        },
    ],
    "validations": [
        {
            "expression": "variables.load < 1.0",
            "messageExpression": "'Unstable: max batch ' + string(int(variables.batch))"
            " + ' cannot keep up with ' + string(variables.rate) + '/s on '"
            " + string(int(variables.replicas)) + ' replicas: utilisation '"
            " + string(double(int(variables.load * 100.0 + 0.5)) / 100.0)"
            " + ', stable below 1. Raise max batch, or maxReplicas to '"
            " + string(int(variables.load * variables.replicas) + 1) + '.'",
            "message": "Unstable: the rate exceeds what maxReplicas can serve.",
        },
        {
            "expression": "!has(object.spec.slo.latency) || variables.fixed + variables.each"
            " <= double(int(dyn(duration(object.spec.slo.latency))))",
            "messageExpression": "'SLOUnreachable: latency of ' + object.spec.slo.latency"
            " + ' cannot be met at any load: a lone request takes '"
            " + string((variables.fixed + variables.each) / 1e6) + 'ms. Declare more.'",
            "message": "SLOUnreachable: a lone request takes longer than slo.latency.",
        },
    ],
}


def _policy(name: str, resource: Resource, content: Mapping[str, Any]) -> list[dict[str, Any]]:
    rule = {
        "apiGroups": [GROUP],
        "apiVersions": [VERSION],
        "operations": ["CREATE", "UPDATE"],
        "resources": [resource.plural],
    }
    policy = _object(
        "ValidatingAdmissionPolicy",
        name,
        {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            **content,
        },
    )
    enforce = {"key": LABEL, "operator": "NotIn", "values": ["warn", "off"]}
    warn = {"key": LABEL, "operator": "In", "values": ["warn"]}
    return [
        policy,
        _binding(name, name, ["Deny", "Audit"], enforce),
        _binding(f"{name}-warn", name, ["Warn", "Audit"], warn),
    ]


def _binding(
    name: str, policy: str, actions: list[str], selector: Mapping[str, Any]
) -> dict[str, Any]:
    return _object(
        "ValidatingAdmissionPolicyBinding",
        name,
        {
            "policyName": policy,
            "validationActions": actions,
            "matchResources": {"namespaceSelector": {"matchExpressions": [dict(selector)]}},
        },
    )


def _object(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "sojourn"}},
        "spec": dict(spec),
    }


def _parts(part: Mapping[str, Any], place: Place) -> Iterator[tuple[Mapping[str, Any], Place]]:
    """A part of a schema and all parts below it, each with its place."""
    yield part, place
    for name, inner in part.get("properties", {}).items():
        path = f"{place.path}.{name}"
        present = (
            place.present
            if name in part.get("required", ())
            else (
                *place.present,
                f"has({path})",
            )
        )
        yield from _parts(inner, Place(path, f"{place.shown}.{name}", present, place.within))
    if "items" in part and not place.within:
        yield from _parts(
            part["items"], Place("item", f"{place.shown}[]", place.present, place.path)
        )


def _expression(rule: str, place: Place) -> str:
    old = place.path.replace("object.", "oldObject.", 1)
    judged = _SELF.sub(place.path, _OLD_SELF.sub(old, rule))
    outside = [one for one in place.present if not one.startswith("has(item.")]
    inside = [f"!{one}" for one in place.present if one.startswith("has(item.")]
    judged = " || ".join([*inside, f"({judged})"])
    if place.within:
        judged = f"{place.within}.all(item, {judged})"
    conditions = [f"!{one}" for one in outside]
    if _OLD_SELF.search(rule):
        conditions = ["oldObject == null", *conditions]
    return " || ".join([*conditions, judged])


def _message(rule: Mapping[str, str], place: Place) -> str:
    return f"{place.shown}{rule.get('fieldPath', '')}: {rule['message']}"
