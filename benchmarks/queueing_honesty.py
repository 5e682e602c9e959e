"""Whether answers that are optimistic say so: an audit of simulated rows.

    python -m benchmarks.queueing_honesty FILE ...

A P99 (latency, end to end or first token) more than 5 % below the simulated one must come with a
warning that names the metric and a size in percent, no smaller than the miss less the run's own
half-width. Rows that are honest without help and warned all the same are counted too: a
warning on every answer would be worth nothing.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.queueing import rows_of, score

# A warning speaks of a metric by these words, and of a size by a number of percent.
METRICS = {
    "p99": re.compile("percentile|P99"),
    "e2e_p99": re.compile("P99 end to end"),
    "ttft_p99": re.compile("P99 of the time to first token"),
}
SIZE = re.compile(r"(?:up to|be|times) (\d+) %")
OPTIMISTIC = 0.05


@dataclass(frozen=True)
class Finding:
    """One metric of one row.

    Attributes:
        error: predicted / simulated - 1.
        width: half-width of the simulated value, relative.
        warned: largest size that a warning of the metric names, as a fraction; 0 without one.
    """

    row: str
    group: str
    metric: str
    error: float
    width: float
    warned: float

    @property
    def honest(self) -> bool:
        """Not optimistic, or warned of a miss as large, the half-width of the run aside."""
        return not self.optimistic or (self.warned > 0 and self.warned + self.width >= -self.error)

    @property
    def optimistic(self) -> bool:
        """Whether it had to be warned of."""
        return self.error < -OPTIMISTIC


def findings(row: dict[str, Any]) -> list[Finding]:
    """Every P99 of a row that the model answers."""
    scored, given = score(row), row["simulated"]
    found = []
    for metric, words in METRICS.items():
        error = scored.errors.get(metric)
        if error is None:
            continue
        found.append(
            Finding(
                row=str(row["id"]),
                group=f"{row['system']} {row['inputs'].get('routing') or 'one'}",
                metric=metric,
                error=error,
                width=(given.get(f"{metric}_hw") or 0.0) / given[metric],
                warned=_named(words, scored.warnings),
            )
        )
    return found


def _named(words: re.Pattern[str], warnings: Sequence[str]) -> float:
    spoken = [text for text in warnings if words.search(text)]
    sizes = [int(size) for text in spoken for size in SIZE.findall(text)]
    return max(sizes, default=0) / 100


def _print(found: Sequence[Finding]) -> None:
    for one in found:
        if not one.honest:
            print(
                f"NOT WARNED {one.row} {one.group} {one.metric} {one.error:+.1%}, half-width "
                f"{one.width:.1%}, warned of {one.warned:.0%}"
            )
    groups: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for one in found:
        groups[one.group, one.metric].append(one)
    print(f"{'':44}{'rows':>6}{'optimistic':>12}{'not warned':>12}{'warned in vain':>16}")
    for (group, metric), some in sorted(groups.items()):
        low = [one for one in some if one.optimistic]
        silent = sum(not one.honest for one in some)
        vain = sum(one.warned > 0 and not one.optimistic for one in some)
        print(f"{group + ' ' + metric:44}{len(some):6}{len(low):12}{silent:12}{vain:16}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Audit files of rows of the reference form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    chosen = parser.parse_args(arguments)
    found: list[Finding] = []
    for file in chosen.files:
        for row in rows_of(json.loads(file.read_text())):
            if "simulated" in row:
                found += findings(row)
    _print(found)


if __name__ == "__main__":
    main()
