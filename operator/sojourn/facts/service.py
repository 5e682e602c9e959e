"""A declaration resolved: every input of a decision, with where it came from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sojourn.facts.architecture import Architecture
from sojourn.facts.declaration import Declaration
from sojourn.facts.gpu import Gpu
from sojourn.facts.memory import Footprint, MemoryAnswer
from sojourn.facts.replica import Replica
from sojourn.facts.sojourn import LatencyGoal


class Source(StrEnum):
    """Where an effective value came from."""

    DECLARED = "Declared"
    PROFILE = "Profile"
    CATALOGUE = "Catalogue"
    OBSERVED = "Observed"
    ESTIMATED = "Estimated"
    DEFAULT = "Default"


@dataclass(frozen=True)
class Effective:
    """One input used, as text for people, and its source."""

    name: str
    value: str
    source: Source


@dataclass(frozen=True)
class BatchBounds:
    """The interval max batch may be chosen from.

    Attributes:
        minimum: the declared least.
        maximum: the declared most, the engine's limit included.
        kv_limit: requests that fit in KV memory at the design length; None is unlimited.
    """

    minimum: int
    maximum: int
    kv_limit: int | None


@dataclass(frozen=True)
class Service:
    """One service, resolved.

    Attributes:
        replica: what one replica is to the queue; its max batch is ``bounds.maximum``.
        goal: the SLO with the target utilisation.
        design_tokens: prompt + output of a typical request, which sizes the KV cache.
    """

    declaration: Declaration
    architecture: Architecture
    gpu: Gpu
    footprint: Footprint
    memory: MemoryAnswer
    replica: Replica
    bounds: BatchBounds
    goal: LatencyGoal
    design_tokens: float
    cold_start_s: float
    effective: tuple[Effective, ...]
