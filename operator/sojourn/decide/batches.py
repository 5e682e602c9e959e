"""Which max batch the model would run (S5, S11, S17), beside the one that runs."""

from __future__ import annotations

from sojourn.decide.batch_loop import BatchWish
from sojourn.decide.table import Live
from sojourn.facts.service import Service
from sojourn.facts.sizing import ServingConstraint, Sizing
from sojourn.model.stability import ROUNDING_SLACK


def constraint_of(service: Service, dispersion: float = 1.0) -> ServingConstraint:
    """Queueing, memory and declared bounds of a service as one constraint."""
    return ServingConstraint(
        replica=service.replica,
        goal=service.goal,
        smallest_batch=service.bounds.minimum,
        largest_batch=service.bounds.maximum,
        kv_batch=service.bounds.kv_limit,
        objective=service.declaration.scaling.objective,
        dispersion=dispersion,
    )


def wish(live: Live, declared_batch: int | None, sizing: Sizing) -> BatchWish:
    """What the batch loop is asked: the live batch beside the one the model would run."""
    wanted_rate = live.serving.within_goal(sizing.batch).rate_per_s
    restores = (
        sizing.reachable
        and live.slo_missed
        and live.rate_per_s <= live.replicas * wanted_rate * (1 + ROUNDING_SLACK)
    )
    return BatchWish(
        live=declared_batch,
        wanted=sizing.batch,
        feasible=(sizing.smallest_batch, sizing.largest_batch) if sizing.reachable else None,
        replicas_saved=max(0, live.needed - sizing.replicas),
        restores_slo=restores,
        replicas_needed=min(live.needed, live.replicas),
    )
