"""A load staircase and what the operator made of it: rate, replicas and latency over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

# Okabe and Ito, "Color Universal Design" (2008).
BLACK, ORANGE, BLUE, GREEN, VERMILION = "#000000", "#E69F00", "#0072B2", "#009E73", "#D55E00"


@dataclass(frozen=True)
class Trace:
    """One service over time; all sequences of one length, nan where nothing is known.

    Attributes:
        name: of the service.
        slo_s: P99 it must keep.
        times_s: since the start of the load.
        offered_per_s: requests per second sent.
        observed_per_s: requests per second the operator reported.
        ready, desired: replicas that serve, replicas asked for.
        max_batch: max batch of the newest replica.
        measured_s, predicted_s: P99 of the sojourn time.
    """

    name: str
    slo_s: float
    times_s: Sequence[float]
    offered_per_s: Sequence[float]
    observed_per_s: Sequence[float]
    ready: Sequence[int]
    desired: Sequence[int]
    max_batch: Sequence[int]
    measured_s: Sequence[float]
    predicted_s: Sequence[float]


def draw(traces: Sequence[Trace]) -> Figure:
    """The figure: a column a service, rows for rate, replicas and P99."""
    figure = Figure(figsize=(6.4 * len(traces), 8.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(3, len(traces), sharex="col", squeeze=False)
    for column, trace in enumerate(traces):
        _rate(axes[0][column], trace)
        _replicas(axes[1][column], trace)
        _latency(axes[2][column], trace)
    return figure


def save(figure: Figure, folder: Path, name: str) -> tuple[Path, Path]:
    """Write ``name.png`` and ``name.svg`` into a folder; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / f"{name}.png", folder / f"{name}.svg"
    for path in paths:
        figure.savefig(path, dpi=120)
    return paths


def _rate(axes: Axes, trace: Trace) -> None:
    axes.set_title(trace.name, loc="left", fontweight="bold")
    axes.step(trace.times_s, trace.offered_per_s, BLACK, where="post", label="offered")
    axes.step(
        trace.times_s,
        trace.observed_per_s,
        color=ORANGE,
        linestyle="--",
        where="post",
        label="last reported by the operator",
    )
    _finish(axes, "requests/s")


def _replicas(axes: Axes, trace: Trace) -> None:
    axes.step(trace.times_s, trace.desired, BLUE, linestyle="--", where="post", label="desired")
    axes.step(trace.times_s, trace.ready, GREEN, where="post", label="ready")
    _finish(axes, "replicas")
    axes.set_ylim(0, max(trace.desired, default=1) + 1)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    for number, (at_s, batch) in enumerate(_changes(trace)):
        # Labels of changes that follow one another closely stand above each other.
        height = 0.03 + 0.06 * (number % 3)
        axes.annotate(
            f" max batch {batch}",
            (at_s, height),
            xycoords=("data", "axes fraction"),
            fontsize="small",
        )
        axes.axvline(at_s, color=BLACK, linewidth=0.6, linestyle=":")


def _latency(axes: Axes, trace: Trace) -> None:
    axes.axhline(trace.slo_s, color=VERMILION, linestyle="-.", label=f"SLO {trace.slo_s:g} s")
    predicted = np.asarray(trace.predicted_s, dtype=float)
    # A queue that grows without bound has no percentile: the line has a gap there.
    predicted[~np.isfinite(predicted)] = np.nan
    axes.plot(trace.times_s, trace.measured_s, GREEN, label="P99 measured")
    axes.plot(trace.times_s, predicted, BLUE, linestyle="--", label="P99 predicted")
    _finish(axes, "sojourn time, s")
    axes.set_ylim(0, None)
    axes.set_xlabel("time, s")


def _changes(trace: Trace) -> list[tuple[float, int]]:
    """Where max batch became another one, its first value included."""
    changes: list[tuple[float, int]] = []
    for at_s, batch in zip(trace.times_s, trace.max_batch, strict=True):
        if not changes or changes[-1][1] != batch:
            changes.append((at_s, batch))
    return changes


def _finish(axes: Axes, label: str) -> None:
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
    axes.set_ylim(0, None)
    # Above the axes, where no line can run behind it.
    axes.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, fontsize="small", frameon=False
    )
