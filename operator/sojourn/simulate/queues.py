"""Long seeded runs of the queues the model answers for: its independent check.

``dynamic`` plays batches that start and end together, ``continuous`` engines whose batch changes at
every step; both for Random, RoundRobin, LeastLoaded and SharedQueue.
Arrivals are Poisson unless given. The first tenth of a run is thrown away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sojourn.errors import ModelDomainError
from sojourn.facts.replica import ContinuousReplica, DynamicReplica, OperatingPoint, Routing
from sojourn.simulate import batch_queue, least_loaded, step_queue
from sojourn.simulate.batch_queue import FloatArray, Progress, Served
from sojourn.simulate.estimate import LatencyEstimate, estimate
from sojourn.simulate.job import Job, Request
from sojourn.simulate.lengths import draw
from sojourn.simulate.step_core import StepCore

WARM_UP = 0.1
_REPORT_EVERY = 10_000


@dataclass(frozen=True)
class Run:
    """How long and how closely to look.

    Attributes:
        requests: arrivals to play, all replicas together.
        levels: quantiles to estimate.
        arrivals_s: given arrivals in place of Poisson ones, rising; ``requests`` is then unused.
        progress: called now and then with the share played.
    """

    requests: int = 200_000
    levels: Sequence[float] = (0.5, 0.9, 0.95, 0.99)
    arrivals_s: FloatArray | None = None
    progress: Progress | None = None


@dataclass(frozen=True)
class QueueEstimate:
    """What a run saw.

    Attributes:
        latency: end to end, of served requests.
        queue_s: from arrival to the start of the batch (dynamic) or of the prompt (continuous).
        mean_batch: requests per batch (dynamic), or running together in a replica (continuous).
        blocking: share of arrivals lost.
        served: requests behind the estimates.
        first_token: continuous only.
        output_token: continuous only, of requests with two tokens or more.
        preemptions: continuous only, per request.
    """

    latency: LatencyEstimate
    queue_s: LatencyEstimate
    mean_batch: float
    blocking: float
    served: int
    first_token: LatencyEstimate | None = None
    output_token: LatencyEstimate | None = None
    preemptions: float = 0.0


def dynamic(point: OperatingPoint, run: Run, rng: np.random.Generator) -> QueueEstimate:
    """Play batches that start and end together.

    Raises:
        ModelDomainError: the replica is of another kind.
    """
    replica = point.replica
    if not isinstance(replica, DynamicReplica):
        raise ModelDomainError("replica", type(replica).__name__, "a DynamicReplica")
    arrivals_s = _arrivals(point, run, rng)
    if point.routing is Routing.LEAST_LOADED and point.replicas > 1:
        parts = [np.arange(arrivals_s.size)]
        served = [least_loaded.serve(replica, arrivals_s, rng, point.replicas, run.progress)]
        return _dynamic_estimate(arrivals_s, parts, served, run)
    parts = _parts(point, arrivals_s, rng)
    servers = 1
    if point.routing is Routing.SHARED_QUEUE:
        parts, servers = [np.arange(arrivals_s.size)], point.replicas
    served = [
        batch_queue.serve(replica, arrivals_s[part], rng, servers, run.progress) for part in parts
    ]
    return _dynamic_estimate(arrivals_s, parts, served, run)


def continuous(
    point: OperatingPoint, run: Run, rng: np.random.Generator, *, exclusive_prompts: bool = False
) -> QueueEstimate:
    """Play engines whose batch takes requests in and lets them go at every step.

    Raises:
        ModelDomainError: the replica is of another kind.
    """
    replica = point.replica
    if not isinstance(replica, ContinuousReplica):
        raise ModelDomainError("replica", type(replica).__name__, "a ContinuousReplica")
    arrivals_s = _arrivals(point, run, rng)
    prompt = round(replica.prompt_tokens)
    outputs = draw(replica.output, arrivals_s.size, rng).tolist()
    requests = [Request(prompt, output) for output in outputs]
    cores = [StepCore(replica, exclusive_prompts=exclusive_prompts) for _ in range(point.replicas)]
    if point.routing is Routing.SHARED_QUEUE:
        queue = step_queue.SharedQueue(cores, replica.queue_capacity)
        jobs, lost = queue.play(arrivals_s, requests, rng.random(arrivals_s.size), run.progress)
    elif point.routing is Routing.LEAST_LOADED and point.replicas > 1:
        jobs, lost = _least_loaded(cores, arrivals_s, requests, run, rng)
    else:
        jobs, lost = _assigned(cores, _parts(point, arrivals_s, rng), arrivals_s, requests, run)
    jobs.sort(key=lambda job: job.arrived_at_s)
    kept = jobs[int(len(jobs) * WARM_UP) :]
    return _continuous_estimate(kept, lost / arrivals_s.size, run, point.replicas)


def poisson(point: OperatingPoint, requests: int, rng: np.random.Generator) -> FloatArray:
    """Poisson arrival times at the point's rate, float array (requests,)."""
    return np.cumsum(rng.exponential(1 / point.rate_per_s, requests))


def _arrivals(point: OperatingPoint, run: Run, rng: np.random.Generator) -> FloatArray:
    return poisson(point, run.requests, rng) if run.arrivals_s is None else run.arrivals_s


def _parts(
    point: OperatingPoint, arrivals_s: FloatArray, rng: np.random.Generator
) -> list[npt.NDArray[np.int64]]:
    """Positions of the arrivals of each replica, where routing does not look at the queues."""
    everyone = np.arange(arrivals_s.size)
    if point.replicas == 1:
        return [everyone]
    if point.routing is Routing.ROUND_ROBIN:
        return [everyone[turn :: point.replicas] for turn in range(point.replicas)]
    chosen = rng.integers(point.replicas, size=arrivals_s.size)
    return [everyone[chosen == one] for one in range(point.replicas)]


def _assigned(
    cores: Sequence[StepCore],
    parts: Sequence[npt.NDArray[np.int64]],
    arrivals_s: FloatArray,
    requests: Sequence[Request],
    run: Run,
) -> tuple[list[Job], int]:
    jobs: list[Job] = []
    lost = played = 0
    for core, part in zip(cores, parts, strict=True):
        for position, now_s in zip(part.tolist(), arrivals_s[part].tolist(), strict=True):
            job = core.submit(requests[position], now_s)
            played += 1
            if job is None:
                lost += 1
            else:
                jobs.append(job)
            if run.progress is not None and played % _REPORT_EVERY == 0:
                run.progress(played / arrivals_s.size)
        core.advance(float("inf"))
    return jobs, lost


def _least_loaded(
    cores: Sequence[StepCore],
    arrivals_s: FloatArray,
    requests: Sequence[Request],
    run: Run,
    rng: np.random.Generator,
) -> tuple[list[Job], int]:
    """Each arrival joins the replica with the fewest requests inside; ties at random."""
    jobs: list[Job] = []
    lost = 0
    ties = rng.random(arrivals_s.size).tolist()
    for played, (now_s, request) in enumerate(zip(arrivals_s.tolist(), requests, strict=True)):
        for core in cores:
            core.advance(now_s)
        job = step_queue.fewest_inside(cores, ties[played]).submit(request, now_s)
        if job is None:
            lost += 1
        else:
            jobs.append(job)
        if run.progress is not None and played % _REPORT_EVERY == 0:
            run.progress(played / arrivals_s.size)
    for core in cores:
        core.advance(float("inf"))
    return jobs, lost


def _times(jobs: Sequence[Job], *names: str) -> tuple[FloatArray, ...]:
    return tuple(np.array([getattr(job, name) for job in jobs]) for name in names)


def _dynamic_estimate(
    arrivals_s: FloatArray,
    parts: Sequence[npt.NDArray[np.int64]],
    served: Sequence[Served],
    run: Run,
) -> QueueEstimate:
    """From the positions of the arrivals of each queue, and whom it served."""
    index = np.concatenate([part[one.index] for part, one in zip(parts, served, strict=True)])
    order = np.argsort(index)
    arrived = arrivals_s[index[order]]
    started = np.concatenate([one.start_s for one in served])[order]
    ended = np.concatenate([one.end_s for one in served])[order]
    warm = int(arrived.size * WARM_UP)
    return QueueEstimate(
        latency=estimate((ended - arrived)[warm:], run.levels),
        queue_s=estimate((started - arrived)[warm:], run.levels),
        mean_batch=arrived.size / sum(one.batch_sizes.size for one in served),
        blocking=1 - arrived.size / arrivals_s.size,
        served=arrived.size - warm,
    )


def _continuous_estimate(
    jobs: Sequence[Job], blocking: float, run: Run, replicas: int
) -> QueueEstimate:
    arrived, started, first, ended = _times(
        jobs, "arrived_at_s", "started_at_s", "first_token_at_s", "finished_at_s"
    )
    later = np.array([job.request.output_tokens - 1 for job in jobs])
    some = later > 0
    gaps_s = (ended - first)[some] / later[some]
    return QueueEstimate(
        latency=estimate(ended - arrived, run.levels),
        queue_s=estimate(started - arrived, run.levels),
        mean_batch=float((ended - started).sum() / np.ptp(arrived) / replicas),
        blocking=blocking,
        served=len(jobs),
        first_token=estimate(first - arrived, run.levels),
        output_token=estimate(gaps_s, run.levels) if some.any() else None,
        preemptions=sum(job.preemptions for job in jobs) / max(1, len(jobs)),
    )
