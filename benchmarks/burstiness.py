"""The burstiness correction against trace-driven simulation: the table of docs/benchmarks.md.

    python -m benchmarks.burstiness TRACE.csv.gz ... [--json]

A trace is a gzip CSV with a column ``time_s``. Each 15-minute window is fed to one batch server
whose service time is scaled so that the window's load is as wanted; z comes from the window before,
as the operator would know it. Printed per trace, batch and load: z, and predicted over simulated
P99 (median, and the share of windows in which the prediction is short by more than 10 %) for
Poisson arrivals and for the correction.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from sojourn.facts.replica import DynamicReplica, OperatingPoint
from sojourn.facts.service_time import LinearServiceTime
from sojourn.model import burstiness
from sojourn.model.domain import FloatArray
from sojourn.model.exact_model import ExactModel

WINDOW_S = 900.0
INTERVAL_S = 15.0
WARM_UP_S = 60.0
MOST_WINDOWS = 24

# T_fixed is this share of s_B: about that of GPT-3 at B = 32.
FIXED_SHARE = 0.75


@dataclass(frozen=True)
class Outcome:
    """One trace, batch and load over its windows; ratios are predicted / simulated P99."""

    trace: str
    batch: int
    load: float
    windows: int
    z_median: float
    poisson_ratio: float
    poisson_short: float
    corrected_ratio: float
    corrected_short: float


def arrivals(path: Path) -> FloatArray:
    """Arrival times, (n,)."""
    with gzip.open(path, "rt") as file:
        header = file.readline().strip().split(",")
        return np.loadtxt(file, delimiter=",", usecols=header.index("time_s"))


def latencies_s(times: FloatArray, replica: DynamicReplica) -> FloatArray:
    """Response of every request of a batch server with T_max = 0, in order of arrival."""
    sizes = np.arange(replica.max_batch + 1)
    law = replica.service
    assert isinstance(law, LinearServiceTime)
    seconds = law.fixed_s + law.per_request_s * sizes
    done = np.empty(times.size)
    first, free_s = 0, 0.0
    while first < times.size:
        start_s = max(free_s, times[first])
        taken = int(np.searchsorted(times[first : first + replica.max_batch], start_s, "right"))
        free_s = start_s + float(seconds[taken])
        done[first : first + taken] = free_s
        first += taken
    return done - times


def outcome(name: str, times: FloatArray, batch: int, load: float) -> Outcome:
    """All windows of one trace at one batch and load."""
    count = int(times[-1] // WINDOW_S)
    chosen = np.unique(np.linspace(1, max(1, count - 1), MOST_WINDOWS).astype(int))
    ratios, peaks = [], []
    for window in chosen:
        start_s = window * WINDOW_S
        here = times[(times >= start_s) & (times < start_s + WINDOW_S)]
        past = times[(times >= start_s - WINDOW_S) & (times < start_s)]
        counts, _ = np.histogram(past - start_s, np.arange(-WINDOW_S, 1, INTERVAL_S))
        z = burstiness.peakedness(counts)
        if z is None or here.size < 1000:
            continue
        rate = here.size / WINDOW_S
        full_s = load * batch / rate
        law = LinearServiceTime(FIXED_SHARE * full_s, (1 - FIXED_SHARE) * full_s / batch)
        replica = DynamicReplica(law, batch)
        seen = latencies_s(here, replica)[here >= start_s + WARM_UP_S]
        simulated_s = float(np.quantile(seen, 0.99))
        answers = [
            ExactModel().sojourn(OperatingPoint(replica, rate, dispersion=value), (0.99,))
            for value in (1.0, z)
        ]
        ratios.append([one.latency.quantile_s(0.99) / simulated_s for one in answers])
        peaks.append(z)
    values = np.array(ratios) if ratios else np.full((1, 2), np.nan)
    return Outcome(
        trace=name,
        batch=batch,
        load=load,
        windows=len(ratios),
        z_median=float(np.median(peaks)) if peaks else float("nan"),
        poisson_ratio=float(np.median(values[:, 0])),
        poisson_short=float(np.mean(values[:, 0] < 0.9)),
        corrected_ratio=float(np.median(values[:, 1])),
        corrected_short=float(np.mean(values[:, 1] < 0.9)),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the traces and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path, nargs="+", help="gzip CSV files with time_s")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    chosen = parser.parse_args(arguments)
    found = []
    for path in chosen.traces:
        times = arrivals(path)
        for batch in (1, 16):
            for load in (0.6, 0.85):
                found.append(outcome(path.name.removesuffix(".csv.gz"), times, batch, load))
    if chosen.json:
        print(json.dumps([asdict(one) for one in found]))
        return
    print("| trace | B | load | windows | z | Poisson | short | corrected | short |")
    print("|---|---|---|---|---|---|---|---|---|")
    for one in found:
        print(
            f"| {one.trace} | {one.batch} | {one.load} | {one.windows} | {one.z_median:.1f} "
            f"| {one.poisson_ratio:.2f} | {one.poisson_short:.0%} "
            f"| {one.corrected_ratio:.2f} | {one.corrected_short:.0%} |"
        )


if __name__ == "__main__":
    main()
