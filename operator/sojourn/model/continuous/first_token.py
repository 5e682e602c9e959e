"""Time to first token: over all arrivals, and for each class of what an arrival finds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sojourn.model import poisson
from sojourn.model.continuous import backlog, cells, levelled, steps, turns
from sojourn.model.continuous.arrivals import Arrivals
from sojourn.model.continuous.machine import Machine
from sojourn.model.continuous.population import Population, departures_scv
from sojourn.model.continuous.steps import Atoms, Law
from sojourn.model.domain import FloatArray

_LEAST_WEIGHT = 1e-9

# Share of a cluster that passes the limit together; fitted as in ``population``.
OVERSHOOT = 0.25


# Classes of the number found: equal probability, finer in the upper tail, where P99 comes from.
_CLASS_EDGES = np.array([*np.linspace(0, 0.9, 16), 0.93, 0.96, 0.98, 0.99, 0.995, 0.999, 1.0])
_TIGHT_EDGES = np.array([0.0, 0.3, 0.6, 0.85, 1.0])
_WAIT_EDGES = cells.tail_edges(30, 25, 1e-5)


@dataclass(frozen=True, eq=False)
class Found:
    """A class of arrivals by what they find.

    Attributes:
        weight: their share.
        decoding: others that decode beside them, on average.
        full: whether every place was taken.
        first_token: law of their times to first token.
    """

    weight: float
    decoding: float
    full: bool
    first_token: Law


@dataclass(frozen=True, eq=False)
class FirstToken:
    """All classes, and the mean wait in the queue over all arrivals."""

    found: tuple[Found, ...]
    queue_wait_s: float

    def atoms(self) -> Atoms:
        """The law over all arrivals; neighbouring classes may share one."""
        laws = {id(one.first_token): one.first_token for one in self.found}
        shares = dict.fromkeys(laws, 0.0)
        for one in self.found:
            shares[id(one.first_token)] += one.weight
        known = {key: law.atoms() for key, law in laws.items()}
        values = np.concatenate([law.values_s for law in known.values()])
        weights = np.concatenate([shares[key] * law.weights for key, law in known.items()])
        return Atoms(values, weights)

    def mean_s(self) -> float:
        """The mean over all arrivals."""
        return sum(one.weight * one.first_token.mean_s for one in self.found)


def first_token(machine: Machine, stream: Arrivals, people: Population) -> FirstToken:
    """Classes of arrivals with their times to first token."""
    found = [*_idle(machine, people), *_free(machine, stream, people)]
    queue_wait_s = 0.0
    if people.full > _LEAST_WEIGHT:
        waits_s, weights = _queue_waits(machine, stream, people)
        queue_wait_s = people.full * float(waits_s @ weights)
        found.append(_full(machine, people, waits_s, weights))
    return FirstToken(tuple(found), queue_wait_s)


def _idle(machine: Machine, people: Population) -> list[Found]:
    """An empty replica starts at once: a + P, in as many steps as the budget asks for."""
    if people.idle <= 0:
        return []
    alone_s = steps.own_steps(machine) * machine.fixed_s + machine.prompt_s
    return [Found(people.idle, 0.0, False, Atoms(np.array([alone_s]), np.ones(1)))]


def _free(machine: Machine, stream: Arrivals, people: Population) -> list[Found]:
    """Arrivals that find the replica busy (all of them, where one counts) and a place free."""
    occupied = people.counts >= 1
    weights, decoding = people.weights[occupied], people.decoding[occupied]
    if weights.sum() <= _LEAST_WEIGHT:
        return []
    busy = max(1 - people.idle, 1e-9)
    groups = cells.split(weights, _CLASS_EDGES)
    shares = np.array([weights[g].sum() for g in groups])
    kept = shares > min(_LEAST_WEIGHT, float(shares.max()) / 2)
    means = np.array([_mean(decoding[g], weights[g]) for g in groups])[kept]
    shares = shares[kept]
    if steps.is_tight(machine, stream) or levelled.applies(machine, stream):
        laws = _tight_laws(machine, stream, (shares, means), (busy, people.phi))
    else:
        laws = steps.untight(machine, stream, machine.steps_s(means), people.phi, busy)
    return [
        Found(float(share), float(mean), False, law)
        for share, mean, law in zip(shares, means, laws, strict=True)
    ]


def _tight_laws(
    machine: Machine,
    stream: Arrivals,
    classes: tuple[FloatArray, FloatArray],
    shares_of_time: tuple[float, float],
) -> list[Law]:
    """One backlog chain for several neighbouring classes: h matters little beside prompts."""
    shares, means = classes
    busy, phi = shares_of_time
    laws: list[Law] = []
    for group in cells.split(shares, _TIGHT_EDGES):
        decoding = _mean(means[group], shares[group])
        step_s = machine.fixed_s + machine.per_request_s * decoding
        if levelled.applies(machine, stream):
            law = levelled.first_token(machine, stream, step_s, phi)
        elif stream.turns > 1 and machine.prompts_per_budget >= 1:
            law = turns.first_token(machine, stream, step_s, phi)
        else:
            law = backlog.first_token(machine, stream, step_s, decoding, busy)
        laws += [law] * means[group].size
    return laws


def _mean(values: FloatArray, weights: FloatArray) -> float:
    total = float(weights.sum())
    return float(values @ weights) / total if total > 0 else float(values.mean())


def _queue_waits(
    machine: Machine, stream: Arrivals, people: Population
) -> tuple[FloatArray, FloatArray]:
    """Waits of arrivals that find no place, and their weights, arrays (m,).

    Behind i others an arrival waits for i + 1 departures.
    """
    edges = _WAIT_EDGES
    ahead = people.waiting.quantiles((edges[1:] + edges[:-1]) / 2) + 1
    ahead = ahead + OVERSHOOT * max(0.0, people.burst - 1)
    rate = machine.capacity_per_s * stream.pooled
    prompts = machine.prompt_s * machine.capacity_per_s
    lifetimes = ahead / (machine.max_batch * stream.pooled)
    mean, variance = departures(ahead, prompts, machine.output.scv, lifetimes)
    z, z_weights = cells.normal_nodes(9, 5)
    waits = cells.gamma_quantiles((mean / rate)[:, None], (variance / rate**2)[:, None], z[None, :])
    return waits.ravel(), (np.diff(edges)[:, None] * z_weights).ravel()


def departures(
    ahead: FloatArray,
    prompts: float | FloatArray,
    scv: float | FloatArray,
    lifetimes: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of the time of departures from a full batch, in units of 1 / D_B.

    They vary like those of B independent requests: like a Poisson process over a few of them, with
    the variability of the outputs over a whole turn of the batch. Only decoding varies, and the
    prompt that follows a departure is not part of the wait for it.

    Args:
        ahead: departures; all arguments broadcast.
        prompts: share of time for prompts in a full batch.
        scv: of the output lengths.
        lifetimes: turns of the batch that they take.
    """
    v = np.maximum(departures_scv(scv, lifetimes) * (1 - prompts) ** 2, 0.02)
    return ahead - 0.6 * prompts * (1 - prompts / 2) * (1 - 1 / ahead), ahead * v


def _full(machine: Machine, people: Population, waits_s: FloatArray, weights: FloatArray) -> Found:
    """The wait, then a step with the prompts that enter a full batch."""
    mean = machine.prompts_per_full_step
    if mean > 30:
        z, shares = cells.normal_nodes(4, 3)
        others = np.maximum(0.0, mean + np.sqrt(mean) * z)
    else:
        size = int(mean + 5 * np.sqrt(mean + 1) + 3)
        shares, others = poisson.pmf(mean, size), np.arange(size, dtype=float)
    own_s = steps.own_steps(machine) * machine.full_step_s + machine.prompt_s * (1 + others)
    values = (waits_s[:, None] + own_s[None, :]).ravel()
    mass = (weights[:, None] * shares).ravel()
    decoding = machine.max_batch * machine.decode_share_full - 1
    return Found(people.full, max(0.0, decoding), True, Atoms(values, mass / mass.sum()))
