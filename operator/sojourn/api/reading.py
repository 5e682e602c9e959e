"""A custom resource read into facts, or every problem with it at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from sojourn.api import translation
from sojourn.api.problems import Problem, problems_of, shown
from sojourn.api.resources import (
    API_VERSION,
    BYPASS_ANNOTATION,
    INFERENCE_SERVICE,
    PAUSED_ANNOTATION,
    SERVING_PROFILE,
    Resource,
)
from sojourn.api.v1alpha1.base import Part
from sojourn.api.v1alpha1.profile import ServingProfileSpec
from sojourn.api.v1alpha1.scalars import NAME_LENGTH, NAME_PATTERN
from sojourn.api.v1alpha1.service import InferenceServiceSpec
from sojourn.errors import InvalidObject
from sojourn.facts.declaration import Declaration, ObjectRef
from sojourn.facts.profile import Profile

AnyPart = TypeVar("AnyPart", bound=Part)
_DEEPEST = 12
_NAMESPACE_LENGTH = 63


def read(body: object) -> Declaration:
    """An InferenceService as its author declared it, schema defaults filled in.

    Args:
        body: the object as decoded from JSON or YAML; anything at all is accepted and judged.

    Raises:
        InvalidObject: with every problem found, each a field path and a text.
    """
    whole, metadata, problems = _opened(body, INFERENCE_SERVICE)
    bypass, paused = _switches(metadata, problems)
    spec = _spec(whole, InferenceServiceSpec, problems)
    if problems or spec is None:
        raise InvalidObject(problems)
    return translation.declaration(spec, _ref(metadata), bypass=bypass, paused=paused)


def read_profile(body: object) -> Profile:
    """A ServingProfile as its author declared it.

    Raises:
        InvalidObject: with every problem found, each a field path and a text.
    """
    whole, metadata, problems = _opened(body, SERVING_PROFILE)
    spec = _spec(whole, ServingProfileSpec, problems)
    if spec is not None:
        problems += _repeated_batches(spec)
    if problems or spec is None:
        raise InvalidObject(problems)
    return translation.profile(spec, _ref(metadata))


def _opened(
    body: object, resource: Resource
) -> tuple[Mapping[str, Any], Mapping[str, Any], list[Problem]]:
    """The object, its metadata, and what is wrong with kind, version and names."""
    if not isinstance(body, Mapping):
        raise InvalidObject([("object", f"is {shown(body)}: expected a {resource.kind}")])
    # An item of a list may lack its kind; a wrong one is always a mistake.
    problems: list[Problem] = [
        (field, f'is {shown(body[field])}: expected "{expected}"')
        for field, expected in (("apiVersion", API_VERSION), ("kind", resource.kind))
        if body.get(field, expected) != expected
    ]
    metadata = body.get("metadata")
    if not isinstance(metadata, Mapping):
        problems.append(
            ("metadata", f"is {shown(metadata)}: expected an object with a name, such as chat")
        )
        return body, {}, problems
    problems += _name_problems("metadata.name", metadata.get("name"), NAME_LENGTH)
    if metadata.get("namespace") is not None:
        problems += _name_problems("metadata.namespace", metadata["namespace"], _NAMESPACE_LENGTH)
    return body, metadata, problems


def _name_problems(path: str, name: object, length: int) -> list[Problem]:
    if name is None:
        return [(path, 'is missing: expected a name, such as "chat"')]
    if not isinstance(name, str):
        return [(path, f'is {shown(name)}: expected a name, such as "chat"')]
    if len(name) > length:
        return [(path, f"has {len(name)} characters: expected at most {length}")]
    if not re.fullmatch(NAME_PATTERN, name, re.ASCII):
        return [
            (
                path,
                f"is {shown(name)}: expected lower-case letters, digits, '-' and '.', beginning"
                ' and ending with a letter or digit, such as "chat"',
            )
        ]
    return []


def _ref(metadata: Mapping[str, Any]) -> ObjectRef:
    uid, generation = metadata.get("uid"), metadata.get("generation")
    return ObjectRef(
        namespace=metadata.get("namespace") or "default",
        name=metadata["name"],
        uid=uid if isinstance(uid, str) else "",
        generation=generation if isinstance(generation, int) else 0,
    )


def _switches(metadata: Mapping[str, Any], problems: list[Problem]) -> tuple[str | None, bool]:
    """The bypass reason and whether the object is paused; adds what cannot be read."""
    annotations = metadata.get("annotations")
    if annotations is None:
        return None, False
    if not isinstance(annotations, Mapping):
        problems.append(
            ("metadata.annotations", f"is {shown(annotations)}: expected names with text values")
        )
        return None, False
    bypass, paused = annotations.get(BYPASS_ANNOTATION), annotations.get(PAUSED_ANNOTATION)
    if bypass is not None and not (isinstance(bypass, str) and bypass.strip()):
        problems.append(
            (
                f"metadata.annotations[{BYPASS_ANNOTATION}]",
                f"is {shown(bypass)}: expected the reason for the bypass, such as"
                ' "load test until Friday, INC-123"',
            )
        )
    if paused is not None and paused not in ("true", "false"):
        problems.append(
            (
                f"metadata.annotations[{PAUSED_ANNOTATION}]",
                f'is {shown(paused)}: expected "true" or "false"',
            )
        )
    return (bypass.strip() if isinstance(bypass, str) else None), paused == "true"


def _spec(body: Mapping[str, Any], kind: type[AnyPart], problems: list[Problem]) -> AnyPart | None:
    """The validated spec, or None with its problems added."""
    spec = body.get("spec")
    if not isinstance(spec, Mapping):
        problems.append(
            ("spec", f"is {shown(spec)}: expected an object with model, gpu and the rest")
        )
        return None
    try:
        return kind.model_validate(_without_nulls(spec, _DEEPEST))
    except ValidationError as error:
        problems += problems_of(error, kind, "spec")
    return None


def _without_nulls(value: Any, depth: int) -> Any:
    """The API server drops nulls before it fills in defaults; so a null means "not given"."""
    if depth == 0:
        return value
    if isinstance(value, Mapping):
        return {
            str(key): _without_nulls(item, depth - 1)
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        return [_without_nulls(item, depth - 1) for item in value]
    return value


def _repeated_batches(spec: ServingProfileSpec) -> list[Problem]:
    """The API server's list-map key, for objects it has not seen."""
    batches = [point.batch for point in spec.points or []]
    return [
        (f"spec.points[{index}].batch", f"is {batch}: measured twice, keep one of them")
        for index, batch in enumerate(batches)
        if batch in batches[:index]
    ]
