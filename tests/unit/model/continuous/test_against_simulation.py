"""The continuous model and our simulator, which shares no formula with it."""

from __future__ import annotations

import numpy as np
import pytest

from sojourn.facts.replica import ContinuousReplica, OperatingPoint, Routing
from sojourn.facts.service_time import IterationTime, TokenLengths
from sojourn.model.continuous import ContinuousModel
from sojourn.model.continuous.machine import machine
from sojourn.simulate import queues
from sojourn.simulate.estimate import Estimate
from sojourn.simulate.queues import Run

STEP = IterationTime(0.02, 0.0003, 0.00004)
CHAT = ContinuousReplica(STEP, TokenLengths(100, law="geometric"), 200.0, 32)
FIXED = ContinuousReplica(STEP, TokenLengths(100), 200.0, 32)
TAILED = ContinuousReplica(STEP, TokenLengths(100, 1.5, "lognormal"), 200.0, 32)
PROMPTS = ContinuousReplica(STEP, TokenLengths(100, law="geometric"), 3000.0, 32, None, None, 8192)
BOUNDED = ContinuousReplica(STEP, TokenLengths(100, law="geometric"), 200.0, 16, 16)


def near(predicted: float, seen: Estimate, slack: float) -> bool:
    """Within the interval of the run, widened by the model's own stated error."""
    return seen.holds(predicted, slack)


def compare(
    one: ContinuousReplica, load: float, requests: int, slack: tuple[float, float], **fleet: object
) -> None:
    point = OperatingPoint(one, 1.0, **fleet)  # type: ignore[arg-type]
    rate_per_s = load * machine(one).capacity_per_s * point.replicas
    point = OperatingPoint(one, rate_per_s, **fleet)  # type: ignore[arg-type]
    said = ContinuousModel().sojourn(point, (0.5, 0.99))
    seen = queues.continuous(point, Run(requests), np.random.default_rng(42))
    assert said.time_to_first_token is not None and seen.first_token is not None
    assert near(said.latency.mean_s, seen.latency.mean, slack[0])
    assert near(said.latency.quantile_s(0.99), seen.latency.quantile(0.99), slack[0])
    assert near(said.time_to_first_token.quantile_s(0.5), seen.first_token.quantile(0.5), slack[1])
    assert near(
        said.time_to_first_token.quantile_s(0.99), seen.first_token.quantile(0.99), slack[1]
    )
    assert said.blocking == pytest.approx(seen.blocking, abs=0.01)


@pytest.mark.parametrize("one", [CHAT, TAILED, FIXED], ids=["geometric", "lognormal", "fixed"])
def test_at_half_load_a_short_run_agrees(one: ContinuousReplica) -> None:
    compare(one, 0.5, 12_000, slack=(0.03, 0.05))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "load", "slack"),
    [
        pytest.param(CHAT, 0.3, (0.01, 0.02), id="geometric-0.3"),
        pytest.param(CHAT, 0.8, (0.02, 0.10), id="geometric-0.8"),
        pytest.param(TAILED, 0.6, (0.02, 0.03), id="lognormal-0.6"),
        pytest.param(FIXED, 0.6, (0.03, 0.03), id="fixed-0.6"),
        pytest.param(PROMPTS, 0.6, (0.03, 0.06), id="prompts-0.6"),
        pytest.param(BOUNDED, 1.15, (0.03, 0.04), id="overload"),
    ],
)
def test_a_long_run_agrees(one: ContinuousReplica, load: float, slack: tuple[float, float]) -> None:
    compare(one, load, 200_000, slack)


@pytest.mark.slow
@pytest.mark.parametrize("routing", [Routing.RANDOM, Routing.ROUND_ROBIN, Routing.LEAST_LOADED])
def test_a_long_run_of_three_replicas_agrees(routing: Routing) -> None:
    compare(CHAT, 0.6, 200_000, (0.03, 0.10), replicas=3, routing=routing)
