"""The numbers of a plan: what a service needs at a rate, what that keeps, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sojourn.cli.exits import UsageError
from sojourn.cli.given import Subject
from sojourn.decide import admission, batches, resolve
from sojourn.decide.capacity import Serving
from sojourn.decide.lengths import Lengths, lengths_of
from sojourn.decide.proposal import Proposal
from sojourn.facts.declaration import Declaration
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.memory import Fit
from sojourn.facts.replica import DynamicReplica, OperatingPoint
from sojourn.facts.sizing import Sizing
from sojourn.facts.sojourn import LatencyGoal, Sojourn
from sojourn.model import sizing, stability
from sojourn.model.choose import model_for

MEDIAN = 0.5


@dataclass(frozen=True)
class Cost:
    """What the replicas cost at list prices; None where no price is known.

    Attributes:
        gpus: over all replicas.
        gpu_per_hour_usd: list price of one.
        per_hour_usd: of all.
        per_million_output_usd: by tokens generated.
        per_million_tokens_usd: by tokens read and generated.
    """

    gpus: int
    gpu_per_hour_usd: float | None
    per_hour_usd: float | None
    per_million_output_usd: float | None
    per_million_tokens_usd: float | None


@dataclass(frozen=True)
class Outlook:
    """One service at one rate.

    Attributes:
        sized: least replicas and their batches; None when the engine would not start.
        sojourn: the model's answer with them; None when there is nothing to answer.
        findings: of resolving and of admission, at this rate.
    """

    serving: Serving
    rate_per_s: float
    sized: Sizing | None
    sojourn: Sojourn | None
    findings: tuple[Finding, ...]
    lengths: Lengths
    cost: Cost

    @property
    def goal(self) -> LatencyGoal:
        """SLO and limits."""
        return self.serving.service.goal

    @property
    def works(self) -> bool:
        """Nothing forbids it, and the SLO is kept within the replicas allowed."""
        if self.sized is None or any(f.verdict is Verdict.REJECT for f in self.findings):
            return False
        allowed = self.serving.service.declaration.scaling.max_replicas
        return self.sized.reachable and self.sized.replicas <= allowed

    @property
    def regime(self) -> str | None:
        """The book's regime of the chosen batch, for batches that start and end together."""
        replica = self.serving.service.replica
        if self.sized is None or self.sized.replicas < 1 or not isinstance(replica, DynamicReplica):
            return None
        share = self.rate_per_s / self.sized.replicas / self.serving.ranks
        return str(stability.regime(share, replica.service, self.sized.batch))


def serving_of(subject: Subject) -> tuple[Serving, tuple[Finding, ...]]:
    """The resolved service with its queueing model, and what was found on the way.

    Raises:
        UsageError: a name that nobody knows, or numbers no model can take.
    """
    resolved = resolve.resolve(subject.declaration, subject.catalogue, subject.profile)
    if resolved.service is None:
        rejected = [f for f in resolved.findings if f.verdict is Verdict.REJECT]
        raise UsageError("\n".join(f"{f.field}: {f.message}" for f in rejected))
    service = resolved.service
    queue = model_for(service.replica, service.declaration.scaling.tail_rule)
    return Serving(service, queue), resolved.findings


def at_rate(subject: Subject, rate_per_s: float) -> Subject:
    """The same, judged at one rate: expected and peak at once."""
    declaration = subject.declaration
    traffic = replace(declaration.traffic, rate_per_s=rate_per_s, peak_rate_per_s=rate_per_s)
    return replace(subject, declaration=replace(declaration, traffic=traffic))


def outlook(subject: Subject, rate_per_s: float) -> Outlook:
    """What ``subject`` needs at ``rate_per_s`` and what that keeps.

    Raises:
        UsageError: as ``serving_of`` raises.
    """
    subject = at_rate(subject, rate_per_s)
    serving, findings = serving_of(subject)
    lengths = lengths_of(subject.declaration.traffic, subject.profile)
    proposal = Proposal(serving, gpus=subject.catalogue.gpus())
    if serving.service.memory.fit is Fit.WONT_START:
        findings = (*findings, *admission.admit(proposal)[:1])
        nothing = cost(serving, 0, rate_per_s, lengths)
        return Outlook(serving, rate_per_s, None, None, findings, lengths, nothing)
    sized = size(serving, rate_per_s)
    return Outlook(
        serving=serving,
        rate_per_s=rate_per_s,
        sized=sized,
        sojourn=answer(serving, rate_per_s, sized),
        findings=(*findings, *admission.admit(proposal)),
        lengths=lengths,
        cost=cost(serving, sized.replicas, rate_per_s, lengths),
    )


def size(serving: Serving, rate_per_s: float) -> Sizing:
    """Least replicas at a rate; data-parallel ranks share a replica's requests evenly."""
    constraint = batches.constraint_of(serving.service)
    sized = sizing.size(serving.queue, constraint, rate_per_s / serving.ranks)
    per_replica = sized.rate_per_replica_per_s * serving.ranks
    return replace(sized, rate_per_replica_per_s=per_replica)


def answer(serving: Serving, rate_per_s: float, sized: Sizing) -> Sojourn | None:
    """The model's answer with the replicas and the batch of a sizing."""
    if sized.replicas < 1:
        return None
    point = OperatingPoint(
        serving.replica(sized.batch),
        rate_per_s,
        sized.replicas * serving.ranks,
        serving.service.declaration.traffic.routing,
    )
    return serving.queue.sojourn(point, levels(serving.service.goal))


def levels(goal: LatencyGoal) -> tuple[float, ...]:
    """Quantiles every answer shows: the median, P99 and the SLO's own."""
    return tuple(sorted({MEDIAN, 0.99, goal.probability}))


def cost(serving: Serving, replicas: int, rate_per_s: float, lengths: Lengths) -> Cost:
    """List price of ``replicas`` at ``rate_per_s``."""
    service = serving.service
    gpus = service.declaration.gpu.per_replica * replicas
    price = service.gpu.price_per_hour_usd
    per_hour = None if price is None else price * gpus
    output = rate_per_s * 3600 * lengths.output.mean
    every = rate_per_s * 3600 * (lengths.output.mean + lengths.prompt_tokens)
    return Cost(
        gpus,
        price,
        per_hour,
        _per_million(per_hour, output),
        _per_million(per_hour, every),
    )


def _per_million(per_hour_usd: float | None, tokens_per_hour: float) -> float | None:
    if per_hour_usd is None or tokens_per_hour <= 0:
        return None
    return per_hour_usd / tokens_per_hour * 1e6


@dataclass(frozen=True)
class Span:
    """Rates that the same number of replicas serves, and the answer at their upper end."""

    from_per_s: float
    to_per_s: float
    sized: Sizing
    sojourn: Sojourn | None
    cost: Cost


def spans(subject: Subject, low_per_s: float, high_per_s: float) -> Iterator[Span]:
    """The breakpoints of a range: at which rate one more replica is needed.

    Raises:
        UsageError: as ``serving_of`` raises, or the engine would not start.
    """
    serving, _ = serving_of(at_rate(subject, high_per_s))
    if serving.service.memory.fit is Fit.WONT_START:
        card = serving.service.gpu.name
        raise UsageError(f"{subject.name} would not start on {card}: plan one rate to see why")
    lengths = lengths_of(subject.declaration.traffic, subject.profile)
    start = low_per_s
    while start < high_per_s:
        here = size(serving, start)
        # A hair above the breakpoint: at it, the replicas are still the fewer ones.
        end = max(1, here.replicas) * here.rate_per_replica_per_s
        if end <= start * (1 + 1e-9):
            here = size(serving, start * (1 + 1e-6))
            end = here.replicas * here.rate_per_replica_per_s
        end = min(high_per_s, end) if math.isfinite(end) and end > start else high_per_s
        top = size(serving, end)
        yield Span(
            start,
            end,
            top,
            answer(serving, end, top),
            cost(serving, top.replicas, end, lengths),
        )
        start = end


def rate_of(declaration: Declaration) -> float:
    """The rate a manifest declares.

    Raises:
        UsageError: it declares none.
    """
    traffic = declaration.traffic
    rate = traffic.rate_per_s if traffic.rate_per_s is not None else traffic.peak_rate_per_s
    if rate is None:
        raise UsageError("no rate is declared: give --rate, such as 40 or a range 20..200")
    return rate
