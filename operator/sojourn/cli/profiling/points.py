"""What was measured: one point for each number of requests run together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

_TRIMMED = 0.1


@dataclass(frozen=True)
class Sample:
    """One finished request, seconds.

    Attributes:
        latency_s: from sending it to its last token.
        first_token_s: to its first token; None if it was not streamed.
        gaps_s: between its tokens; empty if it was not streamed.
        prompt_tokens, output_tokens: as the server counted them; None if it did not say.
    """

    latency_s: float
    first_token_s: float | None = None
    gaps_s: tuple[float, ...] = ()
    prompt_tokens: float | None = None
    output_tokens: float | None = None


@dataclass(frozen=True)
class Point:
    """One measurement.

    Attributes:
        batch: requests run together.
        latency_s: mean of a request, end to end.
        first_token_s: mean time to first token; None if unknown.
        output_token_s: time of a step without a prompt in it, the median gap between two tokens;
            None if unknown.
        prompt_tokens, output_tokens: means; None if unknown.
        samples: requests behind it; 0 if unknown.
    """

    batch: float
    latency_s: float
    first_token_s: float | None = None
    output_token_s: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    samples: int = 0


def summarised(batch: int, samples: Sequence[Sample]) -> Point:
    """One point of the samples taken with ``batch`` requests together."""
    gaps = [gap for sample in samples for gap in sample.gaps_s]
    return Point(
        batch=batch,
        latency_s=trimmed_mean([s.latency_s for s in samples]),
        first_token_s=_mean(s.first_token_s for s in samples),
        # A step that takes in a prompt is longer; most steps of a request take none, so the
        # median is a step of decoding alone.
        output_token_s=float(np.median(gaps)) if gaps else None,
        prompt_tokens=_mean(s.prompt_tokens for s in samples),
        output_tokens=_mean(s.output_tokens for s in samples),
        samples=len(samples),
    )


def trimmed_mean(values: Sequence[float]) -> float:
    """Mean without the tenth at either end: one hiccup of the machine must not move the line."""
    ordered = np.sort(np.asarray(values, dtype=float))
    cut = int(_TRIMMED * ordered.size)
    return float(ordered[cut : ordered.size - cut].mean())


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return trimmed_mean(known) if known else None
