"""``sojourn explain``: the decision table with a live service's numbers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sojourn.cli import screen
from sojourn.cli.cluster_options import ClusterOptions
from sojourn.cli.exits import UsageError
from sojourn.cli.table import Format, write_data

if TYPE_CHECKING:
    from sojourn.cli.reasoning import Reasoning


@dataclass(frozen=True)
class ExplainOptions:
    """Flags of ``sojourn explain``."""

    name: Annotated[str, typer.Argument(help="Name of the InferenceService.", metavar="NAME")]
    cluster: ClusterOptions
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate", "-r", metavar="R", help="Requests/s to explain, in place of the observed."
        ),
    ] = None
    system: Annotated[
        str, typer.Option("--system", metavar="NAME", help="Namespace of the operator.")
    ] = "sojourn-system"
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Again every few seconds, until interrupted.")
    ] = False
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", help="Between two looks of --watch.")
    ] = 5.0
    output: Annotated[Format, typer.Option("--output", "-o", help="table, json or yaml.")] = (
        Format.TABLE
    )


def explain(options: ExplainOptions) -> None:
    """Why a live service has its replicas and max batch, and what would change them.

    Reads the service, its target and its status; what may not be read is said and left out.
    """
    if options.output in (Format.CSV, Format.MD):
        raise UsageError(f"-o {options.output}: explain writes table, json or yaml")
    while True:
        reasoning = _reason(options)
        if options.watch and options.output is Format.TABLE:
            screen.console().clear()
        _show(reasoning, options.output)
        if not options.watch:
            return
        time.sleep(max(0.5, options.interval))


def _reason(options: ExplainOptions) -> Reasoning:
    from sojourn.cli import cluster, rates, reasoning, sighting  # noqa: PLC0415

    asked = rates.parse(options.rate)
    rate = asked[0] if asked else None
    namespace = cluster.namespace_of(options.cluster)

    async def look(connected: cluster.Cluster) -> sighting.Sighting:
        sought = sighting.Sought(namespace, options.name, options.system)
        return await sighting.see(connected, sought, rate)

    return reasoning.reason(cluster.run(options.cluster, look))


def _show(reasoning: Any, form: Format) -> None:
    from sojourn.cli import explain_view  # noqa: PLC0415

    if form is Format.TABLE:
        explain_view.show(reasoning, screen.console())
    else:
        write_data(explain_view.data(reasoning), form)
