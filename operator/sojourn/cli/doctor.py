"""``sojourn doctor``: is the cluster ready for Sojourn, and what to do where it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from sojourn.cli import exits, screen
from sojourn.cli.cluster_options import ClusterOptions
from sojourn.cli.exits import UsageError
from sojourn.cli.table import Column, Format, Table, write

if TYPE_CHECKING:
    from sojourn.cli.checks import Outcome


@dataclass(frozen=True)
class DoctorOptions:
    """Flags of ``sojourn doctor``."""

    cluster: ClusterOptions
    system: Annotated[
        str, typer.Option("--system", metavar="NAME", help="Namespace of the operator.")
    ] = "sojourn-system"
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Ask this one; default: the operator's, through the API server."
        ),
    ] = None
    output: Annotated[Format, typer.Option("--output", "-o", help="How the answer is written.")] = (
        Format.TABLE
    )


def doctor(options: DoctorOptions) -> None:
    """Check CRDs, permissions, Prometheus, webhook and every service; each failure with its remedy.

    Looks at all namespaces, or at -n. Exit code 1: a check failed.
    """
    from sojourn.cli import checks, cluster  # noqa: PLC0415

    if options.output is Format.MD:
        raise UsageError("-o md: doctor writes table, json, yaml or csv")
    scope = checks.Scope(options.cluster.namespace, options.system, options.prometheus)
    outcomes = cluster.run(options.cluster, lambda connected: checks.examine(connected, scope))
    if options.output is Format.TABLE:
        _show(outcomes)
    else:
        _write(outcomes, options.output)
    if any(one.failed for one in outcomes):
        raise typer.Exit(exits.VERDICT)


def _show(outcomes: list[Outcome]) -> None:
    import textwrap  # noqa: PLC0415

    from rich.text import Text  # noqa: PLC0415

    console = screen.console()
    width = max(50, min(console.width, 110))
    styles = {"ok": "green", "FAIL": "bold red", "warn": "yellow", "skip": "dim"}
    for one in outcomes:
        head = Text(f"{one.state:<5}", style=styles[one.state])
        body = textwrap.wrap(f"{one.subject}: {one.text}", width - 5) or [""]
        console.print(head.append(body[0], style="default"), no_wrap=True)
        for line in body[1:]:
            console.print(Text(f"     {line}"), no_wrap=True)
        for line in textwrap.wrap(one.remedy, width - 8):
            prefix = "  -> " if line == textwrap.wrap(one.remedy, width - 8)[0] else "     "
            console.print(Text(f"   {prefix}{line}", style="cyan"), no_wrap=True)
    failed = sum(one.failed for one in outcomes)
    warned = sum(one.state == "warn" for one in outcomes)
    console.print(f"{len(outcomes)} checks, {failed} failed, {warned} warnings", style="bold")


def _write(outcomes: list[Outcome], form: Format) -> None:
    names = ("state", "subject", "text", "remedy")
    columns = tuple(Column(name, name, left=True) for name in names)
    rows = tuple({name: getattr(one, name) for name in names} for one in outcomes)
    write(Table(columns, rows), form)
