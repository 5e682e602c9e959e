"""How fast the queueing model is, on one core: the speed table of ``make bench-model``.

    python -m benchmarks.model_speed [--services 10000] [--json]

Services are drawn at random within what the dimensionless table covers (seed 1): T_fixed 5 ms to
2 s, t_req 0.1 to 20 ms, CV^2 0 to 0.5, a window of 0 to 0.5 T_fixed on every other one, SLO 2 to 20
times a lone request's time, rates of 1 to 40 replicas. Every service is distinct, so "cold" finds
nothing in a cache.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from sojourn.facts.replica import DynamicReplica, OperatingPoint
from sojourn.facts.service_time import LinearServiceTime
from sojourn.facts.sizing import ServingConstraint
from sojourn.facts.sojourn import LatencyGoal
from sojourn.model import fleet, screen, sizing, tabled
from sojourn.model.domain import FloatArray
from sojourn.model.exact_model import ExactModel

EVALUATIONS = 100


def services(count: int, seed: int = 1) -> tuple[list[ServingConstraint], FloatArray]:
    """Distinct random services and their rates."""
    rng = np.random.default_rng(seed)
    found = []
    rates = np.empty(count)
    for i in range(count):
        fixed_s, per_request_s = 10 ** rng.uniform(-2.3, 0.3), 10 ** rng.uniform(-4, -1.7)
        law = LinearServiceTime(fixed_s, per_request_s, float(rng.uniform(0, 0.5)))
        wait_s = float(rng.uniform(0, 0.5)) * fixed_s if i % 2 else 0.0
        lone_s = fixed_s + per_request_s + wait_s
        goal = LatencyGoal(latency_s=float(rng.uniform(2, 20)) * lone_s)
        largest = int(rng.choice([16, 32, 64, 128, 256]))
        found.append(ServingConstraint(DynamicReplica(law, largest, wait_s), goal, 1, largest))
        full_s = fixed_s + per_request_s * largest
        rates[i] = rng.uniform(0.3, 40) * 0.7 * largest / full_s
    return found, rates


def median_s(work: Callable[[], object], repeats: int) -> float:
    """Median wall time of ``work``."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return float(np.median(times))


def one_evaluation_s(scv: float) -> float:
    """Median over random loads and batches of one exact answer with P50, P95 and P99."""
    rng = np.random.default_rng(2)
    times = []
    for i in range(EVALUATIONS):
        batch, load = int(rng.choice([1, 4, 8, 16, 32, 64])), float(rng.uniform(0.2, 0.95))
        law = LinearServiceTime(0.05, float(rng.uniform(1e-4, 5e-3)), scv)
        full_s = law.fixed_s + law.per_request_s * batch
        replica = DynamicReplica(law, batch, 0.02 if i % 2 else 0.0)
        point = OperatingPoint(replica, load * batch / full_s)
        start = perf_counter()
        ExactModel().sojourn(point, (0.5, 0.95, 0.99))
        times.append(perf_counter() - start)
    return float(np.median(times))


def measure(count: int) -> dict[str, float]:
    """All figures, in seconds (or services per second where the name says so)."""
    constraints, rates = services(count)
    law = LinearServiceTime(0.05, 0.0005)
    tabled.available()
    start = perf_counter()
    cold = fleet.fleet(constraints)
    answer = cold.size(rates)
    cold_s = perf_counter() - start
    parts = tabled.Services(
        *np.array(
            [
                (
                    one.replica.service.fixed_s,
                    one.replica.service.per_request_s,
                    one.replica.service.scv,
                    one.replica.max_wait_s,
                    1.0,
                    1.0,
                )
                for one in constraints
                if isinstance(one.replica, DynamicReplica)
                and isinstance(one.replica.service, LinearServiceTime)
            ]
        ).T
    )
    share = rates / np.maximum(answer.replicas, 1)
    warm = replace(constraints[0])
    sizing.size(ExactModel(), warm, float(rates[0]))
    return {
        "exact evaluation, fixed time": one_evaluation_s(0.0),
        "exact evaluation, CV^2 0.1": one_evaluation_s(0.1),
        "closed-form screen": median_s(lambda: screen.mean_latency_bound_s(100.0, law), 1000),
        f"size {count} services, cold": cold_s,
        "services per second, cold": count / cold_s,
        f"size {count} services, warm": median_s(lambda: cold.size(rates), 20),
        f"P99 of {count} services": median_s(
            lambda: tabled.quantiles_s(parts, answer.batch, share, 0.99), 5
        ),
        "size one service, warm": median_s(
            lambda: sizing.size(ExactModel(), warm, float(rates[0])), 200
        ),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=10_000)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    chosen = parser.parse_args(arguments)
    found = measure(chosen.services)
    if chosen.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        shown = f"{value:12,.0f}" if "per second" in name else f"{value * 1e3:12.3f} ms"
        print(f"{name:<36}{shown}")


if __name__ == "__main__":
    main()
