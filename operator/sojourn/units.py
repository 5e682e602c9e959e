"""Durations, Kubernetes quantities and bytes: read at the edges, printed for people.

Inside the house everything is seconds, requests per second and bytes. Durations are Go's
(``1.5s``, ``200ms``, ``1m30s``); a bare number is refused, because nobody knows its unit.
Quantities are Kubernetes' (``12500m``, ``68.98G``, ``80Gi``, ``38``).
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from sojourn.errors import UnitError

GIB = 2**30
GB = 10**9

_DURATION_UNITS_S = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),
    "μs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
DURATION_PATTERN = r"^(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+$"

_QUANTITY = re.compile(
    r"^([+-]?(?:\d+(?:\.\d*)?|\.\d+))([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?$",
)
_QUANTITY_SUFFIX = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}


def parse_duration_s(text: object) -> float:
    """Seconds of a Go-style duration.

    Raises:
        UnitError: not a duration; bare numbers are refused.

    >>> parse_duration_s("1m30.5s")
    90.5
    """
    expected = 'a duration with its unit, such as "1.5s" or "200ms"'
    if not isinstance(text, str) or not re.match(DURATION_PATTERN, text):
        raise UnitError(text, expected)
    total = sum(
        Decimal(number) * _DURATION_UNITS_S[unit] for number, unit in _DURATION_PART.findall(text)
    )
    return float(total)


def format_duration(seconds: float) -> str:
    """A duration as people read it, three significant digits: ``1.62s``, ``350ms``, ``500us``.

    >>> format_duration(0.0505)
    '50.5ms'
    """
    if math.isinf(seconds):
        return "unbounded"
    if seconds == 0:
        return "0s"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(seconds) >= scale * 0.9995:
            return f"{_digits(seconds / scale)}{unit}"
    return f"{_digits(seconds / 1e-9)}ns"


def parse_quantity(text: object) -> float:
    """Number of a Kubernetes quantity: ``12500m`` is 12.5, ``80Gi`` is 80 x 2**30.

    Raises:
        UnitError: not a quantity, or a float where a string is required to keep its digits.

    >>> parse_quantity("12500m")
    12.5
    """
    expected = 'a quantity, such as 38, "12500m" or "80Gi"'
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise UnitError(text, expected)
    match = _QUANTITY.match(str(text))
    if match is None:
        raise UnitError(text, expected)
    number, suffix = match.group(1), match.group(2) or ""
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix != "Ei":
        return float(Decimal(number + suffix))
    return float(Decimal(number) * _QUANTITY_SUFFIX[suffix])


def format_quantity(value: float) -> str:
    """Canonical quantity with three decimals: ``12.5`` is ``12500m``, 38.0 is ``38``.

    >>> format_quantity(38.4)
    '38400m'
    """
    milli = round(value * 1000)
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def format_gib(size_bytes: float) -> str:
    """Bytes in GiB with one decimal, as engines print them.

    >>> format_gib(80 * 2**30)
    '80.0 GiB'
    """
    return f"{size_bytes / GIB:.1f} GiB"


def format_rate(rate_per_s: float) -> str:
    """A rate as people read it.

    >>> format_rate(38.4)
    '38.4/s'
    """
    return f"{_digits(rate_per_s)}/s"


def _digits(value: float) -> str:
    """Three significant digits, without an exponent and without trailing zeros."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{round(value, decimals):.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
