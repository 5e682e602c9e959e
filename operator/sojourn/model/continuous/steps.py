"""Time to first token when a place is free: the rest of the running step and the own one.

The prompts of a step are those that arrived during the step before: a branching process in discrete
time, k' ~ Poisson(lambda (h + P k)). An arrival sees the step it falls into with probability
proportional to its length. Whoever arrived in it shares the next step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np

from sojourn.model.continuous import cells, counts
from sojourn.model.continuous.arrivals import Arrivals
from sojourn.model.continuous.machine import Machine
from sojourn.model.domain import FloatArray

# With fewer prompts in a step's budget than this, bursts spread over several steps.
TIGHT_BUDGET = 8.0
_RESIDUALS = 8
_NORMAL_FROM = 60.0
_RAREST = 1e-8
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, eq=False)
class Atoms:
    """Weighted values: seconds, float arrays (n,)."""

    values_s: FloatArray
    weights: FloatArray

    @property
    def mean_s(self) -> float:
        """The mean of weights that add up to 1."""
        return float(self.values_s @ self.weights)

    def atoms(self) -> Atoms:
        """Itself."""
        return self

    def quantiles_s(self, levels: Sequence[float]) -> list[float]:
        """At probabilities, whatever the weights add up to."""
        return cells.quantiles(self.values_s, self.weights, levels)


class Law(Protocol):
    """A time to first token whose mean may be asked for without its atoms."""

    @property
    def mean_s(self) -> float:
        """The mean, seconds."""
        ...

    def atoms(self) -> Atoms:
        """Values, their weights adding up to 1."""
        ...


def is_tight(machine: Machine, stream: Arrivals) -> bool:
    """Whether the exact backlog of prompts is worth its chain: tight budget or round robin."""
    if machine.prompt_tokens == 0:
        return False
    mean = stream.rate_per_s * machine.full_step_s
    regular = stream.turns > 1 and mean < _NORMAL_FROM / 4
    return regular or machine.prompts_per_budget < TIGHT_BUDGET


def step_seen_s(
    step_s: FloatArray, prompt_s: float | FloatArray, phi: float | FloatArray, near: float = 1.0
) -> FloatArray:
    """Mean length of the step an arrival falls into: the prompts in it make it longer.

    Args:
        step_s: h, without prompts.
        prompt_s: P; broadcasts, as phi does.
        phi: share of time spent on prompts.
        near: arrivals near one, over Poisson (``Arrivals.company``).
    """
    return step_s * (1 + near * phi / (1 - phi)) + near * prompt_s * phi / (1 - phi**2)


def own_steps(machine: Machine) -> int:
    """Steps the prompt alone takes: more than one when it is longer than the budget."""
    if machine.prompts_per_budget >= 1:
        return 1
    return math.ceil(1 / machine.prompts_per_budget - 1e-9)


def untight(
    machine: Machine, stream: Arrivals, step_s: FloatArray, phi: float, busy: float
) -> list[Law]:
    """First-token times for each of several numbers inside, all with a wide budget.

    Args:
        step_s: h of each, float array (g,).
        phi: share of time spent on prompts.
        busy: probability that the replica is not empty, > 0. Prompts run only then, so steps with
            prompts are seen more often than ``phi`` says.
    """
    prompts, seen = _prompts_seen(stream.rate_per_s, step_s, machine.prompt_s, phi)
    crowded = np.where(prompts > 0.5, seen, 0.0)
    lift = np.minimum(1 / busy, 1 / np.maximum(crowded.sum(1), 1e-300))[:, None]
    seen = np.where(prompts > 0.5, seen * lift, np.maximum(0.0, 1 - crowded.sum(1)[:, None] * lift))
    lengths_s = step_s[:, None] + machine.prompt_s * prompts
    together = _Untight(stream.rate_per_s, machine.prompt_s, step_s, seen, lengths_s)
    return [_Row(together, g) for g in range(step_s.size)]


@dataclass(eq=False)
class _Untight:
    """Several first-token laws; their atoms are made together when the first is asked for.

    Attributes:
        step_s: own step without prompts, (g,).
        seen: probabilities of the steps an arrival falls into, (g, m).
        lengths_s: their lengths, (g, m).
    """

    rate_per_s: float
    prompt_s: float
    step_s: FloatArray
    seen: FloatArray
    lengths_s: FloatArray

    @cached_property
    def means_s(self) -> list[float]:
        """Rest of the step seen, own step, own prompt and those that arrived in the step seen."""
        length_s = (self.seen * self.lengths_s).sum(1) / self.seen.sum(1)
        rest = self._rest().mean(1)
        joined = self.rate_per_s * length_s
        found = rest * length_s + self.step_s + self.prompt_s * (1 + joined)
        return [float(one) for one in found]

    @cached_property
    def laws(self) -> list[Atoms]:
        """Atoms of each."""
        others, shares = _companions(self.rate_per_s * self.lengths_s)
        values = (
            self._rest()[:, None, None, :] * self.lengths_s[:, :, None, None]
            + self.step_s[:, None, None, None]
            + self.prompt_s * (1 + others[..., None])
        )
        weights = np.broadcast_to((self.seen[:, :, None] * shares)[..., None], values.shape)
        groups = self.step_s.size
        return _trimmed(values.reshape(groups, -1), weights.reshape(groups, -1))

    def _rest(self) -> FloatArray:
        """Parts of the step seen that are left, (g, r)."""
        groups = self.step_s.size
        # Shifted from group to group: equal nodes would pile up at the same times.
        shift = (0.5 + np.arange(groups)[:, None] * _GOLDEN) % 1
        residuals = _RESIDUALS if groups > 6 else 4 * _RESIDUALS
        return np.asarray((np.arange(residuals)[None, :] + shift) / residuals)


@dataclass(frozen=True, eq=False)
class _Row:
    together: _Untight
    row: int

    @property
    def mean_s(self) -> float:
        return self.together.means_s[self.row]

    def atoms(self) -> Atoms:
        return self.together.laws[self.row]


def _trimmed(values: FloatArray, weights: FloatArray) -> list[Atoms]:
    """One law a row, without its rarest atoms."""
    weights = weights / weights.sum(1, keepdims=True)
    kept = weights > _RAREST
    some_s, some = values[kept], weights[kept]
    ends = np.cumsum(kept.sum(1)).tolist()
    parts = [slice(a, b) for a, b in pairwise((0, *ends))]
    return [Atoms(some_s[part], some[part] / some[part].sum()) for part in parts]


def _prompts_seen(
    rate: float, step_s: FloatArray, prompt_s: float, phi: float
) -> tuple[FloatArray, FloatArray]:
    """Prompts k of the step an arrival sees, and their probabilities, arrays (g, m)."""
    if rate * prompt_s == 0:
        return np.zeros((step_s.size, 1)), np.ones((step_s.size, 1))
    mean = rate * step_s / (1 - phi)
    sd = np.sqrt(mean / (1 - phi**2))
    largest = float((mean + sd**2 / mean).max())
    if largest > _NORMAL_FROM:
        z, weights = cells.normal_nodes(8, 4)
        prompts = np.maximum(0.0, mean[:, None] + sd[:, None] * z)
        law = np.broadcast_to(weights, prompts.shape)
    else:
        size = 1 << math.ceil(math.log2(largest + 10 * float(sd.max()) / (1 - phi) + 12))
        law = _branching(rate * step_s, phi, size)
        prompts = np.broadcast_to(np.arange(size, dtype=float), law.shape)
    seen = law * (step_s[:, None] + prompt_s * prompts)
    seen = seen / seen.sum(1, keepdims=True)
    used = int(np.nonzero((seen > 1e-7).any(0))[0].max()) + 1
    return np.asarray(prompts[:, :used]), np.asarray(seen[:, :used])


def _branching(immigrants: FloatArray, phi: float, size: int) -> FloatArray:
    """Stationary law of a branching process with Poisson immigration and Poisson(phi) offspring.

    Its generating function is exp(immigrants sum_i (z_i - 1)), z_{i+1} = exp(phi (z_i - 1)),
    inverted on the unit circle.

    Returns:
        float array (g, size).
    """
    z = np.exp(-2j * np.pi * np.arange(size) / size)
    total = np.zeros(size, dtype=complex)
    for _ in range(2000):
        total += z - 1
        z = np.exp(phi * (z - 1))
        if np.abs(z - 1).max() < 1e-10:
            break
    law = np.fft.ifft(np.exp(immigrants[:, None] * total), axis=1).real
    return np.asarray(np.maximum(law, 0.0))


def _companions(means: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Others that share the own step, and their probabilities, arrays (g, m, j)."""
    largest = float(means.max())
    if largest > _NORMAL_FROM:
        z, weights = cells.normal_nodes(6, 3)
        others = np.maximum(0.0, means[..., None] + np.sqrt(means)[..., None] * z)
        return others, np.broadcast_to(weights, others.shape)
    size = counts.size_for(largest)
    shares = counts.law(means, size)
    return np.broadcast_to(np.arange(size, dtype=float), shares.shape), shares
