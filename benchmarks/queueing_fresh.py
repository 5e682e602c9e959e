"""Fresh simulated rows of the reference form, from our own simulator.

    python -m benchmarks.queueing_fresh [--rows 100] [--seed 1] [--requests 60000] > FILE
    python -m benchmarks.queueing --rows FILE

Random cases across the regimes: dynamic batching on one replica and on several by round robin and
least loaded; continuous batching on one replica, in fleets, KV-bound, prompt-heavy and with fixed
output lengths. With ``--dispersion`` the continuous cases get arrivals of that index of dispersion
(hyperexponential gaps of balanced means). A row takes one to thirty seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks import continuous_rows
from benchmarks.simulators import dynamic_point
from sojourn.facts.replica import OperatingPoint
from sojourn.model.continuous.machine import machine
from sojourn.simulate import queues
from sojourn.simulate.estimate import LatencyEstimate
from sojourn.simulate.queues import Run

Inputs = dict[str, Any]

LEVELS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def hyperexponential(rate_per_s: float, dispersion: float, count: int, rng: Any) -> Any:
    """Arrival times of a renewal stream with CV^2 of the gaps, so long-run dispersion, as given."""
    share = (1 + math.sqrt((dispersion - 1) / (dispersion + 1))) / 2
    fast = rng.random(count) < share
    means = np.where(fast, 1 / (2 * share), 1 / (2 * (1 - share))) / rate_per_s
    return np.cumsum(rng.exponential(means))


def _spread(rng: np.random.Generator, low: float, high: float) -> float:
    return float(low * (high / low) ** rng.random())


def _dynamic(rng: np.random.Generator, routing: str) -> tuple[Inputs, float]:
    batch = int(rng.choice([1, 2, 4, 8, 12, 16, 24, 32]))
    full_s, share = _spread(rng, 0.02, 0.3), float(rng.uniform(0.2, 0.95))
    replicas = 1 if routing == "random" else int(rng.integers(2, 9))
    load = float(rng.uniform(0.2, 0.93))
    window = 0.0 if rng.random() < 0.5 else float(rng.uniform(0, 1.0)) * full_s
    return {
        "lam": load * batch / full_s * replicas,
        "bmax": batch,
        "t_fixed": share * full_s,
        "t_req": (1 - share) * full_s / batch,
        "tmax": window,
        "cap": int(4 * batch + 8) if rng.random() < 0.2 else None,
        "cv2": float(rng.choice([0.0, 0.06, 0.1, 0.18, 0.3])),
        "c": replicas,
        "routing": routing,
    }, load


def _continuous(rng: np.random.Generator, kind: str) -> tuple[Inputs, float]:
    a = _spread(rng, 0.008, 0.03)
    batch = int(rng.choice([8, 16, 32, 64, 96]))
    osl = int(_spread(rng, 48, 400))
    law, cv2 = [("geo", 1.0), ("logn", 0.5), ("logn", 1.5)][int(rng.integers(3))]
    if kind == "fixed" or (kind == "prompts" and rng.random() < 0.3):
        law, cv2 = "det", 0.0
    prompt_token_s = _spread(rng, 2e-5, 8e-5)
    share = float(rng.uniform(0.4, 0.7) if kind == "prompts" else rng.uniform(0.03, 0.35))
    step_s = a + _spread(rng, 0.006, 0.02) * a * batch
    # P B / (OSL h + P B) is the share of a full batch's time that prompts take.
    isl = int(share / (1 - share) * osl * step_s / batch / prompt_token_s) + 16
    inputs: Inputs = {
        "bmax": batch,
        "a": a,
        "b": (step_s - a) / batch,
        "p": prompt_token_s,
        "isl": isl,
        "osl": osl,
        "osl_kind": law,
        "osl_cv2": cv2,
        "budget": int(rng.choice([8192, 16384])) if isl < 4000 else None,
        "routing": "random",
        "c": 1,
    }
    if kind == "kv":
        resident = isl + osl * (1 + cv2) / 2
        inputs["kvcap"] = int(resident * batch * rng.uniform(0.5, 0.9)) + isl + 20 * osl
    elif kind in ("jsq", "roundrobin", "shared"):
        inputs |= {"routing": kind, "c": int(rng.choice([2, 3, 4, 6]))}
    return inputs, float(rng.uniform(0.25, 0.92))


_KINDS: dict[str, Callable[[np.random.Generator], tuple[Inputs, float]]] = {
    "dynamic-batching/one": lambda rng: _dynamic(rng, "random"),
    "dynamic-batching/roundrobin": lambda rng: _dynamic(rng, "roundrobin"),
    "dynamic-batching/jsq": lambda rng: _dynamic(rng, "jsq"),
    "continuous-batching/one": lambda rng: _continuous(rng, "one"),
    "continuous-batching/prompts": lambda rng: _continuous(rng, "prompts"),
    "continuous-batching/fixed": lambda rng: _continuous(rng, "fixed"),
    "continuous-batching/kv": lambda rng: _continuous(rng, "kv"),
    "continuous-batching-fleet/jsq": lambda rng: _continuous(rng, "jsq"),
    "continuous-batching-fleet/roundrobin": lambda rng: _continuous(rng, "roundrobin"),
    "continuous-batching-fleet/shared": lambda rng: _continuous(rng, "shared"),
}


def row(number: int, seed: int, requests: int, dispersion: float | None) -> dict[str, Any]:
    """Draw, simulate and describe one case."""
    kinds = [kind for kind in _KINDS if dispersion is None or kind.startswith("continuous")]
    kind = kinds[number % len(kinds)]
    rng = np.random.default_rng([seed, number])
    inputs, load = _KINDS[kind](rng)
    system, regime = kind.split("/")
    if system == "dynamic-batching":
        seen = queues.dynamic(dynamic_point(inputs), Run(4 * requests, tuple(LEVELS.values())), rng)
        simulated = {"blocking": seen.blocking, **_metrics("", seen.latency)}
    else:
        one = continuous_rows.point({**inputs, "lam": 1.0})
        inputs["lam"] = load * machine(one.replica).capacity_per_s * inputs["c"]
        if dispersion is not None:
            inputs["dispersion"] = dispersion
        simulated = _simulated(continuous_rows.point(inputs), requests, rng)
    return {
        "id": f"fresh-{seed}-{number:03}",
        "system": system,
        "regime": regime,
        "inputs": inputs,
        "load": load,
        "simulated": simulated,
        "tolerance": None,
    }


def _simulated(point: OperatingPoint, requests: int, rng: np.random.Generator) -> dict[str, float]:
    arrivals_s = None
    if point.dispersion > 1:
        arrivals_s = hyperexponential(point.rate_per_s, point.dispersion, requests, rng)
    run = Run(requests, tuple(LEVELS.values()), arrivals_s)
    seen = queues.continuous(point, run, rng)
    assert seen.first_token is not None and seen.output_token is not None
    return {
        "blocking": seen.blocking,
        "preemptions": seen.preemptions,
        **_metrics("e2e_", seen.latency),
        **_metrics("ttft_", seen.first_token),
        **_metrics("tpot_", seen.output_token),
    }


def _metrics(prefix: str, latency: LatencyEstimate) -> dict[str, float]:
    found = {f"{prefix}mean": latency.mean.value, f"{prefix}mean_hw": latency.mean.half_width}
    for name, level in LEVELS.items():
        one = latency.quantile(level)
        found |= {f"{prefix}{name}": one.value, f"{prefix}{name}_hw": one.half_width}
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a list of rows, one a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=60_000)
    parser.add_argument("--dispersion", type=float, help="continuous batching only")
    chosen = parser.parse_args(arguments)
    print("[", flush=True)
    for number in range(chosen.rows):
        found = row(number, chosen.seed, chosen.requests, chosen.dispersion)
        print(json.dumps(found) + ("," if number + 1 < chosen.rows else ""), flush=True)
    print("]")


if __name__ == "__main__":
    main()
