"""The two costly answers of a tick, asked sparingly: the prediction at the live point, the sizing.

Rates are taken to the nearest value of a grid (1 % at a low load; at a high one 2.5 % of what is
left to 1, which is what latency follows), so that a measured rate's noise asks nothing new. What
the last tick knew is kept with the past. A process that has just begun and has thousands of
services to solve shows some figures a few ticks later; replicas never wait for them.
"""

from __future__ import annotations

import math
from functools import lru_cache

from sojourn.decide.capacity import Serving
from sojourn.decide.table import Live
from sojourn.facts.replica import OperatingPoint
from sojourn.facts.situation import Figures, Situation
from sojourn.facts.sizing import ServingConstraint, Sizing
from sojourn.facts.sojourn import Sojourn
from sojourn.model import sizing
from sojourn.model.protocol import QueueModel

P99 = 0.99
RATE_STEP = 1.02
SLACK_STEP = 1.05
LEAST_LOAD = 1e-9
"""Below it there is no traffic to predict anything for."""


def predicted(situation: Situation, live: Live) -> tuple[Figures, Sojourn | None]:
    """What the model predicts at the live point; None when it is not known, now or ever.

    The first of the pair is what to remember.
    """
    known = situation.past.figures
    if live.replicas <= 0 or not LEAST_LOAD < live.utilisation < 1:
        return known, None
    asked = _asked(live)
    if known.asked == asked:
        return known, known.predicted
    if not situation.may_solve:
        return known, None
    answer = _sojourn(live.serving.queue, *asked)
    return Figures(asked, answer, known.constraint, known.sizing), answer


def sized(
    situation: Situation, serving: Serving, constraint: ServingConstraint, rate_per_s: float
) -> Sizing | None:
    """The sizing at a rate, rounded up by at most 2 %; the last one while none may be solved."""
    known = situation.past.figures
    if not situation.may_solve:
        return known.sizing if known.constraint == constraint else None
    return _sizing(serving.queue, constraint, _up(rate_per_s))


def not_solved(live: Live) -> Sizing:
    """Stands for a sizing that is not known yet: it wishes nothing."""
    return Sizing(
        replicas=live.needed,
        batch=live.max_batch,
        smallest_batch=live.max_batch,
        largest_batch=live.max_batch,
        bound_below="SpecMinimum",
        bound_above="SpecMaximum",
        binding=live.goal_rate.binding,
        rate_per_replica_per_s=live.goal_rate.rate_per_s,
        reachable=False,
        floor_s=0.0,
    )


def _asked(live: Live) -> tuple[OperatingPoint, tuple[float, ...]]:
    service = live.serving.service
    replicas = live.replicas * live.serving.ranks
    # One replica's z as the whole stream's, which the model splits again.
    dispersion = 1 + (live.serving.dispersion - 1) * replicas
    # From the capacity, not from the rate: two rates of one step must ask for the very same.
    most_per_s = live.replicas * live.serving.capacity_per_s(live.max_batch)
    point = OperatingPoint(
        live.serving.replica(live.max_batch),
        _nearest(live.utilisation) * most_per_s,
        replicas,
        service.declaration.traffic.routing,
        dispersion,
    )
    return point, tuple(sorted({0.5, service.goal.probability, P99}))


def _nearest(load: float) -> float:
    if load <= 0.5:
        return float(RATE_STEP ** round(math.log(load) / math.log(RATE_STEP)))
    slack = 0.5 * SLACK_STEP ** round(math.log((1 - load) / 0.5) / math.log(SLACK_STEP))
    return 1 - float(slack)


def _up(rate_per_s: float) -> float:
    if rate_per_s <= 0:
        return 0.0
    step = math.ceil(math.log(rate_per_s) / math.log(RATE_STEP) - 1e-9)
    return float(RATE_STEP**step)


@lru_cache(maxsize=65_536)
def _sojourn(queue: QueueModel, point: OperatingPoint, percentiles: tuple[float, ...]) -> Sojourn:
    return queue.sojourn(point, percentiles)


@lru_cache(maxsize=65_536)
def _sizing(queue: QueueModel, constraint: ServingConstraint, rate_per_s: float) -> Sizing:
    return sizing.size(queue, constraint, rate_per_s)
