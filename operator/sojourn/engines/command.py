"""A container's command line as the engine will see it.

Kubernetes expands ``$(NAME)`` in command and args; a shell, if there is one, expands ``$NAME`` and
``${NAME:-default}`` afterwards. Of a script only the command that starts the engine counts: what
``ray start`` or a test before it is given is not the engine's. What cannot be followed is said to
be unreadable, because a wrong flag is worse than an unknown one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sojourn.engines.script import Said, Script, inner_script, marked
from sojourn.engines.shell import Unreadable
from sojourn.engines.surroundings import Environment, referred, substituted

_RAY = ("ray start", "multi-node-serving", "ray_cluster_size")
_SPEAKING = frozenset(
    {"echo", "printf", "[", "[[", "test", "curl", "wget", "grep", "pgrep", "pkill", "pip", "which"}
)
"""Programs that may be given an engine's name without starting it."""


@dataclass(frozen=True)
class CommandLine:
    """What the engine is started with.

    Attributes:
        words: of the command that starts the engine, expanded; all words when none is recognised.
        shell: they come out of a shell's script.
        ray: a Ray cluster is started before, so that the engine's ranks may be elsewhere.
        unreadable: why there are no words to rely on; empty when there are.
        script: what could not be read, as it is written.
    """

    words: tuple[Said, ...]
    shell: bool = False
    ray: bool = False
    unreadable: str = ""
    script: str = ""

    @property
    def text(self) -> str:
        """The words in one line, or the script that could not be read."""
        return self.script or " ".join(word.text for word in self.words)


def line_of(
    container: Mapping[str, Any], starts: Iterable[str], environment: Environment
) -> CommandLine:
    """What the engine of a container is started with.

    Args:
        starts: texts a command that starts the engine holds, such as ``vllm serve``.
        environment: variables of the container.
    """
    written = [str(w) for f in ("command", "args") for w in _list(container, f)]
    defined = {**environment.values, **environment.unknown}
    found = inner_script(Said(marked(word, defined)) for word in written)
    if found is None:
        words = tuple(_argument(word, environment) for word in written)
        return CommandLine(_from_start(words, tuple(starts)))
    script = Script(environment, found[1])
    try:
        line = _engine_of(tuple(script.run(found[0])), tuple(starts))
    except (Unreadable, RecursionError) as error:
        line = CommandLine((), shell=True, unreadable=f"the shell script cannot be read: {error}")
    return replace(line, script=found[0]) if line.unreadable else line


def _engine_of(programs: tuple[tuple[Said, ...], ...], starts: tuple[str, ...]) -> CommandLine:
    """The one program that is the engine."""
    ray = any(mark in " ".join(_texts(words)) for words in programs for mark in _RAY)
    known = [words for words in programs if _starts(words, starts)]
    if len(known) > 1 and len(set(known)) > 1:
        why = f"the shell script starts the engine in {len(known)} places"
        return CommandLine((), shell=True, ray=ray, unreadable=why)
    if known:
        return CommandLine(_from_start(known[0], starts), shell=True, ray=ray)
    return CommandLine(tuple(w for words in programs for w in words), shell=True, ray=ray)


def _starts(words: tuple[Said, ...], starts: tuple[str, ...]) -> bool:
    text = " ".join(_texts(words))
    first = words[0].text.rpartition("/")[2] if words else ""
    return first not in _SPEAKING and any(start in text for start in starts)


def _from_start(words: tuple[Said, ...], starts: tuple[str, ...]) -> tuple[Said, ...]:
    """The words from the engine's own name on."""
    for i in range(len(words)):
        ahead = " ".join((words[i].text.rpartition("/")[2], *_texts(words[i + 1 : i + 3])))
        if any(ahead.startswith(start) for start in starts):
            return words[i:]
    return words


def _argument(word: str, environment: Environment) -> Said:
    """An argument as Kubernetes hands it over: what nobody defines stays as it is written."""
    text, why = substituted(word, environment)
    references = referred(word)
    undefined = [name for name in references if name not in environment.values]
    if undefined and not why:  # A variable that somebody defines would be why.
        return Said(text, references, f"nobody defines {undefined[0]}", undefined=True)
    return Said(text, references, why)


def _texts(words: tuple[Said, ...]) -> tuple[str, ...]:
    return tuple(word.text for word in words)


def _list(container: Mapping[str, Any], field: str) -> list[Any]:
    value = container.get(field)
    return value if isinstance(value, list) else []
