"""The figures in a terminal: plotext's characters, legends below so that no curve is covered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotext

from sojourn.model import service_time
from sojourn.plot.curves import FitPicture, LoadCurve, MemoryBar, TailCurves, TradeOff
from sojourn.units import format_duration, format_gib, format_rate

LEAST_WIDTH, MOST_WIDTH, HEIGHT = 50, 120, 22
_COLOURS = ("blue", "orange", "green", "magenta", "cyan")
_SYMBOLS = "12345"
_PARTS = {
    "weights": "█",
    "activations": "▓",
    "engine": "▒",
    "graphs": "░",
    "KV cache": "▚",
    "kept free": "·",
}


@dataclass(frozen=True)
class Screen:
    """Width in characters, and whether colours are wanted."""

    width: int
    colour: bool


@dataclass(frozen=True)
class Line:
    """One curve or set of points: a dense line (``braille``) or one character a point."""

    x: Sequence[float]
    y: Sequence[float]
    label: str
    symbol: str = "braille"
    joined: bool = True


@dataclass(frozen=True)
class Chart:
    """What is drawn: lines, texts at points, and both axes."""

    title: str
    lines: tuple[Line, ...]
    x_label: str
    x_top: float
    y_label: str
    y_top: float
    texts: tuple[tuple[float, float, str], ...] = ()
    notes: tuple[str, ...] = ()


def trade_off(curve: TradeOff, screen: Screen) -> str:
    """Latency against throughput over batch sizes."""
    x, y = curve.throughput_per_s, curve.p99_s
    top = _top(curve.slo_s, 1.12 * float(y.max()))
    right = 1.04 * float(x.max())
    lines = [Line(x[curve.fits].tolist(), y[curve.fits].tolist(), "fits in memory")]
    notes = []
    if not curve.fits.all():
        beyond = ~curve.fits
        label = f"does not fit (B above {curve.kv_batch})"
        lines.append(Line(x[beyond].tolist(), y[beyond].tolist(), label, "x", False))
    if curve.slo_s is not None:
        lines.append(_limit(curve.slo_s, right, top))
    for index, symbol, name in ((curve.knee, "K", "knee"), (curve.best, "*", "best in SLO")):
        if index is not None:
            label = f"{name}: B = {curve.batches[index]}"
            lines.append(Line([float(x[index])], [float(y[index])], label, symbol, False))
    if curve.diminishing_from is not None:
        notes.append(f"doubling B buys 20 % or less from B = {curve.diminishing_from}")
    texts = [
        (float(x[i]), float(y[i]) - 0.06 * top, str(b))
        for i, b in enumerate(curve.batches)
        if b.bit_count() == 1 and b != 1
    ]
    title = f"{curve.name}: one replica at load {curve.load:g}, by max batch"
    chart = Chart(
        title,
        tuple(lines),
        "throughput, requests/s",
        right,
        f"P{round(100 * curve.probability, 4):g}",
        top,
        tuple(_apart(texts, right, screen)),
        tuple(notes),
    )
    return render(chart, screen)


def load(curve: LoadCurve, screen: Screen) -> str:
    """Latency against load."""
    top = _top(curve.slo_s, 1.25 * float(curve.p99_s.max()))
    x = curve.loads.tolist()
    shown = np.where(curve.mm1_s <= top, curve.mm1_s, np.nan)
    known = np.isfinite(shown)
    level = f"P{round(100 * curve.probability, 4):g}"
    lines = [
        Line(x, curve.p99_s.tolist(), level),
        Line(x, curve.mean_s.tolist(), "mean", "m", False),
        Line(curve.loads[known].tolist(), shown[known].tolist(), "M/M/1 1/(1-load)", ".", False),
    ]
    if curve.slo_s is not None:
        lines.append(_limit(curve.slo_s, 1.0, top))
    notes = (
        f"below {curve.low:.0%} fewer replicas are tried, target {curve.target:.0%}, "
        f"above {curve.high:.0%} more are added",
    )
    title = f"{curve.name}: latency against load, max batch {curve.batch}"
    return render(Chart(title, tuple(lines), "load", 1.0, level, top, (), notes), screen)


def tails(curves: TailCurves, screen: Screen) -> str:
    """P99 against the rate for several replica counts."""
    top = _top(curves.slo_s, 1.05 * float(curves.p99_s.max()))
    right = 1.02 * float(curves.rates_per_s.max())
    lines = []
    for index, count in enumerate(curves.replicas):
        noun = "replica" if count == 1 else "replicas"
        label = f"{count} {noun}, up to {format_rate(curves.most_per_s[index])}"
        x, y = curves.rates_per_s[index].tolist(), curves.p99_s[index].tolist()
        lines.append(Line(x, y, label, str(count) if count < 10 else _SYMBOLS[index], False))
    if curves.slo_s is not None:
        lines.append(_limit(curves.slo_s, right, top))
    level = f"P{round(100 * curves.probability, 4):g}"
    title = f"{curves.name}: {level} against the rate, max batch {curves.batch}"
    return render(Chart(title, tuple(lines), "requests/s", right, level, top), screen)


def fit(picture: FitPicture, screen: Screen) -> str:
    """Measured times and the line through them."""
    right = 1.05 * float(picture.batches.max())
    line = np.linspace(0, right, 60)
    law = picture.law
    label = f"{format_duration(law.fixed_s)} + {format_duration(law.per_request_s)} B"
    top = 1.15 * float(picture.seconds.max())
    lines = (
        Line(line.tolist(), service_time.service_s(law, line).tolist(), label),
        Line(picture.batches.tolist(), picture.seconds.tolist(), "measured", "o", False),
    )
    errors = ", ".join(
        f"B {batch:g}: {100 * error:+.1f} %"
        for batch, error in zip(picture.batches.tolist(), picture.residuals.tolist(), strict=True)
    )
    notes = (f"line's error: {errors}",)
    chart = Chart(picture.name, lines, "requests together, B", right, "time", top, (), notes)
    return render(chart, screen)


def memory(bar: MemoryBar, screen: Screen) -> str:
    """One GPU as a bar of characters, its parts listed below."""
    width = _width(screen) - 2
    cells, drawn, used = "", 0, 0.0
    for name, size in bar.parts:
        used += size
        end = round(width * used / bar.total_bytes)
        cells += _PARTS[name] * (end - drawn)
        drawn = end
    lines = [f"{bar.name}: the {format_gib(bar.total_bytes)} of a GPU", f"[{cells}]"]
    for name, size in bar.parts:
        share = size / bar.total_bytes
        held = bar.label(name, size)
        lines.append(f"  {_PARTS[name]} {name:<12}{held:>7} GiB  {share:4.0%}")
        if name == "KV cache":
            lines.append(f"      {bar.requests}")
    if bar.short_bytes:
        lines.append(f"  short by {format_gib(bar.short_bytes)}")
    return "\n".join(lines)


def render(chart: Chart, screen: Screen) -> str:
    """The chart as text, its legend and notes below."""
    figure: Any = plotext.figure
    figure.clear()
    # Only the points have colours: the terminal's own background stays, dark or light.
    figure.theme("colorless")
    figure.plot_size(_width(screen), HEIGHT)
    for index, line in enumerate(chart.lines):
        marker = plotext.marker(line.symbol, _COLOURS[index % len(_COLOURS)])
        x, y = _visible(line, chart)
        if x:
            signal = figure.signal(x, y, marker=marker)
            figure.draw(signal.lines() if line.joined else signal)
    for x_at, y_at, label in chart.texts:
        figure.draw(figure.text(x_at, y_at, label))
    for axis, top, text in (("x", chart.x_top, _number), ("y", chart.y_top, _duration)):
        places = ticks(top)
        figure.ruler(axis).lim(0, top)
        figure.ruler(axis).ticks(places, [text(place) for place in places])
    figure.title(chart.title)
    figure.label(chart.x_label)
    body = str(figure.build().string(not screen.colour)).rstrip("\n")
    figure.clear()
    legend = [f"{_sample(line)} {line.label}" for line in chart.lines]
    return "\n".join([body, *_flowed(legend, _width(screen)), *chart.notes])


def ticks(top: float) -> list[float]:
    """About five round places from 0 up to ``top``."""
    rough = top / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = min((s * power for s in (1, 2, 2.5, 5, 10)), key=lambda s: abs(s - rough))
    return [step * i for i in range(int(top / step * (1 + 1e-9)) + 1)]


def _width(screen: Screen) -> int:
    return max(LEAST_WIDTH, min(MOST_WIDTH, screen.width))


def _visible(line: Line, chart: Chart) -> tuple[list[float], list[float]]:
    kept = [
        (x, y)
        for x, y in zip(line.x, line.y, strict=True)
        if math.isfinite(y) and y <= chart.y_top and x <= chart.x_top
    ]
    return [x for x, _ in kept], [y for _, y in kept]


def _sample(line: Line) -> str:
    return "⠒" if line.symbol == "braille" else line.symbol


def _flowed(entries: Sequence[str], width: int) -> list[str]:
    lines = [""]
    for entry in entries:
        joined = f"{lines[-1]}   {entry}" if lines[-1] else entry
        if len(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(entry)
    return lines


def _limit(limit_s: float, right: float, top: float) -> Line:
    label = f"SLO {format_duration(limit_s)}{', above this axis' if limit_s > top else ''}"
    return Line([0.0, right], [limit_s, limit_s], label, "-")


def _top(limit: float | None, top: float) -> float:
    return top if limit is None or limit > 1.6 * top else max(top, 1.12 * limit)


def _apart(
    texts: Sequence[tuple[float, float, str]], right: float, screen: Screen
) -> list[tuple[float, float, str]]:
    """Labels at least four characters apart."""
    kept: list[tuple[float, float, str]] = []
    for one in texts:
        if not kept or (one[0] - kept[-1][0]) / right * _width(screen) >= 4:
            kept.append(one)
    return kept


def _number(value: float) -> str:
    return f"{value:.6g}"


def _duration(value: float) -> str:
    return format_duration(round(value, 12))
