"""Latency against throughput over batch sizes: front, knee, SLO optimum, memory limit (S13)."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from sojourn.plot import style
from sojourn.plot.curves import TradeOff
from sojourn.units import format_rate

_LABEL_GAP_PX = 30.0


def draw(curve: TradeOff) -> Figure:
    """The book's figure for one service."""
    with style.look():
        made = style.figure()
        axes = made.subplots()
        _limits(axes, curve)
        _shade(axes, curve)
        _points(axes, curve)
        _marks(axes, curve)
        level = f"P{round(curve.probability * 100, 4):g}"
        axes.set_title(f"{curve.name}: one replica at a load of {curve.load:g}, by max batch B")
        axes.set_xlabel("throughput, requests/s")
        axes.set_ylabel(f"{level} of the sojourn time")
        style.in_durations(axes)
        axes.grid(alpha=0.25)
        style.legend_below(made, 3)
        made.canvas.draw()
        _batch_labels(axes, curve)
    return made


def _limits(axes: Axes, curve: TradeOff) -> None:
    finite = curve.p99_s[np.isfinite(curve.p99_s)]
    axes.set_ylim(0, style.top_with(curve.slo_s, 1.12 * float(finite.max())))
    axes.set_xlim(0, 1.04 * float(curve.throughput_per_s.max()))


def _shade(axes: Axes, curve: TradeOff) -> None:
    right = axes.get_xlim()[1]
    if curve.kv_batch is not None and not curve.fits.all():
        edge = float(np.interp(curve.kv_batch, curve.batches, curve.throughput_per_s))
        axes.axvspan(
            edge,
            right,
            facecolor=style.GREY,
            alpha=0.25,
            hatch="//",
            edgecolor="white",
            linewidth=0,
            label=f"does not fit in memory:\nB above {curve.kv_batch}",
        )
    if curve.diminishing_from is not None:
        at = curve.batches.index(curve.diminishing_from)
        axes.axvspan(
            float(curve.throughput_per_s[at]),
            right,
            color=style.YELLOW,
            alpha=0.18,
            linewidth=0,
            zorder=0,
            label=f"diminishing returns: doubling\nbuys 20 % or less (B from {curve.batches[at]})",
        )
    if curve.share_per_s is not None and curve.share_per_s <= right:
        axes.axvline(
            curve.share_per_s,
            color=style.PURPLE,
            linestyle=":",
            label=f"rate asked of a replica: {format_rate(curve.share_per_s)}",
        )
    style.slo(axes, curve.slo_s)


def _points(axes: Axes, curve: TradeOff) -> None:
    rates, seconds, fits = curve.throughput_per_s, curve.p99_s, curve.fits
    held = np.flatnonzero(fits)
    axes.plot(rates[held], seconds[held], color=style.BLUE, linewidth=1.2, alpha=0.7)
    beyond = np.flatnonzero(~fits)
    if beyond.size and held.size:
        joined = np.concatenate([held[-1:], beyond])
        axes.plot(rates[joined], seconds[joined], color=style.GREY, linestyle="--", linewidth=1.2)
        axes.plot(rates[beyond], seconds[beyond], "o", color=style.GREY, markersize=4)
    front = curve.on_front & fits
    axes.plot(
        rates[front], seconds[front], "o", color=style.BLUE, markersize=6, label="Pareto front"
    )
    beaten = ~curve.on_front & fits
    if beaten.any():
        axes.plot(
            rates[beaten],
            seconds[beaten],
            "o",
            markerfacecolor="white",
            markeredgecolor=style.BLUE,
            markersize=6,
            label="beaten in both by another B",
        )


def _marks(axes: Axes, curve: TradeOff) -> None:
    marks = (
        (curve.knee, "s", style.ORANGE, "knee"),
        (curve.best, "*", style.GREEN, "best within SLO and\nmemory"),
    )
    for index, marker, colour, name in marks:
        if index is None:
            continue
        axes.plot(
            curve.throughput_per_s[index],
            curve.p99_s[index],
            marker,
            color=colour,
            markersize=16 if marker == "*" else 12,
            markerfacecolor=colour if marker == "*" else "none",
            markeredgecolor=colour if marker != "*" else "black",
            markeredgewidth=2.2 if marker != "*" else 0.6,
            linestyle="none",
            zorder=5,
            label=f"{name}: B = {curve.batches[index]}",
        )


def _batch_labels(axes: Axes, curve: TradeOff) -> None:
    """Batch sizes beside their points, powers of two first, none closer than it can be read."""
    placed: list[tuple[float, float]] = []
    order = sorted(
        range(len(curve.batches)),
        key=lambda i: (i not in (curve.knee, curve.best), curve.batches[i].bit_count() != 1, i),
    )
    for index in order:
        point = (float(curve.throughput_per_s[index]), float(curve.p99_s[index]))
        if not np.isfinite(point).all():
            continue
        x, y = axes.transData.transform(point)
        if any(abs(x - px) < _LABEL_GAP_PX and abs(y - py) < _LABEL_GAP_PX for px, py in placed):
            continue
        placed.append((float(x), float(y)))
        steep = index + 1 < len(curve.batches) and _falls(axes, curve, index)
        axes.annotate(
            str(curve.batches[index]),
            point,
            xytext=(8, 2) if steep else (0, -17),
            textcoords="offset points",
            ha="left" if steep else "center",
            fontsize=9,
            # A halo keeps a number legible where a line passes under it.
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )


def _falls(axes: Axes, curve: TradeOff, index: int) -> bool:
    """The curve goes down steeply after a point: a label below it would lie on the line."""
    ends = [
        axes.transData.transform((curve.throughput_per_s[i], curve.p99_s[i]))
        for i in (index, index + 1)
    ]
    (x0, y0), (x1, y1) = ends
    return bool(y0 - y1 > 0.5 * (x1 - x0))
