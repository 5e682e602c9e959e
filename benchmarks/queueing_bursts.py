"""Continuous batching under bursty arrivals: what the correction gains over Poisson's answer.

    python -m benchmarks.queueing_fresh --rows 28 --seed 3 --dispersion 3 > FILE
    python -m benchmarks.queueing_bursts FILE ...

Prints, per dispersion and metric, signed errors against simulation with the dispersion told to the
model and with it withheld: median, median size, 90th percentile, lowest and highest.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.queueing import rows_of, score

METRICS = ("e2e_mean", "e2e_p99", "ttft_p50", "ttft_p99", "tpot_p95")


def main(arguments: Sequence[str] | None = None) -> None:
    """Score the rows twice and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    chosen = parser.parse_args(arguments)
    errors: dict[tuple[float, str, str], list[float]] = defaultdict(list)
    for file in chosen.files:
        for row in rows_of(json.loads(file.read_text())):
            dispersion = row["inputs"].get("dispersion", 1.0)
            plain = {**row, "inputs": {**row["inputs"], "dispersion": 1.0}}
            for name, one in (("told", score(row)), ("withheld", score(plain))):
                for metric in METRICS:
                    errors[dispersion, metric, name].append(one.errors[metric])
    print("| dispersion | metric | rows | z | signed median | median | P90 | lowest | highest |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (dispersion, metric, name), found in sorted(errors.items()):
        values = np.array(found)
        size = np.abs(values)
        print(
            f"| {dispersion:g} | {metric} | {values.size} | {name} | {np.median(values):+.0%} "
            f"| {np.median(size):.0%} | {np.quantile(size, 0.9):.0%} | {values.min():+.0%} "
            f"| {values.max():+.0%} |"
        )


if __name__ == "__main__":
    main()
