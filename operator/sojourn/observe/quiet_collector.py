"""The cyclic garbage collector kept out of the way of a tick."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_OBJECTS = 50_000
"""Objects made, less those that went, between two collections of young ones.

Five to seven collections a tick of 5,000 services, 50 ms each; with 200,000 it is one of 280 ms,
which an admission request would wait for.
"""

_lock = threading.Lock()
_users = 0


@contextmanager
def collector_paused() -> Iterator[None]:
    """No cyclic collection until every user is done.

    An answer of 135,000 series is half a million small objects that all stay: collecting in
    between walks them again and again, finds nothing and more than doubles the time of parsing.
    """
    global _users  # noqa: PLW0603 - the collector is the process's, and so is the count
    with _lock:
        _users += 1
        if _users == 1:
            gc.disable()
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                gc.enable()


def collect_seldom() -> None:
    """Set the process's collector for a large heap that hardly makes cycles.

    With Python's own 700 objects a tick of 5,000 services spends 1 to 4 s of CPU in the collector,
    a third of it in full collections that stop everything for a second and find nothing.
    """
    gc.set_threshold(YOUNG_OBJECTS, 100, 100)
