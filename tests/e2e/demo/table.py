"""The live table: refreshed in place on a terminal, plain lines elsewhere."""

import math
import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from sojourn.units import format_duration, format_rate
from tests.e2e.demo.stage import Actor, Sample, Stage

LINE_EVERY_S = 5.0
COLUMNS = (
    *("SERVICE", "RATE", "ρ", "P99 PREDICTED", "P99 MEASURED", "SLO"),
    *("READY", "DESIRED", "BATCH", "LAST ROW"),
)


class Board:
    """Shows the newest sample of every actor; a context manager."""

    def __init__(self, stage: Stage, console: Console) -> None:
        self._stage = stage
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._next_line_s = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.__enter__()
        else:
            self._console.print(_line(COLUMNS), highlight=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def show(self) -> None:
        """Show the state of now."""
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
            return
        if self._stage.elapsed_s < self._next_line_s:
            return
        self._next_line_s = self._stage.elapsed_s + LINE_EVERY_S
        for actor in self._stage.actors.values():
            print(_line(row(actor)), file=self._console.file, flush=True)

    def _table(self) -> Table:
        at_s, all_s = self._stage.elapsed_s, self._stage.duration_s
        table = Table(title=f"{min(at_s, all_s):.0f} s of {all_s:.0f} s", title_justify="left")
        for number, name in enumerate(COLUMNS):
            table.add_column(name, justify="right" if 0 < number < len(COLUMNS) - 1 else "left")
        for actor in self._stage.actors.values():
            table.add_row(*row(actor))
        return table


def row(actor: Actor) -> tuple[str, ...]:
    """The newest sample of an actor as text."""
    sample: Sample = actor.samples[-1]
    return (
        actor.part.name,
        format_rate(sample.offered_per_s),
        "-" if math.isinf(sample.utilisation) else f"{sample.utilisation:.2f}",
        _seconds(sample.predicted_s),
        _seconds(sample.p99_s),
        _seconds(actor.forecast.slo_s),
        str(sample.ready),
        str(sample.desired),
        str(sample.max_batch),
        sample.row,
    )


def console() -> Console:
    """Standard output; wide enough for a line where it is no terminal."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else 140)


def _seconds(value: float) -> str:
    if math.isnan(value):
        return "-"
    return "unbounded" if math.isinf(value) else format_duration(float(f"{value:.3g}"))


def _line(cells: tuple[str, ...]) -> str:
    widths = (8, 8, 5, 14, 13, 6, 6, 8, 6, 20)
    return " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
