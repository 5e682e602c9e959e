"""Engines by name, image or command, from the package's data file."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from sojourn.engines.command import line_of
from sojourn.engines.engine import Engine, Flag, metric_from
from sojourn.engines.surroundings import environment_of
from sojourn.engines.version import parse_version
from sojourn.errors import UnknownName
from sojourn.facts.declaration import Batching


class EngineUnknown(UnknownName):
    """An engine nobody described."""

    kind = "engine"
    remedy = 'use "custom" with spec.metrics.arrivalRateQuery'


@cache
def all_engines() -> Mapping[str, Engine]:
    """Every engine by its name."""
    text = resources.files("sojourn.engines").joinpath("data/engines.json").read_text("utf-8")
    return MappingProxyType({e["name"]: _engine(e) for e in json.loads(text)["engines"]})


def find(name: str) -> Engine:
    """The engine of that name.

    Raises:
        EngineUnknown: no engine is called so; the error names the nearest.

    >>> find("vllm").batching
    <Batching.CONTINUOUS: 'Continuous'>
    """
    engines = all_engines()
    engine = engines.get(name.strip().lower().replace("-", "").replace("_", ""))
    if engine is None:
        raise EngineUnknown(name, difflib.get_close_matches(name.lower(), engines, n=3))
    return engine


def detect(container: Mapping[str, Any]) -> Engine | None:
    """The engine a container runs, by its image, then by its command; None when neither tells."""
    image = str(container.get("image", "")).partition("@")[0].rpartition(":")[0]
    image = image or str(container.get("image", ""))
    for engine in all_engines().values():
        if any(known in image for known in engine.images):
            return engine
    starts = (command for engine in all_engines().values() for command in engine.commands)
    text = line_of(container, starts, environment_of(container)).text
    for engine in all_engines().values():
        if any(known in text for known in engine.commands):
            return engine
    return None


def _engine(entry: Mapping[str, Any]) -> Engine:
    live = entry.get("live", {})
    metrics = {role: tuple(map(metric_from, names)) for role, names in entry["metrics"].items()}
    return Engine(
        name=entry["name"],
        title=entry["title"],
        images=tuple(entry["images"]),
        commands=tuple(entry["commands"]),
        batching=Batching(entry["batching"]),
        lazy=entry["lazy"],
        port=entry["port"],
        metrics_path=entry["metrics_path"],
        metrics=MappingProxyType(metrics),
        flags=MappingProxyType({f["role"]: _flag(f) for f in entry["flags"]}),
        bounds_s=MappingProxyType({r: tuple(b) for r, b in entry["bounds_s"].items()}),
        rank_label=entry.get("rank_label"),
        whole_label=entry.get("whole_label"),
        live_endpoint=live.get("endpoint"),
        live_port=live.get("port", entry["port"]) if live else None,
        live_since=parse_version(live.get("since", "")),
        abbreviates=entry.get("abbreviates", False),
        config_wins=entry.get("config_wins", False),
        positional_after=tuple(entry.get("positional_after", ())),
    )


def _flag(entry: Mapping[str, Any]) -> Flag:
    pairs = entry.get("defaults", [["0.0.0", entry["default"]]] if "default" in entry else [])
    defaults = tuple((parse_version(since) or (0, 0, 0), value) for since, value in pairs)
    spellings = (entry["flag"], *entry.get("aliases", ()))
    return Flag(
        role=entry["role"],
        spellings=tuple(s.replace("_", "-") for s in spellings),
        env=entry.get("env"),
        restart=entry.get("restart", True),
        defaults=defaults,
        suffixes=entry.get("suffixes", False),
    )
