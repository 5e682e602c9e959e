"""How long a batch takes: the service-time laws a replica may follow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LinearServiceTime:
    """T_svc(B) = T_fixed + t_req B, in seconds for a batch of B requests.

    Attributes:
        fixed_s: T_fixed, paid once a batch whatever its size.
        per_request_s: t_req, added by each request of the batch.
        scv: squared coefficient of variation of the batch's time; 0 is deterministic.

    Source: S2 of the theory; docs/explanation/queueing.md.
    """

    fixed_s: float
    per_request_s: float
    scv: float = 0.0


@dataclass(frozen=True)
class MeasuredServiceTime:
    """Measured batch times, joined by straight lines and non-decreasing.

    Attributes:
        batches: batch sizes measured, increasing, at least one.
        batch_s: seconds a batch of that size took, same length, non-decreasing.
        scv: squared coefficient of variation of the batch's time; 0 is deterministic.
    """

    batches: tuple[int, ...]
    batch_s: tuple[float, ...]
    scv: float = 0.0


BatchServiceTime = LinearServiceTime | MeasuredServiceTime
"""Law of a batch that starts and ends together (dynamic batching)."""


@dataclass(frozen=True)
class IterationTime:
    """Step time of a continuous-batching engine: h = fixed + per_request n (+ prompts of the step).

    Attributes:
        fixed_s: a, seconds a step takes with no request in it.
        per_request_s: b, seconds each decoding request adds to a step.
        per_prompt_token_s: p, seconds one prompt token adds to the step that prefills it.
        per_context_token_s: seconds a resident KV token adds to a step; 0 if unknown.
    """

    fixed_s: float
    per_request_s: float
    per_prompt_token_s: float = 0.0
    per_context_token_s: float = 0.0


@dataclass(frozen=True)
class TokenLengths:
    """Law of a token count per request.

    Attributes:
        mean: mean tokens, > 0.
        scv: squared coefficient of variation; 0 means every request has the mean.
        law: ``fixed``, ``geometric``, ``lognormal`` or ``histogram``.
        values: histogram only: token counts, increasing.
        weights: histogram only: probabilities of the counts, adding up to 1.
    """

    mean: float
    scv: float = 0.0
    law: str = "fixed"
    values: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
