"""Rates and lists of sizes as they are given on the command line."""

from __future__ import annotations

import math

from sojourn.cli.exits import UsageError
from sojourn.errors import UnitError
from sojourn.units import parse_quantity


def parse(text: str | None) -> tuple[float, float | None] | None:
    """One rate, or both ends of ``A..B``; None if none was given.

    Raises:
        UsageError: not a rate, or the end is not above the start.

    >>> parse("20..200")
    (20.0, 200.0)
    """
    if text is None:
        return None
    low, dots, high = text.partition("..")
    try:
        start = parse_quantity(low)
        end = parse_quantity(high) if dots else None
    except UnitError:
        raise UsageError(
            f"--rate {text} cannot be read: expected requests/s, 40 or 0.5, or a range 20..200"
        ) from None
    if not 0 < start < math.inf or (end is not None and not start < end < math.inf):
        raise UsageError(f"--rate {text}: expected rates above 0, the second above the first")
    return start, end


def sizes(text: str | None) -> tuple[int, ...]:
    """Whole numbers from 1, by comma; none if none was given.

    Raises:
        UsageError: something else.

    >>> sizes("1,8,32")
    (1, 8, 32)
    """
    if not text:
        return ()
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = (0,)
    if min(found) < 1:
        raise UsageError(f"{text} cannot be read: expected whole numbers by comma, such as 1,8,32")
    return found
