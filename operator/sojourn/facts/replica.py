"""What one replica is to a queue, and how several of them share the requests."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sojourn.facts.service_time import BatchServiceTime, IterationTime, TokenLengths


class Routing(StrEnum):
    """How requests spread over replicas."""

    RANDOM = "Random"
    ROUND_ROBIN = "RoundRobin"
    LEAST_LOADED = "LeastLoaded"
    SHARED_QUEUE = "SharedQueue"


@dataclass(frozen=True)
class DynamicReplica:
    """A server that collects requests into a batch, runs it to its end, then starts the next.

    Attributes:
        service: law of the batch time.
        max_batch: B, most requests of one batch.
        max_wait_s: T_max, longest the oldest waiting request waits for the batch to fill.
        queue_capacity: K, waiting places; None is unbounded.
    """

    service: BatchServiceTime
    max_batch: int
    max_wait_s: float = 0.0
    queue_capacity: int | None = None


@dataclass(frozen=True)
class ContinuousReplica:
    """A server whose running batch takes requests in and lets them go at every step.

    Attributes:
        iteration: step time.
        output: law of the output tokens (steps of a request, its prompt step included).
        prompt_tokens: mean prompt tokens of a request.
        max_batch: B, most requests running together.
        queue_capacity: K, waiting places; None is unbounded.
        kv_tokens: tokens the KV pool holds; None is unlimited.
        max_batched_tokens: token budget of one step; None is unlimited.
    """

    iteration: IterationTime
    output: TokenLengths
    prompt_tokens: float
    max_batch: int
    queue_capacity: int | None = None
    kv_tokens: float | None = None
    max_batched_tokens: int | None = None


Replica = DynamicReplica | ContinuousReplica


@dataclass(frozen=True)
class OperatingPoint:
    """Replicas of one kind under a load: what a model is asked about.

    Attributes:
        replica: what one of them is.
        rate_per_s: lambda, requests per second over all replicas.
        replicas: c.
        routing: how the requests spread over them.
        dispersion: I, index of dispersion of the arrivals; 1 is Poisson.
    """

    replica: Replica
    rate_per_s: float
    replicas: int = 1
    routing: Routing = Routing.RANDOM
    dispersion: float = 1.0
