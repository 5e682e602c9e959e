"""A continuous-batching engine as a discrete-event machine.

Rules of a step: requests join first come, first served while fewer than max_batch run, their KV
tokens fit and the step's prompt budget lasts; a prompt longer than the budget is prefilled in
chunks; the step that ends a prompt makes its first token; every decoding request makes one token
a step. When the KV pool cannot take the next tokens, the request that joined last is thrown out,
goes to the head of the queue and later prefills prompt and made tokens again.

Steps in which nobody joins or leaves are advanced as one stretch, so the cost of a run grows with
its requests, not with its tokens. Time comes in as a value, as in ``batch_core``.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from sojourn.facts.replica import ContinuousReplica
from sojourn.simulate.job import Job, Ledger, Request


@dataclass(slots=True)
class _Stretch:
    """Equal steps that run one after another without a change in between."""

    started_at_s: float
    steps: int
    step_s: float
    decoding: int
    prefilled: list[Job] = field(default_factory=list)
    prompt_tokens: int = 0

    @property
    def ends_at_s(self) -> float:
        return self.started_at_s + self.steps * self.step_s


class StepCore:
    """One engine; ``submit`` and ``advance`` take the time in the engine's own seconds.

    Args:
        replica: step times, limits; its output law is not read (requests bring their lengths).
        exclusive_prompts: prompts run in steps of their own, decoding pauses meanwhile.
    """

    def __init__(self, replica: ContinuousReplica, *, exclusive_prompts: bool = False) -> None:
        self._replica = replica
        self._iteration = replica.iteration
        self._exclusive = exclusive_prompts
        self._budget = math.inf if not replica.max_batched_tokens else replica.max_batched_tokens
        self.kv_tokens: float = math.inf if replica.kv_tokens is None else replica.kv_tokens
        self._waiting: deque[Job] = deque()
        self._prefilling: deque[Job] = deque()
        self._decoding: list[tuple[int, int, Job]] = []  # heap by the step of the last token
        self._joined = 0
        self._step = 0
        self._resident = 0
        self._stretch: _Stretch | None = None
        self._ledger = Ledger()

    @property
    def running(self) -> int:
        """Requests that hold a place in the batch."""
        ending_prompt = len(self._stretch.prefilled) if self._stretch else 0
        return len(self._decoding) + len(self._prefilling) + ending_prompt

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def open_places(self) -> int:
        """Places of the next step that nobody inside keeps or waits for."""
        leaving = 0
        if self._stretch is not None:
            last = self._step + self._stretch.steps
            leaving = sum(due <= last for due, _, _ in self._decoding)
            leaving += sum(
                job.made + 1 >= job.request.output_tokens for job in self._stretch.prefilled
            )
        return self._replica.max_batch - (self.running - leaving) - self.waiting

    @property
    def resident_tokens(self) -> int:
        """KV tokens in use."""
        return self._resident

    def take_ledger(self) -> Ledger:
        """Hand over what happened since the last call."""
        taken, self._ledger = self._ledger, Ledger()
        return taken

    def abandon(self) -> list[Job]:
        """Drop everything inside and return it."""
        dropped = [*(job for _, _, job in self._decoding), *self._prefilling, *self._waiting]
        if self._stretch:
            dropped += self._stretch.prefilled
        self._decoding = []
        self._prefilling.clear()
        self._waiting.clear()
        self._stretch = None
        self._resident = 0
        return dropped

    def next_event_at_s(self) -> float | None:
        """When the running stretch of steps ends, None when idle."""
        return None if self._stretch is None else self._stretch.ends_at_s

    def advance(self, now_s: float) -> None:
        """Let every step happen that ends by ``now_s``."""
        while (stretch := self._stretch) is not None and stretch.ends_at_s <= now_s:
            self._settle(stretch, stretch.steps)
            self._stretch = None
            self._begin(stretch.ends_at_s)
        if stretch is not None and stretch.steps > 1:
            self._split(stretch, now_s)

    def submit(self, request: Request, now_s: float) -> Job | None:
        """Queue a request; None when the queue is full or its tokens can never fit."""
        self.advance(now_s)
        capacity = self._replica.queue_capacity
        full = capacity is not None and len(self._waiting) >= capacity and self._stretch is not None
        if full or request.prompt_tokens + request.output_tokens > self.kv_tokens:
            return None
        job = Job(request, now_s, to_prefill=request.prompt_tokens)
        self._waiting.append(job)
        if self._stretch is None:
            self._begin(now_s)
        elif self.running < self._replica.max_batch:
            # The newcomer joins at the next step's start, so equal steps end with this one.
            self._stretch.steps = 1
        return job

    def _split(self, stretch: _Stretch, now_s: float) -> None:
        """Account for the whole steps of a running stretch that lie in the past."""
        passed = min(int((now_s - stretch.started_at_s) / stretch.step_s), stretch.steps - 1)
        if passed > 0:
            self._settle(stretch, passed)
            stretch.started_at_s += passed * stretch.step_s
            stretch.steps -= passed

    def _settle(self, stretch: _Stretch, steps: int) -> None:
        """Account for ``steps`` steps of the stretch, the last one ending where they end."""
        ledger = self._ledger
        self._step += steps
        if stretch.decoding:
            made = stretch.decoding * steps
            self._resident += made
            ledger.generated_tokens += made
            ledger.gaps.append((stretch.step_s, made))
        ended_at_s = stretch.started_at_s + steps * stretch.step_s
        ledger.prompt_tokens += stretch.prompt_tokens
        for job in stretch.prefilled:
            self._first_token(job, ended_at_s)
        while self._decoding and self._decoding[0][0] <= self._step:
            job = heappop(self._decoding)[2]
            job.finished_at_s = ended_at_s
            job.made = job.request.output_tokens
            self._resident -= job.request.prompt_tokens + job.made
            ledger.finished.append(job)

    def _first_token(self, job: Job, now_s: float) -> None:
        """End of a prompt: one token, also for a prompt that is recomputed."""
        self._ledger.generated_tokens += 1
        job.made += 1
        self._resident += 1
        if job.made == 1:
            job.first_token_at_s = now_s
            self._ledger.first_tokens_s.append(now_s - job.arrived_at_s)
        self._joined += 1
        due = self._step + job.request.output_tokens - job.made
        heappush(self._decoding, (due, self._joined, job))

    def _begin(self, now_s: float) -> None:
        """Start the next stretch, or fall idle."""
        self._make_room()
        self._admit(now_s)
        if not self._decoding and not self._prefilling:
            return
        iteration = self._iteration
        decoding = len(self._decoding)
        prefilled, prompt_tokens = self._prefill_chunk()
        if self._exclusive and prompt_tokens:
            decoding = 0
        # Only decoding requests and their context lengthen a step besides its prompts.
        step_s = (
            iteration.fixed_s
            + iteration.per_request_s * decoding
            + iteration.per_prompt_token_s * prompt_tokens
            + iteration.per_context_token_s * self._resident
        )
        steps = self._undisturbed_steps(decoding, bool(self._prefilling or prefilled))
        if not decoding and self._decoding:
            self._postpone(steps)
        self._stretch = _Stretch(now_s, steps, step_s, decoding, prefilled, prompt_tokens)

    def _undisturbed_steps(self, decoding: int, prefills: bool) -> int:
        """Count the steps until somebody leaves, could join, or the KV pool is full.

        Called after ``_admit``: whoever still waits is kept out by the batch limit or by the KV
        pool, and both change only when somebody leaves.
        """
        if prefills or self._iteration.per_context_token_s > 0:
            return 1
        steps = self._decoding[0][0] - self._step
        if self.kv_tokens < math.inf:
            room = self.kv_tokens - self._resident
            steps = min(steps, max(1, int(room // decoding)))
        return max(1, steps)

    def _postpone(self, steps: int) -> None:
        """Move every finish by as many steps as decoding pauses; the heap's order stays."""
        self._decoding = [(due + steps, tie, job) for due, tie, job in self._decoding]

    def _admit(self, now_s: float) -> None:
        budget = self._prompt_budget() - sum(job.to_prefill for job in self._prefilling)
        while self._waiting and budget > 0 and self.running < self._replica.max_batch:
            job = self._waiting[0]
            needed = job.to_prefill + len(self._decoding) + len(self._prefilling) + 1
            if self.running and self._resident + needed > self.kv_tokens:
                return
            self._waiting.popleft()
            if math.isnan(job.started_at_s):
                job.started_at_s = now_s
            self._resident += job.to_prefill
            budget -= job.to_prefill
            self._prefilling.append(job)

    def _prompt_budget(self) -> float:
        """Prompt tokens the next step may take: what its decoding requests leave of the budget."""
        decoding = 0 if self._exclusive else len(self._decoding)
        return max(1.0, self._budget - decoding)

    def _prefill_chunk(self) -> tuple[list[Job], int]:
        """Prompt work of one step: the jobs whose prompt it ends, and its tokens."""
        left = self._prompt_budget()
        tokens = 0
        ended: list[Job] = []
        while self._prefilling and (left > 0 or self._prefilling[0].to_prefill == 0):
            job = self._prefilling[0]
            chunk = int(min(job.to_prefill, left))
            job.to_prefill -= chunk
            left -= chunk
            tokens += chunk
            if job.to_prefill:
                break
            ended.append(self._prefilling.popleft())
        return ended, tokens

    def _make_room(self) -> None:
        """Throw out the requests that joined last until the next step's tokens fit."""
        while self._resident + self.running > self.kv_tokens and self.running > 1:
            if self._prefilling:
                job = self._prefilling.pop()
                self._resident -= job.request.prompt_tokens + job.made
            else:
                last = max(range(len(self._decoding)), key=lambda i: self._decoding[i][1])
                due, _, job = self._decoding.pop(last)
                heapify(self._decoding)
                job.made = job.request.output_tokens - (due - self._step)
                self._resident -= job.request.prompt_tokens + job.made
            job.to_prefill = job.request.prompt_tokens + job.made
            job.preemptions += 1
            self._ledger.preemptions += 1
            self._waiting.appendleft(job)
