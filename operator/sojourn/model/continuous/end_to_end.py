"""End-to-end latency: time to first token plus decoding time, class by class.

The sum has a hundred thousand atoms, of which a quantile needs those around it. A row is a class
and an output length; rows that lie on one side of the quantile count with their weight only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sojourn.model.continuous import cells
from sojourn.model.continuous.decoding import Decoded
from sojourn.model.continuous.first_token import FirstToken
from sojourn.model.continuous.steps import Law
from sojourn.model.domain import FloatArray

_FEW = np.array([0.0, 0.5, 0.9, 1.0])
_MANY = np.array([0.0, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99, 1.0])
_QUEUE = cells.tail_edges(18, 13, 1e-4)

# A first token of more than this share of the decoding time is worth more nodes.
_LARGE = 0.05

_LEAST_WEIGHT = 1e-9

# Around the first guess atoms are enumerated; further out when the quantile is not there.
_NEAR, _WIDER = 0.04, 4.0


@dataclass(frozen=True, eq=False)
class Block:
    """Classes whose first tokens have equally many nodes, with the ends of their rows.

    Attributes:
        firsts_s: first tokens, rising, (g, n).
        cuts: their probabilities, (n,).
        seconds: decoding, (g, m, k).
        weights: of a class, (g,).
    """

    firsts_s: FloatArray
    cuts: FloatArray
    seconds: FloatArray
    weights: FloatArray


def quantiles_s(first: FirstToken, decoded: Decoded, levels: Sequence[float]) -> list[float]:
    """Seconds at probabilities ``levels``, each strictly between 0 and 1."""
    if not levels:
        return []
    parts = blocks(first, decoded)
    lengths = decoded.pairs.sum(1)
    low_s = np.concatenate([(b.seconds[:, :, 0] + b.firsts_s[:, :1]).ravel() for b in parts])
    high_s = np.concatenate([(b.seconds[:, :, -1] + b.firsts_s[:, -1:]).ravel() for b in parts])
    mass = np.concatenate([(b.weights[:, None] * lengths).ravel() for b in parts])
    nodes = decoded.pairs.sum(0) / decoded.pairs.sum()
    means_s = [b.seconds @ nodes + (b.firsts_s @ b.cuts)[:, None] for b in parts]
    guesses = cells.quantiles(np.concatenate([one.ravel() for one in means_s]), mass, levels)
    found = []
    for level, guess_s in zip(levels, guesses, strict=True):
        near = _NEAR
        while True:
            window = (guess_s / (1 + near), guess_s * (1 + near))
            below = float(mass[high_s < window[0]].sum())
            rows = (high_s >= window[0]) & (low_s <= window[1])
            seconds = _within(parts, decoded.pairs, rows, window, level * mass.sum() - below)
            if seconds is not None:
                break
            near *= _WIDER
        found.append(seconds)
    return found


def _within(
    parts: Sequence[Block],
    pairs: FloatArray,
    rows: np.ndarray,
    window: tuple[float, float],
    mass: float,
) -> float | None:
    """Where the weight of atoms of ``rows`` reaches ``mass``; None if outside the window."""
    values, weights, at = [], [], 0
    for block in parts:
        size = block.weights.size * pairs.shape[0]
        group, length = np.nonzero(rows[at : at + size].reshape(-1, pairs.shape[0]))
        at += size
        summed = block.firsts_s[group][:, :, None] + block.seconds[group, length][:, None, :]
        shared = block.weights[group, None] * pairs[length]
        values.append(summed.ravel())
        weights.append((block.cuts[:, None] * shared[:, None, :]).ravel())
    value, weight = np.concatenate(values), np.concatenate(weights)
    inside = (value >= window[0]) & (value <= window[1])
    before = mass - float(weight[value < window[0]].sum())
    everything = bool(rows.all() and inside.all())
    near_s, middles = cells.in_order(value[inside], weight[inside])
    if not everything and not (middles.size and middles[0] <= before <= middles[-1]):
        return None
    return float(np.interp(before, middles, near_s))


def blocks(first: FirstToken, decoded: Decoded) -> list[Block]:
    """The classes of arrivals, those with equally many nodes of the first token together."""
    usual_s = decoded.mean_s()
    kinds: dict[int, list[int]] = {}
    edges = (_FEW, _MANY, _QUEUE)
    for i, one in enumerate(first.found):
        if one.weight < _LEAST_WEIGHT:
            continue
        large = one.first_token.mean_s > _LARGE * usual_s
        kinds.setdefault(2 if one.full else int(large), []).append(i)
    found = []
    for kind, members in kinds.items():
        laws = [first.found[i].first_token for i in members]
        nodes = _condensed(laws, edges[kind])
        found.append(
            Block(nodes, np.diff(edges[kind]), decoded.seconds[members], decoded.shares[members])
        )
    return found


def _condensed(laws: Sequence[Law], edges: FloatArray) -> FloatArray:
    """Conditional means of the cells between ``edges``, (laws, cells); equal laws once."""
    unique = {id(law): law.atoms() for law in laws}
    nodes = cells.condense_many([(one.values_s, one.weights) for one in unique.values()], edges)
    at = {key: i for i, key in enumerate(unique)}
    return nodes[[at[id(law)] for law in laws]]
