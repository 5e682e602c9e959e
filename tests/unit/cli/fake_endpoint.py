"""A minimal OpenAI-compatible server with streaming, whose times are known exactly.

A token of a request takes ``fixed_s + per_request_s x n`` with n requests inside; the first one
also ``per_prompt_token_s`` for each word of the prompt. ``failing`` answers every request with an
error, ``silent`` streams no token. ``first_s`` and ``gaps_s`` are what it did.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web


@dataclass
class FakeEndpoint:
    """The server; an asynchronous context manager."""

    fixed_s: float = 0.020
    per_request_s: float = 0.001
    per_prompt_token_s: float = 0.0005
    failing: int = 0
    silent: bool = False
    model: str = "served-as"
    inside: int = 0
    most_inside: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[str | None] = field(default_factory=list)
    url: str = ""
    first_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._answer)
        app.router.add_post("/v1/chat/completions", self._answer)
        app.router.add_post("/v2/models/{model}/generate", self._generate)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._runner.cleanup()

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": self.model}]})

    async def _generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        await asyncio.sleep(self.fixed_s * int(body["max_tokens"]))
        return web.json_response({"text_output": "word"})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(request.headers.get("Authorization"))
        if self.failing:
            return web.json_response({"error": "overloaded"}, status=self.failing)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        try:
            await self._stream(response, body)
        finally:
            self.inside -= 1
        return response

    async def _stream(self, response: web.StreamResponse, body: dict[str, Any]) -> None:
        prompt = body.get("prompt") or body["messages"][0]["content"]
        words, tokens = len(prompt.split()), int(body["max_tokens"])
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        due_s, written_s = begun_s + self.per_prompt_token_s * words, 0.0
        for _ in range(0 if self.silent else tokens):
            due_s += self.fixed_s + self.per_request_s * self.inside
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            choice = {"text": "a"} if "prompt" in body else {"delta": {"content": "a"}}
            await self._event(response, {"choices": [{"index": 0, **choice}]})
            # What was done, not what was meant: on a busy machine timers are late.
            now_s = loop.time()
            if written_s:
                self.gaps_s.append(now_s - written_s)
            else:
                self.first_s.append(now_s - begun_s)
            written_s = now_s
        usage = {"prompt_tokens": words, "completion_tokens": tokens}
        await self._event(response, {"choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")

    async def _event(self, response: web.StreamResponse, content: dict[str, Any]) -> None:
        await response.write(f"data: {json.dumps(content)}\n\n".encode())
