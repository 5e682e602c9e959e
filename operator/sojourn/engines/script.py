"""A shell script followed to the words of the programs it starts.

Variables are followed through assignments, defaults and ``eval``. A variable assigned in a
condition has several texts it may have; what a command prints, and what nobody can tell, is not
known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from sojourn.engines import shell
from sojourn.engines.shell import Part, Word
from sojourn.engines.surroundings import MOST_CHARACTERS, TOO_LONG, Environment

MARK = ("\ue000", "\ue001")
"""Around a name that Kubernetes puts in before the shell reads the script, inside quotes too."""

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh"})
MOST_TEXTS = 8
DEEPEST = 4
_MARKED = re.compile(f"{MARK[0]}([^{MARK[1]}]*){MARK[1]}")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_NAMED = re.compile(r"([A-Za-z_]\w*|[@*0-9])(?:(:?[-=+?])(.*))?", re.DOTALL)
_DECLARING = frozenset({"export", "declare", "local", "readonly", "typeset"})
COMMAND_OUTPUT = "what a command prints is not known"


@dataclass(frozen=True)
class Said:
    """One word as a program will see it.

    Attributes:
        text: what is known of it; what is not stays as it is written.
        references: variables it comes from.
        why: why it is not known; empty when it is.
        loose: not known and not in quotes, so it may stand for any number of words, or none.
        texts: all texts it may have; empty when they are not known.
        undefined: nobody defines a variable it refers to.
    """

    text: str
    references: tuple[str, ...] = ()
    why: str = ""
    loose: bool = False
    texts: tuple[str, ...] = ()
    undefined: bool = False

    @property
    def possible(self) -> tuple[str, ...]:
        """Every text it may have, of what nobody defines the empty one; none when not known."""
        if self.texts:
            return self.texts
        if self.undefined:
            return ("",)
        return () if self.why else (self.text,)


@dataclass
class Script:
    """The state of a script that is followed.

    Attributes:
        environment: variables it begins with.
        positional: ``$0``, ``$1`` and so on.
    """

    environment: Environment
    positional: tuple[Said, ...] = ()
    _assigned: dict[str, tuple[Said, ...]] = field(default_factory=dict)

    def run(self, text: str, depth: int = 0) -> Iterator[tuple[Said, ...]]:
        """Words of every program the script may start, in the order they are written.

        Raises:
            Unreadable: quotes do not close, or it changes its own arguments.
        """
        if len(text) > MOST_CHARACTERS:
            raise shell.Unreadable(TOO_LONG)
        for command in shell.commands(text):
            words = list(command.words)
            while words and (found := _assignment(words[0])):
                if len(words) == 1 or all(_assignment(w) for w in words[1:]):
                    self._assign(*found, certain=command.certain)
                words = words[1:]
            yield from self._started(words, command.certain, depth) if words else ()

    def _started(self, words: list[Word], certain: bool, depth: int) -> Iterator[tuple[Said, ...]]:
        name = shell.plain(words[0])
        if name in _DECLARING:
            for found in filter(None, map(_assignment, words[1:])):
                self._assign(*found, certain=certain)
            return
        if name == "shift" or (name == "set" and _sets_arguments(words)):
            raise shell.Unreadable(f"the script changes its own arguments with {name}")
        said = tuple(one for word in words for one in self.expanded(word))
        inner = self._handed_on(name, said) if depth < DEEPEST else None
        if inner is None:
            yield said
            return
        nested = Script(self.environment, inner[1], dict(self._assigned))
        yield from nested.run(inner[0], depth + 1)

    def _handed_on(self, name: str, said: tuple[Said, ...]) -> tuple[str, tuple[Said, ...]] | None:
        """Script and arguments a command hands to a shell; None when it starts a program."""
        if name == "eval":
            return " ".join(one.text for one in said[1:]), self.positional
        return inner_script(said)

    def _assign(self, name: str, value: Word, *, certain: bool) -> None:
        said = self._whole(value)
        before = self._assigned.get(name) or (self._from_outside(name),)
        self._assigned[name] = (said,) if certain else (*before, said)[-MOST_TEXTS:]

    def expanded(self, word: Word) -> tuple[Said, ...]:
        """The words one word of the script becomes."""
        if len(word) == 1 and word[0].text in ("$@", "${@}", "$*"):
            return self.positional[1:]
        if all(part.quote for part in word) or not any(_refers(part) for part in word):
            return (self._whole(word),)
        said = self._whole(word)
        if said.why:
            return (replace(said, loose=len(word) == 1),)
        parts = said.text.split()
        return tuple(replace(said, text=part, texts=()) for part in parts)

    def _whole(self, word: Word) -> Said:
        """A word without splitting."""
        return _joined(one for part in word for one in self._part(part))

    def _part(self, part: Part) -> Iterator[Said]:
        for text, marked in _by_mark(part.text):
            if marked:
                yield self._value(text, text)
            elif part.quote == "'":
                yield Said(text)
            else:
                for piece, reference in shell.pieces(text):
                    yield self._reference(piece) if reference else Said(piece)

    def _reference(self, written: str) -> Said:
        body = written[2:-1] if written.startswith("${") else written[1:]
        if written.startswith(("$(", "`")) or (found := _NAMED.fullmatch(body)) is None:
            return Said(written, why=COMMAND_OUTPUT if written[:2] != "${" else f"{written} is not")
        name, operator, other = found.groups()
        if name in ("@", "*"):
            return _joined(self.positional[1:], " ")
        if name.isdigit():
            at = int(name)
            return self.positional[at] if at < len(self.positional) else Said("")
        said = self._value(name, written)
        return self._defaulted(said, name, operator, other) if operator else said

    def _defaulted(self, said: Said, name: str, operator: str, other: str) -> Said:
        """``${NAME:-other}`` and the like; an empty text counts as unset with the colon."""
        unset = said.undefined or (operator[0] == ":" and not said.text and not said.why)
        if operator[-1] == "+":
            return Said("") if unset else replace(self._text(other), why=said.why)
        if operator[-1] == "?" or not unset:
            return said
        value = self._text(other)
        value = replace(value, references=(name, *value.references))
        if operator[-1] == "=":
            self._assigned[name] = (value,)
        return value

    def _text(self, text: str) -> Said:
        return self._whole((Part(text.strip("\"'"), '"'),))

    def _value(self, name: str, written: str) -> Said:
        held = self._assigned.get(name)
        if held is None:
            said = self._from_outside(name)
            return replace(said, text=written) if said.why else said
        if len({one.text for one in held}) == 1 and not held[-1].why:
            return held[-1]
        if len(held) == 1:
            return replace(held[0], text=written)
        why = f"{name} is set in a condition of the script"
        return Said(written, _names(held), why, texts=_alternatives(held))

    def _from_outside(self, name: str) -> Said:
        text = self.environment.values.get(name)
        if text is not None:
            return Said(text, (name,))
        why = self.environment.why_unknown(name)
        return Said("", (name,), why or f"nobody defines {name}", undefined=not why)


def inner_script(said: Iterable[Said]) -> tuple[str, tuple[Said, ...]] | None:
    """Script and arguments of ``sh -c SCRIPT [NAME [ARGUMENT ...]]``; None when none is started."""
    words = tuple(said)
    option = _script_option(words)
    if option is None:
        return None
    after = words[option + 1 :]
    if after and after[0].text == "--":
        after = after[1:]
    return (after[0].text, after[1:]) if after else ("", ())


def _script_option(words: tuple[Said, ...]) -> int | None:
    """Place of the shell's ``-c``; None when no shell is started, or with a file of commands."""
    begin = _shell_started(words)
    if begin is None:
        return None
    for i in range(begin + 1, len(words)):
        word = words[i].text
        if word.startswith("-") and not word.startswith("--") and "c" in word:
            return i
        if not word.startswith(("-", "+")) and words[i - 1].text not in ("-o", "+o", "-O"):
            return None
    return None


def _shell_started(words: tuple[Said, ...]) -> int | None:
    """Place of the shell's name; None when none is named, or as an argument of another program."""
    begin = next((i for i, w in enumerate(words) if w.text.rpartition("/")[2] in _SHELLS), None)
    if begin is None or begin <= 2:
        return begin
    return None if any(w.text.startswith("-") for w in words[:begin]) else begin


def _sets_arguments(words: list[Word]) -> bool:
    """``set -euo pipefail`` sets options, ``set -- a b`` arguments."""
    first = shell.plain(words[1]) if len(words) > 1 else "-"
    return first == "--" or not first.startswith(("-", "+"))


def _refers(part: Part) -> bool:
    return not part.quote and bool(re.search(rf"[$`{MARK[0]}]", part.text))


def _by_mark(text: str) -> Iterator[tuple[str, bool]]:
    for i, piece in enumerate(_MARKED.split(text)):
        if piece:
            yield piece, i % 2 == 1


def _assignment(word: Word) -> tuple[str, Word] | None:
    """Name and value of ``NAME=value``."""
    found = _ASSIGNED.fullmatch(word[0].text) if word and not word[0].quote else None
    if found is None:
        return None
    name, rest = found.groups()
    return name, (Part(rest, '"'), *word[1:]) if rest else word[1:]


def _names(said: Iterable[Said]) -> tuple[str, ...]:
    """Variables that words come from, each once."""
    return tuple(dict.fromkeys(name for one in said for name in one.references))


def _alternatives(held: Iterable[Said]) -> tuple[str, ...]:
    """All texts of a variable of several assignments; none when one is not known, or too many."""
    each = [one.possible for one in held]
    texts = tuple(chain.from_iterable(each))
    return texts if all(each) and len(texts) <= MOST_TEXTS else ()


def _joined(said: Iterable[Said], by: str = "") -> Said:
    """Several pieces as one word."""
    held = tuple(said)
    if sum(len(one.text) for one in held) > MOST_CHARACTERS:
        return Said("", why=f"a word of the script is {TOO_LONG}")
    doubtful = [one for one in held if one.why]
    return Said(
        by.join(one.text for one in held),
        _names(held),
        doubtful[0].why if doubtful else "",
        texts=_around(doubtful[0], held, by) if len(doubtful) == 1 else (),
        undefined=bool(doubtful) and all(one.undefined for one in doubtful),
    )


def _around(doubtful: Said, held: tuple[Said, ...], by: str) -> tuple[str, ...]:
    """All texts of a word of which one piece may have several."""
    return tuple(
        by.join(text if one is doubtful else one.text for one in held) for text in doubtful.texts
    )


def marked(text: str, environment: Mapping[str, object]) -> str:
    """A script with every ``$(NAME)`` that Kubernetes would put in, marked.

    Names in capitals count as variables though nobody defines them yet: they are no commands.
    """

    def mark(match: re.Match[str]) -> str:
        if match.group(1) is not None:
            return match.group(1)
        name = match.group(2)
        known = name in environment or name.upper() == name
        return f"{MARK[0]}{name}{MARK[1]}" if known else match.group(0)

    return re.sub(r"\$(\$\([^)]*\))|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", mark, text)
