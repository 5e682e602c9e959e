"""The nouns of an engine: its metrics, flags and batching."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sojourn.engines.version import Version, parse_version
from sojourn.facts.declaration import Batching


@dataclass(frozen=True)
class Metric:
    """One exported metric that plays a role.

    Attributes:
        name: as Prometheus stores it; of a histogram without ``_bucket``, ``_sum``, ``_count``.
        since: first version that exports it; None from the beginning.
        until: last version that exports it; None until now.
        match: label matchers that select the right series, without braces; empty for all.
        divide_by: the gauge this one is a share of; None when it is a share already.
        scale: factor from the exported unit to seconds.
    """

    name: str
    since: Version | None = None
    until: Version | None = None
    match: str = ""
    divide_by: str | None = None
    scale: float = 1.0

    def exported_by(self, version: Version | None) -> bool:
        """True when that version may export it; an unknown version may export anything."""
        if version is None:
            return True
        too_old = self.since is not None and version < self.since
        too_new = self.until is not None and version > self.until
        return not (too_old or too_new)


@dataclass(frozen=True)
class Flag:
    """One command-line flag that plays a role.

    Attributes:
        spellings: the flag and its aliases, dashes in place of underscores.
        env: variable the engine itself reads for it; a flag on the command line wins over it.
        restart: False when the engine takes a new value while it runs.
        defaults: pairs of (first version, value), oldest first; empty when the engine computes it.
        suffixes: the engine takes human-readable integers for it, 32k or 32K.
    """

    role: str
    spellings: tuple[str, ...]
    env: str | None = None
    restart: bool = True
    defaults: tuple[tuple[Version, str], ...] = ()
    suffixes: bool = False

    def default(self, version: Version | None) -> str | None:
        """The engine's own value; None when it computes one or the version leaves it open."""
        if len(self.defaults) == 1:
            return self.defaults[0][1]
        if version is None:
            return None
        known = [value for since, value in self.defaults if version >= since]
        return known[-1] if known else None


@dataclass(frozen=True)
class Engine:
    """One serving engine.

    Attributes:
        name: as ``spec.engine.name`` spells it.
        batching: how it forms batches by default.
        lazy: series appear at first use, so that an absent counter of a scraped pod can be a zero.
        metrics: by role, newest name first: names of one role are alternatives, never summed.
        flags: by role.
        rank_label: label of data-parallel ranks whose gauges add up; other ranks repeat.
        whole_label: label over which the largest series stands for the whole.
        bounds_s: upper bounds of the histograms' buckets by role, seconds, rising.
        live_endpoint: what takes a new max batch without a restart; None if nothing does.
        live_port: where it is asked for that.
        live_since: first version that takes one; None from the beginning.
        abbreviates: it takes the unambiguous beginning of a flag for the flag (Python's argparse).
        config_wins: its configuration file is laid over the command line, not under it.
        positional_after: words after which its model may stand without a flag.
    """

    name: str
    title: str
    images: tuple[str, ...]
    commands: tuple[str, ...]
    batching: Batching
    lazy: bool
    port: int
    metrics_path: str
    metrics: Mapping[str, tuple[Metric, ...]]
    flags: Mapping[str, Flag]
    bounds_s: Mapping[str, tuple[float, ...]]
    rank_label: str | None = None
    whole_label: str | None = None
    live_endpoint: str | None = None
    live_port: int | None = None
    live_since: Version | None = None
    abbreviates: bool = False
    config_wins: bool = False
    positional_after: tuple[str, ...] = ()

    @cached_property
    def spellings(self) -> frozenset[str]:
        """Every spelling of every flag."""
        return frozenset(s for flag in self.flags.values() for s in flag.spellings)

    def names(self, role: str, version: Version | None = None) -> tuple[Metric, ...]:
        """Alternatives of a role, newest first; all of them when the version is unknown."""
        return tuple(m for m in self.metrics.get(role, ()) if m.exported_by(version))

    def restart_needed(self, role: str) -> bool:
        """True when changing that flag restarts the engine."""
        flag = self.flags.get(role)
        return flag is None or flag.restart


def metric_from(entry: Mapping[str, str | float]) -> Metric:
    """A metric as the data file writes it."""
    since, until = entry.get("since"), entry.get("until")
    divide_by = entry.get("divide_by")
    return Metric(
        name=str(entry["name"]),
        since=parse_version(str(since)) if since else None,
        until=parse_version(str(until)) if until else None,
        match=str(entry.get("match", "")),
        divide_by=str(divide_by) if divide_by else None,
        scale=float(entry.get("scale", 1.0)),
    )
