"""How fast the queueing model is, on one core: the speed table of ``make bench-model``.

    python -m benchmarks.model_speed [--services 10000] [--json]

Services are drawn at random within what the dimensionless table covers (seed 1): T_fixed 5 ms to
2 s, t_req 0.1 to 20 ms, CV^2 0 to 0.5, a window of 0 to 0.5 T_fixed on every other one, SLO 2 to 20
times a lone request's time, rates of 1 to 40 replicas. Continuous batching: steps of 5 to 50 ms,
outputs of 20 to 1,000 tokens (half geometric, the rest lognormal or fixed), prompts of 30 to 3,000
tokens on two of three, max batch 16 to 256, goals of time to first token, per output token, end to
end or two of them at P95 or P99. Every service is distinct, so "cold" finds nothing in a cache.
Times of one question are medians of CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter, process_time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from sojourn.facts.replica import ContinuousReplica, DynamicReplica, OperatingPoint
from sojourn.facts.service_time import IterationTime, LinearServiceTime, TokenLengths
from sojourn.facts.sizing import ServingConstraint
from sojourn.facts.sojourn import LatencyGoal
from sojourn.model import fleet, screen, sizing, tabled
from sojourn.model.continuous import ContinuousModel
from sojourn.model.continuous.machine import machine
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


def continuous_services(count: int, seed: int = 1) -> tuple[list[ServingConstraint], FloatArray]:
    """Distinct random continuous-batching services and their rates."""
    rng = np.random.default_rng(seed)
    found: list[ServingConstraint] = []
    rates = np.empty(count)
    for i in range(count):
        step_s = 10 ** rng.uniform(-2.3, -1.3)
        iteration = IterationTime(
            step_s, step_s * 10 ** rng.uniform(-3.5, -1.5), 10 ** rng.uniform(-5, -3.7)
        )
        mean = round(10 ** rng.uniform(1.3, 3))
        output = (
            TokenLengths(mean, law="geometric"),
            TokenLengths(mean, float(rng.uniform(0.3, 2)), "lognormal"),
            TokenLengths(mean),
        )[rng.choice(3, p=[0.5, 0.4, 0.1])]
        prompt = 10 ** rng.uniform(1.5, 3.5) if i % 3 else 0.0
        largest = int(rng.choice([16, 32, 64, 128, 256]))
        replica = ContinuousReplica(iteration, output, float(prompt), largest)
        goal = _continuous_goal(rng, replica, i)
        found.append(ServingConstraint(replica, goal, 1, largest))
        rates[i] = rng.uniform(0.3, 40) * 0.7 * machine(replica).capacity_per_s
    machine.cache_clear()
    return found, rates


def _continuous_goal(
    rng: np.random.Generator, replica: ContinuousReplica, number: int
) -> LatencyGoal:
    step_s = replica.iteration.fixed_s + replica.iteration.per_request_s
    first_s = step_s + replica.iteration.per_prompt_token_s * replica.prompt_tokens
    first = float(rng.uniform(2, 20)) * first_s
    token = float(rng.uniform(1.1, 2.5)) * step_s
    whole = float(rng.uniform(5, 20)) * replica.output.mean * step_s
    level = 0.99 if number % 2 else 0.95
    return (
        LatencyGoal(level, first_token_s=first),
        LatencyGoal(level, output_token_s=token),
        LatencyGoal(level, latency_s=whole),
        LatencyGoal(level, first_token_s=first, output_token_s=token),
    )[number % 4]


def measure_continuous(count: int) -> dict[str, float]:
    """Figures of continuous batching: one answer, one lambda1*, one sizing, a fleet."""
    constraints, rates = continuous_services(count)
    alone = constraints[: min(EVALUATIONS, count)]
    model = ContinuousModel()
    limits, answers, sizes = [], [], []
    for one, rate in zip(alone, rates, strict=False):
        assert isinstance(one.replica, ContinuousReplica)
        point = OperatingPoint(one.replica, 0.7 * machine(one.replica).capacity_per_s)
        answers.append(cpu_s(partial(model.sojourn, point, (0.5, 0.95, 0.99))))
        limits.append(cpu_s(partial(model.max_rate, one.replica, one.goal)))
        sizes.append(cpu_s(partial(sizing.size, model, one, float(rate))))
    machine.cache_clear()
    found: list[fleet.Fleet] = []
    cold_s = cpu_s(lambda: found.append(fleet.fleet(constraints)))
    return {
        "continuous evaluation": float(np.median(answers)),
        "continuous lambda1*, cold": float(np.median(limits)),
        "continuous lambda1*, cold, P95": float(np.quantile(limits, 0.95)),
        "size one continuous service, cold": float(np.median(sizes)),
        f"size {count} continuous, cold": cold_s,
        "continuous per second, cold": count / cold_s,
        f"size {count} continuous, warm": median_s(lambda: found[0].size(rates), 20),
    }


def cpu_s(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    start = process_time()
    work()
    return process_time() - start


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
    found = measure(chosen.services) | measure_continuous(chosen.services)
    if chosen.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        shown = f"{value:12,.0f}" if "per second" in name else f"{value * 1e3:12.3f} ms"
        print(f"{name:<36}{shown}")


if __name__ == "__main__":
    main()
