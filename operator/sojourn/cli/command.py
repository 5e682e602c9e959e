"""Commands whose options are one frozen dataclass: the noun behind a long list of flags.

Typer reads a function's signature. ``command`` gives it one whose parameters are the dataclass's
fields, parts of it flattened, so that a command takes one value and parts are shared by commands::

    @dataclass(frozen=True)
    class PlanOptions:
        given: Given  # its fields become flags too
        rate: Annotated[str | None, typer.Option(help="Requests/s.")] = None
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import partial
from typing import Any, TypeVar, get_type_hints

import typer

Options = TypeVar("Options")


def command(
    app: typer.Typer, options: type[Options], name: str | None = None
) -> Callable[[Callable[[Options], None]], Callable[[Options], None]]:
    """Register a function of one options value as a command of ``app``."""

    def register(function: Callable[[Options], None]) -> Callable[[Options], None]:
        parameters = [_parameter(field, kind) for field, kind in _leaves(options)]
        runner = partial(_run, function, options)
        runner.__doc__ = function.__doc__
        runner.__annotations__ = {p.name: p.annotation for p in parameters}
        runner.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app.command(name or function.__name__.replace("_", "-"))(runner)
        return function

    return register


def _run(function: Callable[[Options], None], options: type[Options], **values: Any) -> None:
    function(_built(options, values))


def _built(options: type[Options], values: dict[str, Any]) -> Options:
    hints = get_type_hints(options)
    parts = {
        field.name: _built(hints[field.name], values)
        if is_dataclass(hints[field.name])
        else values[field.name]
        for field in fields(options)  # type: ignore[arg-type]
    }
    return options(**parts)


def _leaves(options: type[Any]) -> Iterator[tuple[Field[Any], Any]]:
    """Every option with its annotated type, parts in the place of their field."""
    hints = get_type_hints(options, include_extras=True)
    for field in fields(options):
        if is_dataclass(hints[field.name]):
            yield from _leaves(hints[field.name])
        else:
            yield field, hints[field.name]


def _parameter(field: Field[Any], kind: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
    )
