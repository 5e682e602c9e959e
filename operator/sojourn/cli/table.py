"""One table, five renderings: for people, for pages and for programs.

Programs get the raw value under the column's key, whose name carries the unit; people get the
text that the column makes of it.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sojourn.cli import screen

if TYPE_CHECKING:
    from rich.console import Console


class Format(StrEnum):
    """How an answer is written (``-o``)."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    MD = "md"


def plain(value: Any) -> str:
    """A value as it is; nothing for None."""
    return "" if value is None else str(value)


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        key: name for programs, with its unit: ``p99_s``.
        title: name for people.
        show: text of a value for people.
        left: aligned left: words; numbers are aligned right.
        rank: columns of higher rank go first when the terminal is narrow.
    """

    key: str
    title: str
    show: Callable[[Any], str] = plain
    left: bool = False
    rank: int = 0


@dataclass(frozen=True)
class Table:
    """Rows of raw values under columns."""

    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Any], ...]

    def records(self) -> list[dict[str, Any]]:
        """Rows for programs: None for what is not known or not finite."""
        return [{c.key: finite(row.get(c.key)) for c in self.columns} for row in self.rows]

    def texts(self, columns: Sequence[Column] | None = None) -> list[list[str]]:
        """Rows for people."""
        return [[c.show(row.get(c.key)) for c in columns or self.columns] for row in self.rows]


def finite(value: Any) -> Any:
    """The value, with NaN and infinity as None anywhere in it: JSON has neither."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def write(table: Table, form: Format) -> None:
    """Write a table to standard output."""
    match form:
        case Format.TABLE:
            print_table(table, screen.console())
        case Format.JSON | Format.YAML:
            write_data(table.records(), form)
        case Format.CSV:
            screen.echo(as_csv(table))
        case Format.MD:
            screen.echo(as_markdown(table))


def write_data(data: Any, form: Format) -> None:
    """Write plain data as JSON, or else as YAML."""
    if form is Format.JSON:
        screen.echo(json.dumps(finite(data), indent=2, ensure_ascii=False))
        return
    import yaml  # noqa: PLC0415

    screen.echo(yaml.safe_dump(finite(data), sort_keys=False, allow_unicode=True, width=100))


def as_csv(table: Table) -> str:
    """RFC 4180 with a header of keys."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [c.key for c in table.columns], lineterminator="\n")
    writer.writeheader()
    for record in table.records():
        writer.writerow({key: _digits(value) for key, value in record.items()})
    return out.getvalue()


def _digits(value: Any) -> Any:
    """A float to six significant digits: more is noise of the last bit."""
    return f"{value:.6g}" if isinstance(value, float) else value


def as_markdown(table: Table) -> str:
    """A Markdown table with the texts for people."""
    rule = ["---" if c.left else "---:" for c in table.columns]
    rows = [[c.title for c in table.columns], rule, *table.texts()]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def print_table(table: Table, console: Console) -> None:
    """Print for people: as many columns as the width holds, and what was left out."""
    from rich.text import Text  # noqa: PLC0415

    kept = fitting(table, console.width)
    widths = _widths(table, kept)
    titles = [c.title for c in kept]
    console.print(Text(_line(titles, kept, widths), style="bold"), no_wrap=True)
    for cells in table.texts(kept):
        console.print(Text(_line(cells, kept, widths)), no_wrap=True, overflow="ellipsis")
    dropped = [c.title for c in table.columns if c not in kept]
    if dropped:
        names = ", ".join(dropped)
        console.print(Text(f"(too narrow for {names}; see -o json)", style="dim"))


def fitting(table: Table, width: int) -> tuple[Column, ...]:
    """The columns that fit a width, dropped by rank, the last of equals first."""
    kept = list(table.columns)
    while len(kept) > 1 and sum(_widths(table, kept)) + 2 * (len(kept) - 1) > width:
        highest = max(c.rank for c in kept)
        if highest == 0:
            break
        kept.remove([c for c in kept if c.rank == highest][-1])
    return tuple(kept)


def _widths(table: Table, columns: Sequence[Column]) -> list[int]:
    rows = [[c.title for c in columns], *table.texts(columns)]
    return [max(len(row[i]) for row in rows) for i in range(len(columns))]


def _line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    padded = [
        cell.ljust(width) if column.left else cell.rjust(width)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    ]
    return "  ".join(padded).rstrip()
