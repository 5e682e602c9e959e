"""lambda1* of continuous batching from the draft: a thousand services a second.

Covers what ``draft.covered`` says; everything else is the whole model's. The draft is read with a
margin. ``ContinuousModel.max_rate`` answers for one replica with the whole model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sojourn.facts.replica import ContinuousReplica
from sojourn.facts.sizing import ServingConstraint
from sojourn.facts.sojourn import LatencyGoal, ReplicaRate
from sojourn.model.continuous import ContinuousModel, draft
from sojourn.model.continuous.machine import Machine, machine
from sojourn.model.domain import BoolArray, FloatArray

# The SLO is read this much tighter: against the whole model on random replicas the draft's
# percentiles are 1 to 2 % off.
MARGIN = 0.01

# Candidates are the least batch, these parts of the largest one, and it.
_PARTS = np.array([64.0, 16.0, 8.0, 4.0, 2.0])


@dataclass(frozen=True, eq=False)
class Answers:
    """Of n services at m candidates, as in ``fleet.Fleet``.

    Attributes:
        batches: candidates, (n, m).
        rates_per_s: lambda1*, (n, m); at the load limit where no candidate meets the SLO.
        reachable: some candidate meets the SLO, (n,).
        floor_s: the SLO's metric as the rate goes to 0, (n,).
    """

    batches: FloatArray
    rates_per_s: FloatArray
    reachable: BoolArray
    floor_s: FloatArray


def covers(constraint: ServingConstraint) -> bool:
    """Whether the draft answers for a service."""
    replica = constraint.replica
    return isinstance(replica, ContinuousReplica) and draft.covered(replica, constraint.goal)


def answers(constraints: Sequence[ServingConstraint], bounds: Sequence[tuple[int, int]]) -> Answers:
    """Rates of covered services.

    Args:
        constraints: n services, each of which ``covers`` says yes to. What the draft finds
            unreachable is asked of the whole model.
        bounds: least and largest batch of each.
    """
    machines = [_machine(one, high) for one, (_, high) in zip(constraints, bounds, strict=True)]
    low, high = (np.array(column, dtype=float)[:, None] for column in zip(*bounds, strict=True))
    most = np.minimum(high, np.array([[one.max_batch] for one in machines], dtype=float))
    batches = np.concatenate((low, np.floor(most / _PARTS), most, high), axis=1)
    batches = np.sort(np.clip(batches, low, high), axis=1)
    found = draft.rates(machines, batches, _goals(constraints))
    rates, reachable = found.rate_per_s, np.asarray((found.rate_per_s > 0).any(axis=1))
    floor_s = [_floor_s(one, each.goal) for one, each in zip(machines, constraints, strict=True)]
    for i in np.flatnonzero(~reachable).tolist():
        # Next to the floor, or below it: few requests run together, whatever the batch limit.
        whole = _whole(constraints[i], int(high[i, 0]))
        reachable[i], floor_s[i] = whole.reachable, whole.floor_s
        ceiling_per_s = whole.rate_per_s if whole.reachable else np.inf
        rates[i] = np.minimum(found.by_load_per_s[i], ceiling_per_s)
    return Answers(batches, rates, reachable, np.array(floor_s))


def _whole(constraint: ServingConstraint, batch: int) -> ReplicaRate:
    replica = replace(constraint.replica, max_batch=batch)
    return ContinuousModel().max_rate(replica, constraint.goal, constraint.dispersion)


def _machine(constraint: ServingConstraint, high: int) -> Machine:
    replica = constraint.replica
    assert isinstance(replica, ContinuousReplica)
    return machine(replace(replica, max_batch=high))


def _goals(constraints: Sequence[ServingConstraint]) -> draft.Goals:
    goals = [one.goal for one in constraints]

    def seconds(limits: Sequence[float | None]) -> FloatArray:
        tighter = [draft.NEVER_S if x is None else x * (1 - MARGIN) for x in limits]
        return np.array(tighter)[:, None]

    return draft.Goals(
        latency_s=seconds([one.latency_s for one in goals]),
        first_token_s=seconds([one.first_token_s for one in goals]),
        output_token_s=seconds([one.output_token_s for one in goals]),
        probability=np.array([[one.probability] for one in goals]),
        dispersion=np.array([[one.dispersion] for one in constraints]),
        max_load=np.array([[one.max_utilisation] for one in goals]),
    )


def _floor_s(one: Machine, goal: LatencyGoal) -> float:
    """Value of the metric that is nearest to its goal when a request is alone."""
    first_s, step_s = one.fixed_s + one.prompt_s, one.fixed_s + one.per_request_s
    longest = one.output.at_most(goal.probability)
    values = (
        (first_s + (longest - 1) * step_s, goal.latency_s),
        (first_s, goal.first_token_s),
        (step_s, goal.output_token_s),
    )
    asked = [(value_s / limit_s, value_s) for value_s, limit_s in values if limit_s]
    return max(asked)[1] if asked else 0.0
