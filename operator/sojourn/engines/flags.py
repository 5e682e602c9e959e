"""What a container's flags say, and where each value comes from.

Order: the last flag on the command line wins, its variables resolved through env and envFrom; then
the file named by ``--config`` (TensorRT-LLM: before the command line); then the engine's own
variable; then the engine's default. A value nobody can resolve is reported with its reason instead
of a default the engine may not use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from sojourn.engines.command import CommandLine, line_of
from sojourn.engines.config_file import words_of_file
from sojourn.engines.engine import Engine, Flag
from sojourn.engines.numbers import number_of
from sojourn.engines.script import Said
from sojourn.engines.surroundings import ALONE, Surroundings, environment_of
from sojourn.engines.version import Version, version_of_image

_SEVERAL = re.compile(r"ARGS|ARGUMENTS|OPTS|OPTIONS|FLAGS|EXTRA|ADDITIONAL|PARAMS", re.IGNORECASE)
"""Variables of such a name hold flags; others in the place of a value hold one value."""


class FlagSource(StrEnum):
    """Where a flag's value was read."""

    VARIABLE = "Variable"
    ARGUMENT = "Argument"
    SHELL = "Shell"
    CONFIG_FILE = "ConfigFile"
    ENGINE_VARIABLE = "EngineVariable"
    DEFAULT = "Default"
    UNKNOWN = "Unknown"


@dataclass(frozen=True)
class FlagValue:
    """One flag's value.

    Attributes:
        text: the value; empty when UNKNOWN.
        source: where it was read.
        variables: environment variables the value comes from.
        why: UNKNOWN: what stands in the way.
        name: the flag as the engine documents it.
        suffixes: the engine takes 32k and 32K for it.
        undefined: UNKNOWN because nobody defines a variable it refers to.
    """

    text: str
    source: FlagSource
    variables: tuple[str, ...] = ()
    why: str = ""
    name: str = ""
    suffixes: bool = False
    undefined: bool = False

    @property
    def number(self) -> int | None:
        """The value as a whole number, as the engine reads it; None when it is not one."""
        return number_of(self.text, suffixes=self.suffixes)


@dataclass(frozen=True)
class Flags:
    """All roles a container sets or an engine defaults, with the version they were read for.

    Attributes:
        model: the model the command line or the file names; empty when none does.
        ray: a Ray cluster is started before the engine.
        remarks: what the engine would not understand, or not read, one sentence each.
    """

    values: Mapping[str, FlagValue]
    version: Version | None
    unreadable: str = ""
    model: str = ""
    ray: bool = False
    remarks: tuple[str, ...] = ()

    def number(self, role: str) -> int | None:
        """Whole number of a role; None when it is not set or cannot be read."""
        value = self.values.get(role)
        return value.number if value else None

    def unknown(self, role: str) -> str:
        """Why a role is not known; empty when it is, or is not set."""
        value = self.values.get(role)
        return value.why if value and value.source is FlagSource.UNKNOWN else ""


@dataclass(frozen=True)
class _Reading:
    """What one container's flags are read from."""

    line: CommandLine
    words: tuple[Said, ...]
    file: tuple[Said, ...]
    environment: Mapping[str, str]
    version: Version | None
    file_unknown: str = ""

    def source(self, at: int) -> FlagSource:
        """Where the word at that place was read."""
        word = self.words[at]
        if word in self.file and word not in self.line.words:
            return FlagSource.CONFIG_FILE
        return FlagSource.SHELL if self.line.shell else FlagSource.ARGUMENT


def read_flags(engine: Engine, container: Mapping[str, Any], around: Surroundings = ALONE) -> Flags:
    """Every flag of ``engine`` that ``container`` sets, or that the engine defaults.

    Args:
        around: what its environment and its files come from, as far as that is known.
    """
    environment = environment_of(container, around)
    line = line_of(container, engine.commands, environment)
    version = version_of_image(str(container.get("image", "")))
    file = words_of_file(engine, line, container, around)
    words = (*line.words, *file.words) if engine.config_wins else (*file.words, *line.words)
    reading = _Reading(line, words, file.words, environment.values, version, file.unknown)
    found = {}
    for role, flag in engine.flags.items():
        value = _read(flag, engine, reading) or _fallback(flag, reading)
        if value is not None:
            found[role] = replace(value, name=flag.spellings[0], suffixes=flag.suffixes)
    remarks = (*file.remarks, *_glued(engine, line))
    return Flags(
        MappingProxyType(found),
        version,
        line.unreadable,
        _model(engine, container, reading),
        line.ray,
        remarks,
    )


def refers_to(engine: Engine, container: Mapping[str, Any], variable: str) -> bool:
    """True when the max batch of ``container`` follows the environment variable ``variable``."""
    line = line_of(container, engine.commands, environment_of(container))
    flag = engine.flags.get("max_batch")
    if flag is not None:
        words = _occurrences(flag, engine, line.words)
        if words:
            return variable in words[-1][1].references
        if flag.env == variable and not line.unreadable:
            return True
    # An engine whose flags are not known is trusted when any argument refers to the variable.
    return flag is None and any(variable in word.references for word in line.words)


def _read(flag: Flag, engine: Engine, reading: _Reading) -> FlagValue | None:
    found = _occurrences(flag, engine, reading.words)
    doubt = _doubt(flag, engine, reading.words[found[-1][0] if found else 0 :])
    name = flag.spellings[0]
    if doubt is not None:
        why = f"{name} may be set by what is not known: {doubt.why}"
        return FlagValue("", FlagSource.UNKNOWN, doubt.references, why)
    if engine.config_wins and reading.file_unknown:
        why = f"{name} may be set by what is not known: {reading.file_unknown}"
        return FlagValue("", FlagSource.UNKNOWN, why=why)
    if not found:
        return None
    at, word = found[-1]
    if word.why:
        why = f"{name} {word.text}: {word.why}"
        return FlagValue("", FlagSource.UNKNOWN, word.references, why, undefined=word.undefined)
    source = FlagSource.VARIABLE if word.references else reading.source(at)
    return FlagValue(word.text, source, word.references)


def _fallback(flag: Flag, reading: _Reading) -> FlagValue | None:
    why = reading.line.unreadable or reading.file_unknown
    if why:
        return FlagValue("", FlagSource.UNKNOWN, why=why)
    value = reading.environment.get(flag.env) if flag.env is not None else None
    if value:
        return FlagValue(value, FlagSource.ENGINE_VARIABLE, (str(flag.env),))
    default = flag.default(reading.version)
    return FlagValue(default, FlagSource.DEFAULT) if default else None


def _occurrences(flag: Flag, engine: Engine, words: tuple[Said, ...]) -> list[tuple[int, Said]]:
    """Place and value, in order: ``--flag value``, ``--flag=value``, underscores too."""
    found = []
    for i, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if not _names(flag, engine, name):
            continue
        if equals:
            found.append((i, replace(word, text=value)))
        elif i + 1 < len(words):
            found.append((i, words[i + 1]))
    return found


def _names(flag: Flag, engine: Engine, name: str) -> bool:
    """Whether a word is this flag; engines with argparse take an unambiguous beginning too."""
    if not name.startswith("-"):
        return False
    name = name.replace("_", "-")
    if name in flag.spellings:
        return True
    if not engine.abbreviates or name.count("-") < 3 or name in engine.spellings:
        return False
    begun = {s for s in engine.spellings if s.startswith(name)}
    return bool(begun) and begun <= set(flag.spellings)


def _doubt(flag: Flag, engine: Engine, words: tuple[Said, ...]) -> Said | None:
    """A word that may hold the flag, though nobody can tell."""
    for i, word in enumerate(words):
        if not word.loose or word.undefined:
            continue
        before = words[i - 1].text if i else ""
        if before.startswith("-") and "=" not in before and not _SEVERAL.search(word.text):
            continue
        if _may_hold(flag, engine, word):
            return word
    return None


def _may_hold(flag: Flag, engine: Engine, word: Said) -> bool:
    """Whether the flag is in one of the texts a word may have; true when they are not known."""
    parts = (part for text in word.texts for part in text.split())
    return not word.texts or any(_names(flag, engine, part.partition("=")[0]) for part in parts)


def _glued(engine: Engine, line: CommandLine) -> tuple[str, ...]:
    """Words that should be several: one list item where two are needed."""
    if line.shell:
        return ()
    remarks = []
    first = line.words[0].text.strip() if line.words else ""
    if _whole_command(engine, first):
        remarks.append(
            f'"{first.partition(" --")[0]} ..." is one list item, which is taken for the name of a '
            'program: write one item a word, or ["sh", "-c", "..."].'
        )
    for word in line.words:
        name, space, value = word.text.partition(" ")
        known = any(_names(flag, engine, name) for flag in engine.flags.values())
        if known and space and "=" not in name and value.strip():
            remarks.append(
                f'"{word.text}" is one word to the engine, which knows no such flag: write '
                f"{name}={value.strip()}, or two list items."
            )
    return tuple(remarks)


def _whole_command(engine: Engine, item: str) -> bool:
    """Whether the item that names the program holds its arguments too."""
    return " " in item and not item.startswith("-") and any(c in item for c in engine.commands)


def _model(engine: Engine, container: Mapping[str, Any], reading: _Reading) -> str:
    """The model after its flag, or the first argument of ``serve`` or of the image."""
    flag = engine.flags.get("model")
    found = _occurrences(flag, engine, reading.words) if flag is not None else ()
    if not found:
        return _positional_model(engine, container, reading.line)
    named = found[-1][1]
    return "" if named.why else named.text


def _positional_model(engine: Engine, container: Mapping[str, Any], line: CommandLine) -> str:
    served = _argument_of_serve(engine, line.words)
    if served is not None:
        return "" if served.text.startswith("-") or served.why else served.text
    starts_engine = engine.positional_after and not container.get("command") and not line.shell
    if not starts_engine or not line.words or line.words[0].text.startswith("-"):
        return ""
    return line.words[0].text


def _argument_of_serve(engine: Engine, words: tuple[Said, ...]) -> Said | None:
    """The word after the last ``serve``; None without one."""
    for i in reversed(range(len(words) - 1)):
        if words[i].text.rpartition("/")[2] in engine.positional_after:
            return words[i + 1]
    return None
