"""GPU types and tensor parallelism side by side, cheapest first.

A service time measured on one card says nothing about another one, so it is carried over by the
ratio of the estimates of both cards, and the row says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sojourn.cli import outlook as outlooks
from sojourn.cli import text
from sojourn.cli.exits import UsageError
from sojourn.cli.given import Subject
from sojourn.cli.outlook import MEDIAN, Outlook
from sojourn.cli.table import Column, Table
from sojourn.errors import ModelDomainError
from sojourn.facts.memory import Fit, Footprint
from sojourn.facts.profile import Profile, ProfilePoint
from sojourn.facts.service import Service
from sojourn.facts.service_time import IterationTime, LinearServiceTime
from sojourn.model import roofline

TENSOR_PARALLEL = (1, 2, 4, 8)
"""Compared when --compare-tp does not say: one server of eight cards."""


@dataclass(frozen=True)
class Choice:
    """One card and number of them a replica, planned; or why not."""

    gpu: str
    tensor_parallel: int
    look: Outlook | None
    time_from: str
    why_not: str = ""


def choices(
    subject: Subject, rate_per_s: float, gpus: Sequence[str], parallel: Sequence[int]
) -> list[Choice]:
    """Every card with every parallelism that starts: what works first, then by cost.

    Raises:
        GpuUnknown: a card nobody knows.
        UsageError: as ``outlook`` raises for what was given.
    """
    names = [subject.catalogue.gpu(name).name for name in gpus]
    own, _ = outlooks.serving_of(outlooks.at_rate(subject, rate_per_s))
    found = [
        _choice(subject, own.service, (name, ranks), rate_per_s)
        for name in dict.fromkeys(names)
        for ranks in parallel or TENSOR_PARALLEL
    ]
    return sorted(found, key=_order)


def _choice(subject: Subject, own: Service, card: tuple[str, int], rate_per_s: float) -> Choice:
    name, ranks = card
    declaration = subject.declaration
    gpu = replace(declaration.gpu, type=name, tensor_parallel=ranks, memory_bytes=None)
    changed = replace(subject, declaration=replace(declaration, gpu=gpu))
    if name == own.gpu.name and ranks == own.declaration.gpu.tensor_parallel:
        measured = declaration.service_time is not None or subject.profile is not None
        here, time_from = subject, "as given" if measured else "estimated"
    else:
        here, time_from = _carried_over(changed, own)
    try:
        look = outlooks.outlook(here, rate_per_s)
    except UsageError as exc:
        return Choice(name, ranks, None, "", str(exc))
    if look.serving.service.memory.fit is Fit.WONT_START:
        return Choice(name, ranks, None, "", "would not start")
    return Choice(name, ranks, look, time_from)


def _carried_over(subject: Subject, own: Service) -> tuple[Subject, str]:
    """The service with its measured time scaled to the card it now names."""
    declaration, profile = subject.declaration, subject.profile
    if declaration.service_time is None and profile is None:
        return subject, "estimated"
    card = subject.catalogue.gpu(declaration.gpu.type)
    ranks = declaration.gpu.tensor_parallel
    there = replace(own.footprint, gpu=card, tensor_parallel=ranks)
    ratio = _ratio(own.footprint, there)
    if ratio is None:
        return subject, "measured on another card"
    if declaration.service_time is not None:
        law = _scaled(declaration.service_time, ratio)
        declaration = replace(declaration, service_time=law)
    scaled = None if profile is None else _scaled_profile(profile, ratio)
    return replace(subject, declaration=declaration, profile=scaled), "scaled"


def _ratio(here: Footprint, there: Footprint) -> IterationTime | None:
    """Estimated step time there over here, by part; None where a card's figures are missing."""
    try:
        one, other = roofline.estimate(here).iteration, roofline.estimate(there).iteration
    except ModelDomainError:
        return None
    return IterationTime(
        other.fixed_s / one.fixed_s,
        other.per_request_s / one.per_request_s,
        other.per_prompt_token_s / one.per_prompt_token_s,
    )


def _scaled(law: LinearServiceTime, ratio: IterationTime) -> LinearServiceTime:
    return replace(
        law,
        fixed_s=law.fixed_s * ratio.fixed_s,
        per_request_s=law.per_request_s * ratio.per_request_s,
    )


def _scaled_profile(profile: Profile, ratio: IterationTime) -> Profile:
    steps = profile.iteration
    if steps is not None:
        steps = IterationTime(
            steps.fixed_s * ratio.fixed_s,
            steps.per_request_s * ratio.per_request_s,
            steps.per_prompt_token_s * ratio.per_prompt_token_s,
        )
    return replace(
        profile,
        linear=_scaled(profile.linear, ratio) if profile.linear else None,
        points=tuple(ProfilePoint(p.batch, p.latency_s * ratio.fixed_s) for p in profile.points),
        iteration=steps,
    )


def _order(choice: Choice) -> tuple[Any, ...]:
    look = choice.look
    if look is None or look.sized is None:
        return (2, math.inf, 0, choice.gpu, choice.tensor_parallel)
    price = look.cost.per_hour_usd
    works = 0 if look.works else 1
    return (works, math.inf if price is None else price, look.cost.gpus, choice.gpu)


COLUMNS = (
    Column("gpu", "GPU", left=True),
    Column("tensor_parallel", "TP"),
    Column("works", "works", text.yes, left=True),
    Column("replicas", "replicas", text.count),
    Column("gpus", "GPUs", text.count),
    Column("max_batch", "batch", text.count, rank=1),
    Column("utilisation", "util", text.share, rank=3),
    Column("p50_s", "P50", text.seconds, rank=4),
    Column("p99_s", "P99", text.seconds),
    Column("per_hour_usd", "cost/h", text.usd),
    Column("per_million_output_tokens_usd", "cost/M out", text.usd, rank=2),
    Column("time_from", "service time", left=True, rank=1),
)


def table(found: Sequence[Choice]) -> Table:
    """The choices that start, as rows."""
    return Table(COLUMNS, tuple(_row(c, c.look) for c in found if c.look is not None))


def left_out(found: Sequence[Choice]) -> list[str]:
    """One line for each card that was left out, and why."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for choice in found:
        if choice.look is None:
            why = choice.why_not.splitlines()[0]
            reasons.setdefault((choice.gpu, why), []).append(str(choice.tensor_parallel))
    return [f"{gpu} with TP {', '.join(ranks)}: {why}" for (gpu, why), ranks in reasons.items()]


def _row(choice: Choice, look: Outlook) -> dict[str, Any]:
    sized, one = look.sized, look.sojourn
    assert sized is not None
    return {
        "gpu": choice.gpu,
        "tensor_parallel": choice.tensor_parallel,
        "works": look.works,
        "replicas": sized.replicas,
        "gpus": look.cost.gpus,
        "max_batch": sized.batch,
        "utilisation": one.utilisation if one else None,
        "p50_s": one.latency.quantile_s(MEDIAN) if one else None,
        "p99_s": one.latency.quantile_s(0.99) if one else None,
        "per_hour_usd": look.cost.per_hour_usd,
        "per_million_output_tokens_usd": look.cost.per_million_output_usd,
        "time_from": choice.time_from,
    }
