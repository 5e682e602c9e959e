"""Waiting for connections that were told to close.

Closing TLS takes a word from the peer, and aiohttp waits for that of its idle connections only. An
event loop that ends before leaves open sockets behind, which the collector then complains of.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Protocol

FAREWELL_S = 1.0
"""A peer may never answer."""

LOOK_S = 0.005


class HasFile(Protocol):
    """A socket, or asyncio's view of one."""

    def fileno(self) -> int:
        """-1 once it is closed."""
        ...


async def closed(sockets: Iterable[HasFile]) -> None:
    """Return when all of these are closed, or after ``FAREWELL_S``."""
    waited_for = tuple(sockets)
    give_up_s = time.monotonic() + FAREWELL_S
    while any(one.fileno() >= 0 for one in waited_for) and time.monotonic() < give_up_s:
        await asyncio.sleep(LOOK_S)
