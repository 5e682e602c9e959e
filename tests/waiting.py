"""Wait for conditions, never for fixed times."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_S = 0.05
LONGEST_POLL_S = 0.5


def eventually(
    predicate: Callable[[], T], timeout_s: float, what: str, *, poll_s: float = POLL_S
) -> T:
    """The first truthy answer of ``predicate``, asked again until the time is up.

    The pause grows from ``poll_s`` by half each time, to LONGEST_POLL_S at most, so short waits
    end promptly and long ones cost little. A failed assertion in the predicate counts as "not yet"
    and explains the failure in the end; any other exception passes through.

    Args:
        timeout_s: seconds; the predicate is asked at least once, and a last time at the end.
        what: the sentence that was expected to become true, for the failure's message.

    Raises:
        AssertionError: the predicate was not truthy within ``timeout_s``.
    """
    deadline_s = time.monotonic() + timeout_s
    pause_s = poll_s
    while True:
        last_look = time.monotonic() >= deadline_s
        seen: object
        try:
            if answer := predicate():
                return answer
            seen = answer
        except AssertionError as error:
            seen = error
        if last_look:
            raise AssertionError(f"not within {timeout_s:g} s: {what} (last seen: {seen!r})")
        time.sleep(min(pause_s, max(0.0, deadline_s - time.monotonic())))
        pause_s = min(pause_s * 1.5, max(LONGEST_POLL_S, poll_s))
