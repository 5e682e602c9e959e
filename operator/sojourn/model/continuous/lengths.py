"""A law of token counts as a few nodes with weights, finer in its tail."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from sojourn.errors import ModelDomainError
from sojourn.facts.service_time import TokenLengths
from sojourn.model.domain import FloatArray, non_negative

_BODY_CELLS = 70
_TAIL_CELLS = 30
# No percentile of use (50, 90, 95, 99, 99.5, 99.9) lies next to the edge of a cell: where little
# else varies, rounding would decide on which side of the gap between two lengths it is read.
_TAIL_STARTS = 0.905
_TAIL_ENDS = 3.7e-5


@dataclass(frozen=True, eq=False)
class LengthNodes:
    """A token-count law for integration.

    Attributes:
        tokens: counts, rising, float array (m,).
        weights: their probabilities, float array (m,), adding up to 1.
        mean: E[l].
        scv: squared coefficient of variation.
        overlap: E[min(l, l')] / E[l] of two independent requests: 1 for a fixed length, 1/2 for a
            geometric one. The share of a burst's size that is still felt when its members leave.
    """

    tokens: FloatArray
    weights: FloatArray
    mean: float
    scv: float
    overlap: float

    def at_most(self, probability: float, further: int = 0) -> float:
        """Tokens that a share of the requests does not exceed, or so many nodes further."""
        reached = int(np.searchsorted(np.cumsum(self.weights), probability - 1e-12))
        return float(self.tokens[min(reached + further, self.tokens.size - 1)])


@lru_cache(maxsize=1024)
def nodes(law: TokenLengths) -> LengthNodes:
    """Nodes of a law.

    Cells of equal probability up to the 90th percentile, geometrically finer beyond, each
    represented by its conditional mean.

    Raises:
        ModelDomainError: mean below 1 token, negative variation, unknown law, empty histogram.
    """
    if law.law == "histogram":
        return _histogram(law)
    if not law.mean >= 1 or not math.isfinite(law.mean):
        raise ModelDomainError("mean output tokens", law.mean, "a finite number, 1 or more")
    scv = float(non_negative("scv of the output tokens", law.scv))
    if law.law == "geometric":
        tokens, weights = _geometric(law.mean)
        scv = 1 - 1 / law.mean
    elif law.law == "lognormal":
        tokens, weights = _lognormal(law.mean, scv)
    elif law.law == "fixed":
        tokens, weights, scv = np.array([law.mean]), np.ones(1), 0.0
    else:
        raise ModelDomainError(
            "law of the output tokens", law.law, "fixed, geometric, lognormal or histogram"
        )
    return LengthNodes(tokens, weights, law.mean, scv, _overlap(tokens, weights))


def _histogram(law: TokenLengths) -> LengthNodes:
    tokens = np.maximum(1.0, np.asarray(law.values, dtype=float))
    weights = np.asarray(law.weights, dtype=float)
    usable = tokens.size == weights.size > 0 and np.all(weights >= 0) and weights.sum() > 0
    if not usable:
        raise ModelDomainError(
            "histogram of the output tokens", law.weights, "one non-negative weight per value"
        )
    weights = weights / weights.sum()
    mean = float(tokens @ weights)
    scv = float(((tokens - mean) ** 2) @ weights) / mean**2
    return LengthNodes(tokens, weights, mean, scv, _overlap(tokens, weights))


def _edges() -> FloatArray:
    body = np.linspace(0, _TAIL_STARTS, _BODY_CELLS + 1)
    tail = 1 - np.geomspace(1 - _TAIL_STARTS, _TAIL_ENDS, _TAIL_CELLS + 1)[1:]
    return np.concatenate([body, tail, [1.0]])


def _geometric(mean: float) -> tuple[FloatArray, FloatArray]:
    """Counts 1, 2, ...; cells of the continuous exponential, rounded up to a whole token."""
    if mean == 1:
        return np.ones(1), np.ones(1)
    edges = _edges()
    middle = (edges[1:] + edges[:-1]) / 2
    # The mean of an exponential tail is one e-folding beyond its edge.
    middle[-1] = 1 - (1 - edges[-2]) / math.e
    tokens = np.ceil(np.log1p(-middle) / math.log1p(-1 / mean))
    return np.maximum(1.0, tokens), np.diff(edges)


def _lognormal(mean: float, scv: float) -> tuple[FloatArray, FloatArray]:
    """Conditional means of the cells, exact for the continuous law; at least one token."""
    if scv == 0:
        return np.array([mean]), np.ones(1)
    spread = math.sqrt(math.log1p(scv))
    upper = np.array([_tilted(z, spread) for z in _normal_edges()])
    weights = np.diff(_edges())
    return np.maximum(1.0, mean * np.diff(upper) / weights), weights


@lru_cache(maxsize=1)
def _normal_edges() -> tuple[float, ...]:
    normal = NormalDist()
    inner = [normal.inv_cdf(level) for level in _edges()[1:-1].tolist()]
    return (-math.inf, *inner, math.inf)


def _tilted(z: float, spread: float) -> float:
    """P(N(spread, 1) <= z): the share of the mean below a lognormal's quantile."""
    return 0.5 * math.erfc(-(z - spread) / math.sqrt(2))


def _overlap(tokens: FloatArray, weights: FloatArray) -> float:
    beyond = np.cumsum(weights[::-1])[::-1]
    after = np.append(beyond[1:], 0.0)
    return float(tokens @ (beyond**2 - after**2)) / float(tokens @ weights)
