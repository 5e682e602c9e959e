"""Dynamic batching offline: one pass over the batches, no event list.

Between two starts of batches nothing leaves the queue, so who joins it and who is lost follows from
counts alone, and each batch costs a few operations whatever its size. ``BatchCore`` plays the same
rules event by event; a test holds one against the other.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sojourn.facts.replica import DynamicReplica
from sojourn.simulate.batch_core import mean_batch_s

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Progress = Callable[[float], None]

_REPORT_EVERY = 20_000
_NOISE_BLOCK = 65_536


@dataclass(frozen=True, eq=False)
class Served:
    """The requests a queue served, in the order in which it took them.

    Attributes:
        index: positions of the served arrivals, int array (n,).
        start_s: when their batches started, float array (n,).
        end_s: when those ended, float array (n,).
        batch_sizes: sizes of the batches, int array (b,).
        busy_s: seconds servers worked, all servers added up.
    """

    index: IntArray
    start_s: FloatArray
    end_s: FloatArray
    batch_sizes: IntArray
    busy_s: float


class Noise:
    """Factors with mean 1 on the batch times, drawn in blocks."""

    def __init__(self, scv: float, rng: np.random.Generator) -> None:
        self._scv = scv
        self._rng = rng
        self._block: list[float] = []

    def next(self) -> float:
        """A gamma variable with mean 1, or 1."""
        if self._scv == 0:
            return 1.0
        if not self._block:
            self._block = self._rng.gamma(1 / self._scv, self._scv, _NOISE_BLOCK).tolist()
        return self._block.pop()


def serve(
    replica: DynamicReplica,
    arrivals_s: FloatArray,
    rng: np.random.Generator,
    servers: int = 1,
    progress: Progress | None = None,
) -> Served:
    """Play one queue in front of ``servers`` batching servers.

    Args:
        replica: batching rule; its queue capacity is that of the whole queue.
        arrivals_s: rising, float array (n,).
        rng: source of the batch times' noise.
        progress: called with the share of arrivals played.
    """
    arrivals = arrivals_s.tolist()
    count = len(arrivals)
    places = count if replica.queue_capacity is None else replica.queue_capacity
    most = max(1, min(replica.max_batch, places))
    means = [0.0, *(mean_batch_s(replica.service, size) for size in range(1, most + 1))]
    noise = Noise(replica.service.scv, rng)
    free = [0.0] * servers
    queue: list[int] = []
    head = following = 0
    sizes: list[int] = []
    starts: list[float] = []
    ends: list[float] = []
    next_report = _REPORT_EVERY
    while following < count or head < len(queue):
        now_s = heapq.heappop(free)
        # Nothing left the queue since the last start: the first that fit are in, the rest lost.
        came = bisect_right(arrivals, now_s, following)
        room = places - (len(queue) - head)
        queue.extend(range(following, min(came, following + room)))
        following = came
        if head == len(queue):
            if following == count:
                break
            queue.append(following)
            now_s = arrivals[following]
            following += 1
        missing = most - (len(queue) - head)
        if missing > 0:
            full_at_s = arrivals[following + missing - 1] if following + missing <= count else 1e300
            now_s = max(now_s, min(arrivals[queue[head]] + replica.max_wait_s, full_at_s))
            came = bisect_right(arrivals, now_s, following, min(count, following + missing))
            queue.extend(range(following, came))
            following = came
        size = min(most, len(queue) - head)
        end_s = now_s + means[size] * noise.next()
        heapq.heappush(free, end_s)
        sizes.append(size)
        starts.append(now_s)
        ends.append(end_s)
        head += size
        if progress is not None and following >= next_report:
            progress(following / count)
            next_report += _REPORT_EVERY
    batch_sizes = np.asarray(sizes, dtype=np.int64)
    start_s, end_s_all = np.asarray(starts), np.asarray(ends)
    return Served(
        np.asarray(queue[:head], dtype=np.int64),
        np.repeat(start_s, batch_sizes),
        np.repeat(end_s_all, batch_sizes),
        batch_sizes,
        float((end_s_all - start_s).sum()),
    )
