"""Step time of a continuous-batching engine from (concurrency, ITL, TTFT) rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sojourn.errors import FitRefused, ModelDomainError
from sojourn.facts.service_time import IterationTime
from sojourn.model import fit
from sojourn.model.domain import positive


@dataclass(frozen=True)
class ContinuousFit:
    """A fitted step time, judged on the inter-token latencies it was fitted to.

    Attributes:
        iteration: a, b and p of h = a + b n + p (prompt tokens of the step).
        r_squared: of the latencies against concurrency; reported, gates nothing.
        max_relative_error: the worst row's.
        worst_concurrency: where that is.
        is_valid: the worst error is within 15 %, or the tolerance where that is wider.
    """

    iteration: IterationTime
    r_squared: float
    max_relative_error: float
    worst_concurrency: float
    is_valid: bool


def fit_continuous(
    concurrency: npt.ArrayLike,
    itl_s: npt.ArrayLike,
    ttft_s: npt.ArrayLike,
    tokens: tuple[float, float],
    *,
    tolerance: float = fit.DENSE_TOLERANCE,
) -> ContinuousFit:
    """The step time behind a concurrency sweep.

    With n requests of P prompt and O output tokens in a closed loop a step prefills n P / O tokens
    on average, so ITL(n) = a + (b + p P / O) n: the line of least relative error gives a and the
    slope. The first token at the lowest concurrency takes about a + p P, which gives p; no more of
    the slope than there is goes to prefills, so b is not negative.

    Args:
        concurrency: requests in service, (n,), at least two different ones.
        itl_s: mean seconds between tokens, (n,).
        ttft_s: mean seconds to the first token, (n,); rows without queueing.
        tokens: mean prompt and output tokens of a request.

    Raises:
        FitRefused: concurrency does not vary, or ITL falls with it beyond what a line can follow.
        ModelDomainError: a value that is not positive.

    Source: docs/explanation/queueing.md, continuous batching.
    """
    prompt, output = tokens
    if not (prompt > 0 and output > 0):
        raise ModelDomainError("tokens", tokens, "prompt and output more than 0")
    line = fit.fit(concurrency, itl_s, tolerance=tolerance)
    sizes = positive("concurrency", concurrency)
    first = positive("time to first token", ttft_s)
    if first.shape != sizes.shape:
        raise FitRefused(f"{first.size} times to first token for {sizes.size} concurrencies")
    fixed_s, slope_s = line.law.fixed_s, line.law.per_request_s
    alone = float(first[int(np.argmin(sizes))])
    prefill_s = min(max(0.0, alone - fixed_s) / prompt, slope_s * output / prompt)
    return ContinuousFit(
        iteration=IterationTime(
            fixed_s=fixed_s,
            per_request_s=max(0.0, slope_s - prefill_s * prompt / output),
            per_prompt_token_s=prefill_s,
        ),
        r_squared=line.r_squared,
        max_relative_error=line.max_relative_error,
        worst_concurrency=line.worst_batch,
        is_valid=line.is_valid,
    )
