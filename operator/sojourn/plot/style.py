"""One look for every figure: colours told apart by colour-blind readers, sizes, saving."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from sojourn.units import format_duration

# Okabe and Ito, "Color Universal Design" (2008).
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#999999"

WIDTH_IN, HEIGHT_IN, DPI = 8.0, 5.0, 100
"""800 pixels wide: the width of a README."""

LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
"""Beside its colour each of several curves has its own dashes."""

_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    # Text as shapes: a figure looks the same where the font is missing.
    "svg.fonttype": "path",
    # The same input gives the same file.
    "svg.hashsalt": "sojourn",
}

_NEAR = 1.6

SUFFIXES = (".svg", ".png", ".pdf")
"""Kinds of files figures are written as."""


@contextmanager
def look() -> Iterator[None]:
    """The look, while figures are drawn."""
    with mpl.rc_context(_SETTINGS):
        yield


def figure(width_in: float = WIDTH_IN, height_in: float = HEIGHT_IN) -> Figure:
    """An empty figure that any backend can save, laid out so that nothing is clipped."""
    made = Figure(figsize=(width_in, height_in), layout="constrained", dpi=DPI)
    FigureCanvasAgg(made)
    return made


def save(made: Figure, path: Path) -> None:
    """Write a figure; the file's ending says how.

    Raises:
        ValueError: an ending that is not one of ``SUFFIXES``.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path.name}: expected a name ending with {', '.join(SUFFIXES)}")
    date = {"Date": None} if path.suffix.lower() == ".svg" else {}
    metadata = {"CreationDate": None} if path.suffix.lower() == ".pdf" else date
    with look():
        made.savefig(path, metadata=metadata)


def in_durations(axis_owner: Axes, which: str = "y") -> None:
    """Tick labels as durations with their unit: 50ms, 1.5s."""
    axis = axis_owner.yaxis if which == "y" else axis_owner.xaxis
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_duration(round(value, 12))))


def top_with(limit: float | None, top: float) -> float:
    """Upper end of an axis: with room for a limit that is near, as it is for one far above."""
    return top if limit is None or limit > _NEAR * top else max(top, 1.12 * limit)


def slo(axes: Axes, limit_s: float | None) -> None:
    """The SLO as a line with its entry in the legend, which says so where it lies above the axis.

    A text beside the line would sooner or later lie on a curve.
    """
    if limit_s is None:
        return
    above = limit_s > axes.get_ylim()[1]
    label = f"SLO {format_duration(limit_s)}{', above this axis' if above else ''}"
    where = ([], []) if above else (axes.get_xlim(), (limit_s, limit_s))
    axes.plot(*where, color=VERMILION, linestyle=(0, (6, 2)), linewidth=1.4, label=label)


def legend_below(made: Figure, columns: int) -> None:
    """The legend of a figure's only axes, below it: nothing of the curves is covered."""
    handles, labels = made.axes[0].get_legend_handles_labels()
    made.legend(handles, labels, loc="outside lower center", ncols=columns)
