"""The terminal: width, colour, and where nothing is a terminal at all."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 200
"""Of lines that go into a pipe or file: nothing is cut there for want of width."""


def console(*, error: bool = False) -> Console:
    """The console of standard output (or error): colour only on a terminal, and by NO_COLOR."""
    from rich.console import Console  # noqa: PLC0415

    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PIPED_WIDTH
    return Console(stderr=error, width=width, highlight=False, soft_wrap=False, emoji=False)


def coloured(console: Console) -> bool:
    """Whether colours may be written there."""
    return console.color_system is not None and not console.no_color


def echo(text: str) -> None:
    """One text on standard output, as it is."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
