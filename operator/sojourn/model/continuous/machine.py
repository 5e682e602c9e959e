"""One continuous-batching replica in the symbols of its theory: step times, limits, capacity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from sojourn.errors import ModelDomainError
from sojourn.facts.replica import ContinuousReplica
from sojourn.model.continuous.lengths import LengthNodes, nodes
from sojourn.model.domain import FloatArray, counting, non_negative


@dataclass(frozen=True, eq=False)
class Machine:
    """Parameters of one replica with what follows from them alone.

    Attributes:
        fixed_s: a, a step with nothing in it.
        per_request_s: b, what a decoding request adds to a step, its resident context included.
        prompt_s: P = p ISL, what a prompt adds to the step that prefills it.
        prompt_tokens: ISL.
        output: law of the output tokens; a request makes the first one in its prompt step.
        max_batch: B, or fewer if the KV pool holds fewer.
        kv_limited: whether the pool, not the setting, bounds the batch.
        budget_tokens: prompt and decoding tokens a step takes; inf without a limit.
        places: K, waiting places; None is unbounded.
    """

    fixed_s: float
    per_request_s: float
    prompt_s: float
    prompt_tokens: float
    output: LengthNodes
    max_batch: int
    kv_limited: bool
    budget_tokens: float
    places: int | None

    @property
    def later_tokens(self) -> float:
        """L = OSL - 1, decoding steps of a mean request."""
        return self.output.mean - 1

    @property
    def decode_share_full(self) -> float:
        """L / OSL: share of a full batch's steps in which a request decodes."""
        return self.later_tokens / self.output.mean

    @property
    def full_step_s(self) -> float:
        """h(B), a step of a full batch without its prompts."""
        decoding = self.max_batch * self.decode_share_full
        return self.fixed_s + self.per_request_s * decoding

    @property
    def prompts_per_full_step(self) -> float:
        """Prompts that enter a step of a full batch: as many as leave, or as the budget lets in."""
        by_places = self.max_batch / self.output.mean
        return min(by_places, self.prompts_per_budget)

    @property
    def prompts_per_budget(self) -> float:
        """Prompts the token budget of a step lets in, inf without prompts or limit."""
        return self.budget_tokens / self.prompt_tokens if self.prompt_tokens > 0 else math.inf

    @property
    def capacity_per_s(self) -> float:
        """D_B, departures of a full batch: B places, or the prompts the budget lets in."""
        by_places = self.max_batch / (
            self.output.mean * self.full_step_s + self.max_batch * self.prompt_s
        )
        if math.isinf(self.prompts_per_budget):
            return by_places
        return min(by_places, 1 / (self.prompt_s + self.full_step_s / self.prompts_per_budget))

    @property
    def departure_scv(self) -> float:
        """v: variability of the work per departure, of which only decoding varies."""
        return self.output.scv * (1 - self.prompt_s * self.capacity_per_s) ** 2

    def steps_s(self, decoding: FloatArray) -> FloatArray:
        """Seconds of a step without a prompt, a + b n, shape of ``decoding``."""
        return self.fixed_s + self.per_request_s * decoding


@lru_cache(maxsize=4096)
def machine(replica: ContinuousReplica) -> Machine:
    """Check a replica and derive its machine.

    Raises:
        ModelDomainError: a negative or NaN time, a batch below 1, a step that takes no time.
    """
    iteration = replica.iteration
    output = nodes(replica.output)
    prompt_tokens = float(non_negative("prompt tokens", replica.prompt_tokens))
    fixed_s = float(non_negative("step time", iteration.fixed_s))
    per_request_s = float(non_negative("step time per request", iteration.per_request_s))
    per_token_s = float(non_negative("prompt token time", iteration.per_prompt_token_s))
    context_s = float(non_negative("context token time", iteration.per_context_token_s))
    batch = int(counting("max batch", replica.max_batch))
    resident = prompt_tokens + output.mean * (1 + output.scv) / 2
    if fixed_s + per_request_s + context_s * resident <= 0:
        raise ModelDomainError("step time", 0.0, "more than 0")
    budget = math.inf
    if replica.max_batched_tokens is not None:
        budget = float(counting("token budget", replica.max_batched_tokens))
    fitting = batch if replica.kv_tokens is None else _fitting(replica.kv_tokens, resident, output)
    return Machine(
        fixed_s=fixed_s,
        per_request_s=per_request_s + context_s * resident,
        prompt_s=per_token_s * prompt_tokens,
        prompt_tokens=prompt_tokens,
        output=output,
        max_batch=min(batch, fitting),
        kv_limited=fitting < batch,
        budget_tokens=budget,
        places=_places(replica.queue_capacity),
    )


def _places(capacity: int | None) -> int | None:
    return None if capacity is None else int(non_negative("queue capacity", capacity))


def _fitting(kv_tokens: float, resident: float, output: LengthNodes) -> int:
    """Requests the KV pool holds with one standard deviation to spare, at least one.

    n m + sqrt(n) sd <= tokens, m and sd the resident context of a running request, whose age is
    uniform over a length-biased output. A quadratic in sqrt(n).
    """
    pool = float(non_negative("KV tokens", kv_tokens))
    v = output.scv
    second = (1 + v) * (1 + 2 * v) / 3 - (1 + v) ** 2 / 4
    sd = output.mean * math.sqrt(max(0.0, second))
    root = (-sd + math.sqrt(sd * sd + 4 * resident * pool)) / (2 * resident)
    return max(1, int(root * root + 1e-9))
