"""The reference page of every command, made from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

import typer

from sojourn.cli import exits
from sojourn.cli.main import app


def cli_page() -> str:
    """Every command with its arguments and flags, and the exit codes."""
    root: Any = typer.main.get_command(app)
    lines = [
        "# Commands",
        "",
        "`sojourn COMMAND`, or `kubectl sojourn COMMAND`. `--debug` before the command shows where",
        "an error came from. Colour only on a terminal, and not with `NO_COLOR`.",
        "",
        *(f"- [`{name}`](#{name}): {_first(one)}" for name, one in _commands(root)),
        "",
        "## Exit codes",
        "",
        "| code | meaning |",
        "|---|---|",
        *(f"| {code} | {text} |" for code, text in exits.MEANING.items()),
    ]
    for name, one in _commands(root):
        lines += ["", f"## {name}", "", *_body(one)]
    return "\n".join(lines) + "\n"


def _commands(root: Any) -> Iterator[tuple[str, Any]]:
    yield from root.commands.items()


def _first(command: Any) -> str:
    return str(command.help or "").strip().splitlines()[0]


def _body(command: Any) -> Iterator[str]:
    yield from (line.strip() for line in str(command.help or "").strip().splitlines())
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    if arguments:
        yield from ("", "| argument | meaning |", "|---|---|")
        for one in arguments:
            yield f"| `{one.metavar or one.name.upper()}` | {_cell(one.help)} |"
    if options:
        yield from ("", "| flag | value | meaning |", "|---|---|---|")
        for one in options:
            flags = ", ".join(f"`{flag}`" for flag in (*one.opts, *one.secondary_opts))
            yield f"| {flags} | {_value(one)} | {_cell(one.help)}{_default(one)} |"


def _value(option: Any) -> str:
    if option.is_bool_flag:
        return ""
    kind = option.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{choice.value}`" for choice in kind)
    return f"`{option.metavar}`" if option.metavar else ""


def _default(option: Any) -> str:
    default = option.default
    if option.is_bool_flag or default in (None, ...) or callable(default):
        return ""
    return f" Default `{getattr(default, 'value', default)}`."


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("\n", " ")
