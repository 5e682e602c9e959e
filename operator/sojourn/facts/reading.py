"""A measured signal: a value, a true zero, or unknown with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from sojourn.facts.reasons import Reason


@dataclass(frozen=True)
class Known:
    """A value seen; 0.0 means idle, and seen to be idle.

    Attributes:
        value: in the unit of the signal's name.
        at_s: Unix seconds at which it held.
        lower_bound: True when the signal can only under-report (completions in overload).
    """

    value: float
    at_s: float
    lower_bound: bool = False

    @property
    def state(self) -> str:
        """``Known`` or ``Zero``, as the status shows it."""
        return "Zero" if self.value == 0 else "Known"


@dataclass(frozen=True)
class Unknown:
    """No value, and why; never to be read as zero."""

    reason: Reason
    why: str

    @property
    def state(self) -> str:
        """``Unknown``, as the status shows it."""
        return "Unknown"


Reading = Known | Unknown
