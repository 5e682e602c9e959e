"""What is wrong with an object, as a person can act on it: field path, and text with an example."""

from __future__ import annotations

import difflib
import inspect
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from sojourn.api.v1alpha1.base import RULES_BROKEN, Part
from sojourn.api.v1alpha1.scalars import BAD_VALUE

Problem = tuple[str, str]
MOST_PROBLEMS = 50
_SHOWN_LENGTH = 60


def problems_of(error: ValidationError, root: type[Part], at: str) -> list[Problem]:
    """Every problem of a failed validation of ``root``, whose path is ``at``."""
    found: list[Problem] = []
    for detail in error.errors(include_url=False):
        path = path_of(at, detail["loc"])
        if detail["type"] == RULES_BROKEN:
            broken = detail["ctx"]["problems"]
            found += [(f"{path}.{field}" if field else path, text) for field, text in broken]
        else:
            found.append((path, _text(detail, root)))
    if len(found) > MOST_PROBLEMS:
        rest = len(found) - MOST_PROBLEMS
        found = [*found[:MOST_PROBLEMS], (at, f"{rest} more problems are not shown")]
    return found


def path_of(at: str, location: Iterable[int | str]) -> str:
    """Path as kubectl prints it: ``spec.points[2].batch``."""
    path = at
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{_cut(step)}"
    return path


def shown(value: Any) -> str:
    """A value as it may be shown in a message, never longer than a line."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            # A number of thousands of digits cannot even be printed.
            return "a huge number" if abs(value) >= 10**18 else str(value)
        case str():
            return f'"{_cut(value)}"'
        case Mapping():
            return "an object"
        case list() | tuple():
            return "a list"
    return "null" if value is None else type(value).__name__


def _cut(text: str) -> str:
    safe = text.encode("utf-8", "replace").decode("utf-8")
    return safe if len(safe) <= _SHOWN_LENGTH else f"{safe[:_SHOWN_LENGTH]}…"


def _text(detail: ErrorDetails, root: type[Part]) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    field = _field(root, detail["loc"])
    if kind == "missing":
        about = f" ({field.description})" if field and field.description else ""
        return f"is missing: expected a value{_such_as(field)}{about}"
    if kind == "extra_forbidden":
        return f"is not a known field{_nearest(root, detail['loc'])}"
    if kind == BAD_VALUE:
        hint = "; write a fraction in quotes" if isinstance(value, float) else ""
        return f"is {shown(value)}: {detail['msg']}{hint}"
    if kind == "string_too_long":
        return f"has {len(value)} characters: expected at most {context['max_length']}"
    if kind == "string_pattern_mismatch":
        return f"is {shown(value)}: expected {_pattern_words(context['pattern'])}{_such_as(field)}"
    if kind == "model_type":
        part = _part_at(root, detail["loc"])
        fields = ", ".join(_aliases(part)) if part else "its fields"
        return f"is {shown(value)}: expected an object with {fields}"
    return f"is {shown(value)}: {_expected(detail)}{_such_as(field)}"


def _expected(detail: ErrorDetails) -> str:
    """Pydantic's own sentence, beginning as ours do."""
    message = detail["msg"]
    for opening in ("Input should be ", "String should ", "List should ", "Dictionary should "):
        if message.startswith(opening):
            rest = message.removeprefix(opening).replace("'", '"')
            return f"expected {rest}" if opening.startswith("Input") else f"should {rest}"
    return message


def _pattern_words(pattern: str) -> str:
    if pattern.startswith("^[a-z0-9]"):
        return (
            "lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"
        )
    if pattern.startswith("^[A-Za-z_]"):
        return "letters, digits and '_', not beginning with a digit"
    return f"a text that matches {pattern}"


def _such_as(field: FieldInfo | None) -> str:
    examples = (field.examples if field else None) or []
    return f", such as {shown(examples[0])}" if examples else ""


def _nearest(root: type[Part], location: tuple[int | str, ...]) -> str:
    parent = _part_at(root, location[:-1])
    if parent is None:
        return ""
    known = _aliases(parent)
    close = difflib.get_close_matches(str(location[-1])[:100], known, n=1, cutoff=0.6)
    return f': did you mean "{close[0]}"?' if close else f": expected one of {', '.join(known)}"


def _aliases(part: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in part.model_fields.items()]


def _part_at(root: type[Part], location: tuple[int | str, ...]) -> type[BaseModel] | None:
    """The model at a location, or None where none is."""
    part: type[BaseModel] | None = root
    for step in location:
        if isinstance(step, int):
            continue
        field = _by_alias(part, step) if part else None
        part = part_of(field.annotation) if field else None
    return part


def _field(root: type[Part], location: tuple[int | str, ...]) -> FieldInfo | None:
    names = [step for step in location if isinstance(step, str)]
    if not names:
        return None
    parent = _part_at(root, tuple(names[:-1]))
    return _by_alias(parent, names[-1]) if parent else None


def _by_alias(part: type[BaseModel], alias: str) -> FieldInfo | None:
    for name, field in part.model_fields.items():
        if (field.alias or name) == alias:
            return field
    return None


def part_of(annotation: Any) -> type[BaseModel] | None:
    """The pydantic model inside an annotation such as ``list[Part] | None``."""
    if inspect.isclass(annotation) and not typing.get_args(annotation):
        return annotation if issubclass(annotation, BaseModel) else None
    for argument in typing.get_args(annotation):
        found = part_of(argument)
        if found is not None:
            return found
    return None
