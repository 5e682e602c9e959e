"""Batch servers behind a router that counts: each arrival joins the one with the fewest inside.

As ``batch_queue``, one pass without jobs: an arrival costs a look at c numbers, a batch one event.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from sojourn.facts.replica import DynamicReplica
from sojourn.simulate.batch_queue import Batches, FloatArray, Progress, Served

_REPORT_EVERY = 20_000


@dataclass(slots=True)
class _Server:
    """One batch server: who waits, in order, and how many are in its running batch."""

    waiting: deque[int] = field(default_factory=deque)
    running: int = 0


def serve(
    replica: DynamicReplica,
    arrivals_s: FloatArray,
    rng: np.random.Generator,
    servers: int,
    progress: Progress | None = None,
) -> Served:
    """Play ``servers`` batching servers, each with its own queue of ``queue_capacity`` places.

    Fewest counts those waiting and those in the running batch; ties go at random.

    Args:
        replica: batching rule of each server.
        arrivals_s: rising, float array (n,).
        rng: source of the batch times' noise and of the ties.
        servers: c, at least 2.
        progress: called with the share of arrivals played.

    """
    fleet = _Fleet(replica, arrivals_s.tolist(), rng, servers)
    fleet.play(rng.random(arrivals_s.size).tolist(), progress)
    return fleet.served()


class _Fleet:
    def __init__(
        self, replica: DynamicReplica, arrivals: list[float], rng: np.random.Generator, servers: int
    ) -> None:
        self._batches = Batches(replica, len(arrivals), rng)
        self._wait_s = replica.max_wait_s
        self._arrivals = arrivals
        self._servers = [_Server() for _ in range(servers)]
        self._levels = [0] * servers
        # One valid event a server: the end of its batch, or the end of its oldest's patience.
        self._due = [0.0] * servers
        self._events: list[tuple[float, int]] = []
        self._index: list[int] = []
        self._sizes: list[int] = []
        self._starts: list[float] = []
        self._ends: list[float] = []

    def play(self, ties: list[float], progress: Progress | None) -> None:
        """Route every arrival, then let the servers run dry."""
        levels, events, due = self._levels, self._events, self._due
        count = len(self._arrivals)
        for played, now_s in enumerate(self._arrivals):
            while events and events[0][0] <= now_s:
                at_s, which = heappop(events)
                if due[which] == at_s:
                    self._happen(which, at_s)
            least = min(levels)
            which = levels.index(least)
            ways = levels.count(least)
            for _ in range(int(ties[played] * ways)):
                which = levels.index(least, which + 1)
            self._join(which, played, now_s)
            if progress is not None and played % _REPORT_EVERY == 0:
                progress(played / count)
        while events:
            at_s, which = heappop(events)
            if due[which] == at_s:
                self._happen(which, at_s)

    def _join(self, which: int, index: int, now_s: float) -> None:
        server = self._servers[which]
        waiting = len(server.waiting)
        if waiting >= self._batches.places:
            return
        server.waiting.append(index)
        self._levels[which] += 1
        if not server.running and (waiting + 1 >= self._batches.most or waiting == 0):
            self._consider(which, now_s)

    def _happen(self, which: int, now_s: float) -> None:
        server = self._servers[which]
        self._levels[which] -= server.running
        server.running = 0
        self._due[which] = -1.0
        if server.waiting:
            self._consider(which, now_s)

    def _consider(self, which: int, now_s: float) -> None:
        """A free server with somebody waiting: start, or wait for the oldest's patience to end."""
        server = self._servers[which]
        size = min(self._batches.most, len(server.waiting))
        patient_until_s = self._arrivals[server.waiting[0]] + self._wait_s
        if size < self._batches.most and patient_until_s > now_s:
            self._at(which, patient_until_s)
            return
        end_s = now_s + self._batches.draw_s(size)
        server.running = size
        self._index.extend(server.waiting.popleft() for _ in range(size))
        self._sizes.append(size)
        self._starts.append(now_s)
        self._ends.append(end_s)
        self._at(which, end_s)

    def _at(self, which: int, at_s: float) -> None:
        self._due[which] = at_s
        heappush(self._events, (at_s, which))

    def served(self) -> Served:
        """Everything served."""
        return Served.by_batch(self._index, self._sizes, self._starts, self._ends)
