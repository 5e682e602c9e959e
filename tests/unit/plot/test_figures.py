"""Figures by their structure: what they show, and that all of it can be read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from sojourn.facts.replica import DynamicReplica
from sojourn.facts.service_time import LinearServiceTime
from sojourn.plot import curves, figures, fit, style, terminal, tradeoff

ROOT = Path(__file__).parents[3]
PALETTE = {
    colour.lower()
    for colour in (
        *(style.BLACK, style.ORANGE, style.SKY, style.GREEN, style.YELLOW, style.BLUE),
        *(style.VERMILION, style.PURPLE, style.GREY, "#dddddd", "#ffffff", "#b0b0b0"),
    )
}


@cache
def every() -> dict[str, Figure]:
    return figures.every(ROOT / "deploy" / "examples")


@cache
def gpt3_tradeoff() -> curves.TradeOff:
    path = ROOT / "deploy" / "examples" / "gpt3.yaml"
    serving = figures._serving(path, {"maxBatchSize": {"min": 1, "max": 128}})
    return curves.trade_off(serving, "GPT-3", 100.0)


def measured() -> curves.FitPicture:
    batches = np.array([1.0, 8.0, 32.0])
    seconds = np.array([0.0508, 0.0541, 0.0655])
    law = LinearServiceTime(0.05, 0.0005)
    return curves.FitPicture("GPT-3 on A100-80GB", batches, seconds, law, 0.1, "time of a batch")


def drawn(name: str) -> Figure:
    return fit.draw(measured()) if name == "fit" else every()[name]


NAMES = (
    "gpt3-tradeoff.svg",
    "gpt3-utilization.svg",
    "gpt3-p99.svg",
    "surrogate.svg",
    "memory.svg",
    "fit",
)


def texts(figure: Figure) -> list[Text]:
    """Every text that is seen."""
    with style.look():
        figure.canvas.draw()
    found = [t for t in figure.findobj(Text) if isinstance(t, Text)]
    unseen = {id(text) for axes in figure.axes for text in ticks_outside(axes)}
    return [t for t in found if t.get_visible() and t.get_text().strip() and id(t) not in unseen]


def ticks_outside(axes: Axes) -> Iterator[Text]:
    """Labels of ticks beyond the axis' ends: matplotlib keeps them and does not draw them."""
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        slack = 1e-9 * (high - low)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not low - slack <= float(tick.get_loc()) <= high + slack:
                yield from (tick.label1, tick.label2)


def box(text: Text) -> Bbox:
    return text.get_window_extent()


@pytest.mark.parametrize("name", NAMES)
def test_no_label_is_clipped(name: str) -> None:
    figure = drawn(name)
    page = figure.bbox
    for text in texts(figure):
        extent = box(text)
        assert extent.x0 >= page.x0 - 1, text.get_text()
        assert extent.x1 <= page.x1 + 1, text.get_text()
        assert extent.y0 >= page.y0 - 1, text.get_text()
        assert extent.y1 <= page.y1 + 1, text.get_text()


@pytest.mark.parametrize("name", NAMES)
def test_no_two_labels_overlap(name: str) -> None:
    for one, other in combinations(texts(drawn(name)), 2):
        overlap = Bbox.intersection(box(one), box(other))
        area = 0.0 if overlap is None else overlap.width * overlap.height
        assert area < 2.0, (one.get_text(), other.get_text())


@pytest.mark.parametrize("name", NAMES)
def test_figure_is_as_wide_as_a_readme(name: str) -> None:
    figure = drawn(name)
    assert figure.get_size_inches()[0] * figure.dpi == pytest.approx(800)
    assert min(float(text.get_fontsize()) for text in texts(figure)) >= 8


@pytest.mark.parametrize("name", NAMES)
def test_every_line_has_a_colour_of_the_palette(name: str) -> None:
    for axes in drawn(name).axes:
        seen = [line for line in axes.get_lines() if line.get_linestyle() not in ("None", " ")]
        for line in seen:
            assert to_hex(line.get_color()) in PALETTE


@pytest.mark.parametrize(
    ("name", "x_label", "y_label"),
    [
        ("gpt3-tradeoff.svg", "throughput, requests/s", "P99 of the sojourn time"),
        ("gpt3-utilization.svg", "load (share of what full batches serve)", "sojourn time"),
        ("gpt3-p99.svg", "requests/s, over all replicas", "P99 of the sojourn time"),
        ("memory.svg", "GiB of one GPU", ""),
        ("surrogate.svg", "max batch B", "mean E[T] of the sojourn time"),
        ("fit", "", "time of a batch"),
    ],
)
def test_axes_are_labelled_with_their_units(name: str, x_label: str, y_label: str) -> None:
    axes = drawn(name).axes[0]
    drawn(name).canvas.draw()
    assert (axes.get_xlabel(), axes.get_ylabel()) == (x_label, y_label)
    if y_label:  # durations carry their unit at every tick
        ticks = [t.get_text() for t in axes.get_yticklabels()]
        assert all(t.endswith("s") for t in ticks if t)


def test_lines_of_one_figure_differ_also_without_colour() -> None:
    lines: list[Any] = every()["gpt3-p99.svg"].axes[0].get_lines()[:10:2]
    assert len({str(line._dash_pattern) for line in lines}) == 5


def test_tradeoff_marks_front_knee_optimum_and_memory() -> None:
    legend = every()["gpt3-tradeoff.svg"].legends[0]
    labels = " | ".join(text.get_text().replace("\n", " ") for text in legend.get_texts())
    for wanted in (
        "Pareto front",
        "knee: B = 32",
        "best within SLO and memory: B = 64",
        "does not fit in memory: B above 68",
        "SLO 1s",
        "rate asked of a replica: 100/s",
    ):
        assert wanted in labels


def test_pareto_front_has_no_point_that_another_beats() -> None:
    curve = gpt3_tradeoff()
    rates, seconds = curve.throughput_per_s[curve.on_front], curve.p99_s[curve.on_front]
    order = np.argsort(rates)
    assert np.all(np.diff(seconds[order]) > 0)


def test_throughput_is_that_of_the_target_load() -> None:
    curve = gpt3_tradeoff()
    at = curve.batches.index(8)
    assert curve.throughput_per_s[at] == pytest.approx(0.75 * 8 / 0.054)


def test_diminishing_returns_are_shaded_from_the_batch_whose_doubling_buys_a_fifth() -> None:
    curve = gpt3_tradeoff()
    steep = curves.TradeOff(**{**curve.__dict__, "diminishing_from": 48, "kv_batch": None})
    legend = tradeoff.draw(steep).legends[0]
    labels = [text.get_text().replace("\n", " ") for text in legend.get_texts()]
    assert "diminishing returns: doubling buys 20 % or less (B from 48)" in labels


def test_parts_of_a_memory_bar_add_up_to_the_card() -> None:
    for patch_width in every()["memory.svg"].axes[0].containers:
        assert all(bar.get_width() > 0 for bar in patch_width)
    title, model, gpu, ranks, length = figures._MEMORY[2]
    bar = figures._memory_bar(title, model, gpu, ranks, length)
    assert sum(size for _, size in bar.parts) == pytest.approx(bar.total_bytes)
    assert bar.requests == "room for 115 requests of 4,096 tokens"


def test_card_that_is_too_small_says_by_how_much() -> None:
    title, model, gpu, ranks, length = figures._MEMORY[3]
    assert figures._memory_bar(title, model, gpu, ranks, length).short_bytes > 0


def test_weights_larger_than_the_card_say_what_they_need() -> None:
    bar = figures._memory_bar("Llama 2 70B on one L4", "Llama-2-70b", "L4", 1, 4096)
    assert [name for name, _ in bar.parts] == ["weights"]
    assert bar.label(*bar.parts[0]) == "22.0 of 128.5 needed"
    drawing = terminal.memory(bar, terminal.Screen(80, colour=False))
    assert "22.0 of 128.5 needed GiB" in drawing


def test_surrogate_lies_above_both_real_systems() -> None:
    curve = curves.surrogacy(DynamicReplica(figures.GPT3_LAW, 8), 100.0, "GPT-3", (8, 16, 32))
    assert np.all(curve.surrogate.mean_s > curve.full.mean_s)
    assert np.all(curve.full.mean_s > curve.real.mean_s)
    assert curve.surrogate.mean_s.round(3).tolist() == [0.145, 0.149, 0.230]


@pytest.mark.parametrize("suffix", style.SUFFIXES)
def test_same_figure_gives_the_same_file(suffix: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        style.save(fit.draw(measured()), tmp_path / f"{name}{suffix}")
    assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()


def test_documentation_ships_every_figure() -> None:
    shipped = {path.name for path in (ROOT / "docs" / "figures").glob("*.svg")}
    assert shipped >= set(every())


@pytest.mark.parametrize("width", [60, 80, 100])
def test_terminal_figures_keep_within_their_width(width: int) -> None:
    screen = terminal.Screen(width, colour=False)
    for drawing in (
        terminal.trade_off(gpt3_tradeoff(), screen),
        terminal.fit(measured(), screen),
        terminal.memory(figures._memory_bar(*figures._MEMORY[2]), screen),
    ):
        assert "\x1b" not in drawing
        body = drawing.splitlines()
        assert max(len(line.rstrip()) for line in body[: terminal.HEIGHT]) <= width


def test_terminal_tradeoff_names_what_it_marks() -> None:
    drawing = terminal.trade_off(gpt3_tradeoff(), terminal.Screen(80, colour=False))
    for wanted in ("K knee: B = 32", "* best in SLO: B = 64", "B above 68", "SLO 1s"):
        assert wanted in drawing


def test_terminal_ticks_are_round_and_begin_at_zero() -> None:
    assert terminal.ticks(0.46) == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    assert terminal.ticks(912) == pytest.approx([0, 200, 400, 600, 800])


def test_terminal_figure_leaves_the_background_of_the_terminal() -> None:
    drawing = terminal.trade_off(gpt3_tradeoff(), terminal.Screen(80, colour=True))
    assert "\x1b[38;5;" in drawing
    assert "\x1b[48;" not in drawing
