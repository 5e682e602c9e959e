"""Admission checks on the queue: stability, the SLO's floor, the peak."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from sojourn.decide.capacity import MANY_REPLICAS, Serving, replicas_for
from sojourn.decide.proposal import Proposal
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.reasons import Reason
from sojourn.facts.replica import ContinuousReplica, DynamicReplica, OperatingPoint
from sojourn.facts.service import Effective, Source
from sojourn.facts.service_time import TokenLengths
from sojourn.facts.sojourn import LatencyGoal, Sojourn
from sojourn.model import latency_bound
from sojourn.model.max_rate import excess
from sojourn.model.protocol import QueueModel
from sojourn.units import format_duration, format_rate

MOST_TIMES = 16
"""More than this many times maxReplicas is no answer to an SLO that is missed."""

ESTIMATE_ERROR = 0.25
"""A floor this little above the SLO is no certain one while the service time is estimated: nine in
ten inter-token latencies lie within 20 % (docs/explanation/evidence.md)."""

MAX_BATCH_FIELD = "spec.engine.maxBatchSize.max"
MAX_REPLICAS_FIELD = "spec.scaling.maxReplicas"


def unstable_at_peak(proposal: Proposal) -> Finding | None:
    """Load of 1 or more at the judged rate, with every replica and the best batch."""
    judged = proposal.judged
    if judged is None or proposal.utilisation < 1 - 1e-9:
        return None
    batch, replicas = proposal.best_batch, proposal.max_replicas
    remedies = [
        text
        for text in (_larger_batch(proposal), _more_replicas(proposal, target=False))
        if text is not None
    ]
    most = replicas * proposal.serving.capacity_per_s(batch)
    remedies.append(f"or declare at most {format_rate(most * 0.999)}" if remedies else "")
    if not remedies[0]:
        remedies = [f"declare at most {format_rate(most * 0.999)}"]
    message = (
        f"max batch {batch} cannot keep up with {format_rate(judged.rate_per_s)} "
        f"({judged.source}) on {_replicas(replicas)}{_assumed(proposal)}: utilisation "
        f"{proposal.utilisation:.2f}, stable below 1. {_sentence(remedies)}"
    )
    return Finding(
        Reason.UNSTABLE,
        Verdict.REJECT,
        MAX_BATCH_FIELD,
        message,
        (
            ("utilisation", proposal.utilisation),
            ("rate_per_s", judged.rate_per_s),
            ("max_stable_rate_per_s", most),
        ),
    )


def slo_below_floor(proposal: Proposal) -> Finding | None:
    """A lone request, at batch 1 on an idle replica, already takes longer than the SLO."""
    goal = proposal.service.goal
    idle = OperatingPoint(proposal.serving.replica(1), 0.0)
    if latency_bound.surely_within(idle, goal):
        return None
    alone = excess(sojourn_at(proposal.serving.queue, idle, goal.probability), goal)
    if alone.ratio <= 1 + 1e-9:
        return None
    name, field, asked = _missed_goal(goal, alone.binding)
    guessed = "" if alone.binding == "OutputToken" else _assumed(proposal)
    certain = _shortest(proposal, idle, goal) if guessed else alone.ratio
    unsure = _estimated(proposal) and certain <= 1 + ESTIMATE_ERROR
    message = (
        f"{name} of {format_duration(asked)} at P{goal.probability * 100:g} cannot be met at any "
        f"load: a lone request on an idle replica takes {format_duration(alone.value_s)}{guessed}. "
        f"Declare at least {format_duration(_rounded_up(alone.value_s))}, or use a faster GPU, "
        "more tensor parallelism or shorter outputs."
    )
    numbers = (("floor_s", alone.value_s), ("slo_s", asked))
    verdict = Verdict.WARN if unsure else Verdict.REJECT
    return Finding(Reason.SLO_UNREACHABLE, verdict, field, message, numbers)


def _shortest(proposal: Proposal, idle: OperatingPoint, goal: LatencyGoal) -> float:
    """Times the goal that a request of one token in and one out takes: no length is shorter."""
    if not isinstance(idle.replica, ContinuousReplica):
        return 0.0
    one = replace(idle.replica, output=TokenLengths(1.0), prompt_tokens=1.0)
    shortest = replace(idle, replica=one)
    return excess(sojourn_at(proposal.serving.queue, shortest, goal.probability), goal).ratio


def _assumed(proposal: Proposal) -> str:
    """What to say when nobody declared how long requests are; empty when somebody did.

    A service time that is declared or measured holds the lengths already.
    """
    tokens = _effective(proposal, "tokens")
    if tokens is None or tokens.source is not Source.DEFAULT or not _estimated(proposal):
        return ""
    return f", with tokens {tokens.value} assumed (declare spec.traffic.outputTokens)"


def _estimated(proposal: Proposal) -> bool:
    times = _effective(proposal, "serviceTime")
    return times is not None and times.source is Source.ESTIMATED


def _effective(proposal: Proposal, name: str) -> Effective | None:
    return next((e for e in proposal.service.effective if e.name == name), None)


def slo_missed_at_peak(proposal: Proposal) -> Finding | None:
    """Stable, but the SLO is missed at the judged rate with every replica."""
    judged, goal = proposal.judged, proposal.service.goal
    if judged is None or not 0 < proposal.utilisation < 1 - 1e-9:
        return None
    point = _at_peak(proposal, judged.rate_per_s)
    if latency_bound.surely_within(point, goal):
        return None
    predicted = sojourn_at(proposal.serving.queue, point, goal.probability)
    over = excess(predicted, goal)
    if over.ratio <= 1 + 1e-9 or slo_below_floor(proposal) is not None:
        return None
    needed, remedy = _replicas_needed(proposal, point), "Lower the rate or the max batch."
    if needed < MANY_REPLICAS:
        remedy = f"Raise maxReplicas to {needed}."
    elif _timer_alone_exceeds(proposal):
        remedy = "Shorten maxBatchWait: on more replicas batches fill later still."
    where = f"at {format_rate(judged.rate_per_s)} ({judged.source}) on " + (
        f"{_replicas(proposal.max_replicas)}"
    )
    if over.binding == "Blocking":
        capacity = proposal.service.replica.queue_capacity
        message = (
            f"{predicted.blocking * 100:.2g} % of the requests {where} find queueCapacity "
            f"{capacity} full and are refused, above {goal.max_blocking * 100:g} %. Raise "
            f"queueCapacity, or {remedy[:1].lower()}{remedy[1:]}"
        )
        numbers = (("blocking", predicted.blocking), ("replicas_needed", float(needed)))
        return Finding(
            Reason.SLO_MISSED_AT_PEAK,
            Verdict.WARN,
            "spec.engine.queueCapacity",
            message,
            numbers,
        )
    name, _, asked = _missed_goal(goal, over.binding)
    message = (
        f"P{goal.probability * 100:g} of {name} {where} is {format_duration(over.value_s)}, above "
        f"{format_duration(asked)}. {remedy}"
    )
    return Finding(
        Reason.SLO_MISSED_AT_PEAK,
        Verdict.WARN,
        MAX_REPLICAS_FIELD,
        message,
        (("predicted_s", over.value_s), ("slo_s", asked), ("replicas_needed", float(needed))),
    )


def utilisation_above_target(proposal: Proposal) -> Finding | None:
    """Stable, but above the target utilisation at the judged rate with every replica."""
    judged, target = proposal.judged, proposal.service.goal.max_utilisation
    if judged is None or not target + 1e-9 < proposal.utilisation < 1 - 1e-9:
        return None
    remedies = [
        text
        for text in (_larger_batch(proposal), _more_replicas(proposal, target=True))
        if text is not None
    ]
    message = (
        f"utilisation at {format_rate(judged.rate_per_s)} ({judged.source}) on "
        f"{_replicas(proposal.max_replicas)} with max batch {proposal.best_batch} is "
        f"{proposal.utilisation:.2f}, above the target {target:.2f}. {_sentence(remedies)}"
    )
    return Finding(
        Reason.UTILIZATION_ABOVE_TARGET,
        Verdict.WARN,
        MAX_REPLICAS_FIELD,
        message,
        (("utilisation", proposal.utilisation), ("target_utilisation", target)),
    )


def _larger_batch(proposal: Proposal) -> str | None:
    """Raise max batch: the least at the target, and the least that is stable at all."""
    if proposal.judged is None:
        return None
    serving, replicas = proposal.serving, proposal.max_replicas
    rate, target = proposal.judged.rate_per_s, proposal.service.goal.max_utilisation
    stable = serving.least_batch(rate, replicas, 1.0)
    wanted = serving.least_batch(rate, replicas, target)
    if stable is None:
        return None
    at_stable = _load(serving, rate, replicas, stable)
    if wanted is None:
        return f"raise max batch to {stable} ({at_stable}; no batch reaches the target {target:g})"
    at_wanted = _load(serving, rate, replicas, wanted)
    if wanted <= proposal.best_batch:
        return None
    stable_text = f"; stable from {stable}: {at_stable}" if stable > proposal.best_batch else ""
    return f"raise max batch to {wanted} (utilisation {at_wanted}, target {target:g}{stable_text})"


def _more_replicas(proposal: Proposal, *, target: bool) -> str | None:
    """Raise maxReplicas to the least that is stable, or that keeps the target."""
    if proposal.judged is None:
        return None
    serving, batch, rate = proposal.serving, proposal.best_batch, proposal.judged.rate_per_s
    limit = proposal.service.goal.max_utilisation if target else 1 - 1e-6
    needed = replicas_for(rate, limit * serving.capacity_per_s(batch))
    if needed >= MANY_REPLICAS or needed <= proposal.max_replicas:
        return None
    return f"run {_replicas(needed)} ({_load(serving, rate, needed, batch)})"


def _load(serving: Serving, rate_per_s: float, replicas: int, batch: int) -> str:
    return f"{serving.utilisation(rate_per_s, replicas, batch):.2f}"


def _at_peak(proposal: Proposal, rate_per_s: float) -> OperatingPoint:
    return OperatingPoint(
        replica=proposal.serving.replica(proposal.best_batch),
        rate_per_s=rate_per_s,
        replicas=proposal.max_replicas * proposal.serving.ranks,
        routing=proposal.service.declaration.traffic.routing,
    )


def _replicas_needed(proposal: Proposal, point: OperatingPoint) -> int:
    """Least replicas that keep the SLO at the peak; MANY_REPLICAS if no number does.

    Doubled until enough, then halved: a handful of questions, most of which the bound answers.
    With a timer longer than the SLO less load is slower, and nothing is enough.
    """
    goal = proposal.service.goal
    if _timer_alone_exceeds(proposal):
        return MANY_REPLICAS

    def enough(replicas: int) -> bool:
        shared = replace(point, replicas=replicas)
        if latency_bound.surely_within(shared, goal):
            return True
        answer = sojourn_at(proposal.serving.queue, shared, goal.probability)
        return excess(answer, goal).ratio <= 1 + 1e-9

    low, high = point.replicas, 2 * point.replicas
    while not enough(high):
        low, high = high, 2 * high
        if high > MOST_TIMES * point.replicas:
            return MANY_REPLICAS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _timer_alone_exceeds(proposal: Proposal) -> bool:
    """Whether a lone request waits past the SLO for companions, before it is even served."""
    replica, limit_s = proposal.service.replica, proposal.service.goal.latency_s
    if not isinstance(replica, DynamicReplica) or limit_s is None:
        return False
    return proposal.best_batch > 1 and replica.max_wait_s >= limit_s


@lru_cache(maxsize=16_384)
def sojourn_at(queue: QueueModel, point: OperatingPoint, probability: float) -> Sojourn:
    """The model's answer, solved once for all proposals that ask the same."""
    return queue.sojourn(point, (probability,))


def _missed_goal(goal: LatencyGoal, binding: str) -> tuple[str, str, float]:
    """Name, field and seconds of the SLO metric that binds."""
    if binding == "FirstToken" and goal.first_token_s is not None:
        return "timeToFirstToken", "spec.slo.timeToFirstToken", goal.first_token_s
    if binding == "OutputToken" and goal.output_token_s is not None:
        return "interTokenLatency", "spec.slo.interTokenLatency", goal.output_token_s
    return "latency", "spec.slo.latency", goal.latency_s or 0.0


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"


def _sentence(parts: list[str]) -> str:
    """Alternatives as one sentence."""
    text = ", or ".join(part.removeprefix("or ") for part in parts if part)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _rounded_up(seconds: float) -> float:
    """Two significant digits, upwards: an SLO at the floor itself would be missed half the time."""
    step = 10.0 ** (math.floor(math.log10(seconds)) - 1)
    return math.ceil(seconds / step * (1 - 1e-9)) * step
