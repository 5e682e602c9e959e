"""Simulated fleets that the correction of round robin and least loaded is fitted on.

    python -m benchmarks.queueing_design POINTS [--first 0] [--requests 150000] > FILE
    python -m benchmarks.queueing_fit FILE

Point number i of a quasi-random sequence is a fleet of batch servers with s_B = 1 s: 2 to 32
replicas, B 2 to 64, share of T_fixed in s_B 0.05 to 0.98, load 0.1 to 0.97 (more high ones), T_max
0 for 45 % of them and up to 1.1 s_B for the others, CV^2 0 for 40 %, up to 0.3 for 50 %, up to 1
for 10 %. ``sojourn.simulate`` plays it with LeastLoaded and with RoundRobin, seed i; one line of
JSON a point. None of the points comes from the reference rows. A point takes half a second.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from sojourn.facts.replica import DynamicReplica, OperatingPoint, Routing
from sojourn.facts.service_time import LinearServiceTime
from sojourn.simulate import queues
from sojourn.simulate.queues import Run

LEVELS = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
ROUTINGS = (Routing.LEAST_LOADED, Routing.ROUND_ROBIN)

_REPLICAS = (2, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 8, 12, 16, 32)
# Near load 1 a run needs more requests for the same interval.
_LONGER_ABOVE, _LONGEST = 0.85, 4.0


@dataclass(frozen=True)
class Fleet:
    """A point of the design, in units of s_B.

    Attributes:
        fixed_share: T_fixed / s_B.
        window: T_max / s_B.
    """

    replicas: int
    batch: int
    fixed_share: float
    load: float
    window: float
    scv: float

    def point(self, routing: Routing) -> OperatingPoint:
        """The operating point, s_B one second."""
        law = LinearServiceTime(self.fixed_share, (1 - self.fixed_share) / self.batch, self.scv)
        rate_per_s = self.load * self.batch * self.replicas
        replica = DynamicReplica(law, self.batch, self.window)
        return OperatingPoint(replica, rate_per_s, self.replicas, routing)


def fleet(number: int) -> Fleet:
    """Point ``number`` of the sequence: multiples of powers of the root of x^7 = x + 1, mod 1."""
    root = 1.0
    for _ in range(60):
        root = (1 + root) ** (1 / 7)
    u = (0.5 + (number + 1) * root ** -np.arange(1.0, 7.0)) % 1
    return Fleet(
        replicas=_REPLICAS[int(u[0] * len(_REPLICAS))],
        batch=round(2 * 32 ** float(u[1])),
        fixed_share=0.05 + 0.93 * float(u[2]),
        load=0.97 - 0.87 * float(1 - u[3]) ** 1.3,
        window=max(0.0, 2 * float(u[4]) - 0.9),
        scv=_scv(float(u[5])),
    )


def _scv(u: float) -> float:
    if u < 0.4:
        return 0.0
    return 0.02 + 0.56 * (u - 0.4) if u < 0.9 else 0.3 + 7 * (u - 0.9)


def simulated(one: Fleet, routing: Routing, requests: int, seed: int) -> dict[str, Any]:
    """Mean and quantiles with half-widths, by routing."""
    longer = min(_LONGEST, max(1.0, (1 - _LONGER_ABOVE) / (1 - one.load)))
    run = Run(int(requests * longer), LEVELS)
    seen = queues.dynamic(one.point(routing), run, np.random.default_rng(seed))
    found = [seen.latency.mean, *(estimate for _, estimate in seen.latency.quantiles)]
    return {
        "seconds": [one.value for one in found],
        "half_widths": [one.half_width for one in found],
        "mean_batch": seen.mean_batch,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate and print, a line of JSON a point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("points", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--requests", type=int, default=150_000)
    chosen = parser.parse_args(arguments)
    for number in range(chosen.first, chosen.first + chosen.points):
        one = fleet(number)
        results = {
            str(routing): simulated(one, routing, chosen.requests, number) for routing in ROUTINGS
        }
        print(json.dumps({**asdict(one), **results}), flush=True)


if __name__ == "__main__":
    main()
