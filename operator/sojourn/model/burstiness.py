"""Arrivals that are burstier than Poisson: one measured number z, and what it does to a queue.

z is the index of dispersion of arrival counts, variance over mean, in intervals of 15 s; a Poisson
stream has 1. For slots (continuous batching) Hayward's approximation divides slots and load by z;
for a batch server the percentile's excess over what an idle server gives grows z-fold.

Source: docs/explanation/queueing.md, "Bursts"; validated on
traces in docs/benchmarks.md, "Burstiness".
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sojourn.errors import ModelDomainError
from sojourn.facts.replica import DynamicReplica
from sojourn.facts.sojourn import Latency, Sojourn
from sojourn.model import routing, service_time
from sojourn.model.domain import non_negative, positive

# Fewer counts, or fewer arrivals in them, say nothing about dispersion.
LEAST_INTERVALS = 30
LEAST_ARRIVALS = 100

# Above this no load limit protects a percentile: bursts last longer than any queue may.
BEYOND_LIMITS = 10.0


def peakedness(counts: npt.ArrayLike) -> float | None:
    """Z = max(1, variance / mean) of arrival counts in equal intervals, (n,); None if too few.

    Raises:
        ModelDomainError: a negative or NaN count.
    """
    values = non_negative("count", counts)
    if values.size < LEAST_INTERVALS or values.sum() < LEAST_ARRIVALS:
        return None
    return max(1.0, float(values.var(ddof=1) / values.mean()))


def hayward(slots: float, offered: float, z: float) -> tuple[float, float]:
    """(slots, offered load) of the Poisson system that stands in: both divided by z.

    Source: Fredericks (1980), "Congestion in blocking systems", after Hayward.
    """
    peaks = _at_least_one(z)
    return slots / peaks, offered / peaks


def loss(slots: float, offered: float) -> float:
    """Erlang B for a fractional number of slots > 0.

    1/B(m) = 1 + (m/a) / B(m - 1) from the fractional part up; there
    1/B(x) = a integral of e^(-a t) (1 + t)^x dt.
    """
    positive("slots", slots)
    positive("offered load", offered)
    whole = math.floor(slots)
    part = slots - whole
    inverse = 1.0
    if part > 0:
        # Gauss-Laguerre in u = a t: the integrand (1 + u / a)^x is smooth for 0 < x < 1 after the
        # first node unless a is tiny, where the loss is near 1 whatever its digits.
        nodes, weights = np.polynomial.laguerre.laggauss(40)
        inverse = float(weights @ (1 + nodes / offered) ** part)
    for m in range(1, whole + 1):
        inverse = 1 + inverse * (m + part) / offered
        if math.isinf(inverse):
            return 0.0
    return 1 / inverse


def mean_wait_s(slots: float, offered: float, service_s: float, z: float) -> float:
    """Mean wait for one of ``slots`` slots held ``service_s`` each, offered load in slots.

    Erlang C at Hayward's m/z and a/z; inf at load 1 and above.
    """
    if offered >= slots:
        return math.inf
    if offered == 0:
        return 0.0
    few, small = hayward(slots, offered, z)
    blocked = loss(few, small)
    late = blocked / (1 - small / few * (1 - blocked))
    return late * service_s / (few - small)


def slots_needed(offered: float, service_s: float, z: float, wait_s: float) -> int:
    """Least whole number of slots whose mean wait is at most ``wait_s``."""
    low, high = math.floor(offered), math.floor(offered) + 1
    while mean_wait_s(high, offered, service_s, z) > wait_s:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if mean_wait_s(middle, offered, service_s, z) > wait_s:
            low = middle
        else:
            high = middle
    return high


def with_bursts(answer: Sojourn, replica: DynamicReplica, rate_per_s: float, z: float) -> Sojourn:
    """A batch server's answer for Poisson arrivals, moved to arrivals of dispersion z.

    Q0 + z (Q - Q0), with Q0 = min(Q, 2 s_b), b the batch that gathers in its own service; s_1 for
    B = 1. Batching absorbs bursts up to that batch, so only the excess grows.

    Args:
        answer: Poisson's, of one replica or of random splitting.
        replica: the batch server.
        rate_per_s: rate of one replica.
        z: index of dispersion; 1 and below leave the answer as it is.
    """
    peaks = _at_least_one(z)
    if peaks == 1 or not math.isfinite(answer.latency.mean_s):
        return answer
    floor_s = absorbed_s(replica, rate_per_s)
    quantiles = tuple(
        (q, _moved(seconds, floor_s, peaks)) for q, seconds in answer.latency.quantiles_s
    )
    mean_s = _moved(answer.latency.mean_s, floor_s, peaks)
    notes: tuple[str, ...] = (f"arrivals {peaks:.1f} times as variable as Poisson: corrected",)
    if peaks > BEYOND_LIMITS:
        notes += (
            f"dispersion {peaks:.0f} is above {BEYOND_LIMITS:.0f}: no load limit protects P99",
        )
    return replace(
        answer,
        latency=Latency(mean_s, quantiles),
        queue_wait_s=answer.queue_wait_s + mean_s - answer.latency.mean_s,
        in_system=answer.throughput_per_s * mean_s,
        warnings=answer.warnings + notes,
    )


def absorbed_s(replica: DynamicReplica, rate_per_s: float) -> float:
    """Latency that bursts do not raise: two services of the self-regulated batch, one for B = 1."""
    if replica.max_batch == 1:
        return float(service_time.service_s(replica.service, 1))
    batch = routing.self_regulated_batch(replica, rate_per_s)
    return 2 * float(service_time.service_s(replica.service, batch))


def _moved(seconds: float, floor_s: float, z: float) -> float:
    low_s = min(seconds, floor_s)
    return low_s + z * (seconds - low_s)


def _at_least_one(z: float) -> float:
    if not z >= 0:
        raise ModelDomainError("index of dispersion", z, "0 or more")
    return max(1.0, z)
