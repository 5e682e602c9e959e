"""The decision table (S12): four rows at the live operating point, the first match wins.

A row fires only if its action changes something, so that after an action the opposite row cannot
fire; where a threshold is crossed and nothing would help, Steady says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from sojourn.decide.capacity import Serving, replicas_for
from sojourn.facts.policy import Policy
from sojourn.facts.reasons import Reason
from sojourn.facts.sojourn import ReplicaRate
from sojourn.model.stability import ROUNDING_SLACK
from sojourn.units import format_duration, format_rate

LARGEST_FACTOR = 2.0
"""Measurements scale the model by at most this, so that a broken histogram cannot run away."""


@dataclass(frozen=True)
class Measured:
    """A measured percentile above the SLO, over a full window at this very setting.

    Attributes:
        latency_s: lower bound of the bucket that holds it: the true value is not below.
        predicted_s: what the model says at the live point.
    """

    latency_s: float
    predicted_s: float

    @property
    def factor(self) -> float:
        """Measured over predicted, within 1 and ``LARGEST_FACTOR``."""
        return min(LARGEST_FACTOR, max(1.0, self.latency_s / self.predicted_s))


@dataclass(frozen=True)
class Live:
    """The live operating point (lambda, c, B) of one service.

    Attributes:
        measured: given only when the measured percentile misses the SLO.
    """

    serving: Serving
    policy: Policy
    rate_per_s: float
    replicas: int
    max_batch: int
    measured: Measured | None = None

    @cached_property
    def utilisation(self) -> float:
        """Load rho at the live point."""
        return self.serving.utilisation(self.rate_per_s, self.replicas, self.max_batch)

    @cached_property
    def goal_rate(self) -> ReplicaRate:
        """Lambda1* within SLO and target utilisation, at the live max batch."""
        return self.serving.within_goal(self.max_batch)

    @cached_property
    def slo_rate(self) -> ReplicaRate:
        """Largest rate of one replica within the SLO, up to the high utilisation."""
        return self.serving.within_slo(self.max_batch, self.policy.high_utilisation)

    @cached_property
    def needed(self) -> int:
        """Least replicas within target and SLO; by the target alone if no number meets the SLO."""
        if self.goal_rate.reachable:
            return replicas_for(self.rate_per_s, self.goal_rate.rate_per_s)
        return self.needed_for_target

    @cached_property
    def needed_for_target(self) -> int:
        """Least replicas within the target utilisation, whatever the latency."""
        target = self.serving.service.goal.max_utilisation
        return replicas_for(self.rate_per_s, target * self.serving.capacity_per_s(self.max_batch))

    @property
    def slo_missed(self) -> bool:
        """The model predicts a latency above the SLO, and replicas would help."""
        if not self.slo_rate.reachable or self.slo_rate.binding == "Utilisation":
            return False
        most = self.replicas * self.slo_rate.rate_per_s
        return self.rate_per_s > most * (1 + ROUNDING_SLACK)


@dataclass(frozen=True)
class Row:
    """The row that fired, the replicas it asks for and the numbers on both sides."""

    reason: Reason
    replicas: int
    message: str


def batch_below_minimum(live: Live) -> Row | None:
    """Unstable: B below B_min at a load of 1."""
    if live.utilisation < 1 - ROUNDING_SLACK or live.needed <= live.replicas:
        return None
    if live.replicas == 0:
        text = f"{format_rate(live.rate_per_s)} and no replica; {_gives(live, live.needed)}"
    else:
        text = (
            f"utilisation {live.utilisation:.2f} >= 1 at {_point(live)}: the queue grows without "
            f"bound; {_gives(live, live.needed)}"
        )
    return Row(Reason.BATCH_BELOW_MINIMUM, live.needed, text)


def latency_above_slo(live: Live) -> Row | None:
    """P99 above the SLO at the live point, and more replicas bring it below."""
    if not live.slo_missed or live.needed <= live.replicas:
        return None
    per_replica = live.slo_rate.rate_per_s
    text = (
        f"{format_rate(live.rate_per_s / live.replicas)} a replica > {format_rate(per_replica)}, "
        f"the most within the SLO ({_slo(live)}) at {_point(live)}; {_gives(live, live.needed)}"
    )
    return Row(Reason.LATENCY_ABOVE_SLO, live.needed, text)


def utilisation_high(live: Live) -> Row | None:
    """Rho above the high threshold."""
    if live.utilisation <= live.policy.high_utilisation or live.needed <= live.replicas:
        return None
    text = (
        f"utilisation {live.utilisation:.2f} > {live.policy.high_utilisation:.2f} at "
        f"{_point(live)}; {_gives(live, live.needed)}"
    )
    return Row(Reason.UTILIZATION_HIGH, live.needed, text)


def utilisation_low(live: Live) -> Row | None:
    """Rho below the low threshold, and fewer replicas keep target and SLO."""
    if live.utilisation >= live.policy.low_utilisation or live.needed >= live.replicas:
        return None
    if live.measured is not None:
        return None  # nothing is taken away while the SLO is measured as missed
    text = (
        f"utilisation {live.utilisation:.2f} < {live.policy.low_utilisation:.2f} at "
        f"{_point(live)}; {_gives(live, live.needed)}"
    )
    return Row(Reason.UTILIZATION_LOW, live.needed, text)


Check = Callable[[Live], Row | None]


def measured_above_slo(live: Live) -> Row | None:
    """Measured above the SLO, and the model, scaled to it, says that replicas help."""
    if live.measured is None:
        return None
    rate = live.serving.within_scaled_goal(live.max_batch, live.measured.factor)
    needed = replicas_for(live.rate_per_s, rate.rate_per_s) if rate.reachable else 0
    if needed <= live.replicas:
        return None
    text = (
        f"measured latency {format_duration(live.measured.latency_s)} > SLO ({_slo(live)}) at "
        f"{_point(live)}, predicted {format_duration(live.measured.predicted_s)}; "
        f"{_gives(live, needed)}"
    )
    return Row(Reason.LATENCY_ABOVE_SLO, needed, text)


TABLE: tuple[Check, ...] = (
    batch_below_minimum,  # an unstable queue loses most, so it comes first
    latency_above_slo,
    measured_above_slo,  # the same row, on the weaker evidence
    utilisation_high,
    utilisation_low,  # never after a row that adds
)


def evaluate(live: Live) -> Row:
    """The first row that fires, else Steady with the reason why nothing did."""
    for check in TABLE:
        if row := check(live):
            return row
    return Row(Reason.STEADY, live.replicas, _steady(live))


def _steady(live: Live) -> str:
    low, high = live.policy.low_utilisation, live.policy.high_utilisation
    here = f"utilisation {live.utilisation:.2f} at {_point(live)}"
    if live.utilisation < low and live.replicas > 0:
        least = "1 replica is" if live.needed == 1 else f"{live.needed} replicas are"
        return f"{here} < {low:.2f}, but {least} the least for {_needs(live)}"
    if not live.goal_rate.reachable:
        return f"{here}; no number of replicas meets the SLO ({_slo(live)}): sized by utilisation"
    return f"{here}, between {low:.2f} and {high:.2f}, SLO kept ({_slo(live)})"


def _point(live: Live) -> str:
    plural = "" if live.replicas == 1 else "s"
    return (
        f"{format_rate(live.rate_per_s)}, {live.replicas} replica{plural}, "
        f"max batch {live.max_batch}"
    )


def _gives(live: Live, replicas: int) -> str:
    load = live.serving.utilisation(live.rate_per_s, replicas, live.max_batch)
    plural = " gives" if replicas == 1 else "s give"
    return f"{replicas} replica{plural} {load:.2f}"


def _needs(live: Live) -> str:
    if live.rate_per_s <= 0:
        return "no traffic"
    if live.goal_rate.binding == "Utilisation":
        return f"the target utilisation {live.serving.service.goal.max_utilisation:.2f}"
    return f"the SLO ({_slo(live)})"


def _slo(live: Live) -> str:
    goal = live.serving.service.goal
    percentile = f"P{goal.probability * 100:g}"
    parts = (
        ("latency", goal.latency_s),
        ("time to first token", goal.first_token_s),
        ("time per output token", goal.output_token_s),
    )
    wanted = [f"{percentile} {n} <= {format_duration(s)}" for n, s in parts if s is not None]
    return ", ".join(wanted) or "none"
