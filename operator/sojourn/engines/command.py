"""A container's command line as the engine will see it.

Kubernetes expands ``$(NAME)`` in command and args; a shell, if there is one, expands ``$NAME`` and
``${NAME:-default}`` afterwards. What cannot be followed (``eval``, ``$@``) is said to be
unreadable, because a wrong flag is worse than an unknown one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh"})
_UNREADABLE = re.compile(r"(?:^|[\s;&|])eval\s|\$[@*]|`")
_KUBERNETES_REFERENCE = re.compile(r"\$(\$\([^)]*\))|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
_SHELL_REFERENCE = re.compile(
    r"\$(?:\{([A-Za-z_]\w*)(?::?-([^}]*))?\}|([A-Za-z_]\w*))",
)


@dataclass(frozen=True)
class CommandLine:
    """Words of a command line, references still in them.

    Attributes:
        words: command and args, a shell's script split into its own words.
        shell: the words come out of a shell's script.
        unreadable: why the words cannot be relied on; empty when they can.
    """

    words: tuple[str, ...]
    shell: bool = False
    unreadable: str = ""


@dataclass(frozen=True)
class Expanded:
    """A word after expansion, the variables it referred to, and those nobody defines."""

    text: str
    references: tuple[str, ...]
    undefined: tuple[str, ...]


def argv_of(container: Mapping[str, Any]) -> CommandLine:
    """The words the engine is started with, before any variable is expanded."""
    words = [str(word) for word in (*_list(container, "command"), *_list(container, "args"))]
    script = _script(words)
    if script is None:
        return CommandLine(tuple(words))
    if _UNREADABLE.search(script):
        return CommandLine((), shell=True, unreadable="the shell script uses eval, $@ or `")
    try:
        return CommandLine(tuple(shlex.split(script, comments=True)), shell=True)
    except ValueError as error:
        return CommandLine((), shell=True, unreadable=f"the shell script cannot be split: {error}")


def environment_of(
    container: Mapping[str, Any], config: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Variables with a known text; ``env`` wins over ``envFrom``, whose values are ``config``.

    A variable from a Secret, a field or an unknown ConfigMap key has no known text and is absent.
    """
    known = dict(config or {})
    for entry in _list(container, "env"):
        name = str(entry.get("name", ""))
        if "value" in entry or "valueFrom" not in entry:
            known[name] = expand(str(entry.get("value") or ""), known, shell=False).text
        else:
            known.pop(name, None)
    return known


def expand(word: str, environment: Mapping[str, str], *, shell: bool) -> Expanded:
    """A word with its references replaced; what is undefined stays as it was written."""
    references: list[str] = []
    undefined: list[str] = []

    def kubernetes(match: re.Match[str]) -> str:
        if match.group(1):
            return match.group(1)
        return _value(match.group(2), None, match.group(0))

    def shells(match: re.Match[str]) -> str:
        return _value(match.group(1) or match.group(3), match.group(2), match.group(0))

    def _value(name: str, default: str | None, written: str) -> str:
        references.append(name)
        value = environment.get(name)
        if value is None:
            value = default
        if value is None:
            undefined.append(name)
            return written
        return value

    text = _KUBERNETES_REFERENCE.sub(kubernetes, word)
    if shell:
        text = _SHELL_REFERENCE.sub(shells, text)
    return Expanded(text, tuple(references), tuple(undefined))


def _script(words: list[str]) -> str | None:
    """The script of ``sh -c SCRIPT``; None when no shell is started."""
    if not words or words[0].rpartition("/")[2] not in _SHELLS:
        return None
    for i, word in enumerate(words[1:], start=1):
        if word.startswith("-") and not word.startswith("--") and "c" in word:
            return words[i + 1] if i + 1 < len(words) else ""
    return None


def _list(container: Mapping[str, Any], field: str) -> list[Any]:
    value = container.get(field)
    return value if isinstance(value, list) else []
