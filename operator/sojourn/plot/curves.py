"""The numbers of every figure: curves over batches, load and rate, and where memory goes.

No drawing here: ``tradeoff``, ``load``, ``tails`` and ``memory`` draw them into files, ``terminal``
into the terminal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sojourn.decide.capacity import Serving
from sojourn.facts.declaration import TailRule
from sojourn.facts.memory import MemoryAnswer
from sojourn.facts.replica import (
    ContinuousReplica,
    DynamicReplica,
    OperatingPoint,
    Replica,
    Routing,
)
from sojourn.facts.service_time import BatchServiceTime, LinearServiceTime
from sojourn.facts.sojourn import LatencyGoal, Sojourn
from sojourn.model import mm1, objective, service_time
from sojourn.model.candidates import candidates
from sojourn.model.choose import model_for
from sojourn.model.domain import BoolArray, FloatArray
from sojourn.units import GIB

LARGEST_BATCH = 256
"""Curves over batches end here, or at the declared largest batch."""


@dataclass(frozen=True)
class TradeOff:
    """Latency against throughput over batch sizes, each run at the target load (S13).

    Attributes:
        batches: B, (n,).
        throughput_per_s: requests/s of one replica at that load, (n,).
        p99_s: at the goal's percentile, (n,).
        mean_s: (n,).
        load: the target load every batch is run at.
        probability: of ``p99_s``.
        slo_s: None if no end-to-end latency is asked.
        kv_batch: B_KV; larger batches do not fit in memory. None is unlimited.
        knee: index of the knee of the Pareto front; None with fewer than three points on it.
        best: index of the most throughput within SLO and memory; None if none is.
        diminishing_from: first batch whose doubling buys at most 20 %; None if all buy more.
        share_per_s: rate of one replica that is asked for; None if not known.
    """

    name: str
    batches: tuple[int, ...]
    throughput_per_s: FloatArray
    p99_s: FloatArray
    mean_s: FloatArray
    load: float
    probability: float
    slo_s: float | None
    kv_batch: int | None
    knee: int | None
    best: int | None
    diminishing_from: int | None
    share_per_s: float | None = None

    @property
    def on_front(self) -> BoolArray:
        """Mask (n,) of the Pareto front."""
        return objective.pareto_front(self.throughput_per_s, self.p99_s)

    @property
    def fits(self) -> BoolArray:
        """Mask (n,) of the batches that fit in memory."""
        limit = math.inf if self.kv_batch is None else self.kv_batch
        return np.asarray(np.asarray(self.batches) <= limit)


def trade_off(serving: Serving, name: str, share_per_s: float | None = None) -> TradeOff:
    """Latency against throughput of every candidate batch at the target load."""
    service, goal = serving.service, serving.service.goal
    batches = candidates(1, min(service.bounds.maximum, LARGEST_BATCH))
    answers = [_at_target(serving, batch) for batch in batches]
    rates = np.array([one.throughput_per_s for one in answers])
    p99_s = np.array([one.latency.quantile_s(goal.probability) for one in answers])
    limit = service.bounds.kv_limit
    fits = np.array([limit is None or b <= limit for b in batches])
    within = fits & (p99_s <= (math.inf if goal.latency_s is None else goal.latency_s))
    held = np.flatnonzero(fits)
    knee = objective.knee(rates[held], p99_s[held])
    return TradeOff(
        name=name,
        batches=tuple(batches),
        throughput_per_s=rates,
        p99_s=p99_s,
        mean_s=np.array([one.latency.mean_s for one in answers]),
        load=goal.max_utilisation,
        probability=goal.probability,
        slo_s=goal.latency_s,
        kv_batch=limit,
        knee=None if knee is None else int(held[knee]),
        best=int(np.argmax(np.where(within, rates, -1.0))) if within.any() else None,
        diminishing_from=objective.diminishing_from(law_of(service.replica), batches),
        share_per_s=share_per_s,
    )


def _at_target(serving: Serving, batch: int) -> Sojourn:
    """One replica with that batch, whatever memory holds, at the target load."""
    goal = serving.service.goal
    replica = replace(serving.service.replica, max_batch=batch)
    if isinstance(replica, ContinuousReplica):
        replica = replace(replica, kv_tokens=None)
    load_only = LatencyGoal(max_utilisation=goal.max_utilisation, max_blocking=1.0)
    rate = serving.queue.max_rate(replica, load_only).rate_per_s
    return serving.queue.sojourn(OperatingPoint(replica, rate), (goal.probability,))


def law_of(replica: Replica) -> BatchServiceTime:
    """T(B): of a batch that starts and ends together, or of one request when B run together."""
    return replica.service if isinstance(replica, DynamicReplica) else request_law(replica)


def request_law(replica: ContinuousReplica) -> LinearServiceTime:
    """Time of one request when n run together: its prompt, and a step for each of its tokens."""
    steps, iteration = replica.output.mean, replica.iteration
    prompt_s = iteration.per_prompt_token_s * replica.prompt_tokens
    # Each of the n requests stretches the others' steps by its own prompt once.
    slope_s = steps * iteration.per_request_s + prompt_s
    return LinearServiceTime(fixed_s=steps * iteration.fixed_s, per_request_s=slope_s)


@dataclass(frozen=True)
class LoadCurve:
    """Latency against load for one replica and its batch, beside M/M/1's 1 / (1 - rho) (S14).

    Attributes:
        loads: rho, (n,), below 1.
        mean_s, p99_s: of the service, (n,).
        mm1_s: M/M/1 with the latency of a lone request as service time, (n,).
        low, target, high: loads of the decision table and the target.
    """

    name: str
    batch: int
    loads: FloatArray
    mean_s: FloatArray
    p99_s: FloatArray
    mm1_s: FloatArray
    probability: float
    slo_s: float | None
    low: float
    target: float
    high: float


def load_curve(
    serving: Serving, name: str, batch: int, thresholds: tuple[float, float]
) -> LoadCurve:
    """The utilisation hockey stick; ``thresholds`` are the table's low and high load."""
    goal = serving.service.goal
    loads = np.concatenate([np.linspace(0.02, 0.9, 30), np.linspace(0.91, 0.98, 8)])
    replica = serving.replica(batch)
    most = serving.capacity_per_s(batch)
    answers = [
        serving.queue.sojourn(OperatingPoint(replica, rho * most), (goal.probability,))
        for rho in loads.tolist()
    ]
    mean_s = np.array([one.latency.mean_s for one in answers])
    lone_s = float(mean_s[0])
    return LoadCurve(
        name=name,
        batch=batch,
        loads=loads,
        mean_s=mean_s,
        p99_s=np.array([one.latency.quantile_s(goal.probability) for one in answers]),
        mm1_s=mm1.latency_mean_s(loads, lone_s),
        probability=goal.probability,
        slo_s=goal.latency_s,
        low=thresholds[0],
        target=goal.max_utilisation,
        high=thresholds[1],
    )


@dataclass(frozen=True)
class TailCurves:
    """P99 against the total rate for several numbers of replicas.

    Attributes:
        replicas: c of each curve, (m,).
        rates_per_s: (m, n), nan beyond the curve's end.
        p99_s: (m, n).
        most_per_s: largest rate within SLO and target load, (m,).
        rate_per_s: the rate asked for; None if not known.
    """

    name: str
    batch: int
    replicas: tuple[int, ...]
    rates_per_s: FloatArray
    p99_s: FloatArray
    most_per_s: tuple[float, ...]
    probability: float
    slo_s: float | None
    rate_per_s: float | None


def tail_curves(
    serving: Serving, name: str, batch: int, around: int, rate_per_s: float | None
) -> TailCurves:
    """Curves of up to five replica counts around ``around``."""
    first = max(1, around - 2)
    counts = tuple(range(first, first + 5))
    loads = np.concatenate([np.linspace(0.02, 0.9, 20), np.linspace(0.92, 0.985, 6)])
    most = serving.capacity_per_s(batch)
    routing = serving.service.declaration.traffic.routing
    level = serving.service.goal.probability
    replica = serving.replica(batch)

    def p99_s(rate: float, count: int) -> float:
        point = OperatingPoint(replica, rate, count, routing)
        return serving.queue.sojourn(point, (level,)).latency.quantile_s(level)

    # Under random splitting every count shows the same curve of its share: ask once.
    alone = [p99_s(rho * most, 1) for rho in loads.tolist()] if routing is Routing.RANDOM else None
    curves = [
        alone or [p99_s(rho * most * count, count) for rho in loads.tolist()] for count in counts
    ]
    one = serving.within_goal(batch).rate_per_s
    return TailCurves(
        name=name,
        batch=batch,
        replicas=counts,
        rates_per_s=np.array([loads * most * count for count in counts]),
        p99_s=np.array(curves),
        most_per_s=tuple(one * count for count in counts),
        probability=level,
        slo_s=serving.service.goal.latency_s,
        rate_per_s=rate_per_s,
    )


@dataclass(frozen=True)
class MemoryBar:
    """Where the memory of one GPU goes.

    Attributes:
        parts: (name, bytes), from the left; they add up to ``total_bytes``.
        total_bytes: of the card, as the engine sees it.
        requests: what the KV cache holds, as text.
        short_bytes: missing for one request of maxLength; 0 when nothing is.
        clipped: (part, bytes it needs) where the card ends before it does.
    """

    name: str
    parts: tuple[tuple[str, float], ...]
    total_bytes: float
    requests: str
    short_bytes: float = 0.0
    clipped: tuple[tuple[str, float], ...] = ()

    def label(self, part: str, size_bytes: float) -> str:
        """GiB of a part, and what it needs where the card ends before it does."""
        needed = dict(self.clipped).get(part)
        drawn = f"{size_bytes / GIB:.1f}"
        return drawn if needed is None else f"{drawn} of {needed / GIB:.1f} needed"


def memory_bar(serving: Serving, name: str) -> MemoryBar:
    """The memory of one GPU of a service."""
    service = serving.service
    held = service.bounds.kv_limit
    requests = (
        f"{held:,} requests of {service.design_tokens:,.0f} tokens"
        if held is not None and service.memory.kv_pool_bytes > 0
        else "no request"
    )
    return bar_of(service.memory, service.gpu.memory_bytes, name, requests)


def bar_of(answer: MemoryAnswer, total_bytes: float, name: str, requests: str) -> MemoryBar:
    """The bar of one memory answer; what does not fit is named, not drawn."""
    inside = answer.weights_bytes + answer.activation_bytes + answer.non_torch_bytes
    graphs = answer.budget_bytes - inside - answer.kv_pool_bytes
    kv = max(0.0, answer.kv_pool_bytes)
    named = (
        ("weights", answer.weights_bytes),
        ("activations", answer.activation_bytes),
        ("engine", answer.non_torch_bytes),
        ("graphs", graphs if graphs > total_bytes * 1e-6 else 0.0),
        ("KV cache", kv),
        ("kept free", max(0.0, total_bytes - answer.budget_bytes)),
    )
    room, parts, clipped = total_bytes, [], []
    for part, size in named:
        drawn = min(size, room)
        if drawn > 0:
            parts.append((part, drawn))
        if drawn > 0 and drawn < size * (1 - 1e-9):
            clipped.append((part, size))
        room -= drawn
    short = max(0.0, -answer.margin_bytes)
    return MemoryBar(name, tuple(parts), total_bytes, requests, short, tuple(clipped))


@dataclass(frozen=True)
class Pair:
    """Mean and P99 over batches, seconds, (n,) each."""

    mean_s: FloatArray
    p99_s: FloatArray


@dataclass(frozen=True)
class Surrogacy:
    """The real system beside the book's surrogate, over batch sizes at one rate (S6, S7).

    Attributes:
        batches: stable ones, (n,).
        real: exact; a batch starts whenever the server is free.
        full: exact; a batch starts when it is full, however long that takes.
        surrogate: M/G/1 super-requests, P99 as 4.6 E[T].
        unstable_below: least stable batch.
    """

    name: str
    rate_per_s: float
    batches: tuple[int, ...]
    real: Pair
    full: Pair
    surrogate: Pair
    unstable_below: int


def surrogacy(
    replica: DynamicReplica, rate_per_s: float, name: str, batches: tuple[int, ...]
) -> Surrogacy:
    """Means and P99 of both models for the stable ones of ``batches``."""
    stable = objective.stable_batches(rate_per_s, replica.service, np.asarray(batches))
    kept = tuple(int(b) for b in np.asarray(batches)[stable])
    # The surrogate's window never ends: T_max 0 means "until full" to it.
    return Surrogacy(
        name=name,
        rate_per_s=rate_per_s,
        batches=kept,
        real=_pair(replace(replica, max_wait_s=0.0), TailRule.EXACT, rate_per_s, kept),
        full=_pair(replace(replica, max_wait_s=math.inf), TailRule.EXACT, rate_per_s, kept),
        surrogate=_pair(replace(replica, max_wait_s=0.0), TailRule.EXPONENTIAL, rate_per_s, kept),
        unstable_below=kept[0],
    )


def _pair(
    replica: DynamicReplica, rule: TailRule, rate_per_s: float, batches: tuple[int, ...]
) -> Pair:
    model = model_for(replica, rule)
    answers = [
        model.sojourn(OperatingPoint(replace(replica, max_batch=b), rate_per_s), (0.99,))
        for b in batches
    ]
    return Pair(
        np.array([one.latency.mean_s for one in answers]),
        np.array([one.latency.quantile_s(0.99) for one in answers]),
    )


@dataclass(frozen=True)
class FitPicture:
    """Measured batch times, the line through them, and how far off it is.

    Attributes:
        batches, seconds: measured, (n,).
        law: the line fitted.
        tolerance: relative error it is accepted with.
        label: what the seconds are.
    """

    name: str
    batches: FloatArray
    seconds: FloatArray
    law: LinearServiceTime
    tolerance: float
    label: str

    @property
    def residuals(self) -> FloatArray:
        """Relative, fitted / measured - 1, (n,)."""
        return service_time.service_s(self.law, self.batches) / self.seconds - 1
