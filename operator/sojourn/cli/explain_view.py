"""A live service explained, as a screen for people and as data for programs."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sojourn.cli import plan_view, text
from sojourn.cli.reasoning import Change, Comparison, Reasoning
from sojourn.cli.sighting import Sighting, age_of
from sojourn.cli.table import Column, Table, print_table
from sojourn.units import format_rate

if TYPE_CHECKING:
    from rich.console import Console

_COLUMNS = (
    Column("mark", " ", left=True),
    Column("row", "row", left=True),
    Column("condition", "condition, with this service's numbers", left=True),
    Column("outcome", "", left=True),
)


def show(reasoning: Reasoning, console: Console) -> None:
    """Print for people."""
    sighting = reasoning.sighting
    width = max(50, min(console.width, 110))

    def line(body: str, style: str = "") -> None:
        for part in textwrap.wrap(body, width, subsequent_indent="  "):
            console.print(part, style=style or None, markup=False, no_wrap=True)

    ref = sighting.subject.declaration.ref
    line(f"{ref.namespace}/{ref.name}: {_what(reasoning)}", "bold")
    line(_seen(reasoning))
    for note in sighting.notes:
        line(f"note: {note}", "yellow")
    if reasoning.problem:
        line(reasoning.problem, "bold red")
    if reasoning.row is not None:
        console.print()
        print_table(_table(reasoning.comparisons), console)
        console.print()
        for one in reasoning.comparisons:
            if one.why_not:
                line(f"{one.row} is kept back: {one.why_not}.")
        line(f"{reasoning.row.reason}: {reasoning.row.message}.")
        _show_model(reasoning, line)
        for change in reasoning.changes:
            line(_change(change, sighting))
    _show_operator(sighting.status, line)
    plan_view.show_findings(reasoning.findings, console)


def _what(reasoning: Reasoning) -> str:
    if reasoning.serving is None:
        return "cannot be resolved"
    service = reasoning.serving.service
    gpu = service.declaration.gpu
    cards = f"{gpu.per_replica} x {service.gpu.name}" if gpu.per_replica > 1 else service.gpu.name
    return f"{service.architecture.name} on {cards}; {plan_view.slo(service.goal)}"


def _seen(reasoning: Reasoning) -> str:
    sighting = reasoning.sighting
    rate = "rate unknown"
    if sighting.rate_per_s is not None:
        rate = f"{format_rate(sighting.rate_per_s)} ({sighting.rate_from})"
    replicas = text.plural(sighting.replicas, "replica") if sighting.replicas is not None else ""
    if sighting.target is not None:
        replicas = f"{replicas} ({sighting.target.ready_replicas} ready)"
    batch = f"max batch {sighting.max_batch}" if sighting.max_batch is not None else ""
    measured = (sighting.status.get("latency") or {}).get("measured") or {}
    p99 = f"measured P99 {measured['p99']}" if measured.get("p99") else ""
    return ", ".join(part for part in (f"seen: {rate}", replicas, batch, p99) if part)


def _table(comparisons: tuple[Comparison, ...]) -> Table:
    return Table(_COLUMNS, tuple(_cells(one) for one in comparisons))


def _cells(one: Comparison) -> dict[str, str]:
    return {
        "mark": ">" if one.fires else " ",
        "row": str(one.row),
        "condition": one.condition,
        "outcome": "FIRES" if one.fires else ("kept back" if one.why_not else "no"),
    }


def _show_model(reasoning: Reasoning, line: Any) -> None:
    sized = reasoning.sized
    if sized is None:
        return
    line(
        f"The model would run {text.plural(sized.replicas, 'replica')} with max batch "
        f"{sized.batch} (of {sized.smallest_batch} to {sized.largest_batch}); one replica takes "
        f"up to {format_rate(sized.rate_per_replica_per_s)}, bound by "
        f"{text.BOUNDS[sized.binding]}."
    )


def _change(change: Change, sighting: Sighting) -> str:
    replicas = change.row.replicas
    verb = "asks for" if replicas != sighting.replicas else "stays at"
    scaling = sighting.subject.declaration.scaling
    capped = ""
    if not scaling.min_replicas <= replicas <= scaling.max_replicas:
        capped = f" (the spec allows {scaling.min_replicas} to {scaling.max_replicas})"
    return (
        f"{change.direction} {format_rate(change.rate_per_s)}: {change.row.reason} {verb} "
        f"{text.plural(replicas, 'replica')}{capped}"
    )


def _show_operator(status: Mapping[str, Any], line: Any) -> None:
    decision = status.get("lastDecision")
    if decision:
        age = age_of(decision.get("at"))
        line(
            f"operator{', ' + age if age else ''}: {decision.get('row')}, "
            f"{_setting(decision.get('from'))} -> {_setting(decision.get('to'))}: "
            f"{decision.get('message', '')}"
        )
        if decision.get("limitedBy"):
            line(f"limited by {', '.join(decision['limitedBy'])}")
    for condition in status.get("conditions") or ():
        good = "False" if condition.get("type") in ("Conflict", "ScalingLimited") else "True"
        if condition.get("status") != good:
            line(
                f"{condition.get('type')}={condition.get('status')} "
                f"({condition.get('reason')}): {condition.get('message', '')}",
                "yellow",
            )


def _setting(setting: Mapping[str, Any] | None) -> str:
    held = setting or {}
    return f"{held.get('replicas', '?')} x {held.get('maxBatch', '?')}"


def data(reasoning: Reasoning) -> dict[str, Any]:
    """The explanation for programs."""
    sighting, row, live = reasoning.sighting, reasoning.row, reasoning.live
    ref = sighting.subject.declaration.ref
    return {
        "namespace": ref.namespace,
        "name": ref.name,
        "rate_per_s": sighting.rate_per_s,
        "rate_from": sighting.rate_from,
        "replicas": sighting.replicas,
        "max_batch": sighting.max_batch,
        "utilisation": live.utilisation if live else None,
        "table": [
            {
                "row": str(one.row),
                "condition": one.condition,
                "holds": one.holds,
                "fires": one.fires,
                "why_not": one.why_not,
            }
            for one in reasoning.comparisons
        ],
        "row": str(row.reason) if row else None,
        "asks_for_replicas": row.replicas if row else None,
        "message": row.message if row else reasoning.problem,
        "would_change": [
            {
                "direction": change.direction,
                "rate_per_s": change.rate_per_s,
                "row": str(change.row.reason),
                "replicas": change.row.replicas,
            }
            for change in reasoning.changes
        ],
        "operator": sighting.status.get("lastDecision"),
        "conditions": sighting.status.get("conditions") or [],
        "notes": list(sighting.notes),
    }
