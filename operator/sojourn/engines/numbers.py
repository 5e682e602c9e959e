"""Whole numbers as engines read them on their command line."""

from __future__ import annotations

import re

_SUFFIXED = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_POWER = {"k": 1, "m": 2, "g": 3, "t": 4}


def number_of(text: str, *, suffixes: bool = False) -> int | None:
    """A whole number; None when it is not one.

    Args:
        suffixes: vLLM's human-readable integers: a small letter counts in thousands and allows a
            fraction, a capital counts in 1,024s and does not (``human_readable_int``,
            vllm/utils/argparse_utils.py).

    >>> number_of("32k", suffixes=True), number_of("32K", suffixes=True), number_of("32k")
    (32000, 32768, None)
    >>> number_of("25.6k", suffixes=True), number_of("25.6K", suffixes=True)
    (25600, None)
    """
    text = text.strip()
    match = _SUFFIXED.fullmatch(text) if suffixes else None
    if match is not None:
        number, suffix = match.groups()
        power = _POWER[suffix.lower()]
        if suffix.islower():
            return int(float(number) * 1000**power)
        return int(number) * 1024**power if number.isdigit() else None
    try:
        return int(text)
    except ValueError:
        return None
