"""Max batch on engines that take a new one while they run, pod by pod.

An engine forgets the value when it restarts, so what each pod was given is remembered with its
incarnation, and given again when that changes. Addresses are the pods' own, as the cluster tells
them, and the engine's port: never a text that the author of a custom resource wrote.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiohttp

from sojourn.engines.version import parse_version
from sojourn.errors import EngineUnavailable
from sojourn.facts.plan import LiveBatch
from sojourn.facts.situation import EnginePod

Key = tuple[str, str]

RENAMED = (0, 5, 4)
"""First SGLang that calls the cap ``pp_max_micro_batch_size``; before, ``max_micro_batch_size``."""

LARGEST_ANSWER = 4 * 1024 * 1024
SHOWN_PODS = 3


@dataclass(frozen=True)
class Limits:
    """What a call may cost.

    Attributes:
        timeout_s: of one request; a Triton reload loads the weights, so it is not short.
        pause_s: no pod that failed is tried again earlier.
        concurrency: most pods spoken to at once, over all services.
    """

    timeout_s: float = 10.0
    pause_s: float = 60.0
    concurrency: int = 16


@dataclass(frozen=True)
class Door:
    """One engine's HTTP interface."""

    session: aiohttp.ClientSession
    base_url: str

    async def get(self, path: str) -> Any:
        """The answer's JSON."""
        return await self._call("GET", path, None)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer's JSON; None when the engine answers nothing."""
        return await self._call("POST", path, body)

    async def _call(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        what = f"{method} {path}"
        try:
            # A redirect would lead to an address that is no pod's.
            async with self.session.request(
                method, self.base_url + path, json=body, allow_redirects=False
            ) as answer:
                text = await answer.content.read(LARGEST_ANSWER)
                if answer.status != 200:
                    raise EngineUnavailable(what, f"HTTP {answer.status}: {_short(text)}")
                return json.loads(text) if text.strip() else None
        except (aiohttp.ClientError, OSError, TimeoutError) as exc:
            raise EngineUnavailable(what, str(exc) or type(exc).__name__) from exc
        except ValueError as exc:
            raise EngineUnavailable(what, f"no JSON: {_short(text)}") from exc


class LiveEngine(Protocol):
    """How one engine is given a new max batch; a second call changes nothing."""

    async def give(self, door: Door, wanted: LiveBatch) -> None:
        """Give one pod the max batch.

        Raises:
            EngineUnavailable: it did not take it.
        """
        ...


class SGLang:
    """``POST /set_internal_state``: a cap of the requests that run together, from the next step."""

    async def give(self, door: Door, wanted: LiveBatch) -> None:
        """Set the cap; with pipeline stages each holds its share of the requests."""
        cap = max(1, wanted.max_batch // wanted.pipeline_parallel)
        names = self._names(wanted.version)
        for name in names:
            answer = await door.post("/set_internal_state", {"server_args": {name: cap}})
            if self._taken(answer, name, cap):
                return
        raise EngineUnavailable("POST /set_internal_state", f"{names[-1]} {cap} was not taken")

    def _names(self, version: str | None) -> tuple[str, ...]:
        parsed = parse_version(version) if version else None
        if parsed is None:
            return "pp_max_micro_batch_size", "max_micro_batch_size"
        return ("pp_max_micro_batch_size" if parsed >= RENAMED else "max_micro_batch_size",)

    def _taken(self, answer: Any, name: str, cap: int) -> bool:
        """Every rank's answer says so; releases that always say "updated" show what they hold."""
        ranks = answer if isinstance(answer, list) else [answer]
        for rank in ranks:
            if not isinstance(rank, dict) or not rank.get("updated", True):
                return False
            held = rank.get("server_args")
            if isinstance(held, dict) and held.get(name, cap) != cap:
                return False
        return bool(ranks)


class Triton:
    """Model control: the model is loaded anew with its own configuration and another max batch.

    Needs ``--model-control-mode=explicit``. A partial configuration would drop the rest of it, so
    the one in force is read first; requests under way end on the old instance.
    """

    async def give(self, door: Door, wanted: LiveBatch) -> None:
        """Load the model with that max batch, unless it has it."""
        model = await self._model(door, wanted.model)
        config = await door.get(f"/v2/models/{model}/config")
        if not isinstance(config, dict):
            raise EngineUnavailable(f"GET /v2/models/{model}/config", "no configuration")
        if config.get("max_batch_size") == wanted.max_batch:
            return
        changed = {**config, "max_batch_size": wanted.max_batch}
        batching = config.get("dynamic_batching")
        if isinstance(batching, dict) and batching.get("preferred_batch_size"):
            fitting = [b for b in batching["preferred_batch_size"] if int(b) <= wanted.max_batch]
            changed["dynamic_batching"] = {**batching, "preferred_batch_size": fitting}
        body = {"parameters": {"config": json.dumps(changed)}}
        await door.post(f"/v2/repository/models/{model}/load", body)

    async def _model(self, door: Door, declared: str) -> str:
        """The model of the repository: the only one that is ready, or the one of that name."""
        index = await door.post("/v2/repository/index", {"ready": True})
        names = [str(m.get("name")) for m in index or () if isinstance(m, dict)]
        last = declared.rpartition("/")[2]
        if last in names:
            return last
        if len(names) != 1:
            shown = ", ".join(names) or "none"
            raise EngineUnavailable("POST /v2/repository/index", f"no model {last}: {shown}")
        return names[0]


ENGINES: Mapping[str, LiveEngine] = {"sglang": SGLang(), "triton": Triton()}


@dataclass(frozen=True)
class Outcome:
    """What became of one service's pods.

    Attributes:
        complete: every pod has the max batch now.
        why: what went wrong, with pods' names; empty when nothing did or it is not tried yet.
    """

    complete: bool
    why: str = ""


def of_the_cluster(address: str) -> bool:
    """An address a pod may have: not this machine, no link-local metadata service, no group."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    wrong = (parsed.is_loopback, parsed.is_link_local, parsed.is_multicast, parsed.is_unspecified)
    return not any(wrong)


@dataclass
class _Given:
    """What one pod holds: its incarnation, the value, and until when it is left alone."""

    incarnation: str
    max_batch: int | None = None
    retry_at_s: float = 0.0
    why: str = ""


@dataclass
class LiveBatches:
    """Gives pods their max batch; safe to share among tasks of one event loop.

    Attributes:
        allowed: whether an address may be spoken to.
        clock: monotonic seconds.
    """

    limits: Limits = field(default_factory=Limits)
    allowed: Callable[[str], bool] = of_the_cluster
    clock: Callable[[], float] = time.monotonic
    _given: dict[Key, dict[str, _Given]] = field(default_factory=dict)
    _slots: asyncio.Semaphore | None = None

    async def apply(self, key: Key, wanted: LiveBatch, may_write: Callable[[], bool]) -> Outcome:
        """Give every pod that lacks it the max batch; pods that have it cost nothing."""
        given = self._held(key, wanted.pods)
        now_s = self.clock()
        lacking = [pod for pod in wanted.pods if given[pod.name].max_batch != wanted.max_batch]
        due = [pod for pod in lacking if given[pod.name].retry_at_s <= now_s and may_write()]
        if due:
            await self._give_all(wanted, due, given)
        complete = all(one.max_batch == wanted.max_batch for one in given.values())
        return Outcome(
            complete and bool(given), _told((p.name, given[p.name].why) for p in lacking)
        )

    def keep_only(self, keys: Iterable[Key]) -> None:
        """Forget services that are gone."""
        for key in set(self._given) - set(keys):
            del self._given[key]

    def _held(self, key: Key, pods: Iterable[EnginePod]) -> dict[str, _Given]:
        """What each pod of a service holds; pods that are gone are forgotten."""
        known = self._given.get(key, {})
        self._given[key] = {pod.name: self._of(known.get(pod.name), pod) for pod in pods}
        return self._given[key]

    def _of(self, known: _Given | None, pod: EnginePod) -> _Given:
        if known is not None and known.incarnation == pod.incarnation:
            return known
        return _Given(pod.incarnation)

    async def _give_all(
        self, wanted: LiveBatch, pods: list[EnginePod], given: Mapping[str, _Given]
    ) -> None:
        self._slots = self._slots or asyncio.Semaphore(self.limits.concurrency)
        timeout = aiohttp.ClientTimeout(total=self.limits.timeout_s)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            await asyncio.gather(
                *(self._give(session, wanted, pod, given[pod.name]) for pod in pods)
            )

    async def _give(
        self, session: aiohttp.ClientSession, wanted: LiveBatch, pod: EnginePod, given: _Given
    ) -> None:
        assert self._slots is not None
        try:
            engine = ENGINES.get(wanted.engine)
            if engine is None or wanted.port is None:
                raise EngineUnavailable(wanted.engine, "takes no new max batch while it runs")
            if not self.allowed(pod.address):
                raise EngineUnavailable("address", f"{pod.address or 'none'} is no pod's")
            host = f"[{pod.address}]" if ":" in pod.address else pod.address
            async with self._slots:
                await engine.give(Door(session, f"http://{host}:{wanted.port}"), wanted)
        except EngineUnavailable as exc:
            given.why, given.retry_at_s = str(exc), self.clock() + self.limits.pause_s
        else:
            given.max_batch, given.why = wanted.max_batch, ""


def _told(pods: Iterable[tuple[str, str]]) -> str:
    """What went wrong, from pods and why each lacks the max batch; empty when nothing did."""
    failed = [(name, why) for name, why in pods if why]
    if not failed:
        return ""
    names = ", ".join(name for name, _ in failed[:SHOWN_PODS])
    more = f" and {len(failed) - SHOWN_PODS} more" if len(failed) > SHOWN_PODS else ""
    return f"max batch was not taken by {names}{more}: {failed[0][1]}"


def _short(text: bytes) -> str:
    return text[:200].decode("utf-8", "replace").strip() or "empty"
