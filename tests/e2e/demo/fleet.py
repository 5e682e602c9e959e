"""The fleet: an engine for each Ready pod that asks for one, a router a service, a metrics server.

It runs in a thread with an event loop of its own and learns of pods from the API server's watch,
as a kubelet would. A pod that leaves is taken out of the router at once and its engine drains.
"""

import asyncio
import contextlib
import json
import logging
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
import numpy as np

from sojourn.facts.replica import Routing
from sojourn.simulate.engine import Completion, SimulatedEngine
from sojourn.simulate.http import MetricsServer, PodTarget
from sojourn.simulate.load import LoadGenerator, Traffic
from sojourn.simulate.router import Router
from tests.e2e.demo import pods
from tests.e2e.demo.client import Client
from tests.e2e.demo.pods import PodRef

log = logging.getLogger(__name__)

T = TypeVar("T")
Service = tuple[str, str]  # namespace and label app
START_TIMEOUT_S = 30.0
WATCH_S = 600
RETRY_S = 0.2


@dataclass
class Front:
    """One service as its clients see it."""

    router: Router
    engines: dict[str, SimulatedEngine] = field(default_factory=dict)
    loads: list[LoadGenerator] = field(default_factory=list)

    @property
    def ready(self) -> int:
        """Pods in rotation."""
        return len(self.router.ready)

    def completions(self) -> list[Completion]:
        """Every request that ended, in no order."""
        return [one for load in self.loads for one in list(load.completions)]


class Fleet:
    """Use as a context manager; everything public may be called from any thread.

    Args:
        seed: of the routers' choices and the engines' noise.
    """

    def __init__(self, client: Client, seed: int = 1) -> None:
        self._client = client
        self._rng = np.random.default_rng(seed)
        self._fronts: dict[Service, Front] = defaultdict(self._new_front)
        self._attached: dict[tuple[str, str], tuple[PodRef, SimulatedEngine]] = {}
        self._draining: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fleet", daemon=True)
        self._server = MetricsServer()
        self._watching: Future[None] | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._server.__aenter__)
        self._watching = asyncio.run_coroutine_threadsafe(self._watch(), self._loop)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._watching is not None:
            self._watching.cancel()
        self._call(self._shut)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_TIMEOUT_S)
        self._loop.close()

    @property
    def targets_url(self) -> str:
        """What Prometheus' http_sd is to ask."""
        return f"http://{self._server.address}/targets"

    def front(self, service: Service) -> Front:
        """The router and the engines of a service."""
        return self._fronts[service]

    def play(self, service: Service, traffic: Traffic) -> "Future[list[Completion]]":
        """Play traffic against a service; cancel the answer to stop it."""
        front = self._fronts[service]
        load = LoadGenerator(front.router.send, traffic)
        front.loads.append(load)
        return asyncio.run_coroutine_threadsafe(load.run(), self._loop)

    def _call(self, work: Callable[[], Awaitable[T]]) -> T:
        async def run() -> T:
            return await work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(START_TIMEOUT_S)

    def _new_front(self) -> Front:
        return Front(Router(Routing.RANDOM, self._rng))

    async def _shut(self) -> None:
        for task in [*self._draining, *asyncio.all_tasks()]:
            if task is not asyncio.current_task():
                task.cancel()
        for _, engine in self._attached.values():
            engine.kill()
        await self._server.__aexit__(None, None, None)

    async def _watch(self) -> None:
        connector = aiohttp.TCPConnector(ssl=self._client.tls)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            while True:
                # The API server may be down for a while, on purpose; pods meanwhile serve on.
                with contextlib.suppress(aiohttp.ClientError, OSError):
                    await self._follow(session)
                await asyncio.sleep(RETRY_S)

    async def _follow(self, session: aiohttp.ClientSession) -> None:
        url = f"{self._client.server}/api/v1/pods"
        async with session.get(url) as response:
            response.raise_for_status()
            listed = await response.json()
        self._keep_only(listed["items"])
        query = {
            "watch": "1",
            "resourceVersion": listed["metadata"]["resourceVersion"],
            "timeoutSeconds": str(WATCH_S),
        }
        async with session.get(url, params=query, read_bufsize=2**22) as stream:
            stream.raise_for_status()
            async for line in stream.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return  # too old a version: list again
                self._seen(event["type"], event["object"])

    def _keep_only(self, bodies: list[Mapping[str, Any]]) -> None:
        there = {(b["metadata"]["namespace"], b["metadata"]["name"]) for b in bodies}
        for key in set(self._attached) - there:
            self._detach(key)
        for body in bodies:
            self._seen("MODIFIED", body)

    def _seen(self, event: str, body: Mapping[str, Any]) -> None:
        ref = pods.ref_of(body)
        if ref is None:
            return
        if event == "DELETED" or not pods.serves(body):
            self._detach(ref.key)
        elif ref.key not in self._attached:
            self._attach(ref, body)

    def _attach(self, ref: PodRef, body: Mapping[str, Any]) -> None:
        try:
            parameters = pods.parameters_of(body)
        except (KeyError, ValueError):
            log.exception("pod %s/%s describes no engine", *ref.key)
            return
        engine = SimulatedEngine(parameters, self._rng, ref.name)
        self._attached[ref.key] = ref, engine
        labels = body["metadata"].get("labels") or {}
        self._server.add(PodTarget(ref.namespace, ref.name, ref.container, engine, labels))
        front = self._fronts[ref.service]
        front.engines[ref.name] = engine
        front.router.set_ready(front.engines)

    def _detach(self, key: tuple[str, str]) -> None:
        if key not in self._attached:
            return
        ref, engine = self._attached.pop(key)
        front = self._fronts[ref.service]
        front.engines.pop(ref.name, None)
        front.router.set_ready(front.engines)
        self._server.remove(*key)
        task = self._loop.create_task(engine.drain())
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)
