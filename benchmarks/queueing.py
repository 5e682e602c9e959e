"""How well the queueing models answer rows of the reference form.

    python -m benchmarks.queueing [--rows tests/data/queueing_reference.json] [--json]

Prints per row what was predicted beside what was given, the relative errors, and whether each
metric with a tolerance lies within it; then a summary per system, regime and metric. Errors are
signed: minus is optimistic. Rows are those of ``exact`` and ``simulated``, or a plain list.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

# Small matrices solve faster on one thread, and a benchmark should not race itself for cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.queueing_rows import predict

DEFAULT_ROWS = Path(__file__).parents[1] / "tests" / "data" / "queueing_reference.json"

# Exact values are printed with six digits; half a unit of the sixth.
EXACT_TOLERANCE = 5.5e-6

# The reference reads this one off a grid; ours is confirmed by another convolution to 1e-7.
GRID_TOLERANCE = {"p99_exact": 1e-3}


@dataclass(frozen=True)
class RowScore:
    """One row scored.

    Attributes:
        predicted: the model's values under the row's names.
        given: the row's own values of the same names.
        errors: predicted / given - 1, signed; minus is optimistic for latencies.
        outside: metrics with a tolerance that miss it, or that the model does not answer.
        within: None when the row has no tolerance.
        seconds: wall time of the evaluation.
    """

    id: str
    system: str
    regime: str
    load: float | None
    predicted: dict[str, Any]
    given: dict[str, Any]
    errors: dict[str, float]
    tolerance: dict[str, float] | None
    outside: tuple[str, ...]
    within: bool | None
    warnings: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class MetricSummary:
    """Errors of one metric over the rows of one system and regime, as fractions."""

    system: str
    regime: str
    metric: str
    rows: int
    median: float
    p90: float
    worst: float
    signed_median: float
    most_optimistic: float
    checked: int
    outside: int


def rows_of(document: Any) -> list[dict[str, Any]]:
    """Rows of a reference file, or of a plain list."""
    if isinstance(document, list):
        return document
    return [row for part in ("exact", "simulated") for row in document.get(part, [])]


def score(row: dict[str, Any]) -> RowScore:
    """One row's predictions beside its values."""
    given = row.get("simulated") or row.get("exact") or {}
    exact = "simulated" not in row
    start = perf_counter()
    try:
        found = predict(row)
        predicted, warnings = found.values, found.warnings
    except Exception as error:
        predicted, warnings = {}, (f"{type(error).__name__}: {error}",)
    seconds = perf_counter() - start
    shared = [name for name in given if name in predicted]
    errors = {name: _error(predicted[name], given[name]) for name in shared}
    tolerance = row.get("tolerance")
    if exact and tolerance is None:
        tolerance = {name: GRID_TOLERANCE.get(name, EXACT_TOLERANCE) for name in given}
    outside = _outside(errors, tolerance)
    return RowScore(
        id=str(row.get("id")),
        system=row["system"],
        regime=row.get("regime", "exact"),
        load=row.get("load"),
        predicted={name: _plain(value) for name, value in predicted.items()},
        given={name: given[name] for name in shared},
        errors={name: _plain(value) for name, value in errors.items()},
        tolerance=tolerance,
        outside=outside,
        within=None if tolerance is None else not outside,
        warnings=warnings,
        seconds=seconds,
    )


def summary(scores: Sequence[RowScore]) -> list[MetricSummary]:
    """Median, 90th percentile and worst error per system, regime and metric."""
    groups: dict[tuple[str, str, str], list[tuple[RowScore, float]]] = defaultdict(list)
    for one in scores:
        for metric, error in one.errors.items():
            if error is not None and math.isfinite(error) and not metric.endswith("_hw"):
                groups[one.system, one.regime, metric].append((one, error))
    found = []
    for (system, regime, metric), entries in groups.items():
        errors = np.array([error for _, error in entries])
        checked = [one for one, _ in entries if one.tolerance and metric in one.tolerance]
        found.append(
            MetricSummary(
                system=system,
                regime=regime,
                metric=metric,
                rows=errors.size,
                median=float(np.median(np.abs(errors))),
                p90=float(np.quantile(np.abs(errors), 0.9)),
                worst=float(np.max(np.abs(errors))),
                signed_median=float(np.median(errors)),
                most_optimistic=float(np.min(errors)),
                checked=len(checked),
                outside=sum(metric in one.outside for one in checked),
            )
        )
    return found


def _error(predicted: Any, given: Any) -> float:
    if isinstance(given, list):
        pairs = zip(predicted, given, strict=True)
        return max((_error(p, g) for p, g in pairs), key=abs)
    if given is None:
        # "No such value": the model must say infinite.
        return 0.0 if math.isinf(predicted) else math.inf
    if isinstance(given, bool):
        return 0.0 if predicted == given else math.inf
    if abs(given) < 1e-9:
        return float(predicted - given)
    return float(predicted / given - 1)


def _outside(errors: dict[str, float], tolerance: dict[str, float] | None) -> tuple[str, ...]:
    if tolerance is None:
        return ()
    return tuple(
        name
        for name, limit in tolerance.items()
        if not (name in errors and abs(errors[name]) <= limit)
    )


def _plain(value: Any) -> Any:
    """JSON has no infinity: null stands for it, as in the rows."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _print_rows(scores: Sequence[RowScore]) -> None:
    for one in scores:
        verdict = {True: "within", False: "OUTSIDE", None: "no tolerance"}[one.within]
        print(f"{one.id}  {one.system}/{one.regime}  {verdict}  {one.seconds * 1e3:.1f} ms")
        for name, error in one.errors.items():
            if name.endswith("_hw") or error is None:
                continue
            limit = (one.tolerance or {}).get(name)
            held = f"  tolerance {limit:.2%}" if limit is not None else ""
            mark = "  <-- outside" if name in one.outside else ""
            values = f"{_short(one.predicted[name]):>12} against {_short(one.given[name]):>12}"
            print(f"    {name:<16}{values}  {error:+8.2%}{held}{mark}")
        for text in one.warnings:
            print(f"    warning: {text}")


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:12]


def _print_summary(found: Sequence[MetricSummary], scores: Sequence[RowScore]) -> None:
    print(
        f"\n{'system/regime':<46}{'metric':<15}{'rows':>5}{'median':>9}{'p90':>8}{'worst':>8}"
        f"{'signed':>9}{'lowest':>9}{'outside':>9}"
    )
    for one in found:
        print(
            f"{one.system + '/' + one.regime:<46}{one.metric:<15}{one.rows:>5}{one.median:>9.2%}"
            f"{one.p90:>8.2%}{one.worst:>8.1%}{one.signed_median:>+9.2%}"
            f"{one.most_optimistic:>+9.1%}{one.outside:>5}/{one.checked}"
        )
    judged = [one for one in scores if one.within is not None]
    inside = sum(bool(one.within) for one in judged)
    print(f"\n{inside} of {len(judged)} rows with a tolerance within it, {len(scores)} rows in all")


def main(arguments: Sequence[str] | None = None) -> None:
    """Score the rows and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, default=DEFAULT_ROWS, help="file of rows")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--system", help="only rows of this system")
    chosen = parser.parse_args(arguments)
    rows = rows_of(json.loads(chosen.rows.read_text()))
    scores = [score(row) for row in rows if chosen.system in (None, row["system"])]
    found = summary(scores)
    if chosen.json:
        document = {
            "rows": [asdict(one) for one in scores],
            "summary": [asdict(one) for one in found],
        }
        print(json.dumps(document))
        return
    _print_rows(scores)
    _print_summary(found, scores)


if __name__ == "__main__":
    main()
