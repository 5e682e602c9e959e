"""A shell script as the simple commands it consists of, quotes kept apart from what they hold.

Enough of POSIX sh and bash for the scripts that start engines: quoting, continuations, comments,
lists, pipes, redirections, here-documents, conditions. Nothing is run and nothing is guessed: what
a command would print stays as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_OPERATORS = (";;", "&&", "||", "|&", ";", "&", "|", "(", ")", "\n")
_OPENING = {"if": "fi", "case": "esac", "for": "done", "while": "done", "until": "done"}
_CLOSING = frozenset({"fi", "esac", "done", "}"})
_CONTINUING = frozenset({"then", "else", "elif", "do", "!", "time", "if", "while", "until"})
_NAME = re.compile(r"[A-Za-z_]\w*|[@*#?$!0-9-]")
_TESTS = frozenset({"[", "[[", "test", "command", "which"})


class Unreadable(ValueError):
    """A script whose quotes or brackets do not close."""


@dataclass(frozen=True)
class Part:
    """A piece of a word.

    Attributes:
        quote: ``'`` for what is taken literally, ``"`` for what is not split, empty for the rest.
    """

    text: str
    quote: str = ""


Word = tuple[Part, ...]


@dataclass(frozen=True)
class Command:
    """One simple command.

    Attributes:
        certain: it is run whenever the script is: not in a condition, a loop or after ``||``.
    """

    words: tuple[Word, ...]
    certain: bool = True


def plain(word: Word) -> str:
    """The text of a word, quotes removed, references as they are written."""
    return "".join(part.text for part in word)


def commands(script: str) -> tuple[Command, ...]:
    """The simple commands of a script, in the order they are written.

    Raises:
        Unreadable: a quote or a bracket is not closed.
    """
    return tuple(_grouped(_Lexer(script).tokens()))


def pieces(text: str) -> Iterator[tuple[str, bool]]:
    """A text in pieces, and of each whether it is a reference.

    Raises:
        Unreadable: a bracket is not closed.
    """
    return _Lexer(text).pieces()


@dataclass
class _Blocks:
    """Conditions and brackets that are open."""

    open: list[str] = field(default_factory=list)
    doubtful: bool = False

    def opened(self, word: str) -> None:
        self.open.append(word)

    def closed(self) -> None:
        if self.open:
            self.open.pop()

    def separated(self, operator: str, first: str) -> None:
        """What stands between two commands: after a test or ``||`` the next may not be run."""
        if operator == "(":
            self.open.append("(")
        elif operator == ")" and self.open and self.open[-1] == "(":
            self.open.pop()
        after_test = operator == "&&" and (self.doubtful or first in _TESTS)
        self.doubtful = after_test or operator == "||"


def _grouped(tokens: Iterator[Word | str]) -> Iterator[Command]:
    blocks, words = _Blocks(), list[Word]()
    for token in tokens:
        if not isinstance(token, str):
            if words or not _reserved(plain(token), token, blocks):
                words.append(token)
            continue
        if words:
            yield Command(tuple(words), certain=not blocks.open and not blocks.doubtful)
        blocks.separated(token, plain(words[0]) if words else "")
        words = []
    if words:
        yield Command(tuple(words), certain=not blocks.open and not blocks.doubtful)


def _reserved(text: str, word: Word, blocks: _Blocks) -> bool:
    """Whether a word at a command's start is the shell's own; conditions are opened and closed."""
    if any(part.quote for part in word):
        return False
    if text in _OPENING or text == "{":
        blocks.opened(text)
    elif text in _CLOSING:
        blocks.closed()
    return text in _CONTINUING or text in _CLOSING or text == "{"


class _Lexer:
    """Words and operators of a script."""

    def __init__(self, script: str) -> None:
        self._text, self._at = script, 0
        self._documents: list[str] = []

    def tokens(self) -> Iterator[Word | str]:
        """Words as tuples of parts, operators as text."""
        while self._at < len(self._text):
            sign = self._text[self._at]
            operator = self._operator()
            if sign == "#":
                self._skip_line()
            elif self._redirection():
                pass
            elif operator is not None:
                self._at += len(operator)
                yield operator
                if operator == "\n":
                    self._skip_documents()
            elif sign.isspace():
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            elif word := self._word():
                yield word

    def _operator(self) -> str | None:
        return next((o for o in _OPERATORS if self._text.startswith(o, self._at)), None)

    def pieces(self) -> Iterator[tuple[str, bool]]:
        """References, and what is between them."""
        while self._at < len(self._text):
            start = self._at
            if self._text[start] in "$`":
                yield self._reference(), True
                continue
            while self._at < len(self._text) and self._text[self._at] not in "$`":
                self._at += 1
            yield self._text[start : self._at], False

    def _skip(self, signs: str) -> None:
        while self._at < len(self._text) and self._text[self._at] in signs:
            self._at += 1

    def _skip_line(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _skip_documents(self) -> None:
        """Here-documents begin after the line that names them."""
        for name in self._documents:
            while self._at < len(self._text):
                start = self._at
                self._skip_line()
                line = self._text[start : self._at]
                self._at += 1
                if line.strip() == name:
                    break
        self._documents = []

    def _redirection(self) -> bool:
        """``> file``, ``2>&1``, ``&>>``, ``<<NAME``: not part of the command's words."""
        start = self._at
        while self._at < len(self._text) and self._text[self._at].isdigit():
            self._at += 1
        if self._text.startswith("&>", self._at):
            self._at += 1
        if self._at >= len(self._text) or self._text[self._at] not in "<>":
            self._at = start
            return False
        begin = self._at
        self._skip("<>&|-")
        here = self._text.startswith("<<", begin) and not self._text.startswith("<<<", begin)
        self._skip(" \t")
        target = plain(self._word())
        if here and target:
            self._documents.append(target)
        return True

    def _word(self) -> Word:
        parts: list[Part] = []
        while self._at < len(self._text):
            sign = self._text[self._at]
            if sign.isspace() or sign in ";&|()<>":
                break
            if sign == "\\":
                following = self._text[self._at + 1 : self._at + 2]
                if following != "\n":
                    parts.append(Part(following, "'"))
                self._at += 2
            elif sign == "'":
                parts.append(Part(self._until("'", self._at + 1), "'"))
            elif sign == '"':
                parts.extend(self._quoted())
            else:
                parts.append(Part(self._bare()))
        return tuple(parts)

    def _until(self, sign: str, start: int) -> str:
        end = self._text.find(sign, start)
        if end < 0:
            raise Unreadable(f"no closing {sign}")
        self._at = end + 1
        return self._text[start:end]

    def _bare(self) -> str:
        """Signs up to the next that means something, or one reference."""
        if self._text[self._at] in "$`":
            return self._reference()
        start = self._at
        while self._at < len(self._text):
            sign = self._text[self._at]
            if sign.isspace() or sign in ";&|()<>\\'\"$`":
                break
            self._at += 1
        return self._text[start : self._at]

    def _quoted(self) -> Iterator[Part]:
        self._at += 1
        held = ""
        while self._at < len(self._text):
            sign = self._text[self._at]
            if sign == '"':
                self._at += 1
                yield Part(held, '"')
                return
            if sign == "\\" and self._text[self._at + 1 : self._at + 2] in ('"', "\\", "$", "`"):
                yield Part(held, '"')
                yield Part(self._text[self._at + 1], "'")
                held, self._at = "", self._at + 2
            elif sign == "\\" and self._text[self._at + 1 : self._at + 2] == "\n":
                self._at += 2
            elif sign in "$`":
                held += self._reference()
            else:
                held += sign
                self._at += 1
        raise Unreadable('no closing "')

    def _reference(self) -> str:
        """``$NAME``, ``${...}``, ``$(...)`` or back-quoted text, as it is written."""
        start = self._at
        if self._text[start] == "`":
            self._until("`", start + 1)
            return self._text[start : self._at]
        opening = self._text[start + 1 : start + 2]
        if opening not in ("{", "("):
            named = _NAME.match(self._text, start + 1)
            self._at = named.end() if named else start + 1
            return self._text[start : self._at]
        closing, depth = {"{": "}", "(": ")"}[opening], 0
        for i in range(start + 1, len(self._text)):
            depth += (self._text[i] == opening) - (self._text[i] == closing)
            if depth == 0:
                self._at = i + 1
                return self._text[start : self._at]
        raise Unreadable(f"no closing {closing}")
