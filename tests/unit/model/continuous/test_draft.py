"""The draft of the continuous model against the whole model."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from sojourn.facts.replica import ContinuousReplica, OperatingPoint
from sojourn.facts.service_time import IterationTime, TokenLengths
from sojourn.facts.sojourn import LatencyGoal
from sojourn.model.continuous import ContinuousModel, draft
from sojourn.model.continuous.draft import tails
from sojourn.model.continuous.machine import machine

MODEL = ContinuousModel()
CHAT = ContinuousReplica(
    IterationTime(0.012, 0.00015, 0.000025), TokenLengths(256, law="geometric"), 512.0, 64
)
REPLICAS = [
    CHAT,
    replace(CHAT, output=TokenLengths(300, 1.2, "lognormal"), max_batch=256),
    replace(CHAT, output=TokenLengths(100, 0.4, "lognormal"), prompt_tokens=2000.0, max_batch=16),
    replace(CHAT, output=TokenLengths(150), prompt_tokens=0.0, max_batch=128),
    replace(CHAT, kv_tokens=20_000.0, max_batch=256),
    replace(CHAT, output=TokenLengths(1, law="histogram", values=(20, 500), weights=(0.6, 0.4))),
]


def goals(*some: LatencyGoal, dispersion: float = 1.0) -> draft.Goals:
    def column(values: list[float | None]) -> np.ndarray:
        return np.array([draft.NEVER_S if one is None else one for one in values])[:, None]

    return draft.Goals(
        column([one.latency_s for one in some]),
        column([one.first_token_s for one in some]),
        column([one.output_token_s for one in some]),
        column([one.probability for one in some]),
        np.full((len(some), 1), dispersion),
        column([one.max_utilisation for one in some]),
    )


def drafted(one: ContinuousReplica, goal: LatencyGoal, dispersion: float = 1.0) -> float:
    found = draft.rates(
        [machine(one)], np.array([[one.max_batch]], dtype=float), goals(goal, dispersion=dispersion)
    )
    return float(found.rate_per_s[0, 0])


@pytest.mark.parametrize("metric", ["latency_s", "first_token_s", "output_token_s"])
@pytest.mark.parametrize("load", [0.4, 0.7, 0.9])
@pytest.mark.parametrize("number", range(len(REPLICAS)))
def test_the_drafts_percentile_is_the_models_but_for_a_few_percent(
    number: int, load: float, metric: str
) -> None:
    """Goals that much below and above the model's P99 fail and pass."""
    one = REPLICAS[number]
    # Long prompts come in whole numbers; the draft's are smooth.
    off = 0.1 if (number, load, metric) == (2, 0.4, "first_token_s") else 0.04
    rate = load * machine(one).capacity_per_s
    answer = MODEL.sojourn(OperatingPoint(one, rate), (0.99,))
    latency = {
        "latency_s": answer.latency,
        "first_token_s": answer.time_to_first_token,
        "output_token_s": answer.time_per_output_token,
    }[metric]
    assert latency is not None
    seconds = latency.quantile_s(0.99)
    for part, passes in ((1 + off, True), (1 - off, False)):
        asked = {metric: part * seconds}
        goal = LatencyGoal(max_utilisation=load, max_blocking=1.0, **asked)
        assert (drafted(one, goal) == pytest.approx(rate)) == passes


def test_many_rows_answer_as_each_alone() -> None:
    goal = LatencyGoal(first_token_s=0.4, output_token_s=0.03, max_utilisation=0.9)
    several = [goal, replace(goal, output_token_s=None), replace(goal, latency_s=8.0)] * 2
    batches = np.array([[4.0, one.max_batch] for one in REPLICAS])
    together = draft.rates([machine(one) for one in REPLICAS], batches, goals(*several))
    for i, (one, asked) in enumerate(zip(REPLICAS, several, strict=True)):
        alone = draft.rates([machine(one)], batches[[i]], goals(asked))
        assert together.rate_per_s[i] == pytest.approx(alone.rate_per_s[0], rel=1e-9)


def test_without_a_latency_the_load_limit_is_the_answer() -> None:
    for one in REPLICAS:
        found = drafted(one, LatencyGoal(max_utilisation=0.8))
        assert found == pytest.approx(0.8 * machine(one).capacity_per_s)


def test_a_batch_above_what_memory_holds_is_what_it_holds() -> None:
    one = REPLICAS[4]
    fits = machine(one).max_batch
    assert fits < 256
    found = draft.rates(
        [machine(one)], np.array([[fits, 256.0]]), goals(LatencyGoal(first_token_s=0.3))
    )
    assert found.rate_per_s[0, 0] == found.rate_per_s[0, 1]


def test_an_unreachable_goal_gives_no_rate() -> None:
    assert drafted(CHAT, LatencyGoal(first_token_s=0.02)) == 0


def test_burstier_arrivals_leave_less_rate() -> None:
    goal = LatencyGoal(first_token_s=0.3, max_utilisation=0.95)
    found = [drafted(CHAT, goal, z) for z in (1.0, 2.0, 4.0)]
    assert found[0] > 1.02 * found[1] > 1.02**2 * found[2] > 0


@pytest.mark.parametrize(
    ("change", "covers"),
    [
        ({}, True),
        ({"max_batched_tokens": 8192}, True),
        ({"max_batched_tokens": 2048}, False),
        ({"queue_capacity": 100}, False),
        ({"output": TokenLengths(1)}, False),
    ],
)
def test_the_draft_says_what_it_covers(change: dict[str, object], covers: bool) -> None:
    assert draft.covered(replace(CHAT, **change), LatencyGoal()) == covers  # type: ignore[arg-type]


def test_the_normal_tail_is_that_of_the_error_function() -> None:
    z = np.linspace(-8, 8, 65)
    exact = [0.5 * math.erfc(x / math.sqrt(2)) for x in z]
    assert tails.normal(z) == pytest.approx(exact, abs=1e-7)


@pytest.mark.parametrize("mean", [0.3, 2.0, 30.0])
def test_the_tail_of_counts_is_poissons_at_whole_numbers(mean: float) -> None:
    """P(K > n - 1/2) = P(K >= n)."""
    number = np.arange(1.0, 50.0)
    exact = [
        1 - sum(mean**k * math.exp(-mean) / math.factorial(k) for k in range(int(n)))
        for n in number
    ]
    found = tails.counts(number - 0.5, np.array(mean), np.array(1.0))
    assert found == pytest.approx(np.array(exact), abs=0.005)
