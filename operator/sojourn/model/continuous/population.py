"""Law of the number of requests in a replica.

Below a full batch the system is processor sharing with a speed that depends on the number inside,
so the law depends on the output lengths only through their mean (insensitivity). Two things break
that. Prompts stop everybody's decoding: on the clock of decoding time the arrivals during a prompt
come all at once, in clusters whose size follows Borel's law (variance / mean^2 phi / (1 - phi)).
The chain therefore has batch arrivals, geometric here with the same dispersion, damped by the share
``overlap`` that is still felt when a burst's members leave. And the batch limit: above it only the
variability of the work per departure counts, as in limited processor sharing in heavy traffic.

Source: docs/explanation/continuous-batching.md; Zhang, Dai, Zwart, Ann. Appl. Prob. 21 (2011).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sojourn.model.continuous.arrivals import Arrivals
from sojourn.model.continuous.machine import Machine
from sojourn.model.continuous.steps import step_seen_s
from sojourn.model.continuous.waiting import Waiting
from sojourn.model.domain import FloatArray

# Share of the clusters' excess dispersion that shows in P(wait), for geometric outputs and what
# fixed ones add; fitted to our own simulations of 16 prompt-heavy and fixed-length cases.
_GEOMETRIC_AT_LIMIT = 0.1
_LONGER_AT_LIMIT = 0.17

_OVERLOAD_FADES = 0.05
_TURNS_FORGET = 2.0
_QUEUE_SLOWER = 8

# More states than this are summed in strides: 1000 replicas of batch 4096 have four million.
_MOST_STATES = 8192

_LARGEST_BURST = 1e4
_LOG_HUGE = 700.0


@dataclass(frozen=True, eq=False)
class Population:
    """Probabilities of what an accepted arrival finds, and the means that follow.

    Attributes:
        counts: n, others in one replica, 0 .. below the batch limit, float array (m,).
        weights: probability of each, float array (m,).
        decoding: how many of them decode at a time, float array (m,).
        full: probability that every place is taken and the arrival joins the queue.
        waiting: law of the number queueing then, over all pooled replicas.
        blocking: share of arrivals lost.
        in_system: mean number in one replica.
        running: mean number in the batch of one replica.
        phi: share of time in which prompts are computed.
        burst: z, variance of the number inside over that under plain Poisson arrivals.
        unseen: by how many the average over time exceeds what arrivals find below the limit:
            regular arrivals come late after the last one; 0 for Poisson arrivals.
    """

    counts: FloatArray
    weights: FloatArray
    decoding: FloatArray
    full: float
    waiting: Waiting
    blocking: float
    in_system: float
    running: float
    phi: float
    burst: float
    unseen: float

    @property
    def idle(self) -> float:
        """Probability that an arrival finds an empty replica; of c levelled ones, fewer than c."""
        return float(self.weights[self.counts < 1].sum())

    @property
    def idle_time(self) -> float:
        """Share of time in which a replica is empty."""
        return float(self.weights @ np.maximum(0.0, 1 - self.counts))


def population(machine: Machine, stream: Arrivals) -> Population:
    """Solve the chain of one replica (or of the pooled replicas) at a load below 1, or with K."""
    rate = stream.rate_per_s
    load = rate / machine.capacity_per_s
    # Overloaded, the prompts that enter are those of the accepted requests.
    phi = min(rate, machine.capacity_per_s) * machine.prompt_s
    counts, stride = _states(machine.max_batch, stream.pooled)
    decoding, sojourn_s = _stays(machine, stream, counts, phi)
    burst = _burst(stream.dispersion, phi, machine.output.overlap)
    if load > 1:
        # Overloaded, visits below the limit are too short for clusters to build up.
        burst = 1 + (burst - 1) * math.exp((1 - load) / _OVERLOAD_FADES)
    pooled_rate = rate * stream.pooled
    departures = counts[1:] * stream.pooled / sojourn_s[1:]
    logs, log_flow = _log_weights(pooled_rate, departures, burst, stride)
    # The flow into the full batch over the rate out of it; a grid state stands for ``stride``.
    log_limit = log_flow - math.log(machine.capacity_per_s * stream.pooled * stride)

    v = float(queue_scv(machine.output.scv, machine.departure_scv, machine.max_batch, load))
    # Nearly deterministic on both sides: the floor keeps the tail's ratio away from 0.
    exponent = 2 / max(stream.dispersion + v, 0.02)
    log_load = math.log(load)
    theta = math.exp(min(max(exponent * log_load, -_LOG_HUGE), _LOG_HUGE))
    sigma = exponent if abs(log_load) < 1e-7 else (theta - 1) / (load - 1)
    sigma *= _at_limit(machine, burst, theta / load)
    places = None if machine.places is None else machine.places * stream.queues
    every = Waiting(theta, places)
    log_full = log_limit + math.log(sigma) + every.log_total()

    highest = max(float(logs.max()), log_full)
    weights, full = np.exp(logs - highest), math.exp(log_full - highest)
    total = float(weights.sum()) + full
    weights, full = weights / total, full / total
    blocking, accepted = _blocking(every, full, load, exponent)
    unseen = 0.0
    if burst < 1:
        unseen = _unseen(pooled_rate, departures, counts, weights, stride)
    running = float(weights @ counts) + unseen * float(weights.sum()) + full * machine.max_batch
    running = min(running, float(machine.max_batch))
    in_system = running + full * every.mean() / stream.pooled
    passed = 1 - blocking
    return Population(
        counts=counts,
        weights=weights / passed,
        decoding=decoding,
        full=max(0.0, full - blocking) / passed,
        waiting=accepted,
        blocking=blocking,
        in_system=in_system,
        running=running,
        phi=phi,
        burst=burst,
        unseen=unseen,
    )


def _states(batch: int, pooled: int) -> tuple[FloatArray, int]:
    """Numbers in one replica below its limit, and how many states of the chain each stands for."""
    states = batch * pooled
    stride = max(1, math.ceil(states / _MOST_STATES))
    return np.arange(0, states, stride) / pooled, stride


def _stays(
    machine: Machine, stream: Arrivals, counts: FloatArray, phi: float
) -> tuple[FloatArray, FloatArray]:
    """How many of n requests decode, and how long each stays, arrays (m,).

    A stay is the rest of the running step, the step of the own prompt and L decoding steps; the
    prompts of others stretch the latter two by 1 / (1 - phi). Little's law makes the share of
    decoding in a stay the share of n that decodes, so both are found together. In turn, the step
    seen and the own one seldom hold others, and (1 - 1/c) / 2 fewer arrive during a stay.
    """
    later, prompt_s, near = machine.later_tokens, machine.prompt_s, stream.company
    share = np.full(counts.size, machine.decode_share_full)
    stay_s = np.zeros(counts.size)
    # Whoever is alone came to an idle replica and waited for no step.
    waits = 1 - 1 / np.maximum(counts, 1.0)
    for _ in range(4):
        step_s = machine.steps_s(counts * share)
        seen_s = step_seen_s(step_s, prompt_s, phi, near)
        own_s = step_s + prompt_s * (1 + near * stream.rate_per_s * seen_s - (1 - near) / 2)
        decode_s = later * step_s / (1 - phi)
        stay_s = waits * seen_s / 2 + own_s / (1 - phi) + decode_s
        share = decode_s / stay_s
    return counts * share, stay_s


def _at_limit(machine: Machine, burst: float, thinning: float) -> float:
    """Correction of P(wait) for arrivals that are not Poisson.

    The density of a diffusion jumps at the limit by the ratio of the variances on both sides, z
    below. Bursts cross the limit less often than that says. Regular arrivals see less than time
    does, theta / load of the waiting (as in a queue with renewal arrivals), and twice as much less
    in simulations of 2 to 8 replicas in turn.
    """
    if burst < 1:
        return burst * min(1.0, max(thinning, 0.05)) ** 2
    return float(bursts_at_limit(machine.output.overlap, burst))


def bursts_at_limit(overlap: float | FloatArray, burst: float | FloatArray) -> FloatArray:
    """Correction of P(wait) for bursts, ``burst`` at least 1; arguments broadcast."""
    share = _GEOMETRIC_AT_LIMIT + _LONGER_AT_LIMIT * (2 * overlap - 1)
    return np.asarray(1 + np.maximum(0.0, share) * (burst - 1))


def queue_scv(
    scv: float | FloatArray,
    whole: float | FloatArray,
    batch: float | FloatArray,
    load: float | FloatArray,
) -> FloatArray:
    """Variability v of the work per departure over the time in which the queue forgets.

    Outputs more variable than geometric show it only over many turns of the batch; over a few, the
    departures of many independent requests look like a Poisson process.

    Args:
        scv: of the output lengths; all arguments broadcast.
        whole: v over long times, ``Machine.departure_scv``.
        batch: B.
        load: lambda1 / D_B.
    """
    turns = 1 / (batch * np.maximum((1 - load) ** 2, 1e-6)) / _QUEUE_SLOWER
    slow = whole / np.maximum(scv, 1.0) * departures_scv(scv, np.asarray(turns))
    return np.where(np.asarray(scv) <= 1, whole, slow)


def departures_scv(scv: float | FloatArray, turns: FloatArray) -> FloatArray:
    """Index of dispersion of a full batch's departures over ``turns`` lifetimes of a request."""
    scv = np.asarray(scv)
    fading = np.where(scv < 1, np.maximum(0.0, 1 - turns), np.exp(-turns / _TURNS_FORGET))
    return np.asarray(scv + (1 - scv) * fading)


def _burst(dispersion: float, phi: float, overlap: float) -> float:
    """Peakedness z of the number inside: its variance over that under plain Poisson arrivals.

    Clusters of Borel size have index of dispersion 1 / (1 - phi)^2.
    """
    clustered = dispersion / (1 - phi) ** 2
    return min(max(1 + (clustered - 1) * overlap, 0.02), _LARGEST_BURST)


def _log_weights(
    rate: float, departures: FloatArray, burst: float, stride: int
) -> tuple[FloatArray, float]:
    """Ln of the unnormalised probabilities, and ln of the flow into the full batch.

    Geometric clusters of parameter q and rate nu keep the mean, nu / (1 - q) = lambda, and give
    variance over mean z = 1 / (1 - q) where the speed is constant. Level crossing,
    pi_{n+1} D_{n+1} = nu c_n with c_n = pi_n + q c_{n-1}, is a product: c_{n+1} = c_n (nu/D + q).
    Arrivals more regular than Poisson (z < 1) have no clusters: the weights are sharpened instead.
    """
    log_departures = np.log(departures)
    if burst <= 1:
        steps = (math.log(rate) - log_departures) * stride
        logs = np.concatenate(([0.0], np.cumsum(steps))) / burst
        return logs, float(logs[-1]) + math.log(rate)
    q = (burst - 1) / burst
    clusters = rate * (1 - q)
    carried = np.concatenate(([0.0], np.cumsum(np.log(clusters / departures + q)) * stride))
    logs = carried.copy()
    logs[1:] = carried[:-1] + math.log(clusters) - log_departures
    return logs, float(carried[-1]) + math.log(clusters)


def _unseen(
    rate: float, departures: FloatArray, counts: FloatArray, weights: FloatArray, stride: int
) -> float:
    """Mean below the limit under Poisson arrivals less the one of the sharpened law.

    The mean number is insensitive, the law as seen by arrivals is not its average over time.
    """
    logs, _ = _log_weights(rate, departures, 1.0, stride)
    plain = np.exp(logs - logs.max())
    seen = float(weights @ counts) / max(float(weights.sum()), 1e-300)
    return max(0.0, float(plain @ counts) / float(plain.sum()) - seen)


def _blocking(every: Waiting, full: float, load: float, exponent: float) -> tuple[float, Waiting]:
    """Share lost, and the law of the queue an accepted arrival finds.

    Flow balance without cancellation: the full states weigh (1 - theta^(K+1)) / (1 - load)
    up to a factor, of which theta^(K+1) / load is lost; theta = load^exponent.
    """
    if every.most is None:
        return 0.0, every
    count = every.most + 1
    log_tail = -count * math.log(every.ratio)
    if log_tail > _LOG_HUGE:
        lost = 0.0
    elif abs(log_tail) < 1e-7:
        lost = 1 / (count * exponent)
    else:
        lost = (1 - load) / load / math.expm1(log_tail)
    blocking = min(full * lost, full, 1 - 1e-12)
    return blocking, Waiting(every.ratio, max(every.most - 1, 0))
