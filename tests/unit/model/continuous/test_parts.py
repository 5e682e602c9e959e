"""Parts of the continuous model against their definitions."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.errors import ModelDomainError
from sojourn.facts.replica import ContinuousReplica, OperatingPoint
from sojourn.facts.service_time import IterationTime, TokenLengths
from sojourn.model.continuous import (
    ContinuousModel,
    cells,
    counts,
    decoding,
    end_to_end,
    first_token,
    fluctuation,
    lengths,
)
from sojourn.model.continuous.arrivals import Arrivals
from sojourn.model.continuous.machine import machine
from sojourn.model.continuous.population import departures_scv, population
from sojourn.model.continuous.waiting import Waiting

LAWS = [
    TokenLengths(128, law="fixed"),
    TokenLengths(128, law="geometric"),
    TokenLengths(128, 0.5, "lognormal"),
    TokenLengths(128, 2.0, "lognormal"),
    TokenLengths(1, law="histogram", values=(1, 64, 512), weights=(0.2, 0.5, 0.3)),
]


def replica(**changes: object) -> ContinuousReplica:
    values: dict[str, object] = {
        "iteration": IterationTime(0.012, 0.00015, 0.000025),
        "output": TokenLengths(256, law="geometric"),
        "prompt_tokens": 512.0,
        "max_batch": 64,
    }
    return ContinuousReplica(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.law}-{law.scv}")
def test_nodes_keep_the_mean_and_the_variation_of_the_law(law: TokenLengths) -> None:
    found = lengths.nodes(law)
    assert found.weights.sum() == pytest.approx(1)
    assert found.tokens @ found.weights == pytest.approx(found.mean, rel=0.01)
    spread = (found.tokens - found.mean) ** 2 @ found.weights / found.mean**2
    assert spread == pytest.approx(found.scv, rel=0.05, abs=1e-9)


def test_overlap_is_one_for_fixed_and_one_half_for_geometric_lengths() -> None:
    assert lengths.nodes(LAWS[0]).overlap == pytest.approx(1)
    assert lengths.nodes(LAWS[1]).overlap == pytest.approx(1 / (2 - 1 / 128), rel=0.01)


@pytest.mark.parametrize(
    "law",
    [
        TokenLengths(0.5),
        TokenLengths(float("nan")),
        TokenLengths(10, -1.0, "lognormal"),
        TokenLengths(10, law="weibull"),
        TokenLengths(10, law="histogram"),
        TokenLengths(10, law="histogram", values=(1.0, 2.0), weights=(0.5, -0.5)),
    ],
)
def test_a_law_that_is_none_is_named(law: TokenLengths) -> None:
    with pytest.raises(ModelDomainError, match="output tokens"):
        lengths.nodes(law)


@given(
    ratio=st.floats(0.01, 3.0),
    most=st.integers(0, 400),
)
def test_the_queue_law_equals_its_sum(ratio: float, most: int) -> None:
    number = np.arange(most + 1)
    logs = number * np.log(ratio)
    weights = np.exp(logs - logs.max())
    law = Waiting(ratio, most)
    assert law.log_total() == pytest.approx(logs.max() + np.log(weights.sum()), abs=1e-6)
    assert law.mean() == pytest.approx(number @ weights / weights.sum(), rel=1e-5, abs=1e-7)


@given(ratio=st.floats(0.05, 2.0), most=st.integers(1, 300), level=st.floats(0.001, 0.999))
def test_the_queue_quantile_is_where_the_sum_reaches_the_level(
    ratio: float, most: int, level: float
) -> None:
    number = np.arange(most + 1)
    weights = np.exp(number * np.log(ratio) - most * max(0.0, np.log(ratio)))
    cumulative = np.cumsum(weights) / weights.sum()
    found = int(Waiting(ratio, most).quantiles(np.array([level]))[0])
    assert 0 <= found <= most
    assert cumulative[found] >= level - 1e-6
    assert found == 0 or cumulative[found - 1] <= level + 1e-6


def test_a_long_overloaded_queue_does_not_overflow() -> None:
    law = Waiting(1.5, 1_000_000)
    assert law.log_total() == pytest.approx(1_000_000 * np.log(1.5) + np.log(3), rel=1e-9)
    assert law.mean() == pytest.approx(1_000_000 - 2)


def test_quantiles_of_many_atoms_equal_those_of_sorting() -> None:
    rng = np.random.default_rng(1)
    values, weights = rng.lognormal(0, 2, 50_000), rng.random(50_000)
    order = np.argsort(values)
    middles = np.cumsum(weights[order]) - weights[order] / 2
    for level in (0.01, 0.5, 0.99, 0.9999):
        expected = np.interp(level * weights.sum(), middles, values[order])
        assert cells.quantiles(values, weights, [level])[0] == pytest.approx(expected, rel=1e-6)


def condensed(values: np.ndarray, weights: np.ndarray, edges: np.ndarray) -> np.ndarray:
    order = np.argsort(values)
    cumulative = np.concatenate(([0.0], np.cumsum(weights[order])))
    moments = np.concatenate(([0.0], np.cumsum(weights[order] * values[order])))
    at_edges = np.interp(edges * cumulative[-1], cumulative, moments)
    return np.asarray(np.diff(at_edges) / (np.diff(edges) * cumulative[-1]))


def test_condensed_cells_keep_the_mean() -> None:
    rng = np.random.default_rng(2)
    values, weights = np.sort(rng.exponential(1.0, 999)), rng.random(999)
    edges = np.array([0.0, 0.3, 0.9, 1.0])
    (found,) = cells.means_between(weights[None], (weights * values)[None], edges)
    assert found == pytest.approx(condensed(values, weights, edges))
    assert found @ np.diff(edges) == pytest.approx(values @ weights / weights.sum())


def test_gamma_quantiles_are_those_of_the_gamma_law() -> None:
    from scipy import stats

    levels = np.array([0.1, 0.5, 0.9, 0.99])
    for shape in (1.0, 4.0, 30.0):
        found = cells.gamma_quantiles(
            np.array([2.0]), np.array([4.0 / shape]), stats.norm.ppf(levels)
        )
        expected = stats.gamma.ppf(levels, shape, scale=2 / shape)
        assert found == pytest.approx(expected, rel=0.08)


@pytest.mark.parametrize("turns", [1, 2, 8])
def test_counts_in_turn_have_the_mean_of_their_interval(turns: int) -> None:
    law = counts.law(np.array([0.7]), 40, turns)[0]
    assert law.sum() == pytest.approx(1)
    assert law @ np.arange(40) == pytest.approx(0.7)


def test_from_an_arrival_the_next_in_turn_is_far() -> None:
    anywhere = counts.law(np.array([0.3]), 20, 8)[0]
    after = counts.law(np.array([0.3]), 20, 8, from_arrival=True)[0]
    assert after[0] > 0.99 > anywhere[0]


@pytest.mark.parametrize("mean", [0.5, 5.0, 80.0])
@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_cluster_counts_have_mean_nought_and_variance_one(mean: float, phi: float) -> None:
    nodes = counts.borel_nodes(np.array([mean]), phi, 60, 40)[0]
    _, weights = cells.normal_nodes(60, 40)
    assert nodes @ weights == pytest.approx(0, abs=0.02)
    assert nodes**2 @ weights == pytest.approx(1, rel=0.08)


def test_without_prompts_the_variance_of_many_steps_is_that_of_a_birth_death_chain() -> None:
    """No prompts, b small: X = b n, n Poisson with exponential memory of E[L] steps."""
    law = TokenLengths(200, law="geometric")
    output = lengths.nodes(law)
    b, rate, gap = 1e-7, 5.0, 0.01
    flow = fluctuation.Flow(rate, 1.0, gap, b, 0.0)
    steps = np.array([400.0])
    inside = rate * gap * 199
    turns = steps / 199
    expected = b**2 * inside * 2 * 199**2 * (turns - 1 + np.exp(-turns))
    assert fluctuation.variance_s2(output, flow, steps) == pytest.approx(expected, rel=0.03)


def test_without_decoding_the_variance_is_that_of_branching_prompts() -> None:
    output = lengths.nodes(TokenLengths(200, law="geometric"))
    rate, gap, prompt_s = 4.0, 0.02, 0.1
    flow = fluctuation.Flow(rate, 1.0, gap, 0.0, prompt_s)
    expected = prompt_s**2 * rate * gap * 500 / (1 - rate * prompt_s) ** 2
    found = fluctuation.variance_s2(output, flow, np.array([500.0]))
    assert found == pytest.approx([expected], rel=0.03)


def test_the_capacity_of_a_full_batch_counts_prompt_and_steps() -> None:
    one = machine(replica())
    step_s = 0.012 + 0.00015 * 64 * 255 / 256
    assert one.capacity_per_s == pytest.approx(64 / (256 * step_s + 64 * 0.0128))


def test_a_budget_below_the_prompt_lowers_the_capacity() -> None:
    tight, wide = machine(replica(max_batched_tokens=64)), machine(replica())
    assert tight.capacity_per_s < wide.capacity_per_s
    assert tight.capacity_per_s == pytest.approx(1 / (0.0128 + tight.full_step_s * 512 / 64))


def test_the_kv_pool_bounds_the_batch_with_a_margin() -> None:
    """n m + sqrt(n) sd <= tokens for the largest n (docs/explanation/queueing.md, section 5)."""
    one = machine(replica(kv_tokens=20_000.0))
    scv = 1 - 1 / 256
    resident = 512 + 256 * (1 + scv) / 2
    sd = 256 * np.sqrt((1 + scv) * (1 + 2 * scv) / 3 - (1 + scv) ** 2 / 4)
    n = np.arange(1, 65)
    assert one.kv_limited
    assert one.max_batch == n[n * resident + np.sqrt(n) * sd <= 20_000].max()


def test_without_prompts_the_number_inside_depends_on_the_mean_length_only() -> None:
    def law(output: TokenLengths) -> np.ndarray:
        one = machine(replica(output=output, prompt_tokens=0.0))
        return population(one, Arrivals(0.7 * one.capacity_per_s)).weights

    assert law(TokenLengths(256)) == pytest.approx(
        law(TokenLengths(256, 1.5, "lognormal")), rel=0.2
    )


def test_prompts_spread_the_number_inside() -> None:
    one = machine(replica(prompt_tokens=8000.0))
    people = population(one, Arrivals(0.7 * one.capacity_per_s))
    assert people.burst == pytest.approx(1 + (1 / (1 - people.phi) ** 2 - 1) / 2, rel=0.01)


@pytest.mark.parametrize("load", [0.3, 0.9, 0.999, 1.0, 1.2, 3.0])
@pytest.mark.parametrize("places", [0, 1, 16, 100_000])
def test_flow_balances_with_a_finite_queue(load: float, places: int) -> None:
    """Little on the batch: what enters is served, at every load (blocking has no cancellation)."""
    one = machine(replica(queue_capacity=places))
    people = population(one, Arrivals(load * one.capacity_per_s))
    assert people.weights.sum() + people.full == pytest.approx(1, abs=1e-9)
    assert 0 <= people.blocking < 1
    served = load * (1 - people.blocking)
    assert served <= 1 + 1e-3
    if load >= 1:
        assert people.blocking >= 1 - 1 / load - 1e-3


@pytest.mark.parametrize("pooled", [2, 16, 1000])
def test_levelled_replicas_fill_less_often(pooled: int) -> None:
    one = machine(replica())
    alone = population(one, Arrivals(0.9 * one.capacity_per_s))
    levelled = population(one, Arrivals(0.9 * one.capacity_per_s, pooled=pooled))
    assert levelled.full < alone.full
    assert levelled.running == pytest.approx(alone.running, rel=0.1)


def test_departures_of_a_full_batch_are_poisson_at_first_and_vary_as_the_outputs_later() -> None:
    assert list(departures_scv(0.0, np.array([0.0, 1.0]))) == [1, 0]
    assert departures_scv(2.0, np.array(100.0)) == pytest.approx(2)


@pytest.mark.parametrize("load", [0.05, 0.6, 0.9])
@pytest.mark.parametrize("output", [LAWS[0], LAWS[1], LAWS[3]], ids=lambda law: law.law)
def test_the_end_to_end_quantile_is_that_of_all_sums(load: float, output: TokenLengths) -> None:
    one = machine(replica(output=output, prompt_tokens=3000.0))
    stream = Arrivals(load * one.capacity_per_s)
    people = population(one, stream)
    first = first_token.first_token(one, stream, people)
    decoded = decoding.decode(one, stream, people, first)
    values, weights = [], []
    for block in end_to_end.blocks(first, decoded):
        summed = block.firsts_s[:, None, :, None] + block.seconds[:, :, None, :]
        shared = block.cuts[:, None] * decoded.pairs[:, None, :]
        values.append(summed.ravel())
        weights.append((block.weights[:, None, None, None] * shared).ravel())
    value, weight = np.concatenate(values), np.concatenate(weights)
    order = np.argsort(value)
    middles = np.cumsum(weight[order]) - weight[order] / 2
    levels = (0.5, 0.95, 0.99)
    expected = [np.interp(level * weight.sum(), middles, value[order]) for level in levels]
    # Equal sums may be sorted either way.
    assert end_to_end.quantiles_s(first, decoded, levels) == pytest.approx(expected, rel=5e-4)


def test_condensing_many_laws_is_condensing_each() -> None:
    rng = np.random.default_rng(3)
    laws = [(rng.exponential(scale, 400), rng.random(400)) for scale in (1.0, 5.0)]
    edges = np.array([0.0, 0.5, 0.9, 1.0])
    together = cells.condense_many(laws, edges)
    for row, (values, weights) in zip(together, laws, strict=True):
        assert row == pytest.approx(condensed(values, weights, edges), rel=0.01)
        mean = values @ weights / weights.sum()
        assert row @ np.diff(edges) == pytest.approx(mean, rel=1e-9)


@pytest.mark.parametrize("scv", [0.3, 2.0])
def test_where_nothing_varies_but_the_output_percentiles_are_the_outputs(scv: float) -> None:
    """With a cell's edge at the level, rounding decided between two lengths: 3 to 12 % off."""
    law = TokenLengths(128, scv, "lognormal")
    alone = replica(output=law, prompt_tokens=0.0, iteration=IterationTime(0.01, 0.0))
    levels = (0.5, 0.9, 0.95, 0.99, 0.999)
    answer = ContinuousModel().sojourn(OperatingPoint(alone, 0.0), levels)
    spread = np.sqrt(np.log1p(scv))
    for level, seconds in answer.latency.quantiles_s:
        tokens = 128 / np.sqrt(1 + scv) * np.exp(NormalDist().inv_cdf(level) * spread)
        assert seconds == pytest.approx(0.01 * tokens, rel=0.015)
