"""What the models predict for rows of the reference form, one function a system.

A row has ``system`` and ``inputs``; the answer is a dictionary named as the row's own values.
Another system is added by one entry of ``PREDICT``; ``benchmarks.continuous_rows.predict`` is used
for continuous batching if that module exists, and the model behind the protocol otherwise.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sojourn.facts.replica import ContinuousReplica, DynamicReplica, OperatingPoint, Routing
from sojourn.facts.service_time import IterationTime, LinearServiceTime, TokenLengths
from sojourn.facts.sojourn import Latency
from sojourn.model import (
    choose,
    erlang,
    md1,
    mm1,
    service_time,
    stability,
    surrogate,
    surrogate_exact,
    window,
)

LEVELS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}

ROUTING = {
    "random": Routing.RANDOM,
    "roundrobin": Routing.ROUND_ROBIN,
    "jsq": Routing.LEAST_LOADED,
    "shared": Routing.SHARED_QUEUE,
}

LENGTH_LAW = {"det": "fixed", "geo": "geometric", "logn": "lognormal"}

Values = dict[str, Any]


@dataclass(frozen=True)
class Prediction:
    """Predicted values under the row's own names, and what the model says against itself."""

    values: Values
    warnings: tuple[str, ...] = ()


def predict(row: dict[str, Any]) -> Prediction:
    """The model's values for a row.

    Raises:
        KeyError: no model answers for that system.
    """
    return PREDICT[row["system"]](row["inputs"])


def _surrogate(inputs: Values) -> Prediction:
    rate = inputs["lam"]
    if "tmax" in inputs:
        arguments = (rate, inputs["bmax"], inputs["tmax"])
        return Prediction(
            {
                "mean_batch": float(window.mean_batch(*arguments)),
                "batch_delay": float(window.batch_wait_s(*arguments)),
            }
        )
    law = LinearServiceTime(inputs["t_fixed"], inputs["t_req"], inputs.get("cv2", 0.0))
    if "rho" in inputs:
        exact = float(stability.min_batch_exact(rate, law, inputs["rho"]))
        least = float(stability.min_batch(rate, law, inputs["rho"]))
        return Prediction({"batch": exact, "ceil": least})
    batch = inputs["batch"]
    mean_s = surrogate.latency_mean_s(rate, batch, law)
    sigma_s = surrogate.latency_std_s(rate, batch, law)
    load = float(stability.utilisation(rate, 1, batch, law))
    return Prediction(
        {
            "T_svc": float(service_time.service_s(law, batch)),
            "mu_eff": float(service_time.capacity_per_s(law, batch)),
            "rho": load,
            "W": float(surrogate.queue_wait_s(rate, batch, law)),
            "acc": float(surrogate.batch_wait_s(rate, batch)),
            "T": float(mean_s),
            "sigma": float(sigma_s),
            "p99_exponential": float(surrogate.exponential_quantile_s(mean_s, 0.99)),
            "p99_gaussian": float(surrogate.gaussian_quantile_s(mean_s, sigma_s, 0.99)),
            "p99_exact": surrogate_exact.quantile_s(rate, batch, law, 0.99),
            "stable": load < stability.STABLE_BELOW,
        }
    )


def _erlang(inputs: Values) -> Prediction:
    if "a" in inputs:
        servers, offered = inputs["c"], inputs["a"]
        return Prediction({"B": erlang.loss(servers, offered), "C": erlang.delay(servers, offered)})
    queue = erlang.finite_queue(
        inputs["lam"], 1 / inputs["mu"], inputs["c"], inputs["waiting_room"]
    )
    return Prediction({"blocking": queue.blocking, "mean_response": queue.latency_mean_s})


def _md1(inputs: Values) -> Prediction:
    rho, service_s = inputs["rho"], inputs["service"]
    tail = 1 - md1.wait_cdf(rho, np.asarray(inputs["x"]) / service_s)
    mean_s = float(md1.mean_wait_s(rho, service_s))
    return Prediction({"wait_ccdf": tail.tolist(), "mean_wait": mean_s})


def _mm1(inputs: Values) -> Prediction:
    rho, service_s = inputs["rho"], inputs["service"]
    values = {"mean": float(mm1.latency_mean_s(rho, service_s))}
    for name, level in LEVELS.items():
        values[name] = float(mm1.latency_quantile_s(rho, service_s, level))
    return Prediction(values)


def _dynamic(inputs: Values) -> Prediction:
    law = LinearServiceTime(inputs["t_fixed"], inputs["t_req"], inputs.get("cv2", 0.0))
    replica = DynamicReplica(law, inputs["bmax"], inputs.get("tmax", 0.0), inputs.get("cap"))
    routing = ROUTING[inputs.get("routing", "random")]
    point = OperatingPoint(replica, inputs["lam"], inputs.get("c", 1), routing)
    answer = choose.model_for(replica).sojourn(point, tuple(LEVELS.values()))
    values = {
        "mean": answer.latency.mean_s,
        "wait": answer.queue_wait_s,
        "batch_delay": answer.batch_wait_s,
        "service": answer.service_s,
        "mean_batch": answer.mean_batch,
        "blocking": answer.blocking,
        "utilization": answer.busy_fraction,
        "throughput": answer.throughput_per_s,
    }
    return Prediction(values | _quantiles("", answer.latency), answer.warnings)


def _continuous(inputs: Values) -> Prediction:
    if importlib.util.find_spec("benchmarks.continuous_rows") is not None:
        predictor = importlib.import_module("benchmarks.continuous_rows")
        found, warnings = predictor.predict(inputs)
        return Prediction(found, tuple(warnings))
    iteration = IterationTime(inputs["a"], inputs["b"], inputs["p"], inputs.get("ctx") or 0.0)
    lengths = TokenLengths(
        inputs["osl"], inputs["osl_cv2"], LENGTH_LAW[inputs.get("osl_kind", "geo")]
    )
    replica = ContinuousReplica(
        iteration,
        lengths,
        inputs["isl"],
        inputs["bmax"],
        inputs.get("cap"),
        inputs.get("kvcap"),
        inputs.get("budget"),
    )
    routing = ROUTING[inputs.get("routing", "random")]
    point = OperatingPoint(replica, inputs["lam"], inputs.get("c", 1), routing)
    answer = choose.model_for(replica).sojourn(point, tuple(LEVELS.values()))
    values: Values = {"running": answer.mean_batch, "blocking": answer.blocking}
    parts = (
        ("e2e_", answer.latency),
        ("ttft_", answer.time_to_first_token),
        ("tpot_", answer.time_per_output_token),
    )
    for prefix, latency in parts:
        if latency is not None:
            values[prefix + "mean"] = latency.mean_s
            values |= _quantiles(prefix, latency)
    return Prediction(values, answer.warnings)


def _quantiles(prefix: str, latency: Latency) -> Values:
    known = {level for level, _ in latency.quantiles_s}
    return {
        prefix + name: latency.quantile_s(level)
        for name, level in LEVELS.items()
        if any(math.isclose(level, one) for one in known)
    }


PREDICT: dict[str, Callable[[Values], Prediction]] = {
    "surrogate": _surrogate,
    "erlang": _erlang,
    "md1": _md1,
    "mm1": _mm1,
    "dynamic-batching": _dynamic,
    "continuous-batching": _continuous,
    "continuous-batching-fleet": _continuous,
}
