"""The real system beside the book's surrogate, over batch sizes."""

from __future__ import annotations

from matplotlib.figure import Figure

from sojourn.plot import style
from sojourn.plot.curves import Surrogacy


def draw(curve: Surrogacy) -> Figure:
    """Mean and P99 of both, side by side panels on one axis of batches."""
    with style.look():
        made = style.figure(height_in=4.2)
        left, right = made.subplots(1, 2)
        panels = ((left, "mean E[T]", "mean_s"), (right, "P99", "p99_s"))
        for axes, name, part in panels:
            lines = (
                (curve.surrogate, style.VERMILION, "--", "book's surrogate (M/G/1; P99 4.6 E[T])"),
                (curve.full, style.ORANGE, "-.", "exact, waiting for full batches"),
                (curve.real, style.BLUE, "-", "exact, starting when free"),
            )
            for pair, colour, dashes, label in lines:
                axes.plot(curve.batches, getattr(pair, part), color=colour, ls=dashes, label=label)
            axes.axvspan(0, curve.unstable_below - 0.5, color=style.GREY, alpha=0.3, linewidth=0)
            axes.annotate(
                "unstable",
                ((curve.unstable_below - 0.5) / 2, 0.5),
                xycoords=("data", "axes fraction"),
                rotation=90,
                ha="center",
                va="center",
                fontsize=9,
            )
            axes.set_xlim(0, max(curve.batches))
            axes.set_ylim(0, 1.05 * float(getattr(curve.surrogate, part).max()))
            axes.set_xlabel("max batch B")
            axes.set_ylabel(f"{name} of the sojourn time")
            style.in_durations(axes)
            axes.grid(alpha=0.25)
        style.legend_below(made, 3)
        made.suptitle(
            f"{curve.name} at {curve.rate_per_s:g} requests/s, one replica",
            x=0.01,
            ha="left",
            fontsize=11,
            fontweight="bold",
        )
    return made
