"""A live inference endpoint: OpenAI's completions with streaming, or Triton's generate."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import aiohttp

from sojourn.cli.exits import EndpointUnavailable
from sojourn.cli.profiling.points import Sample

PROTOCOLS = ("completions", "chat", "triton")
_TOKENS_PER_WORD = 1.0


@dataclass(frozen=True)
class Target:
    """What is asked for.

    Attributes:
        url: base address, with or without ``/v1``.
        model: name the server knows the model by.
        protocol: one of ``PROTOCOLS``.
        prompt_tokens: words of the prompt, about a token each; the server's count is what counts.
        output_tokens: tokens every answer is forced to.
        token: bearer token, never shown.
        timeout_s: longest wait for one answer.
    """

    url: str
    model: str
    protocol: str = "completions"
    prompt_tokens: int = 512
    output_tokens: int = 128
    token: str | None = field(default=None, repr=False)
    timeout_s: float = 600.0

    @property
    def address(self) -> str:
        """Where requests go."""
        base = self.url.rstrip("/")
        if self.protocol == "triton":
            return f"{base.removesuffix('/v2')}/v2/models/{quote(self.model, safe='')}/generate"
        path = "chat/completions" if self.protocol == "chat" else "completions"
        return f"{base.removesuffix('/v1')}/v1/{path}"

    def body(self) -> dict[str, Any]:
        """One request; no two have the same prompt, or a prefix cache would answer."""
        words = [secrets.token_hex(4), *("word",) * (self.prompt_tokens - 1)]
        prompt = " ".join(words)
        if self.protocol == "triton":
            return {"text_input": prompt, "max_tokens": self.output_tokens, "stream": False}
        shared = {
            "model": self.model,
            "max_tokens": self.output_tokens,
            # Every answer as long as asked: an early end would make a small batch look fast.
            "min_tokens": self.output_tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.protocol == "chat":
            return {**shared, "messages": [{"role": "user", "content": prompt}]}
        return {**shared, "prompt": prompt}


class Endpoint:
    """Sends requests to a target; an asynchronous context manager."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        headers = {"Authorization": f"Bearer {self.target.token}"} if self.target.token else {}
        self._session = aiohttp.ClientSession(
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=self.target.timeout_s),
            connector=aiohttp.TCPConnector(limit=0),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(self) -> Sample:
        """One request, timed from sending it.

        Raises:
            EndpointUnavailable: no answer, an error, or an answer without a token.
        """
        assert self._session is not None
        where = self.target.address
        try:
            started_s = time.perf_counter()
            async with self._session.post(where, json=self.target.body()) as response:
                if response.status >= 400:
                    raise EndpointUnavailable(await _refusal(where, response))
                if self.target.protocol == "triton":
                    await response.read()
                    return Sample(time.perf_counter() - started_s)
                return await _streamed(where, response, started_s)
        except TimeoutError as exc:
            raise EndpointUnavailable(
                f"{where} did not answer within {self.target.timeout_s:g} s"
            ) from exc
        except aiohttp.ClientError as exc:
            raise EndpointUnavailable(f"{where} cannot be asked: {exc}") from exc


async def _refusal(where: str, response: aiohttp.ClientResponse) -> str:
    text = (await response.text())[:200].replace("\n", " ")
    hint = "; check --served-model" if response.status == 404 else ""
    return f"{where} answered {response.status}: {text}{hint}"


async def _streamed(where: str, response: aiohttp.ClientResponse, started_s: float) -> Sample:
    """Times of the tokens of a stream of server-sent events."""
    times_s: list[float] = []
    usage: dict[str, Any] = {}
    async for event in _events(response):
        usage = event.get("usage") or usage
        if any(_has_token(choice) for choice in event.get("choices") or ()):
            times_s.append(time.perf_counter())
        if event.get("error"):
            raise EndpointUnavailable(f"{where} broke off: {event['error']}")
    if not times_s:
        raise EndpointUnavailable(f"{where} streamed no token: does it support streaming?")
    return _sample(times_s, usage, started_s)


def _sample(times_s: list[float], usage: Mapping[str, Any], started_s: float) -> Sample:
    """One request from the times of its tokens' events and the server's count of tokens."""
    gaps = tuple(later - earlier for earlier, later in pairwise(times_s))
    tokens = usage.get("completion_tokens") or len(times_s)
    # A server may put several tokens into one event; a gap then holds as many steps.
    per_event = max(1.0, (tokens - 1) / max(1, len(gaps))) if gaps else 1.0
    return Sample(
        latency_s=times_s[-1] - started_s,
        first_token_s=times_s[0] - started_s,
        gaps_s=tuple(gap / per_event for gap in gaps),
        prompt_tokens=usage.get("prompt_tokens"),
        output_tokens=float(tokens),
    )


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    async for raw in response.content:
        line = raw.decode("utf-8", "replace").strip()
        if not line.startswith("data:"):
            continue
        payload = line.removeprefix("data:").strip()
        if payload == "[DONE]":
            return
        try:
            event = json.loads(payload)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event


def _has_token(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta") or {}
    return bool(choice.get("text") or delta.get("content") or delta.get("reasoning_content"))
