"""The law drawn through the points, judged, and written as a ServingProfile (S11, step 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sojourn.cli.exits import UsageError
from sojourn.cli.profiling.points import Point
from sojourn.facts.fit import ServiceTimeFit
from sojourn.model import fit
from sojourn.units import format_duration

STEP, BATCH = "a step of decoding", "a batch"


@dataclass(frozen=True)
class Identity:
    """What was measured: names for the profile.

    Attributes:
        experts: a mixture of experts, whose time is no line: twice the tolerance.
        dynamic: batches start and end together, whatever was streamed.
    """

    name: str
    model: str
    gpu: str
    tensor_parallel: int = 1
    engine: str = "vllm"
    experts: bool = False
    dynamic: bool = False


@dataclass(frozen=True)
class Fitted:
    """A fit of the points.

    Attributes:
        of: what the line is the time of: ``STEP`` or ``BATCH``.
        batches, seconds: the points it was drawn through, (n,).
        per_prompt_token_s: of a step that takes in prompts; None for batches.
    """

    identity: Identity
    points: tuple[Point, ...]
    of: str
    batches: tuple[float, ...]
    seconds: tuple[float, ...]
    judged: ServiceTimeFit
    per_prompt_token_s: float | None

    @property
    def usable(self) -> bool:
        """The line is near enough to size with."""
        return self.judged.is_valid


@dataclass(frozen=True)
class Gathering:
    """What a dynamic batcher waits before it starts a batch.

    Attributes:
        max_wait_s: T_max, taken from the time of every batch that waited it out.
        full_batch: batch that starts at once because it is full; None if none of them is.
    """

    max_wait_s: float = 0.0
    full_batch: int | None = None

    def wait_s(self, batch: float) -> float:
        """Seconds a batch of that size waited."""
        full = self.full_batch is not None and batch >= self.full_batch
        return 0.0 if full else self.max_wait_s


NO_WAIT = Gathering()


def fitted(points: Sequence[Point], identity: Identity, gathering: Gathering = NO_WAIT) -> Fitted:
    """The line of least maximum relative error.

    Streamed points of a continuous batch give the time of a step, the rest that of a batch.

    Args:
        gathering: what a dynamic batcher waits for a batch to fill.

    Raises:
        UsageError: fewer than two batch sizes, or a wait longer than what was measured.
        FitRefused: no line with non-negative parts is near.
    """
    ordered = sorted(points, key=lambda point: point.batch)
    if len({point.batch for point in ordered}) < 2:
        raise UsageError(
            f"{len(ordered)} batch size measured: a line needs two, and three show whether it is "
            "one; measure 1, 8 and 32"
        )
    tolerance = fit.OTHER_TOLERANCE if identity.experts else fit.DENSE_TOLERANCE
    streamed = not identity.dynamic and _all_streamed(ordered)
    seconds = _steps_s(ordered) if streamed else _batches_s(ordered, gathering)
    if min(seconds) <= 0:
        wait = format_duration(gathering.max_wait_s)
        raise UsageError(f"--max-wait {wait} is longer than a measured batch")
    batches = [point.batch for point in ordered]
    judged = fit.fit(batches, seconds, tolerance=tolerance)
    return Fitted(
        identity,
        tuple(ordered),
        STEP if streamed else BATCH,
        tuple(batches),
        tuple(seconds),
        judged,
        _prompt_token_s(ordered, judged) if streamed else None,
    )


def _all_streamed(points: Sequence[Point]) -> bool:
    return all(point.output_token_s is not None and point.output_token_s > 0 for point in points)


def _steps_s(points: Sequence[Point]) -> list[float]:
    return [point.output_token_s or 0.0 for point in points]


def _batches_s(points: Sequence[Point], gathering: Gathering) -> list[float]:
    """Seconds in service: without what the batch waited to fill."""
    return [point.latency_s - gathering.wait_s(point.batch) for point in points]


def _prompt_token_s(points: Sequence[Point], judged: ServiceTimeFit) -> float:
    """What a prompt token adds to its step: the time to first token of the least batch tells.

    A lone request's first step takes in its prompt: TTFT = a + p x prompt tokens.
    """
    least = points[0]
    if least.first_token_s is None or not least.prompt_tokens:
        return 0.0
    return max(0.0, (least.first_token_s - judged.law.fixed_s) / least.prompt_tokens)


def manifest(found: Fitted) -> dict[str, Any]:
    """The ServingProfile."""
    identity, law = found.identity, found.judged.law
    spec: dict[str, Any] = {
        "model": identity.model,
        "gpu": {"type": identity.gpu, "tensorParallel": identity.tensor_parallel},
        "engine": identity.engine,
    }
    for field, values in (
        ("promptTokens", [p.prompt_tokens for p in found.points]),
        ("outputTokens", [p.output_tokens for p in found.points]),
    ):
        known = [value for value in values if value]
        if known:
            spec[field] = max(1, round(float(np.mean(known))))
    if found.of == STEP:
        spec["continuous"] = {
            "iterationFixed": exact_duration(law.fixed_s),
            "iterationPerRequest": exact_duration(law.per_request_s),
            "prefillPerToken": exact_duration(found.per_prompt_token_s or 0.0),
        }
    else:
        spec["points"] = [
            {"batch": round(batch), "latency": exact_duration(seconds)}
            for batch, seconds in zip(found.batches, found.seconds, strict=True)
        ]
    return {
        "apiVersion": "serving.sojourn.dev/v1alpha1",
        "kind": "ServingProfile",
        "metadata": {"name": identity.name},
        "spec": spec,
    }


def exact_duration(seconds: float) -> str:
    """A duration to four significant digits, as the API reads it.

    >>> exact_duration(0.0112345)
    '11.23ms'
    """
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if seconds >= scale:
            return f"{float(f'{seconds / scale:.4g}'):.10g}{unit}"
    return "0s"


def verdicts(found: Fitted) -> list[str]:
    """What to know before this profile is used, one line each."""
    judged, lines = found.judged, []
    error, limit = judged.max_relative_error, judged.tolerance
    if not judged.is_linear:
        lines.append(
            f"not linear: the line is {error:.0%} off at B = {judged.worst_batch:g}, "
            f"{limit:.0%} is accepted"
            + ("" if found.of == BATCH else "; measure more batches near those you run")
            + (
                "; the points are kept as they are and joined by straight lines"
                if found.of == BATCH
                else ""
            )
        )
    if len(set(found.batches)) == 2:
        lines.append("two batches fit any line: a third one would tell whether it is one")
    lines.append(
        f"measured up to B = {judged.largest_batch:g}: beyond {2 * judged.largest_batch:g} it is "
        "extrapolation, 20 % wrong as a rule"
    )
    return lines
