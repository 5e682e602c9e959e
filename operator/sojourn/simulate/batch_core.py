"""A batching server as a discrete-event machine: collects requests, runs them to their end.

Time comes in as a value: the real-time engine passes the wall clock, an offline run its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

import numpy as np

from sojourn.facts.replica import DynamicReplica
from sojourn.facts.service_time import BatchServiceTime, LinearServiceTime
from sojourn.simulate.job import Job, Ledger, Request


def mean_batch_s(service: BatchServiceTime, batch: int) -> float:
    """Seconds a batch of ``batch`` requests takes on average.

    Measured points are joined by straight lines; outside them the nearest segment goes on.
    """
    if isinstance(service, LinearServiceTime):
        return service.fixed_s + service.per_request_s * batch
    sizes, seconds = service.batches, service.batch_s
    if len(sizes) == 1:
        return seconds[0]
    right = min(max(bisect_left(sizes, batch), 1), len(sizes) - 1)
    left = right - 1
    slope = (seconds[right] - seconds[left]) / (sizes[right] - sizes[left])
    return max(0.0, seconds[left] + slope * (batch - sizes[left]))


class BatchCore:
    """Starts a batch when max_batch requests wait or the oldest has waited max_wait_s.

    A batch yields every token at its end. With a KV pool, a batch takes no more requests than
    fit with prompt and output.
    """

    def __init__(
        self, replica: DynamicReplica, rng: np.random.Generator, kv_tokens: float | None = None
    ) -> None:
        self._replica = replica
        self._rng = rng
        capacity = replica.queue_capacity
        # A queue shorter than a batch can never fill one: the batch is then the queue.
        self._max_batch = (
            replica.max_batch if capacity is None else max(1, min(replica.max_batch, capacity))
        )
        self.kv_tokens = kv_tokens
        self._waiting: deque[Job] = deque()
        self._batch: list[Job] = []
        self._batch_ends_at_s = 0.0
        self._ledger = Ledger()

    @property
    def running(self) -> int:
        """Requests in the running batch."""
        return len(self._batch)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def resident_tokens(self) -> int:
        """KV tokens in use."""
        return sum(job.resident for job in self._batch)

    def take_ledger(self) -> Ledger:
        """Hand over what happened since the last call."""
        taken, self._ledger = self._ledger, Ledger()
        return taken

    def abandon(self) -> list[Job]:
        """Drop everything inside and return it."""
        dropped = [*self._batch, *self._waiting]
        self._batch = []
        self._waiting.clear()
        return dropped

    def next_event_at_s(self) -> float | None:
        """When something will happen by itself, None if nothing will."""
        if self._batch:
            return self._batch_ends_at_s
        if self._waiting:
            return self._waiting[0].arrived_at_s + self._replica.max_wait_s
        return None

    def advance(self, now_s: float) -> None:
        """Let everything happen that is due by ``now_s``."""
        while (due_at_s := self.next_event_at_s()) is not None and due_at_s <= now_s:
            if self._batch:
                self._finish_batch(due_at_s)
            else:
                self._start_batch(due_at_s)

    def submit(self, request: Request, now_s: float) -> Job | None:
        """Queue a request; None when the queue is full."""
        self.advance(now_s)
        capacity = self._replica.queue_capacity
        if capacity is not None and len(self._waiting) >= capacity:
            return None
        job = Job(request, now_s)
        self._waiting.append(job)
        if not self._batch and self._may_start(now_s):
            self._start_batch(now_s)
        return job

    def _may_start(self, now_s: float) -> bool:
        if not self._waiting:
            return False
        oldest_due_at_s = self._waiting[0].arrived_at_s + self._replica.max_wait_s
        return len(self._waiting) >= self._max_batch or oldest_due_at_s <= now_s

    def _start_batch(self, now_s: float) -> None:
        resident = 0
        while self._waiting and len(self._batch) < self._max_batch:
            request = self._waiting[0].request
            tokens = request.prompt_tokens + request.output_tokens
            if self._batch and self.kv_tokens is not None and resident + tokens > self.kv_tokens:
                break
            job = self._waiting.popleft()
            job.started_at_s = now_s
            job.resident = tokens
            resident += tokens
            self._ledger.prompt_tokens += request.prompt_tokens
            self._batch.append(job)
        duration_s = mean_batch_s(self._replica.service, len(self._batch))
        scv = self._replica.service.scv
        if scv > 0:
            duration_s *= self._rng.gamma(1.0 / scv, scv)
        self._batch_ends_at_s = now_s + duration_s

    def _finish_batch(self, now_s: float) -> None:
        ledger = self._ledger
        for job in self._batch:
            job.first_token_at_s = job.finished_at_s = now_s
            job.made = job.request.output_tokens
            ledger.first_tokens_s.append(now_s - job.arrived_at_s)
            ledger.generated_tokens += job.made
        ledger.finished.extend(self._batch)
        self._batch = []
        if self._may_start(now_s):
            self._start_batch(now_s)
