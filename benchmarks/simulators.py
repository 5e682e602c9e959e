"""Our simulators beside the reference's and beside the models.

    python -m benchmarks.simulators [--rows FILE] [--requests 100000] [--every 8] [--system NAME]

Every n-th simulated row of the reference table is played by ``sojourn.simulate`` and answered by
the model. Columns: the reference's value with its half-width, ours with its own, the model's, and
the signed errors of ours and of the model against the reference. ``ok`` means that the intervals of
the two simulators overlap. A row of 100,000 requests takes one to five seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import continuous_rows
from benchmarks.queueing_rows import predict
from sojourn.facts.replica import DynamicReplica, OperatingPoint, Routing
from sojourn.facts.service_time import LinearServiceTime
from sojourn.simulate import queues
from sojourn.simulate.estimate import LatencyEstimate
from sojourn.simulate.queues import QueueEstimate, Run

DEFAULT_ROWS = Path(__file__).parents[1] / "tests" / "data" / "queueing_reference.json"

_ROUTINGS = {
    "random": Routing.RANDOM,
    "roundrobin": Routing.ROUND_ROBIN,
    "jsq": Routing.LEAST_LOADED,
    "shared": Routing.SHARED_QUEUE,
}
_LEVELS = (0.5, 0.99)


def dynamic_point(inputs: dict[str, Any]) -> OperatingPoint:
    """The operating point of a dynamic-batching row."""
    law = LinearServiceTime(inputs["t_fixed"], inputs["t_req"], inputs["cv2"])
    one = DynamicReplica(law, inputs["bmax"], inputs["tmax"], inputs["cap"])
    return OperatingPoint(one, inputs["lam"], inputs["c"], _ROUTINGS[inputs["routing"]])


def simulate(row: dict[str, Any], requests: int, seed: int) -> dict[str, tuple[float, float]]:
    """Value and half-width by the row's metric names."""
    run, rng = Run(requests, _LEVELS), np.random.default_rng(seed)
    if row["system"] == "dynamic-batching":
        seen = queues.dynamic(dynamic_point(row["inputs"]), run, rng)
        return _metrics("", seen.latency)
    inputs = dict(row["inputs"])
    alone = bool(inputs.pop("exclusive", False))
    seen = queues.continuous(continuous_rows.point(inputs), run, rng, exclusive_prompts=alone)
    return {**_metrics("e2e_", seen.latency), **_token_metrics(seen)}


def _token_metrics(seen: QueueEstimate) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    for prefix, latency in (("ttft_", seen.first_token), ("tpot_", seen.output_token)):
        if latency is not None:
            found |= _metrics(prefix, latency)
    return found


def _metrics(prefix: str, latency: LatencyEstimate) -> dict[str, tuple[float, float]]:
    names = {"mean": latency.mean, "p50": latency.quantile(0.5), "p99": latency.quantile(0.99)}
    return {f"{prefix}{name}": (one.value, one.half_width) for name, one in names.items()}


def main(arguments: list[str] | None = None) -> None:
    """Print the table and a summary by system."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path, default=DEFAULT_ROWS)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--every", type=int, default=8)
    parser.add_argument("--system", help="one system only")
    chosen = parser.parse_args(arguments)
    rows = json.loads(chosen.rows.read_text())["simulated"]
    rows = [row for row in rows if chosen.system in (None, row["system"])][:: chosen.every]
    overlaps: dict[str, list[bool]] = defaultdict(list)
    print(f"{'row':11}{'metric':11}{'reference':>11}{'+-':>8}{'ours':>11}{'+-':>8}", end="")
    print(f"{'model':>11}{'ours':>8}{'model':>8}")
    for number, row in enumerate(rows):
        print(f"\r{number + 1}/{len(rows)} {row['id']}", end="\r", file=sys.stderr)
        answers = predict(row).values
        for metric, (ours, width) in simulate(row, chosen.requests, number).items():
            theirs = row["simulated"][metric]
            their_width = row["simulated"].get(f"{metric}_hw") or 0.0
            overlap = abs(ours - theirs) <= width + their_width + 1e-3 * theirs
            overlaps[f"{row['system']} {metric}"].append(overlap)
            said = answers.get(metric)
            model = f"{said:11.4g}" if isinstance(said, float) else f"{'-':>11}"
            error = f"{said / theirs - 1:+8.1%}" if isinstance(said, float) else f"{'-':>8}"
            print(
                f"{row['id']:11}{metric:11}{theirs:11.4g}{their_width:8.2g}{ours:11.4g}{width:8.2g}"
                f"{model}{ours / theirs - 1:+8.1%}{error}  {'ok' if overlap else 'apart'}"
            )
    print("\nintervals that overlap")
    for name, found in sorted(overlaps.items()):
        print(f"{name:40}{sum(found):4}/{len(found)}")


if __name__ == "__main__":
    main()
