"""What a check found about one service."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sojourn.facts.reasons import Reason


class Verdict(StrEnum):
    """What follows from a Finding."""

    REJECT = "REJECT"
    WARN = "WARN"
    NOTE = "NOTE"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong or worth knowing.

    Attributes:
        reason: stable CamelCase name.
        verdict: REJECT denies at admission, WARN is shown, NOTE explains.
        field: where to look, as a path: ``spec.engine.maxBatchSize.max``.
        message: what is wrong, by how much, what to do.
        numbers: the figures behind the message, by name with the unit in the name.
    """

    reason: Reason
    verdict: Verdict
    field: str
    message: str
    numbers: tuple[tuple[str, float], ...] = ()
