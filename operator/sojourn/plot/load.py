"""The utilisation hockey stick: latency against load, beside 1 / (1 - rho) (S14)."""

from __future__ import annotations

from matplotlib.figure import Figure

from sojourn.plot import style
from sojourn.plot.curves import LoadCurve


def draw(curve: LoadCurve) -> Figure:
    """Mean and percentile of one service against load."""
    with style.look():
        made = style.figure()
        axes = made.subplots()
        level = f"P{round(curve.probability * 100, 4):g}"
        axes.plot(curve.loads, curve.p99_s, color=style.BLUE, label=f"{level}, this service")
        axes.plot(
            curve.loads, curve.mean_s, color=style.GREEN, linestyle="--", label="mean, this service"
        )
        axes.plot(
            curve.loads,
            curve.mm1_s,
            color=style.GREY,
            linestyle=":",
            label="mean of M/M/1 as fast as a lone request, 1 / (1 - load)",
        )
        axes.set_ylim(0, style.top_with(curve.slo_s, 1.25 * float(curve.p99_s.max())))
        axes.set_xlim(0, 1)
        style.slo(axes, curve.slo_s)
        axes.axvspan(0, curve.low, color=style.SKY, alpha=0.15, linewidth=0)
        axes.axvspan(curve.high, 1, color=style.ORANGE, alpha=0.25, linewidth=0)
        axes.axvline(curve.target, color=style.PURPLE, linestyle="-.", linewidth=1.2)
        for at, name in (
            (curve.low / 2, f"below {curve.low:.0%}: fewer replicas"),
            (curve.target, f"target {curve.target:.0%}"),
            ((curve.high + 1) / 2, f"above {curve.high:.0%}: more"),
        ):
            # Above the axes, where no curve can cross it.
            axes.annotate(
                name,
                (at, 1.01),
                xycoords=("data", "axes fraction"),
                ha="center",
                va="bottom",
                fontsize=8.5,
            )
        axes.set_title(f"{curve.name}: latency against load, max batch {curve.batch}", pad=20)
        axes.set_xlabel("load (share of what full batches serve)")
        axes.set_ylabel("sojourn time")
        style.in_durations(axes)
        axes.grid(alpha=0.25)
        style.legend_below(made, 3)
    return made
