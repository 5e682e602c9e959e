"""The fleet: an engine for each Ready pod that asks for one, a router a service, a metrics server.

It runs in a thread with an event loop of its own and learns of pods from the API server's watch,
as a kubelet would. A pod that leaves is taken out of the router at once and its engine drains.

Where the application has a Service of its name, its EndpointSlices lead the requests instead, half
a second late, as nodes' proxies are; what reaches an engine that takes no more is lost.
"""

import asyncio
import contextlib
import json
import logging
import socket
import threading
import weakref
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
import numpy as np
from aiohttp import AddrInfoType

from sojourn.act.farewell import closed
from sojourn.facts.replica import Routing
from sojourn.simulate.engine import Completion, SimulatedEngine
from sojourn.simulate.http import PodTarget
from sojourn.simulate.job import Request
from sojourn.simulate.load import LoadGenerator, Traffic
from sojourn.simulate.router import Router
from tests.e2e.demo import pods
from tests.e2e.demo.client import Client
from tests.e2e.demo.endpoints import Endpoints, Service
from tests.e2e.demo.pages import Pages, Spoilt
from tests.e2e.demo.pods import PodRef

log = logging.getLogger(__name__)

T = TypeVar("T")
START_TIMEOUT_S = 30.0
WATCH_S = 600
RETRY_S = 0.2
PROXIES_S = 0.5  # from an EndpointSlice to the nodes' rules

Seen = Callable[[str, Mapping[str, Any]], object]


class Proxied(Router):
    """A router that knows of its pods what a Service knows, and tries no second one."""

    async def send(self, request: Request) -> Completion:
        """Run a request on a pod in rotation and say how it went."""
        if not self.ready:
            return await super().send(request)
        self.offered += 1
        return await self._choose(list(self.ready.values())).submit(request)


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
        self._endpoints = Endpoints()
        self._leaving: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._draining: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fleet", daemon=True)
        self._server = Pages()
        self._watching: Future[None] | None = None
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

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

    def spoil(self, namespace: str, how: Spoilt | None) -> None:
        """Spoil the metrics pages of a namespace's pods; None makes them whole again."""
        self._loop.call_soon_threadsafe(self._server.spoil, namespace, how)

    def _call(self, work: Callable[[], Awaitable[T]]) -> T:
        async def run() -> T:
            return await work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(START_TIMEOUT_S)

    def _new_front(self) -> Front:
        return Front(Proxied(Routing.RANDOM, self._rng))

    async def _shut(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _, engine in self._attached.values():
            engine.kill()
        await self._server.__aexit__(None, None, None)
        await closed(self._sockets)

    def _socket(self, address: AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        self._sockets.add(made)
        return made

    async def _watch(self) -> None:
        connector = aiohttp.TCPConnector(ssl=self._client.tls, socket_factory=self._socket)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            await asyncio.gather(
                self._watch_one(session, "/api/v1/pods", self._keep_only, self._seen),
                self._watch_one(
                    session,
                    "/apis/discovery.k8s.io/v1/endpointslices",
                    self._keep_endpoints,
                    self._routed,
                ),
            )

    async def _watch_one(
        self,
        session: aiohttp.ClientSession,
        path: str,
        listed: Callable[[list[Mapping[str, Any]]], object],
        seen: Seen,
    ) -> None:
        while True:
            # The API server may be down for a while, on purpose; pods meanwhile serve on.
            with contextlib.suppress(aiohttp.ClientError, OSError):
                await self._follow(session, f"{self._client.server}{path}", listed, seen)
            await asyncio.sleep(RETRY_S)

    async def _follow(
        self,
        session: aiohttp.ClientSession,
        url: str,
        take: Callable[[list[Mapping[str, Any]]], object],
        seen: Seen,
    ) -> None:
        async with session.get(url) as response:
            response.raise_for_status()
            listed = await response.json()
        take(listed["items"])
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
                seen(event["type"], event["object"])

    def _keep_only(self, bodies: list[Mapping[str, Any]]) -> None:
        there = {(b["metadata"]["namespace"], b["metadata"]["name"]) for b in bodies}
        for key in set(self._attached) - there:
            self._detach(key)
        for body in bodies:
            self._seen("MODIFIED", body)

    def _keep_endpoints(self, bodies: list[Mapping[str, Any]]) -> None:
        self._endpoints.keep_only(bodies)
        for service in list(self._fronts):
            self._loop.call_later(PROXIES_S, self._route, service)

    def _routed(self, event: str, body: Mapping[str, Any]) -> None:
        service = self._endpoints.apply(event, body)
        if service is not None:
            self._loop.call_later(PROXIES_S, self._route, service)

    def _route(self, service: Service) -> None:
        """Lead the requests of a service to the pods that are to have them now."""
        if service not in self._fronts:
            return
        front = self._fronts[service]
        names = self._endpoints.pods(service)
        engines = front.engines
        chosen = engines if names is None else {n: engines[n] for n in names if n in engines}
        front.router.set_ready(chosen)

    def _seen(self, event: str, body: Mapping[str, Any]) -> None:
        ref = pods.ref_of(body)
        if ref is None:
            return
        if event == "DELETED" or not pods.serves(body):
            limited = pods.is_cut_off(body)
            if limited and event != "DELETED" and "deletionTimestamp" in body["metadata"]:
                self._terminate(ref.key, pods.prestop_s(body))
            else:
                self._detach(ref.key, lost=limited)
        elif ref.key not in self._attached:
            self._attach(ref, body)

    def _terminate(self, key: tuple[str, str], prestop_s: float) -> None:
        """Let an engine go on for a while, then finish what it has, as a kubelet does."""
        if key not in self._attached or key in self._leaving:
            return
        _, engine = self._attached[key]

        async def leave() -> None:
            await asyncio.sleep(prestop_s)
            await engine.drain()

        self._leaving[key] = self._loop.create_task(leave())

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
        self._route(ref.service)

    def _detach(self, key: tuple[str, str], *, lost: bool = False) -> None:
        """A pod is gone; its requests are lost, or it finishes them unseen."""
        if key not in self._attached:
            return
        ref, engine = self._attached.pop(key)
        front = self._fronts[ref.service]
        front.engines.pop(ref.name, None)
        self._route(ref.service)
        self._server.remove(*key)
        leaving = self._leaving.pop(key, None)
        if leaving is not None:
            leaving.cancel()
        if lost:
            engine.kill()
            return
        task = self._loop.create_task(engine.drain())
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)
