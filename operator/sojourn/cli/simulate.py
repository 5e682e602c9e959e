"""``sojourn simulate``: one service, the event simulator beside the model's prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from sojourn.cli import given as givens
from sojourn.cli import screen
from sojourn.cli.exits import UsageError
from sojourn.cli.given import Given
from sojourn.cli.table import Column, Format, Table, write

if TYPE_CHECKING:
    from sojourn.cli.simulation import Figure
    from sojourn.facts.replica import OperatingPoint
    from sojourn.facts.sojourn import Sojourn
    from sojourn.simulate.queues import QueueEstimate


@dataclass(frozen=True)
class SimulateOptions:
    """Flags of ``sojourn simulate``."""

    given: Given
    rate: Annotated[
        str | None,
        typer.Option("--rate", "-r", metavar="R", help="Requests/s. Default: the manifest's."),
    ] = None
    replicas: Annotated[
        int | None, typer.Option(metavar="N", help="Default: as many as plan asks for.")
    ] = None
    batch: Annotated[int | None, typer.Option(metavar="N", help="Max batch. Default: plan's.")] = (
        None
    )
    requests: Annotated[
        int | None,
        typer.Option(metavar="N", help="Requests to play. Default: 200,000; continuous 40,000."),
    ] = None
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed plays the same.")] = 1
    output: Annotated[Format, typer.Option("--output", "-o", help="How the answer is written.")] = (
        Format.TABLE
    )


def simulate(options: SimulateOptions) -> None:
    """Play a service event by event, and set the result beside the model's prediction."""
    from sojourn.cli import outlook, rates, simulation, text  # noqa: PLC0415
    from sojourn.facts.replica import OperatingPoint  # noqa: PLC0415

    subject = givens.read(options.given)
    asked = rates.parse(options.rate)
    rate = asked[0] if asked else outlook.rate_of(subject.declaration)
    look = outlook.outlook(subject, rate)
    if look.sized is None:
        raise UsageError(f"{subject.name} would not start: plan says why")
    replicas = options.replicas or look.sized.replicas
    batch = options.batch or look.sized.batch
    requests = options.requests or simulation.default_requests(look.serving.service.replica)
    if min(replicas, batch) < 1 or requests < 1000:
        raise UsageError("--replicas and --batch must be 1 or more, --requests 1,000 or more")
    point = OperatingPoint(
        look.serving.replica(batch),
        rate,
        replicas * look.serving.ranks,
        subject.declaration.traffic.routing,
    )
    load = look.serving.utilisation(rate, replicas, batch)
    if load >= 1:
        raise UsageError(
            f"load {load:.2f}: the queue grows for ever and has no percentiles; use more replicas "
            "or a larger batch"
        )
    levels = outlook.levels(look.goal)
    played = _with_progress(point, requests, levels, options.seed)
    predicted = look.serving.queue.sojourn(point, levels)
    title = (
        f"{text.rate(rate)} on {text.plural(replicas, 'replica')} with max batch {batch}, "
        f"{point.routing} routing: load {load:.2f}"
    )
    if options.output is Format.TABLE:
        screen.echo(title)
        screen.echo(_counts(played, predicted))
    write(_table(list(simulation.figures(played, predicted))), options.output)
    if options.output is Format.TABLE:
        for warning in predicted.warnings:
            screen.echo(f"note: {warning}")


def _with_progress(
    point: OperatingPoint, requests: int, levels: tuple[float, ...], seed: int
) -> QueueEstimate:
    from rich.progress import Progress  # noqa: PLC0415

    from sojourn.cli import simulation  # noqa: PLC0415

    console = screen.console(error=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(f"{requests:,} requests", total=1.0)
        return simulation.play(
            point, requests, levels, seed, lambda share: progress.update(task, completed=share)
        )


def _counts(played: QueueEstimate, predicted: Sojourn) -> str:
    return (
        f"{played.served:,} requests measured, {played.blocking:.2%} refused (model "
        f"{predicted.blocking:.2%}), {played.mean_batch:.3g} together (model "
        f"{predicted.mean_batch:.3g}); model: {predicted.model}\n"
    )


def _table(found: list[Figure]) -> Table:
    from sojourn.cli import text  # noqa: PLC0415

    columns = (
        Column("name", "", left=True),
        Column("simulated_s", "simulated", text.seconds),
        Column("half_width_s", "± 95 %", text.seconds),
        Column("predicted_s", "model", text.seconds),
        Column("difference", "difference", lambda v: text.DASH if v is None else f"{v:+.1%}"),
    )
    rows = tuple(
        {
            "name": one.name,
            "simulated_s": one.simulated.value,
            "half_width_s": one.simulated.half_width,
            "predicted_s": one.predicted_s,
            "difference": one.difference,
        }
        for one in found
    )
    return Table(columns, rows)
