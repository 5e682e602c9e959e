"""What of a new status is worth a write: facts at once, the rest once it has lasted, time never.

Steady services must cost nothing: a rate measured every tick is never twice the same, and a need
between 5 and 6 replicas is now the one, now the other. So numbers count only when they have moved,
a wish that changed nothing only when it stays, and figures inside messages not at all. What is
left unwritten is brought up to date by the next write, at the latest by the heartbeat.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import IntEnum
from functools import lru_cache
from typing import Any

from sojourn.errors import UnitError
from sojourn.facts.reasons import Reason
from sojourn.units import parse_duration_s, parse_quantity

HEARTBEAT_S = 300.0
"""A status this old is written though nothing changed: it proves that decisions go on."""

LASTING_S = 60.0
"""What passes by within a minute, such as a need that noise brings, is not told."""

DRIFT = 0.10
"""A rate that moved by this much is told once that has lasted: noise of 5 % never moves so far."""

JUMP = 0.5
"""A rate that moved by half is told at once, any other number once that has lasted."""

SIGNIFICANCE, WINDOW_S = 3.0, 60.0
"""Standard errors that two rates must differ by: 3 and 6 requests a minute are the same load."""


class Change(IntEnum):
    """How urgent a difference is."""

    NOTHING = 0
    LASTING = 1
    """Written once it has lasted ``LASTING_S``."""
    FACT = 2
    """Written at once."""


_TIMES = re.compile(r"^(rate\.at|.*\.lastTransitionTime|lastDecision\.at)$")
_NOISE = re.compile(r"^littlesLaw\.")
_NUMBERS = re.compile(
    r"^(utilizationPercent|latency\..*|limits\.(?!binding).*|lastDecision\.raw\..*)$"
)
_WISHES = re.compile(
    r"^(regime|limits\.binding|limitedBy|lastDecision\.(row|limitedBy.*)"
    r"|conditions\[ScalingActive\]\.reason)$"
)
_LIMITED = "conditions[ScalingLimited]."
_PASSING = frozenset(map(str, (Reason.UNLIMITED, Reason.STABILIZATION, Reason.TOLERANCE)))
"""Limits that hold a wish back for a while; the others are facts."""

_PROSE = re.compile(r"^(.*\.message|effective\..*\.value)$")
_FIGURES = re.compile(r"[0-9][0-9.,]*")


def change(previous: Mapping[str, Any] | None, new: Mapping[str, Any]) -> Change:
    """The most urgent difference between the status written and a new one.

    A fact is a changed condition, setting, source, finding or generation, and a rate that moved by
    half. Lasting are a rate that moved by 10 %, another number that moved by half, and a wish that
    led to nothing: its row, its clips and its words. O(leaves that differ).
    """
    if not previous:
        return Change.FACT
    found = Change.NOTHING
    passing = _limit(previous) in _PASSING and _limit(new) in _PASSING
    for path, old, fresh in _differences(previous, new):
        if path.startswith(_LIMITED) and passing:
            found = max(found, Change.LASTING if path.endswith("status") else Change.NOTHING)
        else:
            found = max(found, _change(path, old, fresh))
        if found is Change.FACT:
            break
    return found


def age_s(previous: Mapping[str, Any], new: Mapping[str, Any]) -> float:
    """Seconds between the two decisions; infinite when a time cannot be read or ran backwards."""
    try:
        before = datetime.fromisoformat(previous["lastDecision"]["at"])
        after = datetime.fromisoformat(new["lastDecision"]["at"])
        found = (after - before).total_seconds()
    except (KeyError, TypeError, ValueError):
        return math.inf
    return found if found >= 0 else math.inf


def moved(before_per_s: float, after_per_s: float) -> Change:
    """How urgent a move of a rate is."""
    gap = abs(after_per_s - before_per_s)
    largest = max(before_per_s, after_per_s)
    if not math.isfinite(gap):
        return Change.FACT
    if gap < DRIFT * largest:
        return Change.NOTHING
    if gap < SIGNIFICANCE * math.sqrt((before_per_s + after_per_s) / WINDOW_S):
        return Change.NOTHING
    return Change.FACT if gap >= JUMP * largest else Change.LASTING


def words(text: Any) -> str:
    """A message without its figures."""
    return _FIGURES.sub("#", str(text))


def _limit(status: Mapping[str, Any]) -> str | None:
    conditions = status.get("conditions")
    for one in conditions if isinstance(conditions, list) else ():
        if isinstance(one, Mapping) and one.get("type") == "ScalingLimited":
            return str(one.get("reason"))
    return None


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


@lru_cache(maxsize=4096)  # the paths of one status are those of all
def _kind(path: str) -> str:
    """What a leaf is: time, number, wish, prose or fact."""
    if _TIMES.match(path) or _NOISE.match(path):
        return "time"
    if path == "rate.value":
        return "rate"
    for kind, pattern in (("number", _NUMBERS), ("wish", _WISHES), ("prose", _PROSE)):
        if pattern.match(path):
            return kind
    return "fact"


def _change(path: str, old: Any, fresh: Any) -> Change:
    match _kind(path):
        case "time":
            return Change.NOTHING
        case "rate":
            return _rate_change(_number(old), _number(fresh))
        case "number":
            return Change.LASTING if _jumped(old, fresh) else Change.NOTHING
        case "wish":
            return Change.LASTING
        case "prose":
            return _prose_change(path, old, fresh)
    return Change.FACT


def _rate_change(before: float | None, after: float | None) -> Change:
    return Change.LASTING if before is None or after is None else moved(before, after)


def _prose_change(path: str, old: Any, fresh: Any) -> Change:
    if words(old) == words(fresh):
        return Change.NOTHING
    return Change.LASTING if path == "lastDecision.message" else Change.FACT


def _jumped(before: Any, after: Any) -> bool:
    """Moved by half, or came or went."""
    old, new = _number(before), _number(after)
    if old is None or new is None or not (math.isfinite(old) and math.isfinite(new)):
        return True
    return abs(new - old) >= JUMP * max(abs(old), abs(new))


def _number(value: Any) -> float | None:
    for parse in (parse_quantity, parse_duration_s):
        try:
            return parse(value)
        except UnitError:
            continue
    return math.inf if value == "unbounded" else None
