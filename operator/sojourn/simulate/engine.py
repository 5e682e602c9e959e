"""One pod's engine in real time: queues, batches and reports like an LLM server.

An event machine (``batch_core`` or ``step_core``) is caught up with the wall clock whenever
something asks: a request comes in, a result is due, Prometheus scrapes. Results are stamped with
the time at which they were due, so a late timer of the event loop makes no latency longer.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from sojourn.facts.replica import ContinuousReplica, Replica
from sojourn.simulate.batch_core import BatchCore
from sojourn.simulate.engine_metrics import EngineIdentity, EngineMetrics
from sojourn.simulate.job import Job, Ledger, Request
from sojourn.simulate.step_core import StepCore

DEFAULT_KV_TOKENS = 434_752.0
"""KV pool of an engine whose parameters name none: 27,172 blocks of 16 tokens."""


class Outcome(StrEnum):
    """How a request ended."""

    DONE = "done"
    REJECTED = "rejected"  # the queue was full
    LOST = "lost"  # the pod died with the request inside
    UNAVAILABLE = "unavailable"  # no pod took it


@dataclass(frozen=True)
class Completion:
    """Record of one request; times on the event loop's clock, nan for what never happened.

    Attributes:
        outcome: how it ended.
        arrived_at_s: when the engine (or, if none took it, the router) got it.
        started_at_s: when it left the queue.
        first_token_at_s: when its first token was made.
        finished_at_s: when it ended, whatever the outcome.
        pod: name of the pod that had it, empty if none.
    """

    outcome: Outcome
    arrived_at_s: float
    started_at_s: float
    first_token_at_s: float
    finished_at_s: float
    pod: str = ""


@dataclass(frozen=True)
class EngineParameters:
    """What one simulated pod is.

    Attributes:
        replica: batching rule, service times and limits, in uncompressed seconds.
        model_name: label of its metrics.
        compression: seconds of the engine that pass in one second of the wall, > 0.
        kv_tokens: KV pool of a dynamic replica (a continuous one names its own); None: only the
            usage gauge reads it, against ``DEFAULT_KV_TOKENS``.
    """

    replica: Replica
    model_name: str = "simulated"
    compression: float = 1.0
    kv_tokens: float | None = None


def _pool_tokens(parameters: EngineParameters) -> float:
    replica = parameters.replica
    own = replica.kv_tokens if isinstance(replica, ContinuousReplica) else parameters.kv_tokens
    return DEFAULT_KV_TOKENS if own is None else own


class SimulatedEngine:
    """A pod's engine on the running event loop.

    Args:
        parameters: what it is.
        rng: source of the batch times' noise; unused by continuous batching.
        pod: name in its completion records.
    """

    def __init__(
        self, parameters: EngineParameters, rng: np.random.Generator, pod: str = ""
    ) -> None:
        self.parameters = parameters
        self.pod = pod
        replica = parameters.replica
        self._core: BatchCore | StepCore = (
            StepCore(replica)
            if isinstance(replica, ContinuousReplica)
            else BatchCore(replica, rng, parameters.kv_tokens)
        )
        self._loop = asyncio.get_running_loop()
        self._born_at_s = self._loop.time()
        self._pool_tokens = _pool_tokens(parameters)
        self.metrics = EngineMetrics(
            EngineIdentity(parameters.model_name, self._pool_tokens), parameters.compression
        )
        self._results: dict[Job, asyncio.Future[Completion]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self.accepting = True

    @property
    def in_flight(self) -> int:
        """Requests waiting or running."""
        return len(self._results)

    async def submit(self, request: Request) -> Completion:
        """Run a request to its end and say how it went; never raises for an outcome.

        A cancelled caller leaves its request in the engine, as a client that hangs up does.
        """
        now_s = self._loop.time()
        job = self._core.submit(request, self._inside_s(now_s)) if self.accepting else None
        if job is None:
            return self._refuse(now_s)
        result: asyncio.Future[Completion] = self._loop.create_future()
        self._results[job] = result
        self._idle.clear()
        self._book(self._core.take_ledger())
        self._set_timer()
        return await result

    async def drain(self) -> None:
        """Take no more requests and return when those inside have ended."""
        self.accepting = False
        await self._idle.wait()

    def kill(self) -> None:
        """Die now: every request inside is lost."""
        self._catch_up()
        self.accepting = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_s = self._loop.time()
        for job in self._core.abandon():
            self.metrics.counters.finished["abort"] += 1
            self._resolve(job, self._completion(job, Outcome.LOST, now_s))

    def render_metrics(self) -> str:
        """Prometheus text of this moment."""
        if self.accepting or self._results:
            self._catch_up()
        gauges = self.metrics.gauges
        gauges.running, gauges.waiting = self._core.running, self._core.waiting
        gauges.kv_usage = min(1.0, self._core.resident_tokens / self._pool_tokens)
        return self.metrics.render()

    def _inside_s(self, wall_s: float) -> float:
        return (wall_s - self._born_at_s) * self.parameters.compression

    def _wall_s(self, inside_s: float) -> float:
        return self._born_at_s + inside_s / self.parameters.compression

    def _refuse(self, now_s: float) -> Completion:
        nothing = float("nan")
        if not self.accepting:
            return Completion(Outcome.UNAVAILABLE, now_s, nothing, nothing, now_s, self.pod)
        self.metrics.counters.rejected += 1
        return Completion(Outcome.REJECTED, now_s, nothing, nothing, now_s, self.pod)

    def _catch_up(self) -> None:
        self._core.advance(self._inside_s(self._loop.time()))
        self._book(self._core.take_ledger())
        self._set_timer()

    def _set_timer(self) -> None:
        due_at_s = self._core.next_event_at_s()
        if self._timer is not None:
            if due_at_s is not None and self._timer.when() == self._wall_s(due_at_s):
                return
            self._timer.cancel()
            self._timer = None
        if due_at_s is not None:
            self._timer = self._loop.call_at(self._wall_s(due_at_s), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._catch_up()

    def _completion(self, job: Job, outcome: Outcome, finished_at_s: float) -> Completion:
        return Completion(
            outcome,
            self._wall_s(job.arrived_at_s),
            self._wall_s(job.started_at_s),
            self._wall_s(job.first_token_at_s),
            finished_at_s,
            self.pod,
        )

    def _resolve(self, job: Job, completion: Completion) -> None:
        result = self._results.pop(job)
        if not result.done():
            result.set_result(completion)
        if not self._results:
            self._idle.set()

    def _book(self, ledger: Ledger) -> None:
        """Turn what happened into metrics and results."""
        metrics, compression = self.metrics, self.parameters.compression
        counters = metrics.counters
        counters.prompt_tokens += ledger.prompt_tokens
        counters.generated_tokens += ledger.generated_tokens
        counters.preemptions += ledger.preemptions
        for seconds in ledger.first_tokens_s:
            metrics.first_token_s.observe(seconds / compression)
        for seconds, times in ledger.gaps:
            metrics.token_gap_s.observe(seconds / compression, times)
        for job in ledger.finished:
            self._book_end(job)
            finished_at_s = self._wall_s(job.finished_at_s)
            self._resolve(job, self._completion(job, Outcome.DONE, finished_at_s))

    def _book_end(self, job: Job) -> None:
        metrics, compression = self.metrics, self.parameters.compression
        request = job.request
        metrics.counters.finished["stop"] += 1
        metrics.latency_s.observe((job.finished_at_s - job.arrived_at_s) / compression)
        metrics.queue_s.observe((job.started_at_s - job.arrived_at_s) / compression)
        metrics.prompt_tokens.observe(request.prompt_tokens)
        metrics.generation_tokens.observe(request.output_tokens)
        if request.output_tokens > 1:
            decode_s = job.finished_at_s - job.first_token_at_s
            metrics.request_gap_s.observe(decode_s / compression / (request.output_tokens - 1))
