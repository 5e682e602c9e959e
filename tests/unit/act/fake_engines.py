"""The two interfaces that take a new max batch, as real HTTP servers on the loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.controlplane.components import LOOPBACK


@dataclass
class FakeEngine:
    """One engine process; ``asked`` lists its calls, ``broken`` and ``hangs`` are faults."""

    asked: list[str] = field(default_factory=list)
    broken: bool = False
    hangs: bool = False
    port: int = 0

    def routes(self) -> list[web.RouteDef]:
        raise NotImplementedError

    async def before(self, request: web.Request) -> None:
        """Note the call, and do what the fault wants."""
        self.asked.append(f"{request.method} {request.path}")
        if self.hangs:
            await asyncio.Event().wait()
        if self.broken:
            raise web.HTTPInternalServerError(text="CUDA error")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[int]:
        """Serve until the block ends; gives the port."""
        app = web.Application()
        app.add_routes(self.routes())
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, LOOPBACK, self.port)
        await site.start()
        self.port = int(runner.addresses[0][1])
        try:
            yield self.port
        finally:
            await runner.cleanup()


@dataclass
class FakeSGLang(FakeEngine):
    """``/set_internal_state``: takes one name of the cap, from 1 to what it was started with.

    ``always_updated`` answers as the releases do that say "updated" whatever happened.
    """

    name: str = "pp_max_micro_batch_size"
    started_with: int = 64
    ranks: int = 1
    always_updated: bool = False
    cap: int | None = None

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/set_internal_state", self._set)]

    async def _set(self, request: web.Request) -> web.Response:
        await self.before(request)
        wanted = (await request.json())["server_args"]
        value = wanted.get(self.name)
        taken = value is not None and 1 <= value <= self.started_with
        if taken:
            self.cap = value
        one = {"updated": taken or self.always_updated,
               "server_args": {self.name: self.cap}}  # fmt: skip
        return web.json_response([one] * self.ranks if self.ranks > 1 else one)


def _config() -> dict[str, Any]:
    return {
        "name": "bert",
        "platform": "onnxruntime_onnx",
        "max_batch_size": 32,
        "dynamic_batching": {
            "preferred_batch_size": [8, 16, 32],
            "max_queue_delay_microseconds": 5000,
        },
    }


@dataclass
class FakeTriton(FakeEngine):
    """Model control in explicit mode, one model unless told otherwise."""

    config: dict[str, Any] = field(default_factory=_config)
    models: tuple[str, ...] = ("bert",)
    loads: int = 0

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v2/repository/index", self._index),
            web.get("/v2/models/{name}/config", self._read),
            web.post("/v2/repository/models/{name}/load", self._load),
        ]

    async def _index(self, request: web.Request) -> web.Response:
        await self.before(request)
        return web.json_response([{"name": n, "state": "READY"} for n in self.models])

    async def _read(self, request: web.Request) -> web.Response:
        await self.before(request)
        if request.match_info["name"] not in self.models:
            raise web.HTTPNotFound(text='{"error": "unknown model"}')
        return web.json_response(self.config)

    async def _load(self, request: web.Request) -> web.Response:
        await self.before(request)
        self.config = json.loads((await request.json())["parameters"]["config"])
        self.loads += 1
        return web.Response()  # Triton answers a load with an empty body
