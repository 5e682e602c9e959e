"""A measured service time as its author wrote it (``ServingProfile``)."""

from __future__ import annotations

from dataclasses import dataclass

from sojourn.facts.declaration import ObjectRef
from sojourn.facts.service_time import IterationTime, LinearServiceTime


@dataclass(frozen=True)
class ProfilePoint:
    """One measurement: a batch and the seconds it took."""

    batch: int
    latency_s: float


@dataclass(frozen=True)
class Profile:
    """Service time of one model, GPU, parallelism, engine and request shape.

    At least one of ``points``, ``linear`` and ``iteration`` is there.

    Attributes:
        model: catalogue name or alias.
        gpu_type: catalogue name or alias.
        prompt_tokens: mean of the measured requests; None if unknown.
        output_tokens: mean of the measured requests; None if unknown.
        points: measured batches, by rising batch; empty when a line is given.
        linear: the line as declared; None when points are given.
        iteration: step time of a continuous-batching engine.
    """

    ref: ObjectRef
    model: str
    gpu_type: str
    tensor_parallel: int = 1
    engine: str = "vllm"
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    points: tuple[ProfilePoint, ...] = ()
    linear: LinearServiceTime | None = None
    iteration: IterationTime | None = None
