"""One queue before several continuous-batching engines, each of which takes when it has a place."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from sojourn.simulate.batch_queue import FloatArray, Progress
from sojourn.simulate.job import Job, Request
from sojourn.simulate.step_core import StepCore

_REPORT_EVERY = 10_000

# Far enough that sums of step times, rounded, do not end the step already.
_JUST_BEFORE = 1 - 1e-12


def fewest_inside(cores: Sequence[StepCore], tie: float) -> StepCore:
    """The engine with the fewest requests inside; ``tie``, 0 to below 1, chooses among equals."""
    inside = [core.running + core.waiting for core in cores]
    least = min(inside)
    level = [core for core, number in zip(cores, inside, strict=True) if number == least]
    return level[int(tie * len(level))]


@dataclass
class SharedQueue:
    """First come, first served; the head goes to the engine with the fewest inside, ties at random.

    An engine takes while its next step has a place and nobody inside waits for KV memory.

    Args:
        cores: the engines; their own queues stay empty but for that wait.
        places: waiting places of the queue, None without a bound.
    """

    cores: Sequence[StepCore]
    places: int | None
    _waiting: deque[tuple[Request, float, float]] = field(default_factory=deque)
    _jobs: list[Job] = field(default_factory=list)
    _lost: int = 0

    def play(
        self,
        arrivals_s: FloatArray,
        requests: Sequence[Request],
        ties: FloatArray,
        progress: Progress | None = None,
    ) -> tuple[list[Job], int]:
        """The jobs of all that were let in, and how many were not."""
        inputs = zip(arrivals_s.tolist(), requests, ties.tolist(), strict=True)
        for played, (now_s, request, tie) in enumerate(inputs):
            self._advance(now_s)
            if self.places is not None and len(self._waiting) >= self.places:
                self._lost += 1
            else:
                self._waiting.append((request, now_s, tie))
                self._hand_out(now_s)
            if progress is not None and played % _REPORT_EVERY == 0:
                progress(played / arrivals_s.size)
        self._advance(float("inf"))
        return self._jobs, self._lost

    def _advance(self, now_s: float) -> None:
        """Play the engines' steps in their common order while somebody waits for one of them."""
        while self._waiting:
            events = [(core.next_event_at_s(), core) for core in self.cores]
            busy = [(at_s, core) for at_s, core in events if at_s is not None]
            at_s, core = min(busy, key=lambda event: event[0])
            if at_s > now_s:
                break
            # The next step takes whom it finds waiting, so they come an instant before it starts.
            while self._waiting and self._takes(core):
                self._hand_to(core, at_s * _JUST_BEFORE)
            core.advance(at_s)
        for core in self.cores:
            core.advance(now_s)

    def _hand_out(self, now_s: float) -> None:
        """A newcomer goes to an engine that has a place now, if there is one."""
        takers = [core for core in self.cores if self._takes(core)]
        if takers:
            self._hand_to(fewest_inside(takers, self._waiting[0][2]), now_s)

    def _takes(self, core: StepCore) -> bool:
        in_memory = core.waiting == 0 or core.kv_tokens == math.inf
        return in_memory and core.open_places > 0

    def _hand_to(self, core: StepCore, now_s: float) -> None:
        request, arrived_at_s, _ = self._waiting.popleft()
        job = core.submit(request, now_s)
        if job is None:
            self._lost += 1
            return
        job.arrived_at_s = arrived_at_s
        self._jobs.append(job)
