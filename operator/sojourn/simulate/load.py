"""A load generator: Poisson staircases or recorded arrivals, played in real time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sojourn.facts.service_time import TokenLengths
from sojourn.simulate.engine import Completion
from sojourn.simulate.job import Request
from sojourn.simulate.lengths import draw

FloatArray = npt.NDArray[np.float64]
Send = Callable[[Request], Awaitable[Completion]]


@dataclass(frozen=True)
class RateStep:
    """One tread of the staircase, in uncompressed seconds.

    Attributes:
        duration_s: how long it lasts.
        rate_per_s: Poisson arrivals per second meanwhile, >= 0.
    """

    duration_s: float
    rate_per_s: float


@dataclass(frozen=True)
class Traffic:
    """Arrivals and what they ask for.

    Attributes:
        arrivals_s: float array (n,), rising, uncompressed seconds from the start.
        requests: what each of them asks for, n of them.
    """

    arrivals_s: FloatArray
    requests: tuple[Request, ...]


def staircase(steps: Sequence[RateStep], rng: np.random.Generator) -> FloatArray:
    """Poisson arrival times of a piecewise constant rate, float array (n,), uncompressed seconds.

    On a tread the number of arrivals is Poisson and, given the number, the times are uniform, so
    each tread is drawn in one go.
    """
    pieces: list[FloatArray] = []
    begins_at_s = 0.0
    for step in steps:
        count = int(rng.poisson(step.rate_per_s * step.duration_s))
        pieces.append(begins_at_s + np.sort(rng.random(count)) * step.duration_s)
        begins_at_s += step.duration_s
    return np.concatenate(pieces) if pieces else np.zeros(0)


def traffic(
    arrivals_s: FloatArray,
    output: TokenLengths,
    prompt: TokenLengths,
    rng: np.random.Generator,
) -> Traffic:
    """Give every arrival, of a staircase or a trace, its prompt and output length."""
    count = len(arrivals_s)
    prompts = draw(prompt, count, rng).tolist() if prompt.mean > 0 else [0] * count
    outputs = draw(output, count, rng).tolist()
    requests = tuple(Request(p, o) for p, o in zip(prompts, outputs, strict=True))
    return Traffic(arrivals_s, requests)


@dataclass
class LoadGenerator:
    """Plays traffic against a router and keeps the record of every request.

    Attributes:
        send: the router's ``send``.
        traffic: what to play.
        compression: uncompressed seconds per second of the wall.
        started_at_s: event loop time of the first tread's start, nan before.
        sent: requests sent so far.
        completions: records of ended requests, in the order in which they ended; times on the
            event loop's clock.
    """

    send: Send
    traffic: Traffic
    compression: float = 1.0
    started_at_s: float = float("nan")
    sent: int = 0
    completions: list[Completion] = field(default_factory=list)

    async def run(self) -> list[Completion]:
        """Play everything, wait for the last request to end and return the records.

        When it is cancelled, the requests still inside are abandoned.
        """
        loop = asyncio.get_running_loop()
        self.started_at_s = loop.time()
        pending: set[asyncio.Task[None]] = set()
        try:
            for arrival_s, request in zip(
                self.traffic.arrivals_s.tolist(), self.traffic.requests, strict=True
            ):
                ahead_s = self.started_at_s + arrival_s / self.compression - loop.time()
                # Arrivals closer than the loop's timer can tell apart leave together.
                if ahead_s > 0:
                    await asyncio.sleep(ahead_s)
                task = asyncio.create_task(self._send_one(request))
                pending.add(task)
                task.add_done_callback(pending.discard)
                self.sent += 1
            await asyncio.gather(*pending)
        finally:
            for task in pending:
                task.cancel()
        return self.completions

    async def _send_one(self, request: Request) -> None:
        self.completions.append(await self.send(request))
