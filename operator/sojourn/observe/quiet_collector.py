"""Parsing without the cyclic garbage collector."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

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
