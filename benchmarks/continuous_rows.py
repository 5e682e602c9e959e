"""Rows of the reference table about continuous batching, as questions to our model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sojourn.facts.replica import ContinuousReplica, OperatingPoint, Routing
from sojourn.facts.service_time import IterationTime, TokenLengths
from sojourn.facts.sojourn import Latency
from sojourn.model.continuous import ContinuousModel
from sojourn.model.continuous.model import mean_inter_token_s

_LAWS = {"det": "fixed", "geo": "geometric", "logn": "lognormal"}
_ROUTINGS = {
    "random": Routing.RANDOM,
    "roundrobin": Routing.ROUND_ROBIN,
    "jsq": Routing.LEAST_LOADED,
    "shared": Routing.SHARED_QUEUE,
}
_LEVELS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def replica(inputs: Mapping[str, Any]) -> ContinuousReplica:
    """The replica a row describes.

    Prompts in steps of their own pay the fixed part of a step once more.
    """
    isl = inputs["isl"]
    extra_s = inputs["a"] / isl if inputs.get("exclusive") and isl > 0 else 0.0
    return ContinuousReplica(
        IterationTime(inputs["a"], inputs["b"], inputs["p"] + extra_s, inputs.get("ctx") or 0.0),
        TokenLengths(inputs["osl"], inputs["osl_cv2"], _LAWS[inputs["osl_kind"]]),
        float(isl),
        inputs["bmax"],
        inputs.get("cap"),
        inputs.get("kvcap"),
        inputs.get("budget"),
    )


def point(inputs: Mapping[str, Any]) -> OperatingPoint:
    """The operating point a row describes."""
    routing = _ROUTINGS[inputs.get("routing", "random")]
    dispersion = inputs.get("dispersion", 1.0)
    return OperatingPoint(replica(inputs), inputs["lam"], inputs.get("c", 1), routing, dispersion)


def predict(inputs: Mapping[str, Any]) -> tuple[dict[str, float], tuple[str, ...]]:
    """Our values under the metric names of a row's ``simulated``, and our warnings."""
    asked = point(inputs)
    answer = ContinuousModel().sojourn(asked, tuple(_LEVELS.values()))
    values = {
        "load": answer.utilisation,
        "blocking": answer.blocking,
        "running": answer.mean_batch,
        "utilization": answer.busy_fraction,
        "throughput": answer.throughput_per_s,
        "itl_mean": mean_inter_token_s(asked),
    }
    for name, latency in (
        ("e2e", answer.latency),
        ("ttft", answer.time_to_first_token),
        ("tpot", answer.time_per_output_token),
    ):
        if latency is not None:
            values |= _metrics(name, latency)
    if inputs.get("exclusive"):
        # A prompt in a step of its own does not pay for the decoding requests beside it.
        beside_s = inputs["a"] + inputs["b"] * answer.mean_batch
        values |= {k: v - beside_s for k, v in values.items() if k.startswith("ttft_")}
    return values, answer.warnings


def _metrics(name: str, latency: Latency) -> dict[str, float]:
    quantiles = {f"{name}_{key}": latency.quantile_s(level) for key, level in _LEVELS.items()}
    return {f"{name}_mean": latency.mean_s, **quantiles}
