"""``sojourn plan``: what a service needs at a rate, before anything is deployed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sojourn.cli import exits, screen
from sojourn.cli import given as givens
from sojourn.cli.given import Given, Subject
from sojourn.cli.table import Format, write, write_data

if TYPE_CHECKING:
    from sojourn.cli.compare import Choice
    from sojourn.cli.steps import Step


@dataclass(frozen=True)
class PlanOptions:
    """Flags of ``sojourn plan``."""

    given: Given
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            "-r",
            metavar="R",
            help="Requests/s: 40, or a range 20..200 for the rates at which one more replica is"
            " needed. Default: the manifest's.",
        ),
    ] = None
    compare_gpus: Annotated[
        str | None,
        typer.Option(
            metavar="TYPES", help="GPU types to compare, by comma; `all` for those with a price."
        ),
    ] = None
    compare_tp: Annotated[
        str | None,
        typer.Option(
            "--compare-tp", metavar="SIZES", help="Tensor-parallel sizes to compare, by comma."
        ),
    ] = None
    steps: Annotated[
        bool, typer.Option("--steps", help="The five steps of the framework, with numbers.")
    ] = False
    output: Annotated[Format, typer.Option("--output", "-o", help="How the answer is written.")] = (
        Format.TABLE
    )


def plan(options: PlanOptions) -> None:
    """Replicas, max batch, latency, memory and cost of a service at a rate. No cluster needed.

    Exit code 1: it would not start, is unstable, or cannot keep its SLO.
    """
    from sojourn.cli import outlook, rates  # noqa: PLC0415

    subject = givens.read(options.given)
    low, high = rates.parse(options.rate) or (outlook.rate_of(subject.declaration), None)
    if options.compare_gpus is not None or options.compare_tp is not None:
        _compare(subject, high or low, options)
    elif high is not None:
        _spans(subject, (low, high), options.output)
    else:
        _one(subject, low, options)


def _one(subject: Subject, rate_per_s: float, options: PlanOptions) -> None:
    from sojourn.cli import outlook, plan_data, plan_view  # noqa: PLC0415
    from sojourn.cli import steps as five  # noqa: PLC0415

    look = outlook.outlook(subject, rate_per_s)
    taken = five.steps(look) if options.steps else ()
    match options.output:
        case Format.TABLE:
            if taken:
                _show_steps(plan_view.title(look, subject.name), taken)
            else:
                plan_view.show(look, subject.name, screen.console())
        case Format.JSON | Format.YAML:
            answer = plan_data.data(look, subject.name)
            write_data(answer | ({"steps": _steps_data(taken)} if taken else {}), options.output)
        case _ if taken:
            for step in taken:
                write(step.table, options.output)
                screen.echo("")
        case _:
            write(plan_data.flat(look, subject.name), options.output)
    if not look.works:
        raise typer.Exit(exits.VERDICT)


def _steps_data(taken: tuple[Step, ...]) -> list[dict[str, Any]]:
    return [
        {
            "step": step.number,
            "title": step.title,
            "rows": step.table.records(),
            "conclusion": " ".join(step.conclusion),
        }
        for step in taken
    ]


def _show_steps(title: str, taken: tuple[Step, ...]) -> None:
    import textwrap  # noqa: PLC0415

    from rich.text import Text  # noqa: PLC0415

    from sojourn.cli.table import print_table  # noqa: PLC0415

    console = screen.console()
    console.print(Text(title, style="bold"))
    for step in taken:
        console.print()
        console.print(Text(f"{step.number}. {step.title}", style="bold cyan"))
        print_table(step.table, console)
        for line in textwrap.wrap(" ".join(step.conclusion), min(console.width, 100)):
            console.print(Text(line), no_wrap=True)


def _spans(subject: Subject, interval: tuple[float, float], form: Format) -> None:
    from sojourn.cli import outlook, plan_data, plan_view  # noqa: PLC0415

    found = tuple(outlook.spans(subject, *interval))
    if form is Format.TABLE:
        look = outlook.outlook(subject, interval[1])
        from rich.text import Text  # noqa: PLC0415

        from sojourn.units import format_rate  # noqa: PLC0415

        rates = f"{format_rate(interval[0])} to {format_rate(interval[1])}"
        title = plan_view.title(look, subject.name, rates)
        screen.console().print(Text(title, style="bold"))
    write(plan_data.spans_table(found), form)
    allowed = subject.declaration.scaling.max_replicas
    if any(not s.sized.reachable or s.sized.replicas > allowed for s in found):
        raise typer.Exit(exits.VERDICT)


def _compare(subject: Subject, rate_per_s: float, options: PlanOptions) -> None:
    from sojourn.cli import compare, rates  # noqa: PLC0415

    names = _compared_gpus(subject, options.compare_gpus or subject.declaration.gpu.type)
    found = compare.choices(subject, rate_per_s, names, rates.sizes(options.compare_tp))
    table = compare.table(found)
    for_people = options.output is Format.TABLE
    if for_people:
        _print_compared(found, rate_per_s)
    if table.rows or not for_people:
        write(table, options.output)
    if for_people:
        for line in compare.left_out(found):
            screen.console().print(f"left out: {line}", style="dim")
    if not any(choice.look and choice.look.works for choice in found):
        raise typer.Exit(exits.VERDICT)


def _compared_gpus(subject: Subject, asked: str) -> list[str]:
    if asked == "all":
        return [g.name for g in subject.catalogue.gpus() if g.price_per_hour_usd is not None]
    return [name.strip() for name in asked.split(",") if name.strip()]


def _print_compared(found: Iterable[Choice], rate_per_s: float) -> None:
    """Print for what the cards are compared; nothing when none can be planned."""
    from sojourn.cli import plan_view  # noqa: PLC0415

    look = next((choice.look for choice in found if choice.look), None)
    if look is None:
        return
    model, goal = look.serving.service.architecture.name, plan_view.slo(look.goal)
    screen.console().print(
        f"{model}; {goal} at {rate_per_s:g}/s, cheapest first", style="bold", markup=False
    )
