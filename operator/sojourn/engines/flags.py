"""What a container's flags say, and where each value comes from.

Order: the last flag on the command line wins, its variables resolved through env and envFrom;
then the engine's own variable; then the engine's default. A value nobody can resolve is reported
with its reason instead of a default the engine may not use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sojourn.engines.command import CommandLine, argv_of, environment_of, expand
from sojourn.engines.engine import Engine, Flag
from sojourn.engines.version import Version, version_of_image


class FlagSource(StrEnum):
    """Where a flag's value was read."""

    VARIABLE = "Variable"
    ARGUMENT = "Argument"
    SHELL = "Shell"
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
        restart: changing it restarts the engine.
    """

    text: str
    source: FlagSource
    variables: tuple[str, ...] = ()
    why: str = ""
    restart: bool = True

    @property
    def number(self) -> int | None:
        """The value as a whole number; None when it is not one."""
        try:
            return int(self.text)
        except ValueError:
            return None


@dataclass(frozen=True)
class Flags:
    """All roles a container sets or an engine defaults, with the version they were read for."""

    values: Mapping[str, FlagValue]
    version: Version | None
    unreadable: str = ""

    def number(self, role: str) -> int | None:
        """Whole number of a role; None when it is not set or cannot be read."""
        value = self.values.get(role)
        return value.number if value else None


def read_flags(
    engine: Engine,
    container: Mapping[str, Any],
    config: Mapping[str, str] | None = None,
) -> Flags:
    """Every flag of ``engine`` that ``container`` sets, or that the engine defaults.

    ``config`` holds the values of ``envFrom``, when the caller knows them.
    """
    line = argv_of(container)
    environment = environment_of(container, config)
    version = version_of_image(str(container.get("image", "")))
    found = {}
    for role, flag in engine.flags.items():
        value = _read(flag, line, environment) or _fallback(flag, line, environment, version)
        if value is not None:
            found[role] = value
    return Flags(found, version, line.unreadable)


def refers_to(engine: Engine, container: Mapping[str, Any], variable: str) -> bool:
    """True when the max batch of ``container`` follows the environment variable ``variable``."""
    line = argv_of(container)
    flag = engine.flags.get("max_batch")
    if flag is not None:
        words = list(_occurrences(flag, line))
        if words:
            return variable in expand(words[-1], {}, shell=line.shell).references
        if flag.env == variable and not line.unreadable:
            return True
    references = (expand(word, {}, shell=line.shell).references for word in line.words)
    # An engine whose flags are not known is trusted when any argument refers to the variable.
    return flag is None and any(variable in names for names in references)


def _read(flag: Flag, line: CommandLine, environment: Mapping[str, str]) -> FlagValue | None:
    words = list(_occurrences(flag, line))
    if not words:
        return None
    word = expand(words[-1], environment, shell=line.shell)
    if word.undefined:
        why = f"{flag.spellings[0]} refers to {word.undefined[0]}, whose value is not known"
        return FlagValue("", FlagSource.UNKNOWN, word.references, why, flag.restart)
    source = FlagSource.SHELL if line.shell else FlagSource.ARGUMENT
    if word.references:
        source = FlagSource.VARIABLE
    return FlagValue(word.text, source, word.references, restart=flag.restart)


def _fallback(
    flag: Flag, line: CommandLine, environment: Mapping[str, str], version: Version | None
) -> FlagValue | None:
    if line.unreadable:
        return FlagValue("", FlagSource.UNKNOWN, why=line.unreadable, restart=flag.restart)
    if flag.env is not None and environment.get(flag.env):
        value = environment[flag.env]
        return FlagValue(value, FlagSource.ENGINE_VARIABLE, (flag.env,), restart=flag.restart)
    default = flag.default(version)
    return FlagValue(default, FlagSource.DEFAULT, restart=flag.restart) if default else None


def _occurrences(flag: Flag, line: CommandLine) -> Iterator[str]:
    """Values given to the flag, in order: ``--flag value``, ``--flag=value``, underscores too."""
    for i, word in enumerate(line.words):
        name, equals, value = word.partition("=")
        if not name.startswith("-") or name.replace("_", "-") not in flag.spellings:
            continue
        if equals:
            yield value
        elif i + 1 < len(line.words):
            yield line.words[i + 1]
