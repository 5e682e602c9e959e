"""Measured batch times, the line through them and its relative errors."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from sojourn.model import service_time
from sojourn.plot import style
from sojourn.plot.curves import FitPicture
from sojourn.units import format_duration


def draw(picture: FitPicture) -> Figure:
    """Two panels: times with the line, residuals with the tolerance."""
    with style.look():
        made = style.figure()
        upper, lower = made.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        law, largest = picture.law, float(picture.batches.max())
        line = np.linspace(0, largest * 1.05, 50)
        formula = f"{format_duration(law.fixed_s)} + {format_duration(law.per_request_s)} B"
        upper.plot(line, service_time.service_s(law, line), color=style.BLUE, label=formula)
        upper.plot(picture.batches, picture.seconds, "o", color=style.BLACK, label="measured")
        upper.set_ylim(0, None)
        upper.set_ylabel(picture.label)
        style.in_durations(upper)
        upper.legend(loc="upper left")
        upper.set_title(picture.name)
        lower.axhspan(
            -100 * picture.tolerance, 100 * picture.tolerance, color=style.GREEN, alpha=0.15
        )
        lower.axhline(0, color=style.BLUE, linewidth=1)
        lower.stem(
            picture.batches, 100 * picture.residuals, linefmt="k-", markerfmt="ko", basefmt=" "
        )
        most = 100 * max(picture.tolerance, float(np.abs(picture.residuals).max()))
        lower.set_ylim(-1.3 * most, 1.3 * most)
        lower.set_ylabel("line's error, %")
        lower.set_xlabel("requests together, B")
        for axes in (upper, lower):
            axes.grid(alpha=0.25)
        lower.set_xlim(0, largest * 1.05)
    return made
