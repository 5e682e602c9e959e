"""``spec.metrics.arrivalRateQuery``: many authors' queries, few requests, no harm to each other.

Placeholders are replaced by escaped values, so that a name can never end a string. A template that
was never seen is asked alone once, so that one author's mistake cannot spoil the others' answer;
those that passed are asked together, each under a label that tells whose it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sojourn.facts.declaration import Declaration
from sojourn.observe.prometheus import Series
from sojourn.observe.promql import labelled

Key = tuple[str, str]

SERVICE_LABEL = "sojourn_service"
LARGEST_BATCH_CHARACTERS = 400_000
_LONGEST_TEMPLATE = 2000
_PLACEHOLDER = re.compile(r"\{\{\s*([a-z]+)\s*\}\}")
_PLACEHOLDERS = ("namespace", "name", "model")
_STRING = re.compile(
    r""" "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | `[^`]*` """, re.VERBOSE | re.DOTALL
)
_CLOSES = {")": "(", "]": "[", "}": "{"}


class TemplateRefused(ValueError):
    """A template that cannot be sent; the text says why."""


def render(template: str, declaration: Declaration) -> str:
    """The query of one service.

    Raises:
        TemplateRefused: an unknown placeholder, unbalanced brackets or quotes, or too long.
    """
    if len(template) > _LONGEST_TEMPLATE:
        raise TemplateRefused(f"the query is longer than {_LONGEST_TEMPLATE} characters")
    values = {
        "namespace": declaration.ref.namespace,
        "name": declaration.ref.name,
        "model": declaration.model.name,
    }

    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in values:
            known = ", ".join(f"{{{{{p}}}}}" for p in _PLACEHOLDERS)
            raise TemplateRefused(f"unknown placeholder {match.group(0)}: use {known}")
        return escaped(values[name])

    query = _PLACEHOLDER.sub(replace, template)
    _balanced(query)
    return query


def escaped(value: str) -> str:
    r"""A value that stays inside any PromQL string, whatever it holds.

    Hexadecimal escapes, because PromQL refuses ``\'`` between double quotes and the reverse.

    >>> print(escaped('a"b'))
    a\x22b
    """
    value = value.replace("\\", "\\\\")
    for character in "\"'`\n":
        value = value.replace(character, f"\\x{ord(character):02x}")
    return value


def expression_of(query: str, key: Key) -> str:
    """The query summed to one series under the service's own label."""
    return labelled(f"sum({query})", SERVICE_LABEL, escaped("/".join(key)))


def batch(expressions: Sequence[str]) -> str:
    """Several services' expressions as one query."""
    return " or ".join(f"({e})" for e in expressions)


def answers(series: Sequence[Series]) -> dict[Key, float]:
    """Values by service."""
    found = {}
    for one in series:
        namespace, _, name = one.labels.get(SERVICE_LABEL, "").partition("/")
        found[namespace, name] = one.value
    return found


@dataclass
class Templates:
    """Which templates were tried alone, and with what outcome.

    Attributes:
        passed: Prometheus answered them.
        refused: why Prometheus refused them; they are not sent again until they change.
    """

    passed: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)

    def forget_all_but(self, templates: set[str]) -> None:
        """Drop what no service uses any more."""
        self.passed &= templates
        self.refused = {t: why for t, why in self.refused.items() if t in templates}


@dataclass(frozen=True)
class Round:
    """What a tick sends.

    Attributes:
        together: expressions of templates that passed, by service.
        alone: one service whose template was never tried, with its expression.
        without: services whose query is not sent, and why.
    """

    together: Mapping[Key, str]
    alone: tuple[Key, str] | None
    without: Mapping[Key, str]


def plan(declarations: Sequence[Declaration], templates: Templates) -> Round:
    """Who is asked how in this tick."""
    together: dict[Key, str] = {}
    without: dict[Key, str] = {}
    alone: tuple[Key, str] | None = None
    size = 0
    templates.forget_all_but({d.metrics.arrival_rate_query or "" for d in declarations})
    for declaration in declarations:
        key, template = declaration.ref.key, declaration.metrics.arrival_rate_query or ""
        try:
            expression = expression_of(render(template, declaration), key)
        except TemplateRefused as error:
            without[key] = str(error)
            continue
        if template in templates.refused:
            without[key] = templates.refused[template]
        elif template not in templates.passed:
            if alone is None:
                alone = (key, expression)
            without[key] = "the query is tried alone first and waits for its turn"
        elif size + len(expression) > LARGEST_BATCH_CHARACTERS:
            without[key] = "too many services have a query of their own"
        else:
            together[key] = expression
            size += len(expression)
    return Round(together, alone, without)


def _balanced(query: str) -> None:
    """Refuse what could reach beyond its own parentheses.

    Raises:
        TemplateRefused: a bracket or a quote is not closed, or closes nothing.
    """
    bare = _STRING.sub("", query)
    if not bare.strip():
        raise TemplateRefused("the query is empty")
    if "#" in bare:
        raise TemplateRefused("the query holds a comment")
    if _left_open(bare) or any(quote in bare for quote in "\"'`"):
        raise TemplateRefused("the query has a bracket or a quote that is not closed")


def _left_open(bare: str) -> list[str]:
    """Brackets that a query without its texts opens and does not close.

    Raises:
        TemplateRefused: a bracket closes nothing.
    """
    open_brackets: list[str] = []
    for character in bare:
        if character in "([{":
            open_brackets.append(character)
        elif character in _CLOSES and (
            not open_brackets or open_brackets.pop() != _CLOSES[character]
        ):
            raise TemplateRefused(f"the query has a {character} that closes nothing")
    return open_brackets
