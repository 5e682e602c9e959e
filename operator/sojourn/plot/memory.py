"""Where the memory of a GPU goes: one bar a configuration."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from sojourn.plot import style
from sojourn.plot.curves import MemoryBar
from sojourn.units import GIB, format_gib

_LOOKS = {
    "weights": (style.BLUE, "", "white"),
    "activations": (style.ORANGE, "//", "black"),
    "engine": (style.PURPLE, "..", "black"),
    "graphs": (style.YELLOW, "xx", "black"),
    "KV cache": (style.GREEN, "", "white"),
    "kept free": ("#DDDDDD", "", "black"),
}
_LEAST_LABELLED = 0.05
_ROW_IN, _FRAME_IN = 0.95, 1.3


def draw(bars: Sequence[MemoryBar], title: str) -> Figure:
    """The bars, the first on top; a part wide enough carries its GiB."""
    with style.look():
        made = style.figure(height_in=_FRAME_IN + _ROW_IN * len(bars))
        axes = made.subplots()
        widest = max(bar.total_bytes for bar in bars) / GIB
        for row, bar in enumerate(bars):
            _bar(axes, row, bar, widest)
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.set_xlim(0, widest * 1.01)
        axes.set_yticks([])
        axes.set_xlabel("GiB of one GPU")
        axes.set_title(title)
        axes.spines["left"].set_visible(False)
        names = [n for n in _LOOKS if any(n == part for bar in bars for part, _ in bar.parts)]
        made.legend(
            handles=[
                Patch(facecolor=_LOOKS[n][0], hatch=_LOOKS[n][1], edgecolor="white", label=n)
                for n in names
            ],
            loc="outside lower center",
            ncols=len(names),
        )
    return made


def _bar(axes: Axes, row: int, bar: MemoryBar, widest: float) -> None:
    left = 0.0
    for name, size_bytes in bar.parts:
        colour, hatch, ink = _LOOKS[name]
        width = size_bytes / GIB
        axes.barh(row, width, left=left, height=0.5, color=colour, hatch=hatch, edgecolor="white")
        if width > _LEAST_LABELLED * widest:
            axes.annotate(
                bar.label(name, size_bytes),
                (left + width / 2, row),
                ha="center",
                va="center",
                color=ink,
            )
        left += width
    verdict = f"short by {format_gib(bar.short_bytes)}" if bar.short_bytes else bar.requests
    axes.annotate(f"{bar.name}: {verdict}", (0, row - 0.29), ha="left", va="bottom", fontsize=9.5)
