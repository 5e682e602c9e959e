"""A router in front of the simulated pods: chooses a Ready one, queues nothing itself."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping

import numpy as np

from sojourn.facts.replica import Routing
from sojourn.simulate.engine import Completion, Outcome, SimulatedEngine
from sojourn.simulate.job import Request


class Router:
    """Sends each request to one of the pods that are Ready now.

    A pod that stops accepting between the choice and the hand-over is left out and another one is
    tried; a request inside a pod that dies is lost, as it is behind a Service.

    Args:
        routing: Random (a Service in front of many clients), RoundRobin or LeastLoaded (fewest
            requests waiting and running; ties at random).
        rng: source of the random choices.

    Raises:
        ValueError: the routing is SharedQueue: a router that queues nothing cannot share a queue.
    """

    def __init__(self, routing: Routing, rng: np.random.Generator) -> None:
        if routing is Routing.SHARED_QUEUE:
            raise ValueError(
                "a router has no queue to share: choose Random, RoundRobin, LeastLoaded"
            )
        self._routing = routing
        self._rng = rng
        self._ready: dict[str, SimulatedEngine] = {}
        self._turn = 0
        self.offered = 0

    @property
    def ready(self) -> Mapping[str, SimulatedEngine]:
        """The pods in rotation, by name."""
        return self._ready

    def set_ready(self, engines: Mapping[str, SimulatedEngine]) -> None:
        """Replace the pods in rotation; requests already inside a pod that left stay there."""
        self._ready = dict(engines)

    async def send(self, request: Request) -> Completion:
        """Run a request on a Ready pod and say how it went."""
        self.offered += 1
        arrived_at_s = asyncio.get_running_loop().time()
        candidates = [engine for engine in self._ready.values() if engine.accepting]
        while candidates:
            engine = self._choose(candidates)
            completion = await engine.submit(request)
            if completion.outcome is not Outcome.UNAVAILABLE:
                return completion
            candidates.remove(engine)
        return Completion(Outcome.UNAVAILABLE, arrived_at_s, math.nan, math.nan, arrived_at_s)

    def _choose(self, engines: list[SimulatedEngine]) -> SimulatedEngine:
        if self._routing is Routing.ROUND_ROBIN:
            self._turn += 1
            return engines[self._turn % len(engines)]
        if self._routing is Routing.LEAST_LOADED:
            least = min(engine.in_flight for engine in engines)
            engines = [engine for engine in engines if engine.in_flight == least]
        return engines[int(self._rng.integers(len(engines)))]
