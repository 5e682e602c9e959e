"""One request on its way through a simulated engine, and what the engine noticed meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    """What a client asks for.

    Attributes:
        prompt_tokens: tokens to prefill, >= 0.
        output_tokens: tokens to generate, >= 1, the first one made by the prompt's own step.
    """

    prompt_tokens: int = 0
    output_tokens: int = 1


@dataclass(slots=True, eq=False)
class Job:
    """A request inside an engine; times in the engine's own seconds.

    Attributes:
        request: what was asked for.
        arrived_at_s: when it entered the queue.
        started_at_s: when it was first taken out of the queue, nan before.
        first_token_at_s: end of the step or batch that made its first token, nan before.
        finished_at_s: when its last token was made, nan before.
        to_prefill: prompt tokens (after a preemption also made tokens) still to compute.
        resident: KV tokens it holds.
        made: tokens generated.
        preemptions: times it lost its place and its KV tokens.
    """

    request: Request
    arrived_at_s: float
    started_at_s: float = float("nan")
    first_token_at_s: float = float("nan")
    finished_at_s: float = float("nan")
    to_prefill: int = 0
    resident: int = 0
    made: int = 0
    preemptions: int = 0


@dataclass(slots=True)
class Ledger:
    """What happened in an engine since the ledger was last taken.

    Attributes:
        finished: jobs done.
        first_tokens_s: times to first token of the jobs that got theirs.
        gaps: pairs (seconds between two tokens of a request, how many such gaps).
        prompt_tokens: tokens prefilled.
        generated_tokens: tokens made.
        preemptions: jobs thrown out of the KV pool.
    """

    finished: list[Job] = field(default_factory=list)
    first_tokens_s: list[float] = field(default_factory=list)
    gaps: list[tuple[float, int]] = field(default_factory=list)
    prompt_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
