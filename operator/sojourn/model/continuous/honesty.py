"""Where the continuous model is only indicative, and says so in its answer.

Every sentence names the metric and how far off it may be. The rules come from the reference rows
and from own simulations (``benchmarks.queueing_fresh``); ``benchmarks.queueing_honesty`` counts
optimistic answers without a sentence, and sentences in vain.
"""

from __future__ import annotations

from collections.abc import Sequence

from sojourn.model.continuous.arrivals import Arrivals
from sojourn.model.continuous.machine import Machine
from sojourn.model.continuous.population import Population

# A percentile whose level is this close to 1 - P(wait), as a ratio of the tails, sits on the jump
# from one step to a wait in the queue.
_JUMP = 4.0

# Dispersion from which the correction for bursts decides P99.
_BURSTY = 1.2

_TTFT = "of the time to first token"


def warnings(
    machine: Machine, stream: Arrivals, people: Population, levels: Sequence[float]
) -> tuple[str, ...]:
    """Sentences to show beside the answer; empty where it can be relied on.

    Args:
        levels: the percentiles asked for, as fractions.
    """
    load = stream.rate_per_s / machine.capacity_per_s
    return (
        *_crowded(machine, people, load),
        *_routed(machine, stream, people),
        *_queued(people, load, levels),
        *_near_full(machine, load),
    )


def _crowded(machine: Machine, people: Population, load: float) -> list[str]:
    """Prompts, fixed outputs and memory."""
    found = []
    if people.phi > 0.35 and load > 0.85:
        found.append(
            f"prompts take {people.phi:.0%} of the time at load {load:.2f}: P99 {_TTFT} may be up "
            "to 20 % low, or twice too high"
        )
    if machine.output.scv == 0 and 0.88 < load < 1:
        found.append(f"fixed output length at load {load:.2f}: P99 end to end may be up to 7 % low")
    if machine.kv_limited and load >= 0.7:
        found.append(
            f"KV memory bounds the batch at {machine.max_batch} and load is {load:.2f}: "
            f"preemption lengthens waits, P99 {_TTFT} may be up to 70 % low"
        )
    return found


def _routed(machine: Machine, stream: Arrivals, people: Population) -> list[str]:
    found = []
    if stream.turns > 1 and people.full > 0.005:
        found.append(f"round robin with a queue: P99 {_TTFT} may be up to 50 % low")
    if stream.pooled > stream.queues:
        found.append(
            f"one queue before {stream.pooled} engines, answered as least loaded: P99 end to end "
            f"may be up to 6 % high, P99 {_TTFT} up to 18 % high"
        )
    if stream.pooled > 1 and machine.max_batch <= 8:
        found.append(
            f"least loaded with a batch of {machine.max_batch}: replicas are not level, P99 "
            f"{_TTFT} may be up to 20 % off"
        )
    peaks = stream.dispersion * stream.turns
    if peaks > _BURSTY:
        found.append(
            f"bursty arrivals, {peaks:.1f} times as variable as Poisson's: P99 {_TTFT} may be up "
            "to 45 % low"
        )
    return found


def _queued(people: Population, load: float, levels: Sequence[float]) -> list[str]:
    """Percentiles that fall on the jump to a queue wait, or beyond it at a load that matters."""
    found = []
    ratios = {level: people.full / (1 - level) for level in levels}
    jumps = [level for level, ratio in ratios.items() if 1 / _JUMP < ratio < _JUMP]
    if jumps:
        found.append(
            f"{people.full:.2%} queue for a place: {_named(jumps)} {_TTFT} jumps there from a step "
            "to a wait and may be up to 45 % off"
        )
    waits = [level for level, ratio in ratios.items() if ratio >= _JUMP]
    if waits and 0.78 < load < 1:
        found.append(
            f"{people.full:.0%} queue for a place at load {load:.2f}: {_named(waits)} {_TTFT} may "
            "be up to 20 % low"
        )
    return found


def _near_full(machine: Machine, load: float) -> list[str]:
    if not (0.95 < load < 1 and machine.places is None):
        return []
    return [
        f"load {load:.3f}: an error of 1 % in the step times moves P99 by {0.01 / (1 - load):.0%}; "
        "too close to call"
    ]


def _named(levels: Sequence[float]) -> str:
    return " and ".join(f"P{100 * level:g}" for level in levels)
