"""P99 against the rate for several numbers of replicas."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from sojourn.plot import style
from sojourn.plot.curves import TailCurves
from sojourn.units import format_rate

_COLOURS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.BLACK)


def draw(curves: TailCurves) -> Figure:
    """One curve a replica count, a dot at the most each may be asked for."""
    with style.look():
        made = style.figure()
        axes = made.subplots()
        level = f"P{round(curves.probability * 100, 4):g}"
        for index, count in enumerate(curves.replicas):
            rates, seconds = curves.rates_per_s[index], curves.p99_s[index]
            noun = "replica" if count == 1 else "replicas"
            most = curves.most_per_s[index]
            axes.plot(
                rates,
                seconds,
                color=_COLOURS[index],
                linestyle=style.LINES[index],
                label=f"{count} {noun}: up to {format_rate(most)}",
            )
            at = float(np.interp(most, rates, seconds))
            axes.plot(most, at, "o", color=_COLOURS[index], markersize=7, zorder=5)
        axes.set_ylim(0, style.top_with(curves.slo_s, 1.05 * float(curves.p99_s.max())))
        axes.set_xlim(0, 1.02 * float(curves.rates_per_s.max()))
        style.slo(axes, curves.slo_s)
        if curves.rate_per_s is not None:
            axes.axvline(
                curves.rate_per_s,
                color=style.GREY,
                linestyle=":",
                label=f"rate asked: {format_rate(curves.rate_per_s)}",
            )
        axes.set_title(f"{curves.name}: {level} against the rate, max batch {curves.batch}")
        axes.annotate(
            "dots: the most within SLO and target load",
            (1.0, 1.01),
            xycoords="axes fraction",
            ha="right",
            va="bottom",
            fontsize=8.5,
        )
        axes.set_xlabel("requests/s, over all replicas")
        axes.set_ylabel(f"{level} of the sojourn time")
        style.in_durations(axes)
        axes.grid(alpha=0.25)
        style.legend_below(made, 3)
    return made
