"""Time of the tokens after the first one, and end to end.

A request of l tokens needs l - 1 decoding steps. Their mean length starts at what the request finds
and regresses to the long-run mean, as an average over an Ornstein-Uhlenbeck path does; the prompts
that arrive meanwhile are added, a generalised Poisson number K because prompts bring more prompts.

Source: Consul, Jain, Technometrics 15 (1973); docs/explanation/continuous-batching.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sojourn.model.continuous import cells, counts, fluctuation
from sojourn.model.continuous.arrivals import Arrivals
from sojourn.model.continuous.first_token import FirstToken
from sojourn.model.continuous.machine import Machine
from sojourn.model.continuous.population import Population, departures_scv
from sojourn.model.continuous.steps import Atoms, step_seen_s
from sojourn.model.domain import FloatArray

# Growth of the batch by a surplus of arrivals fades near saturation; fitted by the reference
# method on simulations, see the accuracy table in docs/explanation/continuous-batching.md.
GROWTH = 0.5

# Probability of finding every place taken at which the linear response is no longer trusted.
RARELY_FULL = 0.02


@dataclass(frozen=True)
class Pace:
    """Long-run averages of a replica's steps, weighted by the tokens they make.

    Attributes:
        step_s: mean h, prompts left out.
        gap_s: mean inter-token latency, prompts included.
        relaxation: rate, per second of decoding, at which the number inside forgets; times a
            request's decoding time it says how far the average has regressed.
    """

    step_s: float
    gap_s: float
    relaxation: float


@dataclass(frozen=True, eq=False)
class Decoded:
    """Decoding times, the tokens after the first: c classes, m output lengths, k nodes each.

    Attributes:
        seconds: float array (c, m, k), rising in k.
        shares: weight of each class, (c,).
        pairs: weight of each length and node, (m, k).
        later: tokens after the first, (m,).
    """

    seconds: FloatArray
    shares: FloatArray
    pairs: FloatArray
    later: FloatArray

    def per_token(self) -> Atoms:
        """Decoding time per later token of requests with at least two."""
        some = self.later > 0
        gaps_s = self.seconds[:, some] / self.later[some, None]
        weights = self.shares[:, None, None] * self.pairs[some]
        return Atoms(gaps_s.ravel(), weights.ravel())

    def mean_s(self) -> float:
        """Mean over all requests."""
        return float(
            ((self.shares @ self.seconds.reshape(self.shares.size, -1)) * self.pairs.ravel()).sum()
        )


def pace(machine: Machine, people: Population) -> Pace:
    """Averages over tokens: a token sees its own request and the others that decode."""
    inside = people.counts > 0
    count, weights = people.counts[inside], people.weights[inside] * (1 - people.blocking)
    full = 1 - float(people.weights.sum()) * (1 - people.blocking)
    others = np.maximum(people.decoding[inside] * (1 - 1 / np.maximum(count, 1.0)), 0.0)
    others += people.unseen
    step_s = machine.steps_s(1 + others)
    step_s = np.minimum(step_s, machine.full_step_s) if step_s.size else step_s
    gap_s = step_s / (1 - people.phi)
    full_gap_s = machine.full_step_s + machine.prompt_s * machine.prompts_per_full_step
    batch = machine.max_batch
    tokens_per_s = float((weights * count) @ (1 / gap_s)) + full * batch / full_gap_s
    steps = float((weights * count) @ (step_s / gap_s))
    steps += full * batch * machine.full_step_s / full_gap_s
    making = float(weights @ count) + full * batch
    if tokens_per_s <= 0 or making <= 0:
        # Hardly anybody is ever there: a token sees its own request only.
        alone_s = machine.fixed_s + machine.per_request_s
        tokens_per_s, steps, making = 1 / alone_s, 1.0, 1.0
    mean_step_s = steps / tokens_per_s
    # The slope of the departure rate at the mean number inside.
    crowd_s = machine.fixed_s + machine.per_request_s * people.running
    relaxation = (1 - people.phi) * machine.fixed_s / (machine.output.mean * crowd_s**2)
    return Pace(mean_step_s, making / tokens_per_s, relaxation)


def decode(machine: Machine, stream: Arrivals, people: Population, first: FirstToken) -> Decoded:
    """Decoding times from what each class of arrivals finds."""
    averages = pace(machine, people)
    output = machine.output
    later = output.tokens - 1
    nodes = (5, 3) if later.size > 1 else (40, 25)
    _, z_weights = cells.normal_nodes(*nodes)
    total_s = _totals_s(machine, stream, people, (first, averages), nodes)
    shares = np.array([one.weight for one in first.found])
    total_s = _aligned(machine, stream, people, (first, averages), (total_s, shares, z_weights))
    if output.scv == 0:
        # With equal outputs a place is refilled at most once while a request decodes.
        most_s = machine.full_step_s * later + machine.prompt_s * (machine.max_batch - 1)
        total_s = np.minimum(total_s, most_s[:, None])
    return Decoded(total_s, shares, output.weights[:, None] * z_weights[None, :], later)


def _totals_s(
    machine: Machine,
    stream: Arrivals,
    people: Population,
    start: tuple[FirstToken, Pace],
    nodes: tuple[int, int],
) -> FloatArray:
    """Decoding time by class, output length and node, float array (c, m, k).

    A surplus of arriving prompts also makes the batch grow while their requests last.
    """
    first, averages = start
    later = machine.output.tokens - 1
    full = np.array([one.full for one in first.found])
    decoding = np.array([one.decoding for one in first.found])
    own_s = np.minimum(machine.steps_s(1 + decoding), machine.full_step_s)
    y = np.maximum(averages.relaxation * later * averages.gap_s, 1e-4)
    regress = np.sqrt(2 * (y - 1 + np.exp(-y))) / y
    step_s = averages.step_s + regress * (own_s - averages.step_s)[:, None]
    mean, variance = _arriving(machine, stream, people, own_s, step_s)
    entering, entering_sd, full_z = _entering(machine, nodes)
    mean[full] = entering
    spread = np.sqrt(variance)
    spread[full] = entering_sd
    surplus = spread[:, :, None] * _surplus_nodes(machine, stream, people, averages, nodes)
    surplus[full] = entering_sd[:, None] * full_z
    # No fewer prompts than none.
    np.maximum(surplus, -mean[:, :, None], out=surplus)
    calm = min(1.0, GROWTH * max(0.0, 1 - stream.rate_per_s / machine.capacity_per_s))
    shared = np.minimum(1.0, machine.output.mean / machine.output.tokens) * calm
    surplus *= (machine.prompt_s + later * machine.per_request_s / 2 * shared)[:, None]
    surplus += (later * step_s + machine.prompt_s * mean)[:, :, None]
    return surplus


def _arriving(
    machine: Machine, stream: Arrivals, people: Population, own_s: FloatArray, step_s: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of the prompts that arrive while a request decodes, arrays (c, m)."""
    phi, later = people.phi, machine.output.tokens - 1
    first_s = _own_step_s(machine, stream, people, own_s)
    alone = stream.rate_per_s * (later * step_s + first_s[:, None]) - (1 - stream.company) / 2
    alone = np.maximum(alone, 0.0)
    return alone / (1 - phi), _split_dispersion(stream) * alone / (1 - phi) ** 3


def _own_step_s(
    machine: Machine, stream: Arrivals, people: Population, step_s: FloatArray
) -> FloatArray:
    """Mean step of the own prompt: with it go the prompts that arrived in the step before."""
    prompt_s, near = machine.prompt_s, stream.company
    seen_s = step_seen_s(step_s, prompt_s, people.phi, near)
    return step_s + prompt_s * (1 + near * stream.rate_per_s * seen_s)


def _split_dispersion(stream: Arrivals) -> float:
    """Index of dispersion of one replica's arrivals: levelled replicas take them almost in turn."""
    return stream.dispersion * (1 + 1 / stream.pooled) / 2


@lru_cache(maxsize=256)
def _entering(
    machine: Machine, nodes: tuple[int, int]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Prompts that enter beside a request of a full batch, by output length: the others leave.

    Places, not arrivals, decide who enters: a plain Poisson number without feedback.

    Returns:
        mean and standard deviation (m,), and standardised nodes (m, k).
    """
    others = (machine.max_batch - 1) / machine.output.mean
    later = machine.output.tokens - 1
    mean = later * min(others, machine.prompts_per_budget)
    scv = np.minimum(1.0, departures_scv(machine.output.scv, later / machine.output.mean))
    return mean, np.sqrt(mean * scv), counts.borel_nodes(mean, 0.0, *nodes)


def _surplus_nodes(
    machine: Machine,
    stream: Arrivals,
    people: Population,
    averages: Pace,
    nodes: tuple[int, int],
) -> FloatArray:
    """Standardised numbers of arriving prompts, by output length (m, k), while places are free."""
    later = machine.output.tokens - 1
    regular = 1 - (1 - people.phi) / math.sqrt(_split_dispersion(stream))
    own_s = _own_step_s(machine, stream, people, np.array(averages.step_s))
    alone = stream.rate_per_s * (later * averages.step_s + own_s)
    mean = alone / (1 - people.phi)
    return counts.borel_nodes(mean, min(max(regular, 0.0), 0.999), *nodes)


def _aligned(
    machine: Machine,
    stream: Arrivals,
    people: Population,
    start: tuple[FirstToken, Pace],
    laws: tuple[FloatArray, FloatArray, FloatArray],
) -> FloatArray:
    """Decoding times with the mean of Little's law and the spread of the linear response.

    Both hold for a batch without a limit; where places are often taken, or levelled between
    replicas, the classes are left alone.
    """
    first, averages = start
    total_s, shares, z_weights = laws
    trust = math.exp(-((people.full / RARELY_FULL) ** 2))
    if trust < 0.01 or stream.pooled > 1:
        return total_s
    output = machine.output
    later = output.tokens - 1
    mean_s = shares @ (total_s @ z_weights)
    apart_s = total_s - mean_s[:, None]
    square = shares @ ((apart_s * apart_s) @ z_weights)

    accepted = stream.rate_per_s * (1 - people.blocking)
    little_s = people.in_system / accepted - first.mean_s()
    # Per token, because the nodes of the law keep its mean to a few thousandths only.
    nodes_s = float((output.weights * mean_s).sum()) / float((output.weights * later).sum())
    ratio = little_s / machine.later_tokens / nodes_s
    ratio = 1 + trust * (min(max(ratio, 0.9), 1.1) - 1)

    lengths = fluctuation.sample_lengths(output)
    flow = fluctuation.Flow(
        stream.rate_per_s,
        stream.dispersion,
        averages.gap_s,
        machine.per_request_s,
        machine.prompt_s,
    )
    # Whoever arrives during the own prompt step delays the first decoding step.
    own_s = float(_own_step_s(machine, stream, people, np.array(averages.step_s)))
    start_s2 = machine.prompt_s**2 * stream.rate_per_s * own_s / (1 - people.phi) ** 3
    variance = fluctuation.variance_s2(output, flow, lengths) + start_s2
    wanted = np.interp(later, lengths, np.sqrt(variance))
    factor = wanted / np.maximum(np.sqrt(square), 1e-300)
    factor = 1 + trust * (np.clip(factor, 0.5, 2.0) - 1)
    # Nothing decodes faster than empty steps.
    apart_s *= factor[:, None]
    apart_s += (ratio * mean_s)[:, None]
    return np.maximum(apart_s, (later * machine.fixed_s)[:, None], out=apart_s)
