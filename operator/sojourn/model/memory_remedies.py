"""What would fit in place of a configuration that does not: the nearest valid values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sojourn.errors import ModelDomainError
from sojourn.facts.declaration import KvLayout
from sojourn.facts.gpu import Gpu
from sojourn.facts.memory import Fit, Footprint
from sojourn.model import memory, weights

_MOST_RANKS = 64
_LIGHTER = ("fp8", "int8", "int4")
_GPUS_NAMED = 3


@dataclass(frozen=True)
class Remedies:
    """Changes each of which alone makes the configuration fit; None or empty: that one cannot.

    Attributes:
        tensor_parallel: smallest larger power of two.
        precision: the most precise lighter one.
        gpus: cards, cheapest first.
        max_length_tokens: longest request.
        max_batch: largest max batch.
    """

    tensor_parallel: int | None = None
    precision: str | None = None
    gpus: tuple[str, ...] = ()
    max_length_tokens: int | None = None
    max_batch: int | None = None

    def text(self) -> str:
        """The remedies as one sentence; empty when there is none.

        >>> Remedies(tensor_parallel=8, gpus=("A100-80GB",)).text()
        'Use 8 GPUs (tensorParallel: 8), or A100-80GB.'
        """
        options = []
        if self.tensor_parallel is not None:
            options.append(f"{self.tensor_parallel} GPUs (tensorParallel: {self.tensor_parallel})")
        if self.precision is not None:
            options.append(f"weights in {self.precision}")
        if self.max_length_tokens is not None:
            options.append(f"maxLength {self.max_length_tokens}")
        if self.max_batch is not None:
            options.append(f"max batch {self.max_batch}")
        options.extend(self.gpus)
        if not options:
            return ""
        *rest, last = options
        return f"Use {', '.join(rest)}, or {last}." if rest else f"Use {last}."


def remedies(footprint: Footprint, cards: Sequence[Gpu]) -> Remedies:
    """Nearest valid values of a footprint that does not fit, or is too close to call.

    Args:
        cards: the GPU types a user may choose from (the catalogue's, or the cluster's).

    Raises:
        ModelDomainError: as ``memory.answer`` raises for the footprint itself, except for heads
            or vocabulary that tensorParallel does not divide.
    """
    return Remedies(
        tensor_parallel=smallest_tensor_parallel(footprint),
        precision=lighter_precision(footprint),
        gpus=smallest_gpus(footprint, cards),
        max_length_tokens=largest_max_length(footprint),
        max_batch=largest_max_batch(footprint),
    )


def smallest_tensor_parallel(footprint: Footprint) -> int | None:
    """Smallest larger power of two that fits and divides heads and vocabulary."""
    ranks = 1
    while ranks <= _MOST_RANKS:
        wider = replace(footprint, tensor_parallel=ranks)
        if ranks > footprint.tensor_parallel and _fits(wider):
            return ranks
        ranks *= 2
    return None


def lighter_precision(footprint: Footprint) -> str | None:
    """The most precise lighter weights that fit; fp8 on cards that compute in it, else int8."""
    own = footprint.precision or footprint.architecture.precision
    native = footprint.gpu.dense_fp8_flop_per_s is not None
    skipped = "int8" if native else "fp8"
    for precision in _LIGHTER:
        lighter = weights.value_bytes(precision) < weights.value_bytes(own)
        if precision != skipped and lighter and _fits(replace(footprint, precision=precision)):
            return precision
    return None


def smallest_gpus(footprint: Footprint, cards: Sequence[Gpu]) -> tuple[str, ...]:
    """Up to three cards of the same vendor that fit in the same number.

    The cheapest first; after all that have a price, the smallest.
    """
    own = footprint.gpu
    larger = [card for card in cards if card.memory_bytes > own.memory_bytes]
    same = [card for card in larger if card.resource == own.resource]
    fitting = [card for card in same if _fits(replace(footprint, gpu=card))]
    fitting.sort(key=lambda card: (card.price_per_hour_usd or math.inf, card.memory_bytes))
    return tuple(card.name for card in fitting[:_GPUS_NAMED])


def largest_max_length(footprint: Footprint) -> int | None:
    """Longest request that fits, if shorter than the one judged; None when none does."""
    judged = footprint.max_length_tokens or footprint.architecture.max_length_tokens
    length = _largest(judged, lambda tokens: _fits(replace(footprint, max_length_tokens=tokens)))
    return None if length in (0, judged) else length


def largest_max_batch(footprint: Footprint) -> int | None:
    """Largest max batch below the declared one that starts and, contiguous, that runs.

    One that fits beyond doubt if there is any, else one that is too close to call. None when the
    declared one does, or when not even one request fits.
    """
    declared = footprint.max_batch or memory.effective_max_batch(footprint)
    for allowed in ((Fit.FITS,), (Fit.FITS, Fit.TOO_CLOSE)):
        batch = _largest(declared, partial(_holds, footprint, allowed))
        if batch:
            return None if batch == declared else batch
    return None


def _holds(footprint: Footprint, allowed: tuple[Fit, ...], batch: int) -> bool:
    """Starts, and a contiguous cache has room for every request of the batch."""
    asked = replace(footprint, max_batch=batch)
    try:
        answer = memory.answer(asked)
    except ModelDomainError:
        return False
    room = footprint.kv_layout is KvLayout.PAGED or answer.max_concurrent >= batch
    return answer.fit in allowed and room


def _fits(footprint: Footprint) -> bool:
    try:
        return memory.answer(footprint).fit is Fit.FITS
    except ModelDomainError:
        return False


def _largest(most: int, good: Callable[[int], bool]) -> int:
    """Largest value of 1..most that is good, 0 if none; good must be monotone."""
    if good(most):
        return most
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        if good(middle):
            low = middle
        else:
            high = middle
    return low
