"""One plan as a screen for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sojourn.cli import text
from sojourn.cli.outlook import Outlook
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.sojourn import Latency, LatencyGoal, Sojourn
from sojourn.units import format_duration, format_gib, format_rate

if TYPE_CHECKING:
    from rich.console import Console

_LABEL = 14
_STYLES = {Verdict.REJECT: "bold red", Verdict.WARN: "yellow", Verdict.NOTE: ""}


def title(look: Outlook, name: str, rates: str | None = None) -> str:
    """What is planned, in one line; ``rates`` in place of the rate of ``look``."""
    service = look.serving.service
    declared, gpu = service.declaration, service.declaration.gpu
    cards = f"{gpu.per_replica} x {service.gpu.name}" if gpu.per_replica > 1 else service.gpu.name
    model = service.architecture.name
    what = model if model == name else f"{name}: {model}"
    return (
        f"{what} on {cards}, {declared.engine.name}; {slo(service.goal)} at "
        f"{rates or format_rate(look.rate_per_s)}"
    )


def slo(goal: LatencyGoal) -> str:
    """The SLO as one text."""
    parts = (
        ("", goal.latency_s),
        ("first token ", goal.first_token_s),
        ("output token ", goal.output_token_s),
    )
    level = text.percentile(goal.probability)
    return ", ".join(
        f"{level} {name}<= {format_duration(limit)}" for name, limit in parts if limit is not None
    )


def show(look: Outlook, name: str, console: Console) -> None:
    """Print one plan for people."""
    from rich.text import Text  # noqa: PLC0415

    width = max(50, min(console.width, 110))
    console.print(Text(title(look, name), style="bold"))
    console.print()
    for label, body in lines(look):
        wrapped = textwrap.wrap(body, width - _LABEL - 2) or [""]
        for index, line in enumerate(wrapped):
            head = Text(f"  {label if index == 0 else '':<{_LABEL}}", style="cyan")
            console.print(head.append(line, style="default"), no_wrap=True)
    show_findings(look.findings, console)


def show_findings(findings: tuple[Finding, ...], console: Console) -> None:
    """Print findings, the ones that forbid first."""
    from rich.text import Text  # noqa: PLC0415

    order = (Verdict.REJECT, Verdict.WARN, Verdict.NOTE)
    for finding in sorted(findings, key=lambda f: order.index(f.verdict)):
        console.print()
        head = Text(f"{finding.verdict} {finding.reason}", style=_STYLES[finding.verdict])
        console.print(head.append(f" at {finding.field}", style="default"))
        for line in textwrap.wrap(finding.message, max(50, min(console.width, 110)) - 2):
            console.print(Text(f"  {line}"), no_wrap=True)


def lines(look: Outlook) -> Iterator[tuple[str, str]]:
    """Label and text of each line."""
    sized = look.sized
    if sized is not None:
        yield "replicas", _replicas(look)
        yield "max batch", _batch(look)
    if look.sojourn is not None:
        yield from _queue_lines(look, look.sojourn)
    yield "memory a GPU", _memory(look)
    if look.sized is not None:
        yield "cost", cost_text(look)
    for one in look.serving.service.effective:
        if one.name == "serviceTime":
            yield "service time", f"{one.value} ({one.source.lower()})"
        if one.name == "tokens":
            yield "tokens", f"{one.value} ({one.source.lower()})"
    for warning in look.sojourn.warnings if look.sojourn else ():
        yield "note", warning


def _queue_lines(look: Outlook, found: Sojourn) -> Iterator[tuple[str, str]]:
    regime = f", regime {look.regime}" if look.regime else ""
    target = look.goal.max_utilisation
    yield (
        "utilisation",
        f"{found.utilisation:.2f} of what full batches serve, target {target:.2f}{regime}",
    )
    yield "latency", f"{_quantiles(found.latency)}{_kept(look)}"
    yield "", _parts(look)
    if found.time_to_first_token is not None:
        yield "first token", _quantiles(found.time_to_first_token)
    if found.time_per_output_token is not None:
        yield "output token", _quantiles(found.time_per_output_token)


def _replicas(look: Outlook) -> str:
    sized = look.sized
    assert sized is not None
    most = text.rate(sized.rate_per_replica_per_s)
    body = f"{sized.replicas} (one takes up to {most}, bound by {text.BOUNDS[sized.binding]})"
    allowed = look.serving.service.declaration.scaling.max_replicas
    return body if sized.replicas <= allowed else f"{body}; the spec allows {allowed}"


def _batch(look: Outlook) -> str:
    sized = look.sized
    assert sized is not None
    low, high = sized.smallest_batch, sized.largest_batch
    if low == high:
        return f"{sized.batch}"
    return (
        f"{sized.batch} ({low} to {high} work: {text.BOUNDS[sized.bound_below]} from below, "
        f"{text.BOUNDS[sized.bound_above]} from above)"
    )


def _quantiles(latency: Latency) -> str:
    named = [
        f"{text.percentile(level)} {text.seconds(latency.quantile_s(level))}"
        for level, _ in latency.quantiles_s
    ]
    return ", ".join(named)


def _kept(look: Outlook) -> str:
    limit = look.goal.latency_s
    if limit is None or look.sojourn is None:
        return ""
    value = look.sojourn.latency.quantile_s(look.goal.probability)
    level = text.percentile(look.goal.probability)
    if value <= limit * (1 + 1e-6):
        return f" (SLO {level} <= {format_duration(limit)} kept)"
    over = value / limit
    return f" (SLO {level} <= {format_duration(limit)} MISSED, {over:.1f} times as long)"


def _parts(look: Outlook) -> str:
    one = look.sojourn
    assert one is not None
    return (
        f"mean {text.seconds(one.latency.mean_s)} = {text.seconds(one.queue_wait_s)} waiting + "
        f"{text.seconds(one.batch_wait_s)} batching + {text.seconds(one.service_s)} service"
    )


def _memory(look: Outlook) -> str:
    answer = look.serving.service.memory
    named = (
        ("weights", answer.weights_bytes),
        ("activations", answer.activation_bytes),
        ("engine", answer.non_torch_bytes),
    )
    parts = " + ".join(f"{text.gib(size)} {name}" for name, size in named)
    verdict = {"Fits": "fits", "TooClose": "too close to call", "WontStart": "would not start"}
    left = text.gib(max(0.0, answer.kv_pool_bytes))
    return (
        f"{verdict[str(answer.fit)]}: {parts} of {format_gib(answer.budget_bytes)} leave {left} "
        f"for the KV cache{_kv(look)}"
    )


def _kv(look: Outlook) -> str:
    service = look.serving.service
    if look.sized is None:
        return ""
    limit = service.bounds.kv_limit
    held = f"{limit:,} requests" if limit is not None else "any number of requests"
    return (
        f", {text.count(service.memory.kv_tokens)} tokens: {held} of {service.design_tokens:,.0f} "
        f"tokens, {text.count(service.memory.max_concurrent)} of "
        f"{service.memory.max_length_tokens:,}"
    )


def cost_text(look: Outlook) -> str:
    """Price of an hour and of a million tokens."""
    cost = look.cost
    if cost.per_hour_usd is None:
        return f"{text.plural(cost.gpus, 'GPU')}; no list price of {look.serving.service.gpu.name}"
    tokens = ""
    if cost.per_million_output_usd is not None:
        tokens = (
            f"; {text.usd(cost.per_million_output_usd)} per million output tokens, "
            f"{text.usd(cost.per_million_tokens_usd)} counting prompts"
        )
    each = text.usd(cost.gpu_per_hour_usd)
    gpus = text.plural(cost.gpus, "GPU")
    return f"{text.usd(cost.per_hour_usd)} an hour: {gpus} at {each}{tokens}"
