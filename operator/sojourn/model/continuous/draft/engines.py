"""Many machines as arrays, and their output lengths on few nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from sojourn.model.continuous import fluctuation
from sojourn.model.continuous.lengths import LengthNodes
from sojourn.model.continuous.machine import Machine
from sojourn.model.domain import FloatArray

# First cells of ``LengthNodes`` of a law with a density that share a node: fine at the short end,
# where the time per output token varies most, and in the tail of long outputs.
_STARTS = np.array(
    [0, 1, 2, 3, 4, 5, 6, 8, 11, 15, 20, 26, 33, 41, 50, 58, 64, 70, 73, 76, 79, 82, 85, 88, 92, 96]
)
LENGTHS = _STARTS.size
_CELLS_OF_A_LAW = 101

# Frequencies and lengths at which the linear response is taken (see ``fluctuation``).
FREQUENCIES = fluctuation.frequencies(40)
SAMPLES = 8

_LAWS = 32


@dataclass(frozen=True, eq=False)
class Engines:
    """What ``Machine`` holds, one replica a row: columns (k, 1) unless stated.

    Attributes:
        fixed_s, per_request_s, prompt_s: a, b and P.
        batch: B.
        budget: prompts that the token budget lets into a step.
        mean, scv, overlap: of the output lengths.
        later: tokens after the first, (k, m).
        width: tokens that a node stands for, (k, m).
        shares: probability of each node, (k, m).
        kernel: F(w) / E[L] of ``fluctuation``, complex (k, w).
        window: weights of the spectrum for the variance of each sample length, (k, s, w).
        samples: those lengths, geometric, (k, s).
    """

    fixed_s: FloatArray
    per_request_s: FloatArray
    prompt_s: FloatArray
    batch: FloatArray
    budget: FloatArray
    mean: FloatArray
    scv: FloatArray
    overlap: FloatArray
    later: FloatArray
    width: FloatArray
    shares: FloatArray
    kernel: npt.NDArray[np.complex128]
    window: FloatArray
    samples: FloatArray

    def take(self, rows: npt.NDArray[np.int64] | slice) -> Engines:
        """Some of the rows."""
        return Engines(*(getattr(self, one.name)[rows] for one in fields(self)))

    def steps_s(self, decoding: FloatArray) -> FloatArray:
        """A step without a prompt, as of ``Machine``, shape of ``decoding`` (k, ...)."""
        return self.fixed_s + self.per_request_s * decoding

    @property
    def full_step_s(self) -> FloatArray:
        """h(B), as of ``Machine``."""
        return self.fixed_s + self.per_request_s * self.batch * (self.mean - 1) / self.mean

    @property
    def entering(self) -> FloatArray:
        """Prompts that enter a step of a full batch, as of ``Machine``."""
        return np.minimum(self.batch / self.mean, self.budget)

    @property
    def capacity_per_s(self) -> FloatArray:
        """D_B, as of ``Machine``."""
        full_s = self.full_step_s
        by_places = self.batch / (self.mean * full_s + self.batch * self.prompt_s)
        by_budget = self.prompt_s + full_s / self.budget
        return np.minimum(by_places, 1 / np.maximum(by_budget, 1e-300))

    @property
    def departure_scv(self) -> FloatArray:
        """v, as of ``Machine``."""
        return self.scv * (1 - self.prompt_s * self.capacity_per_s) ** 2


def engines(machines: Sequence[Machine]) -> Engines:
    """One row a machine."""
    columns = np.array(
        [
            (
                one.fixed_s,
                one.per_request_s,
                one.prompt_s,
                one.max_batch,
                one.prompts_per_budget,
                one.output.mean,
                one.output.scv,
                one.output.overlap,
            )
            for one in machines
        ],
        dtype=float,
    )
    outputs = list(dict.fromkeys(one.output for one in machines))
    places = {id(output): i for i, output in enumerate(outputs)}
    rows = np.array([places[id(one.output)] for one in machines])
    parts = [_laws(outputs[i : i + _LAWS]) for i in range(0, len(outputs), _LAWS)]
    laws = (np.concatenate(some)[rows] for some in zip(*parts, strict=True))
    return Engines(*(columns[:, [i]] for i in range(columns.shape[1])), *laws)


def _laws(outputs: Sequence[LengthNodes]) -> tuple[npt.NDArray[Any], ...]:
    """later, width, shares, kernel, window, samples of several laws."""
    later, width, shares = np.zeros((3, len(outputs), LENGTHS))
    shortest, longest = np.empty((2, len(outputs), 1))
    for i, output in enumerate(outputs):
        tokens, weights = _condensed(output)
        size = tokens.size
        later[i], later[i, :size], shares[i, :size] = tokens[-1] - 1, tokens - 1, weights
        if output.tokens.size > size > 1:
            # Few values stand for themselves.
            middles = (tokens[1:] + tokens[:-1]) / 2
            ends = np.concatenate((tokens[:1], middles, [2 * tokens[-1] - middles[-1]]))
            width[i, :size] = ends[1:] - ends[:-1]
        shortest[i], longest[i] = max(1.0, tokens[0] - 1), max(1.0, tokens[-1] - 1)
    mean = np.maximum((later * shares).sum(axis=1, keepdims=True), 1e-9)
    kernel = fluctuation.response(FREQUENCIES, later / mean, shares)
    ratio = np.log(np.maximum(longest / shortest, 1.0001))
    samples = shortest * np.exp(ratio * np.linspace(0, 1, SAMPLES))
    window = fluctuation.window(FREQUENCIES, samples, mean)
    return later, width, shares, kernel, window, samples


def _condensed(output: LengthNodes) -> tuple[FloatArray, FloatArray]:
    tokens, shares = output.tokens, output.weights
    if tokens.size <= LENGTHS:
        return tokens, shares
    starts = np.unique(_STARTS * tokens.size // _CELLS_OF_A_LAW)
    weights = np.add.reduceat(shares, starts)
    means = np.add.reduceat(shares * tokens, starts) / np.maximum(weights, 1e-300)
    kept = weights > 0
    return means[kept], weights[kept]
