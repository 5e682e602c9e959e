"""Whether answers that are optimistic say so: an audit of simulated rows.

    python -m benchmarks.queueing_honesty FILE ...

A P99 (latency, end to end or first token) more than 5 % below the simulated one must come with a
warning that names the metric and a size in percent. "Beyond" are misses larger than the run's own
half-width as well. Rows that are honest without help and warned all the same are counted too: a
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
SIZE = re.compile(r"(up to|be|times) \d+ %")
OPTIMISTIC = 0.05


@dataclass(frozen=True)
class Finding:
    """One metric of one row.

    Attributes:
        error: predicted / simulated - 1.
        beyond: the miss is larger than the half-width of the simulated value.
        warned: a warning names the metric and a size.
    """

    row: str
    group: str
    metric: str
    error: float
    beyond: bool
    warned: bool

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
        miss = given[metric] - scored.predicted[metric]
        found.append(
            Finding(
                row=str(row["id"]),
                group=f"{row['system']} {row['inputs'].get('routing') or 'one'}",
                metric=metric,
                error=error,
                beyond=miss > (given.get(f"{metric}_hw") or 0.0),
                warned=any(words.search(text) and SIZE.search(text) for text in scored.warnings),
            )
        )
    return found


def _print(found: Sequence[Finding]) -> None:
    for one in found:
        if one.optimistic and not one.warned:
            state = "beyond the half-width" if one.beyond else "within the half-width"
            print(f"NOT WARNED {one.row} {one.group} {one.metric} {one.error:+.1%}, {state}")
    groups: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for one in found:
        groups[one.group, one.metric].append(one)
    print(f"{'':44}{'rows':>6}{'optimistic':>12}{'not warned':>12}{'warned in vain':>16}")
    for (group, metric), some in sorted(groups.items()):
        low = [one for one in some if one.optimistic]
        silent = sum(not one.warned for one in low)
        vain = sum(one.warned and not one.optimistic for one in some)
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
