"""Whether a new status is worth a write: facts at once, drifting numbers seldom, time not at all.

Steady services must cost nothing: a rate measured every tick is never twice the same, so numbers
count only when they have moved, and figures inside messages do not count at all. What is left
unwritten is brought up to date by the next write, at the latest by the heartbeat.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import Any

from sojourn.errors import UnitError
from sojourn.units import parse_duration_s, parse_quantity

HEARTBEAT_S = 300.0
"""A status older than this is written though nothing changed: it proves that decisions go on."""

HEARTBEAT_SPREAD_S = 60
"""Heartbeats of many services are spread over this, so that they do not come in one tick."""

SETTLED_S = 60.0
"""Numbers that drifted by ``DRIFT`` are written when the status is at least this old."""

DRIFT = 0.05
JUMP = 0.5
"""Numbers that moved by half are written at once."""

_TIMES = re.compile(r"^(rate\.at|.*\.lastTransitionTime|lastDecision\.at)$")
_NOISE = re.compile(r"^littlesLaw\.")
_NUMBERS = re.compile(
    r"^(rate\.value|utilizationPercent|latency\..*|limits\.(?!binding).*|lastDecision\.raw\.maxBatch)$"
)
_PROSE = re.compile(r"^(.*\.message|effective\..*\.value)$")
_FIGURES = re.compile(r"[0-9][0-9.,]*")


def changed_materially(
    previous: Mapping[str, Any] | None, new: Mapping[str, Any], spread: str = ""
) -> bool:
    """Whether ``new`` is to be written over ``previous``.

    At once: a changed condition, decision, setting, source, finding or generation, or a number
    that moved by half. After a minute: a number that drifted by 5 %. After 5 minutes: always.

    Args:
        spread: any text that differs between services, such as namespace/name; it delays the
            heartbeat by up to a minute.
    """
    if not previous:
        return True
    drift = 0.0
    for path, old, fresh in _differences(previous, new):
        weight = _weight(path)
        if weight is _Weight.FACT or (weight is _Weight.PROSE and _words(old) != _words(fresh)):
            return True
        if weight is _Weight.NUMBER:
            drift = max(drift, _drift(old, fresh))
    age_s = _age_s(previous, new)
    delay_s = zlib.crc32(spread.encode()) % HEARTBEAT_SPREAD_S if spread else 0
    if not 0 <= age_s < HEARTBEAT_S + delay_s:
        return True
    return drift >= JUMP or (drift >= DRIFT and age_s >= SETTLED_S)


def _differences(
    previous: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Path, old and new value of every leaf that differs; None where there is none."""
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for name in previous.keys() | new.keys():
        # Most parts of most statuses stay as they are: whole parts are compared first.
        if previous.get(name) != new.get(name):
            _collect(previous.get(name), name, before)
            _collect(new.get(name), name, after)
    for path in before.keys() | after.keys():
        old, fresh = before.get(path), after.get(path)
        if old != fresh:
            yield path, old, fresh


def _collect(node: Any, at: str, leaves: dict[str, Any]) -> None:
    """Put every leaf below ``node`` under its path; list items are named by what they are."""
    if isinstance(node, dict | Mapping):  # dict first: the other question is slow
        for name, item in node.items():
            _collect(item, f"{at}.{name}" if at else name, leaves)
    elif isinstance(node, list | tuple):
        for index, item in enumerate(node):
            _collect(item, f"{at}[{_name(item, index)}]", leaves)
    else:
        leaves[at] = node


def _name(item: Any, index: int) -> str:
    if not isinstance(item, Mapping):
        return str(index)
    if "type" in item:
        return str(item["type"])
    return f"{item['reason']} {item.get('field', '')}" if "reason" in item else str(index)


class _Weight(Enum):
    """What a difference in a leaf means."""

    FACT = "written at once"
    NUMBER = "written when it moved"
    PROSE = "written when its words changed"
    NOTHING = "never a reason to write"


@lru_cache(maxsize=4096)  # the paths of one status are those of all
def _weight(path: str) -> _Weight:
    if _TIMES.match(path) or _NOISE.match(path):
        return _Weight.NOTHING
    if _NUMBERS.match(path):
        return _Weight.NUMBER
    return _Weight.PROSE if _PROSE.match(path) else _Weight.FACT


def _words(text: Any) -> str:
    """A message without its figures."""
    return _FIGURES.sub("#", str(text))


def _drift(before: Any, after: Any) -> float:
    """Relative change; a number that comes or goes counts as a drift, not as a jump."""
    if before == after:
        return 0.0
    old, new = _number(before), _number(after)
    if old is None or new is None:
        return DRIFT
    if not (math.isfinite(old) and math.isfinite(new)):
        return JUMP
    return abs(new - old) / max(abs(old), abs(new))


def _number(value: Any) -> float | None:
    for parse in (parse_quantity, parse_duration_s):
        try:
            return parse(value)
        except UnitError:
            continue
    return math.inf if value == "unbounded" else None


def _age_s(previous: Mapping[str, Any], new: Mapping[str, Any]) -> float:
    """Seconds between the two decisions; infinite when either time cannot be read."""
    try:
        before = datetime.fromisoformat(previous["lastDecision"]["at"])
        after = datetime.fromisoformat(new["lastDecision"]["at"])
        return (after - before).total_seconds()
    except (KeyError, TypeError, ValueError):
        return math.inf
