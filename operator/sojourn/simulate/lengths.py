"""Token lengths drawn from their law, for the simulators."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from sojourn.facts.service_time import TokenLengths

IntArray = npt.NDArray[np.int64]


def draw(lengths: TokenLengths, count: int, rng: np.random.Generator) -> IntArray:
    """Token counts of ``count`` requests, int array (count,), each at least 1.

    The geometric law lives on 1, 2, ... with the given mean (its own variance, ``scv`` is not
    read); the lognormal law is rounded to whole tokens, so its moments are the continuous ones
    within half a token.
    """
    if lengths.law == "histogram":
        drawn = rng.choice(np.asarray(lengths.values), size=count, p=np.asarray(lengths.weights))
    elif lengths.law == "geometric":
        drawn = rng.geometric(min(1.0, 1.0 / max(lengths.mean, 1.0)), count)
    elif lengths.law == "lognormal" and lengths.scv > 0:
        spread = math.log1p(lengths.scv)
        drawn = rng.lognormal(math.log(lengths.mean) - spread / 2, math.sqrt(spread), count)
    else:
        drawn = np.full(count, lengths.mean)
    return np.asarray(np.maximum(1, np.rint(drawn)), dtype=np.int64)
