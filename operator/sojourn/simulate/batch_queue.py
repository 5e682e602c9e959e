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
    """

    index: IntArray
    start_s: FloatArray
    end_s: FloatArray
    batch_sizes: IntArray

    @classmethod
    def by_batch(
        cls, index: list[int], sizes: list[int], starts_s: list[float], ends_s: list[float]
    ) -> Served:
        """From the requests in the order of service and a number a batch."""
        batch_sizes = np.asarray(sizes, dtype=np.int64)
        return cls(
            np.asarray(index, dtype=np.int64),
            np.repeat(np.asarray(starts_s), batch_sizes),
            np.repeat(np.asarray(ends_s), batch_sizes),
            batch_sizes,
        )


class Batches:
    """What bounds a queue's batches, and their times, whose noise is drawn in blocks.

    Args:
        replica: batching rule.
        offered: arrivals, which stand for the places of a queue without a bound.
        rng: source of the noise.
    """

    def __init__(self, replica: DynamicReplica, offered: int, rng: np.random.Generator) -> None:
        self.places = offered if replica.queue_capacity is None else replica.queue_capacity
        self.most = max(1, min(replica.max_batch, self.places))
        sizes = range(1, self.most + 1)
        self._means_s = [0.0, *(mean_batch_s(replica.service, size) for size in sizes)]
        self._scv = replica.service.scv
        self._rng = rng
        self._block: list[float] = []

    def draw_s(self, size: int) -> float:
        """Seconds of a batch: its mean, or a gamma variable with that mean."""
        if self._scv == 0:
            return self._means_s[size]
        if not self._block:
            self._block = self._rng.gamma(1 / self._scv, self._scv, _NOISE_BLOCK).tolist()
        return self._means_s[size] * self._block.pop()


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
    batches = Batches(replica, count, rng)
    places, most = batches.places, batches.most
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
        end_s = now_s + batches.draw_s(size)
        heapq.heappush(free, end_s)
        sizes.append(size)
        starts.append(now_s)
        ends.append(end_s)
        head += size
        if progress is not None and following >= next_report:
            progress(following / count)
            next_report += _REPORT_EVERY
    return Served.by_batch(queue[:head], sizes, starts, ends)
