"""``sojourn curve``: the figures of a service, in a file or in the terminal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sojourn.cli import given as givens
from sojourn.cli import screen
from sojourn.cli.exits import UsageError
from sojourn.cli.given import Given, Subject

if TYPE_CHECKING:
    from sojourn.cli.outlook import Outlook


class Kind(StrEnum):
    """Which figure."""

    TRADEOFF = "tradeoff"
    UTILIZATION = "utilization"
    P99 = "p99"
    MEMORY = "memory"


@dataclass(frozen=True)
class CurveOptions:
    """Flags of ``sojourn curve``."""

    given: Given
    kind: Annotated[
        Kind,
        typer.Option(
            "--kind",
            "-k",
            help="tradeoff: latency against throughput over batch sizes. utilization: latency"
            " against load. p99: against the rate, for several replica counts. memory: where a"
            " GPU's memory goes.",
        ),
    ] = Kind.TRADEOFF
    utilization: Annotated[
        bool, typer.Option("--utilization", "--utilisation", help="Short for -k utilization.")
    ] = False
    rate: Annotated[
        str | None,
        typer.Option("--rate", "-r", metavar="R", help="Requests/s. Default: the manifest's."),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the figure: .svg, .png or .pdf. Without it the terminal shows it.",
        ),
    ] = None


def curve(options: CurveOptions) -> None:
    """Figures of a service: trade-off over batch sizes, load, tails, memory. No cluster needed."""
    from sojourn.cli import outlook, rates  # noqa: PLC0415

    subject = givens.read(options.given)
    asked = rates.parse(options.rate)
    if asked is not None and asked[1] is not None:
        raise UsageError(f"--rate {options.rate}: one rate is drawn, not a range")
    rate = asked[0] if asked else outlook.rate_of(subject.declaration)
    look = outlook.outlook(subject, rate)
    kind = Kind.UTILIZATION if options.utilization else options.kind
    if look.sized is None and kind is not Kind.MEMORY:
        raise UsageError(
            f"{subject.name} would not start: only --kind memory has something to show"
        )
    numbers = _numbers(kind, subject, look)
    if options.output is None:
        screen.echo(_in_terminal(kind, numbers))
    else:
        _in_file(kind, numbers, options.output)


def _numbers(kind: Kind, subject: Subject, look: Outlook) -> Any:
    from sojourn.facts.policy import Policy  # noqa: PLC0415
    from sojourn.plot import curves  # noqa: PLC0415

    serving, name = look.serving, subject.name
    if kind is Kind.MEMORY or look.sized is None:
        return curves.memory_bar(serving, name)
    replicas, batch = max(1, look.sized.replicas), look.sized.batch
    match kind:
        case Kind.TRADEOFF:
            return curves.trade_off(serving, name, look.rate_per_s / replicas)
        case Kind.UTILIZATION:
            policy = Policy()
            thresholds = (policy.low_utilisation, policy.high_utilisation)
            return curves.load_curve(serving, name, batch, thresholds)
    return curves.tail_curves(serving, name, batch, replicas, look.rate_per_s)


def _in_terminal(kind: Kind, numbers: Any) -> str:
    from sojourn.plot import terminal  # noqa: PLC0415

    console = screen.console()
    width = console.width if console.width != screen.PIPED_WIDTH else 100
    shown = terminal.Screen(width, screen.coloured(console))
    draw: dict[Kind, Callable[[Any, Any], str]] = {
        Kind.TRADEOFF: terminal.trade_off,
        Kind.UTILIZATION: terminal.load,
        Kind.P99: terminal.tails,
        Kind.MEMORY: terminal.memory,
    }
    return draw[kind](numbers, shown)


def _in_file(kind: Kind, numbers: Any, path: Path) -> None:
    from sojourn.plot import load, memory, style, tails, tradeoff  # noqa: PLC0415

    if path.suffix.lower() not in style.SUFFIXES:
        raise UsageError(f"-o {path}: expected a name ending with {', '.join(style.SUFFIXES)}")
    match kind:
        case Kind.TRADEOFF:
            figure = tradeoff.draw(numbers)
        case Kind.UTILIZATION:
            figure = load.draw(numbers)
        case Kind.P99:
            figure = tails.draw(numbers)
        case Kind.MEMORY:
            figure = memory.draw([numbers], "Where the memory of a GPU goes")
    try:
        style.save(figure, path)
    except OSError as exc:
        raise UsageError(f"-o {path} cannot be written: {exc.strerror}") from exc
    screen.echo(f"wrote {path}")
