"""What a tick leaves behind for the next: recommendations, scale events, wishes."""

from __future__ import annotations

import math
from dataclasses import replace

from sojourn.act.execute import Applied
from sojourn.decide import calibration
from sojourn.facts.declaration import Actuation
from sojourn.facts.plan import Plan
from sojourn.facts.reading import Known
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import (
    Past,
    RateSample,
    Recommendation,
    ScaleEvent,
    ServiceSample,
    Situation,
    TargetState,
)

SAMPLES_KEPT = 120
"""Pairs of concurrency and service time; of more than these the older half is thinned."""

RATES_KEPT_S = 1800.0
"""Half an hour of rates: 30 windows of a minute, enough for trend and burstiness."""

LONGEST_WINDOW_S = 3600.0
"""Longest stabilisation window and policy period an HPA allows."""


def after(past: Past, applied: Applied, now_s: float) -> Past:
    """The past with this tick in it; what is older than any window is dropped."""
    plan = applied.plan
    past = replace(
        past,
        recommendations=_recent_recommendations(past, plan, now_s),
        scale_events=_recent_events(past, plan, now_s),
        replicas=plan.decision.before.replicas,
        figures=plan.figures or past.figures,
        reverted_at_s=_recent_reverts(past, plan, now_s),
        rates=_recent_rates(past, plan, now_s),
        batch_wanted_since_s=_wanted_since(past, plan, now_s),
    )
    if plan.unbroken_since_s is not None:
        past = replace(past, decided_at_s=now_s, unbroken_since_s=plan.unbroken_since_s)
    elif past.decided_at_s is None:
        past = replace(past, decided_at_s=past.since_s)
    if applied.scaled:
        change = (plan.decision.after.replicas or 0) - (plan.decision.before.replicas or 0)
        events = (*past.scale_events, ScaleEvent(now_s, change))
        past = replace(past, scale_events=events, replicas=plan.decision.after.replicas)
    if plan.live_max_batch is not None:
        past = _live(past, applied, now_s)
    if applied.batch_written:
        past = replace(past, batch_changed_at_s=now_s, batch_wanted_since_s=None)
    return past


def _recent_events(past: Past, plan: Plan, now_s: float) -> tuple[ScaleEvent, ...]:
    """Scale events, with what an HPA did on our metric since the last tick."""
    kept = tuple(e for e in past.scale_events if now_s - e.at_s < LONGEST_WINDOW_S)
    service, now = plan.service, plan.decision.before.replicas
    if service is None or service.declaration.scaling.actuation is not Actuation.METRIC:
        return kept
    if past.replicas is None or now is None or now == past.replicas:
        return kept
    return (*kept, ScaleEvent(now_s, now - past.replicas))


def _recent_reverts(past: Past, plan: Plan, now_s: float) -> tuple[float, ...]:
    """Times at which the scale was back at what it was before our last write."""
    kept = tuple(at_s for at_s in past.reverted_at_s if now_s - at_s < LONGEST_WINDOW_S)
    now = plan.decision.before.replicas
    if not past.scale_events or past.replicas is None or now is None or now == past.replicas:
        return kept
    last = past.scale_events[-1]
    back = now == past.replicas - last.change
    return (*kept, now_s) if back else kept


def _live(past: Past, applied: Applied, now_s: float) -> Past:
    """The past after running engines were spoken to."""
    if applied.live_batch is None:
        return replace(past, live_refused_at_s=now_s)
    changed = past.batch_changed_at_s if applied.live_batch == past.live_batch else now_s
    return replace(
        past,
        live_batch=applied.live_batch,
        live_refused_at_s=None,
        batch_changed_at_s=changed,
    )


def with_sample(past: Past, situation: Situation) -> Past:
    """The past with this tick's pair of concurrency and service time, if it tells anything."""
    target = situation.target
    if not isinstance(target, TargetState):
        return past
    pair = calibration.sample(situation.signals, target, situation.now_s)
    if pair is None:
        return past
    return replace(past, service_samples=_thinned((*past.service_samples, pair), pair.at_s))


def _thinned(samples: tuple[ServiceSample, ...], now_s: float) -> tuple[ServiceSample, ...]:
    """The last hour, dense where it is recent: enough for the batch to vary as a day rises."""
    if now_s - samples[0].at_s > LONGEST_WINDOW_S:
        samples = samples[1:]
    if len(samples) <= SAMPLES_KEPT:
        return samples
    half = len(samples) // 2
    return (*samples[:half:2], *samples[half:])


def _recent_recommendations(past: Past, plan: Plan, now_s: float) -> tuple[Recommendation, ...]:
    """Recommendations that some window still needs.

    Stabilisation takes the most or the least of a window that ends now. One that is followed by
    one at least as large and by one at most as large is neither in any window, so it goes: a
    steady service keeps one, a flapping one two, in place of an hour of ticks. O(those kept).
    """
    fresh = plan.decision.raw.replicas
    told = plan.decision.row is not Reason.HOLD and fresh is not None
    least, most = (fresh, fresh) if told and fresh is not None else (math.inf, -math.inf)
    kept: list[Recommendation] = []
    for one in reversed(past.recommendations):
        if now_s - one.at_s < LONGEST_WINDOW_S and not least <= one.replicas <= most:
            kept.append(one)
            least, most = min(least, one.replicas), max(most, one.replicas)
    kept.reverse()
    if told and fresh is not None:
        kept.append(Recommendation(now_s, fresh))
    return tuple(kept)


def _recent_rates(past: Past, plan: Plan, now_s: float) -> tuple[RateSample, ...]:
    kept = tuple(r for r in past.rates if now_s - r.at_s < RATES_KEPT_S)
    rate = plan.report.rate_per_s
    # A gap keeps what is known on both sides of it; a lower bound is no sample of the rate.
    if isinstance(rate, Known) and not rate.lower_bound:
        return (*kept, RateSample(now_s, rate.value))
    return kept


def _wanted_since(past: Past, plan: Plan, now_s: float) -> float | None:
    """Since when another max batch has been wanted; a hold neither starts nor ends it."""
    if plan.decision.row is Reason.HOLD:
        return past.batch_wanted_since_s
    if plan.decision.raw.max_batch == plan.decision.before.max_batch:
        return None
    return past.batch_wanted_since_s if past.batch_wanted_since_s is not None else now_s
