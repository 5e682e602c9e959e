"""The survey: everything the decision needs to know about the live operating point.

Design rate, live point, sizing and prediction of one service, from one Situation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sojourn.decide import batches, bursts, costly, design_rate, live_batch
from sojourn.decide.capacity import Serving
from sojourn.decide.design_rate import DesignRate
from sojourn.decide.table import Live, Measured
from sojourn.facts.plan import Limits, Report
from sojourn.facts.policy import Policy
from sojourn.facts.reading import Known, Reading, Unknown
from sojourn.facts.replica import DynamicReplica
from sojourn.facts.situation import Figures, Situation, TargetState
from sojourn.facts.sizing import Sizing
from sojourn.facts.sojourn import Sojourn
from sojourn.model import littles_law, stability
from sojourn.model.max_rate import asks_latency

P99 = 0.99
LARGEST_GAP = 0.3
"""Relative gap between measured and predicted requests in the system that is still agreement."""

SETTLED_WINDOWS = 4
"""Latency is measured over longer windows than rates; a backlog must have left it too."""


@dataclass(frozen=True)
class Survey:
    """What is known about one service whose target and rate are known.

    Attributes:
        predicted: at the rate now; None when the queue is unstable or not solved yet.
        known: the costly answers, for the next tick.
    """

    situation: Situation
    target: TargetState
    policy: Policy
    design: DesignRate
    live: Live
    sizing: Sizing
    predicted: Sojourn | None
    known: Figures


def take(situation: Situation, target: TargetState, serving: Serving, policy: Policy) -> Survey:
    """Survey one service; its rate must be known (``holds.rate_unknown`` answers the rest)."""
    rate = situation.signals.rate_per_s
    assert isinstance(rate, Known)
    service_bounds = serving.service.bounds
    batch = live_batch.running(situation, target) or service_bounds.maximum
    design = design_rate.design_rate(
        rate.value,
        situation.past,
        policy.rate_window_s,
        serving.service.cold_start_s + policy.tick_s,
    )
    live = Live(serving, policy, design.rate_per_s, target.spec_replicas, batch)
    if design.burstiness > 1 and asks_latency(serving.service.goal):
        live = _with_bursts(live, design.burstiness)
        serving = live.serving
    constraint = batches.constraint_of(serving.service, serving.dispersion)
    answer = costly.sized(situation, serving, constraint, design.rate_per_s / serving.ranks)
    rises = design.rate_per_s != design.now_per_s
    at_now = replace(live, rate_per_s=design.now_per_s) if rises else live
    known, predicted = costly.predicted(situation, at_now)
    if answer is not None and not (known.sizing is answer and known.constraint == constraint):
        known = replace(known, constraint=constraint, sizing=answer)
    answer = answer or costly.not_solved(live)
    measured = _measured(situation, target, predicted, policy)
    if measured is not None:
        live = replace(live, measured=measured)
    return Survey(situation, target, policy, design, live, answer, predicted, known)


def _with_bursts(live: Live, z: float) -> Live:
    """The live point with the dispersion that one of the replicas it needs sees of the service's z.

    The more replicas share a stream, the calmer each one's: the largest step of the grid whose
    need is met before the next begins. It depends on what is needed, never on what runs, so the
    answer does not swing with the replicas.
    """
    ranks = live.serving.ranks
    first = bursts.of_one(z, live.needed_for_target * ranks)
    for step in reversed([step for step in bursts.STEPS if step <= first]):
        found = replace(live, serving=replace(live.serving, dispersion=step))
        if found.goal_rate.reachable and bursts.of_one(z, found.needed * ranks) >= step:
            return found
    return live


def _measured(
    situation: Situation, target: TargetState, predicted: Sojourn | None, policy: Policy
) -> Measured | None:
    """The measured P99 if it misses the SLO and is of this very setting, else None."""
    goal, signals = situation.service.goal, situation.signals
    reading, bucket = signals.latency_p99_s, signals.latency_p99_bucket_s
    if goal.latency_s is None or goal.probability != P99 or isinstance(reading, Unknown):
        return None
    floor_s = bucket[0] if bucket is not None else reading.value
    if floor_s <= goal.latency_s or not _settled(situation, target, policy):
        return None
    if predicted is None:
        return None
    return Measured(floor_s, predicted.latency.quantile_s(P99))


def _settled(situation: Situation, target: TargetState, policy: Policy) -> bool:
    """No change of setting within the windows that the percentile covers."""
    window_s = SETTLED_WINDOWS * policy.rate_window_s
    changes = [event.at_s for event in situation.past.scale_events]
    changes += [situation.past.since_s, situation.past.batch_changed_at_s or 0.0]
    quiet = situation.now_s - max(changes) >= window_s
    return quiet and not target.pods_pending and not target.rollout_running


def figures(survey: Survey) -> Report:
    """What the status shows of a survey."""
    live, signals, sized = survey.live, survey.situation.signals, survey.sizing
    batch = live.max_batch
    serving = live.serving
    limits = Limits(
        min_batch=sized.smallest_batch if sized.reachable else None,
        max_batch_for_slo=sized.largest_batch if sized.reachable else None,
        max_batch_for_memory=serving.service.bounds.kv_limit,
        rate_per_replica=live.goal_rate.rate_per_s,
        max_stable_rate=serving.service.declaration.scaling.max_replicas
        * serving.capacity_per_s(batch),
        binding=live.goal_rate.binding,
    )
    in_system = _sum(signals.running, signals.waiting)
    predicted = survey.predicted
    return Report(
        rate_per_s=signals.rate_per_s,
        latency_p50_s=signals.latency_p50_s,
        latency_p99_s=signals.latency_p99_s,
        in_system=in_system,
        predicted=predicted,
        regime=_regime(live),
        limits=limits,
        utilisation=live.utilisation if math.isfinite(live.utilisation) else None,
        littles_law_agrees=_agrees(survey, predicted, in_system),
    )


def _regime(live: Live) -> str | None:
    """The book's regime; it is stated for batches that start and end together."""
    replica = live.serving.replica(live.max_batch)
    if live.replicas <= 0 or not isinstance(replica, DynamicReplica):
        return None
    per_replica = live.rate_per_s / live.replicas
    if per_replica <= 0:
        return None
    return str(stability.regime(per_replica, replica.service, replica.max_batch))


def _agrees(survey: Survey, predicted: Sojourn | None, measured: Reading) -> bool | None:
    """Little's law as a check (S10): requests in the system, measured and predicted.

    Only of a setting that has not changed lately: a backlog belongs to the setting before.
    """
    settled = _settled(survey.situation, survey.target, survey.policy)
    if predicted is None or isinstance(measured, Unknown) or not settled:
        return None
    rate = survey.design.now_per_s
    expected = float(littles_law.in_system(rate, predicted.latency.mean_s))
    gap = float(littles_law.disagreement(measured.value, rate, predicted.latency.mean_s))
    # A gauge is a sample: two standard deviations of a Poisson count are no disagreement.
    return abs(gap) <= LARGEST_GAP or abs(measured.value - expected) <= 2 * math.sqrt(expected) + 1


def _sum(one: Reading, other: Reading) -> Reading:
    if isinstance(one, Unknown):
        return one
    if isinstance(other, Unknown):
        return other
    return Known(one.value + other.value, min(one.at_s, other.at_s))
