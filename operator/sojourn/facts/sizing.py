"""The one serving constraint (S17): what a service may run, and what sizing answers."""

from __future__ import annotations

from dataclasses import dataclass

from sojourn.facts.declaration import Objective
from sojourn.facts.replica import Replica
from sojourn.facts.sojourn import LatencyGoal


@dataclass(frozen=True)
class ServingConstraint:
    """Queueing, memory and the declared bounds merged; hashable, so answers are cached by it.

    Attributes:
        replica: the template; its max_batch is the one thing sizing chooses.
        goal: the SLO, the target load and the largest loss.
        smallest_batch: declared least max batch.
        largest_batch: declared most.
        kv_batch: B_KV, requests that fit in KV memory at the design length; None is unlimited.
        objective: which batch of the feasible interval is run.
        dispersion: I, index of dispersion of one replica's arrivals; 1 is Poisson.
    """

    replica: Replica
    goal: LatencyGoal
    smallest_batch: int = 1
    largest_batch: int = 256
    kv_batch: int | None = None
    objective: Objective = Objective.MAX_BATCH
    dispersion: float = 1.0


@dataclass(frozen=True)
class Sizing:
    """Least replicas that keep the constraint at one rate, and the batches they may run.

    Attributes:
        replicas: c, the least with a non-empty interval of batches; 0 only at rate 0.
        batch: max batch chosen from the interval by the objective.
        smallest_batch: least max batch that works with c replicas.
        largest_batch: largest that does.
        bound_below: what holds the interval from below: ``Utilisation``, ``Latency``,
            ``FirstToken``, ``OutputToken``, ``Blocking`` or ``SpecMinimum``.
        bound_above: what holds it from above: those, ``Memory`` or ``SpecMaximum``.
        binding: what keeps one replica from taking more, of ``ReplicaRate.binding``.
        rate_per_replica_per_s: lambda1*, the largest rate one replica takes at its best batch.
        reachable: False when no rate and no batch meets the SLO; replicas are then sized by the
            load limit alone, because more of them would not help.
        floor_s: the least value of the SLO's metric any batch reaches; 0 when none was asked.
    """

    replicas: int
    batch: int
    smallest_batch: int
    largest_batch: int
    bound_below: str
    bound_above: str
    binding: str
    rate_per_replica_per_s: float
    reachable: bool
    floor_s: float
