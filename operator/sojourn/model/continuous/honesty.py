"""Where the continuous model is only indicative, and says so in its answer.

The regimes and the figures are those of the accuracy table in
docs/explanation/continuous-batching.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from sojourn.model.continuous.arrivals import Arrivals
from sojourn.model.continuous.machine import Machine
from sojourn.model.continuous.population import Population

# A percentile whose level is this close to 1 - P(wait), as a ratio of the tails, sits on the jump
# from one step to a wait in the queue.
_JUMP = 4.0


def warnings(
    machine: Machine, stream: Arrivals, people: Population, levels: Sequence[float]
) -> tuple[str, ...]:
    """Sentences to show beside the answer; empty where it can be relied on.

    Args:
        levels: the percentiles asked for, as fractions.
    """
    load = stream.rate_per_s / machine.capacity_per_s
    found = []
    if people.phi > 0.4 and load > 0.85:
        found.append(
            f"prompts take {people.phi:.0%} of the time at load {load:.2f}: percentiles of the "
            "time to first token are indicative"
        )
    if machine.output.scv == 0 and people.phi > 0.3:
        found.append(
            f"fixed output length and prompts take {people.phi:.0%} of the time: P99 end to end "
            "may be too low by more than 5 %"
        )
    if machine.kv_limited and load >= 0.8:
        found.append(
            f"KV memory bounds the batch at {machine.max_batch} and load is {load:.2f}: "
            "preemption makes P99 of the time to first token up to 39 % longer"
        )
    if stream.turns > 1 and people.full > 0.005:
        found.append("round robin with a queue: P99 of the time to first token is indicative")
    if stream.pooled > 1 and machine.max_batch <= 8:
        found.append(
            f"least loaded with a batch of {machine.max_batch}: replicas are not level, "
            "percentiles are indicative"
        )
    if stream.dispersion * stream.turns > 1.5:
        found.append("bursty arrivals: the correction for them is not validated")
    jumps = [level for level in levels if 1 / _JUMP < people.full / (1 - level) < _JUMP]
    if jumps:
        found.append(
            f"a share of {people.full:.2%} queues for a place: percentiles of the time to first "
            f"token near {1 - people.full:.2%} ({', '.join(f'{level:g}' for level in jumps)}) jump "
            "from a step to a queue wait and are indicative"
        )
    if 0.88 < load < 1:
        found.append(
            f"load {load:.2f}: percentiles of the time to first token may be up to 17 % low"
        )
    if 0.95 < load < 1 and machine.places is None:
        found.append(
            f"load {load:.3f}: an error of 1 % in the step times moves P99 by "
            f"{0.01 / (1 - load):.0%}; too close to call"
        )
    return tuple(found)
