"""Which max batches to ask the model about: few enough to be quick, enough to find the best."""

from __future__ import annotations

from collections.abc import Callable

from sojourn.facts.replica import ContinuousReplica
from sojourn.facts.sojourn import LatencyGoal
from sojourn.model.continuous.machine import machine

# Shorter intervals are scanned batch by batch; in longer ones candidates are a third to a half
# apart, and the edges are refined.
_EVERY_BATCH_OF = 16

# Full steps within which the first token must come for the length of a step to matter beside the
# wait for a place.
_FEW_STEPS = 5

# Percentiles of a few steps are ragged by some percent.
_CLEARLY_LESS = 0.8


def candidates(low: int, high: int) -> list[int]:
    """Batches from low to high: all of a few, else 1, 2, 3, 4, 6, 8, 12, ... and the ends."""
    if high - low < _EVERY_BATCH_OF:
        return list(range(low, high + 1))
    grid, step = [1], 2
    while step <= high:
        grid += [step, step * 3 // 2]
        step *= 2
    return sorted({b for b in [*grid, low, high] if low <= b <= high})


def around_best(binding_at: Callable[[int], str], low: int, high: int) -> list[int]:
    """The ends and the best batch of a continuous replica, in O(log B) questions.

    A larger batch waits less and decodes slower (docs/explanation/queueing.md, section 7): where
    the time per output token binds, no larger batch takes more; where anything else does, none
    smaller. The best is on one of the two sides of where that changes.

    Args:
        binding_at: what binds lambda1* at a batch.
    """
    rising, falling = low, high
    if binding_at(high) == "OutputToken":
        while falling - rising > 1:
            middle = (rising + falling) // 2
            if binding_at(middle) == "OutputToken":
                falling = middle
            else:
                rising = middle
    return sorted({low, rising, falling, high})


def from_the_top(rate_at: Callable[[int], float], batches: list[int]) -> list[int]:
    """Those of rising ``batches`` from the largest down to one that takes clearly less; the first.

    lambda1* rises and then falls with the batch, often flat where the batch is never full.

    Args:
        rate_at: lambda1* at a batch, 1/s.
    """
    best_per_s, asked = 0.0, []
    for batch in reversed(batches):
        rate_per_s = rate_at(batch)
        asked.append(batch)
        if rate_per_s < _CLEARLY_LESS * best_per_s:
            break
        best_per_s = max(best_per_s, rate_per_s)
    return sorted({batches[0], *asked})


def waits_are_steps(replica: ContinuousReplica, goal: LatencyGoal, batch: int) -> bool:
    """Whether the first token must come within a few steps of that batch.

    Then a larger batch, whose steps are longer, may take less: no side can be left out.
    """
    engine = machine(replica)
    step_s = engine.fixed_s + engine.per_request_s * batch + engine.prompt_s
    return goal.first_token_s is not None and goal.first_token_s < _FEW_STEPS * step_s
