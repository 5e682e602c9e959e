"""What a check of the doctor found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scope:
    """What is examined.

    Attributes:
        namespace: of the services; None for all.
        system: of the operator.
        prometheus: address to ask in place of the operator's; None for the operator's.
    """

    namespace: str | None
    system: str
    prometheus: str | None = None


@dataclass(frozen=True)
class Outcome:
    """One line: ``ok``, ``FAIL``, ``warn`` or ``skip``, and the remedy where there is one.

    Attributes:
        fatal: nothing after it can be examined.
    """

    state: str
    subject: str
    text: str
    remedy: str = ""
    fatal: bool = False

    @property
    def failed(self) -> bool:
        """It must be mended."""
        return self.state == "FAIL"


def ok(subject: str, text: str) -> Outcome:
    """As it should be."""
    return Outcome("ok", subject, text)


def fail(subject: str, text: str, remedy: str, *, fatal: bool = False) -> Outcome:
    """Must be mended."""
    return Outcome("FAIL", subject, text, remedy, fatal)


def warn(subject: str, text: str, remedy: str) -> Outcome:
    """Works, but not fully."""
    return Outcome("warn", subject, text, remedy)


def skip(subject: str, text: str) -> Outcome:
    """Could not be looked at."""
    return Outcome("skip", subject, text)
