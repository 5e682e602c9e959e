"""A closed loop: always B requests under way, each replaced as it ends.

So B is what runs together, and the queue is empty: latency is service time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sojourn.cli.profiling.points import Point, Sample, summarised

Send = Callable[[], Awaitable[Sample]]


@dataclass(frozen=True)
class Run:
    """What is run.

    Attributes:
        batches: requests together, in this order.
        rounds: measured requests of each of the B senders.
        warm_up: requests of each sender before these, not counted.
    """

    batches: tuple[int, ...] = (1, 8, 32)
    rounds: int = 12
    warm_up: int = 2

    @property
    def requests(self) -> int:
        """Requests of the whole run."""
        return sum(batch * (self.rounds + self.warm_up) for batch in self.batches)


async def measure(
    send: Send,
    run: Run,
    stop: asyncio.Event,
    told: Callable[[int, int], None] | None = None,
) -> list[Point]:
    """One point a batch; those measured until then when ``stop`` is set.

    Args:
        send: sends one request and returns when it has ended; what it raises ends the run.
        told: called after each request with the batch and how many have ended in it.
    """
    points = []
    for batch in run.batches:
        samples = await _stage(send, run, batch, stop, told)
        if stop.is_set() and len(samples) < batch * max(1, run.rounds // 2):
            break
        points.append(summarised(batch, samples))
        if stop.is_set():
            break
    return points


async def _stage(
    send: Send, run: Run, batch: int, stop: asyncio.Event, told: Callable[[int, int], None] | None
) -> Sequence[Sample]:
    samples: list[Sample] = []
    ended = 0
    wanted = batch * run.rounds

    async def sender() -> None:
        nonlocal ended
        sent = 0
        # Every sender goes on until all is measured: nobody runs with fewer beside it.
        while len(samples) < wanted and not stop.is_set():
            sample = await send()
            sent += 1
            ended += 1
            if sent > run.warm_up and len(samples) < wanted:
                samples.append(sample)
            if told is not None:
                told(batch, min(ended, batch * (run.rounds + run.warm_up)))

    tasks = [asyncio.create_task(sender()) for _ in range(batch)]
    work: asyncio.Future[list[None]] = asyncio.gather(*tasks)
    stopped = asyncio.create_task(stop.wait())
    ends: set[asyncio.Future[Any]] = {work, stopped}
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()  # raises what a sender raised
    finally:
        for task in (*tasks, stopped):
            task.cancel()
        await asyncio.gather(*tasks, work, stopped, return_exceptions=True)
    return samples
