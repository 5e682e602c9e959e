"""GPUs by name: catalogue name, alias, node label value, MIG slice, time-sliced share."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache, lru_cache

from sojourn.catalogue import names as spelling
from sojourn.catalogue import records
from sojourn.errors import GpuUnknown
from sojourn.facts.gpu import Gpu

_MIG = re.compile(r"^(?P<card>.+?)[-_ ]mig[-_ ](?P<profile>\d+g\.\d+gb(?:[.+]me)?)$", re.IGNORECASE)
_SHARED = re.compile(r"-shared$", re.IGNORECASE)
_SLICES = 7  # compute slices of a whole card; A30 has 4


@lru_cache(maxsize=4096)
def find(name: str) -> Gpu:
    """The card, or the slice of one, a name stands for.

    Understands catalogue names, aliases, values of ``nvidia.com/gpu.product`` with ``-MIG-1g.10gb``
    and ``-SHARED``, and GKE's ``nvidia-l4``. A shared card keeps the memory of the whole one:
    time-slicing divides nothing, so ``shared`` is set and the caller divides by the replicas.

    Raises:
        GpuUnknown: with the three nearest names.
    """
    bare = _SHARED.sub("", name.strip())
    if bare != name.strip():
        return replace(find(bare), shared=True)
    slice_of = _MIG.match(bare)
    if slice_of is not None:
        return _slice(name, slice_of["card"], slice_of["profile"])
    exact, loose = _tables()
    index = exact.get(bare.lower(), loose.get(spelling.gpu_key(bare)))
    if index is None:
        raise GpuUnknown(name, spelling.nearest(name, names()))
    return _gpu(index)


def names() -> tuple[str, ...]:
    """Every catalogue name, in the catalogue's order."""
    return tuple(record["name"] for record in _records())


@cache
def every() -> tuple[Gpu, ...]:
    """Every whole card, by memory and then by name: what a remedy may choose from."""
    cards = (_gpu(index) for index in range(len(_records())))
    return tuple(sorted(cards, key=lambda card: (card.memory_bytes, card.name)))


def search(text: str) -> list[Gpu]:
    """Cards whose name, alias or label contains every word of ``text``; all when it is empty."""
    words = text.lower().split()
    found = []
    for index, record in enumerate(_records()):
        haystack = " ".join([*_names_of(record)]).lower()
        if all(word in haystack for word in words):
            found.append(_gpu(index))
    return found


def mig_profiles(name: str) -> tuple[str, ...]:
    """MIG profiles of a card, ``1g.10gb`` and so on; empty when it has none.

    Raises:
        GpuUnknown: with the three nearest names.
    """
    return tuple(row[0] for row in _record_of(find(name).name).get("mig", ()))


def _records() -> list[records.Record]:
    entries: list[records.Record] = records.read("gpus.json")["gpus"]
    return entries


def _record_of(name: str) -> records.Record:
    return next(record for record in _records() if record["name"] == name)


def _names_of(record: records.Record) -> tuple[str, ...]:
    return (record["name"], *record.get("aliases", ()), *record.get("labels", ()))


@lru_cache(maxsize=256)
def _gpu(index: int) -> Gpu:
    return records.gpu(_records()[index])


@cache
def _tables() -> tuple[dict[str, int], dict[str, int]]:
    """Names as written in lower case, and without vendor words and separators."""
    exact: dict[str, int] = {}
    loose: dict[str, int] = {}
    for index, record in enumerate(_records()):
        # GKE's nvidia-tesla-a100 is the 40 GB card; a bare "A100" could be either, so these names
        # count only as written.
        for name in record.get("accelerators", ()):
            exact[name] = index
        for name in _names_of(record):
            exact.setdefault(name.lower(), index)
            loose.setdefault(spelling.gpu_key(name), index)
    return exact, loose


def _slice(name: str, card_name: str, profile: str) -> Gpu:
    card = find(card_name)
    wanted = profile.lower().replace(".me", "+me")
    for row in _record_of(card.name).get("mig", ()):
        if row[0].lower() == wanted:
            return _sliced(card, *row)
    known = [f"{card.name}-MIG-{row[0]}" for row in _record_of(card.name).get("mig", ())]
    raise GpuUnknown(name, spelling.nearest(name, known))


def _sliced(card: Gpu, profile: str, resource: str, memory_bytes: float) -> Gpu:
    """A MIG slice: its own memory, its share of compute, bandwidth in proportion to memory."""
    slices = 4 if card.name == "A30" else _SLICES
    compute = min(1.0, int(profile.split("g", 1)[0]) / slices)
    memory = min(1.0, memory_bytes / card.memory_bytes)
    return replace(
        card,
        name=f"{card.name}-MIG-{profile}",
        memory_bytes=float(memory_bytes),
        bandwidth_bytes_per_s=_times(card.bandwidth_bytes_per_s, memory),
        dense_fp16_flop_per_s=_times(card.dense_fp16_flop_per_s, compute),
        dense_fp8_flop_per_s=_times(card.dense_fp8_flop_per_s, compute),
        price_per_hour_usd=_times(card.price_per_hour_usd, memory),
        product_labels=tuple(f"{label}-MIG-{profile}" for label in card.product_labels),
        resource=resource,
        source=f"{card.source}; slice size from the vendor's profile list, scaled as the card's",
    )


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
