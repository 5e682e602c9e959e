"""Models by name: as published, by alias, without the owner, in any case, tuned or quantised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache

from sojourn.catalogue import names as spelling
from sojourn.catalogue import records
from sojourn.errors import ModelUnknown
from sojourn.facts.architecture import Architecture

_LEVELS = 4  # spellings of names.model_keys


@lru_cache(maxsize=4096)
def find(name: str) -> Architecture:
    """The architecture a name stands for.

    Tried in turn: the published name or an alias, without the owner, without ``-hf``, without a
    tuning suffix (``-Instruct``), and all again without a quantisation suffix (``-AWQ``, ``-FP8``),
    which then sets the precision. A spelling that two different shapes share finds neither.

    Raises:
        ModelUnknown: with the three nearest names.
    """
    found = _by_spelling(name)
    if found is not None:
        return found
    quantised = spelling.split_quantisation(name)
    if quantised is not None:
        base = _by_spelling(quantised[0])
        if base is not None:
            return as_quantised(base, name, quantised[1])
    raise ModelUnknown(name, spelling.nearest(name, names()))


def names() -> tuple[str, ...]:
    """Every catalogue name, in the catalogue's order."""
    return tuple(record["name"] for record in _records())


def search(text: str) -> list[Architecture]:
    """Models whose name or an alias contains every word of ``text``; all when it is empty."""
    words = text.lower().split()
    found = []
    for record in _records():
        haystack = " ".join([record["name"], *record.get("aliases", ())]).lower()
        if all(word in haystack for word in words):
            found.append(find(record["name"]))
    return found


def aliases(name: str) -> tuple[str, ...]:
    """Other published names of a catalogue entry."""
    for record in _records():
        if record["name"] == name:
            return tuple(record.get("aliases", ()))
    return ()


def as_quantised(base: Architecture, name: str, precision: str) -> Architecture:
    """The same shape with weights of another precision, its load size to be computed."""
    source = f"{base.source}; {precision} read from the name"
    return replace(base, name=name, precision=precision, weight_bytes=None, source=source)


def _records() -> list[records.Record]:
    entries: list[records.Record] = records.read("models.json")["models"]
    return entries


def _by_spelling(name: str) -> Architecture | None:
    tables = _tables()
    for level, key in enumerate(spelling.model_keys(name)):
        index = tables[level].get(key)
        if index is not None:
            return _architecture(index)
    return None


@lru_cache(maxsize=1024)
def _architecture(index: int) -> Architecture:
    return records.architecture(_records()[index])


@cache
def _tables() -> tuple[Mapping[str, int | None], ...]:
    """Per level: key to the entry's index, None where entries of different shape share it."""
    entries = _records()
    tables: tuple[dict[str, int | None], ...] = tuple({} for _ in range(_LEVELS))
    for index, record in enumerate(entries):
        for name in (record["name"], *record.get("aliases", ())):
            for table, key in zip(tables, spelling.model_keys(name), strict=True):
                held = table.setdefault(key, index)
                if held is not None and not _same_shape(entries[held], record):
                    table[key] = None
    return tables


def _same_shape(one: records.Record, other: records.Record) -> bool:
    keys = ("layers", "hidden", "vocabulary", "attention", "parameters", "precision", "max_length")
    return all(one.get(key) == other.get(key) for key in keys)
