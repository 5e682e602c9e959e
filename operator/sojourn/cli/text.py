"""Values as people read them, None as a dash."""

from __future__ import annotations

import math
from typing import Any

from sojourn.units import GIB, format_duration, format_rate

DASH = "-"

BOUNDS = {
    "Utilisation": "the target utilisation",
    "Latency": "the latency SLO",
    "FirstToken": "the time-to-first-token SLO",
    "OutputToken": "the time-per-output-token SLO",
    "Blocking": "refused requests",
    "Memory": "KV memory",
    "SpecMinimum": "the spec's minimum",
    "SpecMaximum": "the spec's maximum",
}
"""What binds, by the names of ``facts.sizing``."""


def seconds(value: float | None) -> str:
    """A duration."""
    if value is None or math.isnan(value):
        return DASH
    # What is shorter than half a microsecond is nothing to anybody who reads this.
    return format_duration(0.0 if abs(value) < 5e-7 else value)


def rate(value: float | None) -> str:
    """Requests per second."""
    return DASH if value is None else format_rate(value)


def share(value: float | None) -> str:
    """A fraction with two decimals, as loads are read."""
    return DASH if value is None or not math.isfinite(value) else f"{value:.2f}"


def percent(value: float | None) -> str:
    """A fraction in whole percent."""
    return DASH if value is None else f"{100 * value:.0f}%"


def usd(value: float | None) -> str:
    """Dollars and cents; a third decimal below one dollar."""
    if value is None:
        return DASH
    return f"${value:,.2f}" if value >= 1 else f"${value:.3f}"


def gib(value: float | None) -> str:
    """GiB with one decimal, without the unit."""
    return DASH if value is None else f"{value / GIB:.1f}"


def count(value: float | None) -> str:
    """A whole number with separators."""
    return DASH if value is None or not math.isfinite(value) else f"{value:,.0f}"


def yes(value: Any) -> str:
    """Yes, no or unknown."""
    return DASH if value is None else ("yes" if value else "no")


def percentile(probability: float) -> str:
    """P99 of 0.99, P99.9 of 0.999."""
    return f"P{round(probability * 100, 4):g}"


def plural(number: int, noun: str) -> str:
    """1 replica, 2 replicas."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
