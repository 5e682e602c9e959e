"""Numbers stay numbers over the whole domain: no NaN, no negative probability, rising quantiles.

Domain: rates 1e-6 to 1e4 per s, service times 10 us to 100 s, B 1 to 4096, c 1 to 1000, load to
0.999.
"""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.facts.replica import DynamicReplica, OperatingPoint
from sojourn.facts.service_time import LinearServiceTime
from sojourn.facts.sojourn import Sojourn
from sojourn.model.exact_model import ExactModel

LEVELS = (0.5, 0.9, 0.99, 0.999)
BATCHES = st.sampled_from([1, 2, 3, 8, 17, 64])
LARGE = st.sampled_from([200, 700, 4096])
LOADS = st.floats(1e-9, 0.999)
LONGEST = st.floats(-5, 2)  # decimal logarithm of s_B in seconds
SHARES = st.floats(0, 1)
SCVS = st.sampled_from([0.0, 0.06, 0.3, 1.0])
WAITS = st.sampled_from([0.0, 0.1, 1.0, 4.0, math.inf])
PLACES = st.sampled_from([None, 1, 1.4, 2, 6])
REPLICAS = st.integers(1, 1000)

OFF_BY = re.compile(r"off by ([\d.]+)%")

Rest = tuple[float, float, float | None, int]  # CV^2, T / s_B, K / B, c


def asked(
    batch: int,
    load: float,
    longest: float,
    share: float,
    rest: Rest,
) -> Sojourn:
    scv, wait, places, replicas = rest
    full_s = 10**longest
    law = LinearServiceTime(share * full_s, (1 - share) * full_s / batch, scv)
    capacity = None if places is None else math.ceil(places * batch)
    rate = min(1e4, load * batch / full_s) * replicas
    replica = DynamicReplica(law, batch, wait * full_s, capacity)
    return ExactModel().sojourn(OperatingPoint(replica, rate, replicas), LEVELS)


def is_sound(answer: Sojourn, doubt_percent: float = 0.0) -> None:
    quantiles = [seconds for _, seconds in answer.latency.quantiles_s]
    parts = (answer.queue_wait_s, answer.batch_wait_s, answer.service_s)
    for value in (*quantiles, *parts, answer.mean_batch, answer.throughput_per_s):
        assert math.isfinite(value)
        assert value >= 0
    assert quantiles == sorted(quantiles)
    assert 0 <= answer.blocking <= 1
    assert 0 <= answer.busy_fraction <= 1
    assert sum(parts) == pytest.approx(answer.latency.mean_s)
    doubts = [float(found) for text in answer.warnings for found in OFF_BY.findall(text)]
    assert max(doubts, default=0.0) <= doubt_percent, answer.warnings


@settings(max_examples=30, deadline=None)
@given(BATCHES, LOADS, LONGEST, SHARES, st.tuples(SCVS, WAITS, PLACES, REPLICAS))
def test_answers_are_sound_everywhere(
    batch: int,
    load: float,
    longest: float,
    share: float,
    rest: Rest,
) -> None:
    _, wait, places, _ = rest
    # The one approximation: a window longer than a service, and K between multiples of B.
    approximate = places == 1.4 and wait > 1
    is_sound(asked(batch, load, longest, share, rest), 5.0 if approximate else 0.0)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(LARGE, LOADS, LONGEST, SHARES, st.tuples(SCVS, WAITS, PLACES, REPLICAS))
def test_answers_of_large_batches_are_sound(
    batch: int,
    load: float,
    longest: float,
    share: float,
    rest: Rest,
) -> None:
    # Hundreds of requests whose time has no fixed part: cells of a batch of one are not all told.
    is_sound(
        asked(batch, load, longest, share, rest), 5.0 if share < 1e-3 or rest[2] == 1.4 else 0.0
    )


@pytest.mark.parametrize("load", [0.9, 0.99, 0.999])
def test_percentiles_near_load_one_follow_the_tail_root(load: float) -> None:
    law = LinearServiceTime(1.0, 0.0)
    answer = ExactModel().sojourn(OperatingPoint(DynamicReplica(law, 1), load), (0.99, 0.999))
    low, high = (seconds for _, seconds in answer.latency.quantiles_s)
    # M/D/1: the tail falls by e^-2(1-load)/load... a decade takes ln 10 over the root's decay.
    root = 2 * (1 - load)
    for _ in range(50):
        root -= (load * math.expm1(root) - root) / (load * math.exp(root) - 1)
    assert high - low == pytest.approx(math.log(10) / root, rel=5e-3)
