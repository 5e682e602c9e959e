"""Erlang's formulas and the M/M/c/K queue: cross-checks and the one-by-one shared queue (S1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sojourn.errors import ModelDomainError
from sojourn.model.domain import FloatArray


def loss(servers: int, offered: float) -> float:
    """Erlang B(c, a): share of arrivals lost with c servers and no waiting places, a in erlangs.

    >>> round(loss(10, 5.0), 7)
    0.0183846
    """
    _check(servers, offered)
    inverse = 1.0
    # The recurrence on 1/B only adds and multiplies positive terms: no factorial, and no overflow
    # before the loss itself is below any float.
    for c in range(1, servers + 1):
        if offered == 0 or math.isinf(inverse):
            return 0.0
        inverse = 1 + inverse * c / offered
    return 1 / inverse


def delay(servers: int, offered: float) -> float:
    """Erlang C(c, a): share of arrivals that wait for one of c servers; 1 at load 1 and above.

    >>> round(delay(10, 8.0), 6)
    0.40918
    """
    if offered >= servers:
        return 1.0
    blocked = loss(servers, offered)
    return blocked / (1 - offered / servers * (1 - blocked))


@dataclass(frozen=True)
class FiniteQueue:
    """M/M/c/K: blocking, and the mean response of accepted requests.

    Attributes:
        blocking: share of arrivals lost.
        latency_mean_s: mean response of accepted requests.
        states: P(n in system), n = 0..c+K, float array.
    """

    blocking: float
    latency_mean_s: float
    states: FloatArray


def finite_queue(rate_per_s: float, service_s: float, servers: int, places: int) -> FiniteQueue:
    """M/M/c with ``places`` waiting places, stable at any load.

    Args:
        rate_per_s: total arrival rate.
        service_s: mean service time.
        servers: c.
        places: waiting places; requests in service do not count.
    """
    offered = rate_per_s * service_s
    _check(servers, offered)
    if offered == 0:
        return FiniteQueue(0.0, service_s, np.eye(1, servers + places + 1)[0])
    busy = np.minimum(np.arange(1, servers + places + 1), servers)
    logs = np.concatenate(([0.0], np.cumsum(math.log(offered) - np.log(busy))))
    weights = np.exp(logs - logs.max())
    states = weights / weights.sum()
    blocking = float(states[-1])
    served = rate_per_s * float(states[:-1].sum())
    in_system = float(np.arange(states.size) @ states)
    return FiniteQueue(blocking, in_system / served, states)


def _check(servers: int, offered: float) -> None:
    if servers < 1:
        raise ModelDomainError("servers", float(servers), "a whole number, 1 or more")
    if not offered >= 0:
        raise ModelDomainError("offered load", offered, "0 or more")
