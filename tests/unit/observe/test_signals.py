"""From evidence to readings: a value, a true zero or unknown with its reason."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn import engines
from sojourn.facts.reading import Known, Reading, Unknown
from sojourn.facts.reasons import Reason
from sojourn.observe.evidence import Evidence, Values, add_answer
from sojourn.observe.pods import Pod, Pods, workload_of
from sojourn.observe.prometheus import Series
from sojourn.observe.queries import Question
from sojourn.observe.settings import ScrapeSettings
from sojourn.observe.signals import View, engine_signals
from tests.unit.observe.builders import LONG_AGO_S, NOW_S, pod_names

SCRAPE = ScrapeSettings()
NAMESPACE = "team-a"


def pods(*names: str, young: tuple[str, ...] = (), gone: tuple[str, ...] = ()) -> Pods:
    live = tuple(Pod(NAMESPACE, n, NOW_S - 5 if n in young else LONG_AGO_S) for n in names)
    return Pods(NAMESPACE, live, departed=gone, workloads=frozenset(map(workload_of, names)))


def evidence(wrong: dict[str, set[str]] | None = None, **roles: dict[str, float]) -> Evidence:
    """Values by pod name, under the role's name with underscores."""
    named = {role.replace("_", " "): values for role, values in roles.items()}
    named |= {role: named.pop(role.replace("_", " ")) for role in roles if role.endswith("tokens")}
    if "KV usage" not in named and "kv usage" in named:
        named["KV usage"] = named.pop("kv usage")
    by_role: dict[str, Values] = {
        role: {(NAMESPACE, name): value for name, value in values.items()}
        for role, values in named.items()
    }
    faults = {f: {(NAMESPACE, name) for name in names} for f, names in (wrong or {}).items()}
    return Evidence(NOW_S, by_role=by_role, wrong=faults)


def signals(seen: Evidence, of: Pods, engine: str = "vllm") -> Any:
    return engine_signals(View(engines.find(engine), of, seen, SCRAPE))


def rate(seen: Evidence, of: Pods, engine: str = "vllm") -> Reading:
    found: Reading = signals(seen, of, engine).rate_per_s
    return found


def test_offered_rates_of_all_pods_are_summed() -> None:
    seen = evidence(offered={"a": 3.0, "b": 4.5})
    assert rate(seen, pods("a", "b")) == Known(7.5, NOW_S)


def test_flat_counters_of_scraped_pods_are_a_true_zero() -> None:
    """FC-013."""
    seen = evidence(offered={"a": 0.0}, running={"a": 0.0}, waiting={"a": 0.0})
    found = rate(seen, pods("a"))
    assert found == Known(0.0, NOW_S)
    assert found.state == "Zero"


def test_noise_below_zero_is_a_zero() -> None:
    assert rate(evidence(offered={"a": -0.3}), pods("a")) == Known(0.0, NOW_S)


def test_a_zero_rate_while_requests_run_cannot_lower_anything() -> None:
    seen = evidence(offered={"a": 0.0}, running={"a": 30.0}, waiting={"a": 0.0})
    assert rate(seen, pods("a")) == Known(0.0, NOW_S, lower_bound=True)


FAULTS = [
    pytest.param({}, {}, Reason.NO_SERIES, "no vLLM series", id="FC-001 empty answers"),
    pytest.param(
        {"running": {"a": 32.0, "b": 32.0}},
        {},
        Reason.NO_SERIES,
        "running but none is counted",
        id="FC-026 running without arrivals",
    ),
    pytest.param(
        {"offered": {"a": math.nan, "b": math.nan}},
        {},
        Reason.NOT_A_NUMBER,
        "finite",
        id="FC-003 NaN",
    ),
    pytest.param(
        {"offered": {"a": math.inf, "b": math.inf}},
        {},
        Reason.NOT_A_NUMBER,
        "finite",
        id="FC-003 infinite",
    ),
    pytest.param(
        {"offered": {"a": 5.0, "b": 5.0}},
        {"stale": {"a", "b"}},
        Reason.STALE_SERIES,
        "no sample within 60 s",
        id="FC-011 stale",
    ),
    pytest.param({}, {"down": {"a", "b"}}, Reason.NO_SERIES, "cannot scrape", id="up is 0"),
    pytest.param(
        {"offered": {"a": 5.0, "b": 5.0}},
        {"doubled": {"a"}},
        Reason.DUPLICATE_SERIES,
        "replica labels",
        id="FC-021 unknown copies",
    ),
    pytest.param(
        {"offered": {"a": 5.0}},
        {"down": {"b"}},
        Reason.LOW_COVERAGE,
        "1 of 2 pods were seen, 80% needed",
        id="half of the pods",
    ),
]


@pytest.mark.parametrize(("roles", "wrong", "reason", "why"), FAULTS)
def test_missing_evidence_is_unknown_with_its_reason(
    roles: Any, wrong: Any, reason: Reason, why: str
) -> None:
    found = rate(evidence(wrong, **roles), pods("a", "b"))
    assert isinstance(found, Unknown)
    assert found.reason is reason
    assert why in found.why


def test_no_serving_pod_leaves_the_rate_to_a_gateway() -> None:
    found = rate(evidence(), pods())
    assert isinstance(found, Unknown)
    assert "only a gateway" in found.why


def test_a_pod_of_another_namespace_or_one_that_is_gone_adds_nothing() -> None:
    """FC-023 and FC-010."""
    seen = evidence(offered={"a": 5.0}, waiting={"a": 0.0, "gone": 80.0}, kv_usage={"a": 0.1})
    seen.by_role["offered"]["team-b", "a"] = 100.0
    seen.by_role["KV usage"][NAMESPACE, "gone"] = 0.99
    found = signals(seen, pods("a", gone=("gone",)))
    assert found.rate_per_s == Known(5.0, NOW_S)
    assert found.waiting == Known(0.0, NOW_S)
    assert found.kv_usage == Known(0.1, NOW_S)


def test_what_a_departed_pod_received_in_the_window_is_still_demand() -> None:
    seen = evidence(offered={"a": 6.0, "b": 3.0})
    assert rate(seen, pods("a", gone=("b",))) == Known(9.0, NOW_S)


def test_what_a_pod_on_its_way_out_receives_is_still_demand_and_no_more() -> None:
    leaving = Pod(NAMESPACE, "b", LONG_AGO_S, terminating=True)
    both = replace(pods("a"), live=(*pods("a").live, leaving))
    found = signals(evidence(offered={"a": 6.0, "b": 3.0}, running={"a": 2.0, "b": 9.0}), both)
    assert found.rate_per_s == Known(9.0, NOW_S)
    assert found.running == Known(2.0, NOW_S)


def test_what_a_stale_departed_pod_says_is_not() -> None:
    seen = evidence({"stale": {"b"}}, offered={"a": 6.0, "b": 3.0})
    assert rate(seen, pods("a", gone=("b",))) == Known(6.0, NOW_S)


def test_a_young_pod_makes_the_rate_a_lower_bound() -> None:
    """FC-015: no scale-down while a serving pod is younger than the window."""
    seen = evidence(offered={"a": 5.0, "b": 1.0})
    assert rate(seen, pods("a", "b", young=("b",))) == Known(6.0, NOW_S, lower_bound=True)


def test_a_young_pod_without_samples_does_not_blind_the_others() -> None:
    assert rate(evidence(offered={"a": 5.0}), pods("a", "b", young=("b",))) == Known(
        5.0, NOW_S, lower_bound=True
    )


def test_only_young_pods_without_samples_are_an_unfilled_window() -> None:
    found = rate(evidence(), pods("a", young=("a",)))
    assert isinstance(found, Unknown)
    assert found.reason is Reason.WINDOW_NOT_FULL


@pytest.mark.parametrize("fault", ["short", "begun"])
def test_a_short_series_of_an_old_pod_is_a_lower_bound_too(fault: str) -> None:
    """Prometheus restarted with an empty window."""
    seen = evidence({fault: {"a"}}, offered={"a": 5.0})
    assert rate(seen, pods("a")) == Known(5.0, NOW_S, lower_bound=True)


def test_four_of_five_pods_are_enough_but_a_lower_bound() -> None:
    names = list("abcde")
    seen = evidence({"down": {"e"}}, offered=dict.fromkeys("abcd", 1.0))
    assert rate(seen, pods(*names)) == Known(4.0, NOW_S, lower_bound=True)


def test_completions_alone_are_a_lower_bound() -> None:
    seen = evidence(offered={"a": 5.0})
    seen.lower.add((NAMESPACE, "a"))
    assert rate(seen, pods("a"), "trtllm") == Known(5.0, NOW_S, lower_bound=True)


def test_of_a_retry_storm_three_times_the_completions_are_believed() -> None:
    seen = evidence(offered={"a": 120.0, "b": 20.0}, storm={"a": 36.0})
    found = signals(seen, pods("a", "b"))
    assert found.rate_per_s == Known(56.0, NOW_S, lower_bound=True)
    assert found.retry_storm == (
        "a refuse more requests than they complete: 84.0/s are taken for retries, and the rate for "
        "3 x completions"
    )


def test_a_storm_below_its_cap_or_of_another_pod_changes_nothing() -> None:
    seen = evidence(offered={"a": 30.0}, storm={"a": 36.0, "other": 1.0})
    found = signals(seen, pods("a"))
    assert (found.rate_per_s, found.retry_storm) == (Known(30.0, NOW_S), "")


@pytest.mark.parametrize(
    ("engine", "gauges", "expected"),
    [
        ("tgi", {"running": {"a": 0.0}, "waiting": {"a": 0.0}}, Known(0.0, NOW_S)),
        ("tgi", {"running": {"a": 3.0}, "waiting": {"a": 0.0}}, Reason.NO_SERIES),
        ("tgi", {}, Reason.NO_SERIES),
        ("vllm", {"running": {"a": 0.0}, "waiting": {"a": 0.0}}, Known(0.0, NOW_S)),
        ("vllm", {"running": {"a": 2.0}, "waiting": {"a": 0.0}}, Reason.NO_SERIES),
        (
            "vllm",
            {"running": {"a": 0.0}, "waiting": {"a": 0.0}, "p99": {"a": math.nan}},
            Reason.NO_SERIES,
        ),
        ("triton", {"running": {"a": 0.0}, "waiting": {"a": 0.0}}, Reason.NO_SERIES),
    ],
)
def test_an_absent_counter_is_a_zero_only_for_a_lazy_engine_that_is_idle(
    engine: str, gauges: Any, expected: Any
) -> None:
    found = rate(evidence({"uncounted": {"a"}}, **gauges), pods("a"), engine)
    assert (found if isinstance(found, Known) else found.reason) == expected
    unproven = rate(evidence(**gauges), pods("a"), engine)
    assert isinstance(unproven, Unknown), "no whole window was seen without the counter"


def test_an_engine_that_counts_no_requests_asks_for_a_query() -> None:
    found = rate(evidence(running={"a": 1.0}), pods("a"), "llamacpp")
    assert isinstance(found, Unknown)
    assert "arrivalRateQuery" in found.why


def test_kv_usage_is_the_fullest_pods() -> None:
    found = signals(evidence(kv_usage={"a": 0.2, "b": 0.9}), pods("a", "b")).kv_usage
    assert found == Known(0.9, NOW_S)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_a_gauge_that_is_no_count_is_unknown(value: float) -> None:
    found = signals(evidence(waiting={"a": value}), pods("a")).waiting
    assert isinstance(found, Unknown)
    assert found.reason is Reason.NOT_A_NUMBER


def test_a_gauge_can_be_known_while_the_rate_is_not() -> None:
    """FC-005, FC-028: each signal stands for itself."""
    found = signals(evidence(waiting={"a": 40.0}, kv_usage={"a": 0.16}), pods("a"))
    assert found.waiting == Known(40.0, NOW_S)
    assert isinstance(found.rate_per_s, Unknown)


POD = pod_names(1)[0]


def test_latency_comes_by_workload_with_the_bucket_that_holds_it() -> None:
    found = signals(evidence(p99={"chat": 3.1}, p50={"chat": 0.4}), pods(POD))
    assert found.latency_p99_s == Known(3.1, NOW_S)
    assert found.latency_p50_s == Known(0.4, NOW_S)
    assert found.latency_p99_bucket_s == (2.5, 5.0)


def test_a_percentile_at_the_last_bound_says_at_least() -> None:
    found = signals(evidence(p99={"chat": 60.0}), pods(POD))
    assert found.latency_p99_s == Known(60.0, NOW_S, lower_bound=True)
    assert found.latency_p99_bucket_s == (60.0, math.inf)


def test_latency_without_traffic_is_unknown_while_the_rate_is_a_zero() -> None:
    """FC-002."""
    seen = evidence(
        offered={POD: 0.0}, running={POD: 0.0}, waiting={POD: 0.0}, p99={"chat": math.nan}
    )
    found = signals(seen, pods(POD))
    assert found.rate_per_s == Known(0.0, NOW_S)
    assert found.latency_p99_s == Unknown(Reason.NOT_A_NUMBER, "no request finished in the window")


def test_pods_whose_workloads_cannot_be_told_apart_have_no_latency() -> None:
    found = signals(evidence(p99={"chat": 3.1}), replace(pods(POD), ambiguous=frozenset({"chat"})))
    assert found.latency_p99_s.reason is Reason.DUPLICATE_SERIES


def test_a_failed_question_leaves_the_other_answers() -> None:
    seen = evidence(offered={"a": 5.0}, running={"a": 1.0}, waiting={"a": 0.0})
    seen.failed[Question.KV_USAGE] = "no answer"
    found = signals(seen, pods("a"))
    assert found.rate_per_s == Known(5.0, NOW_S)
    assert found.kv_usage == Unknown(Reason.PROMETHEUS_UNAVAILABLE, "no answer")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(12.0, 12.0, 12.0), (12.0, 9.0, 12.0), (9.0, 12.0, 12.0), (math.nan, 5.0, 5.0)],
)
def test_a_pod_that_appears_twice_counts_once_with_its_larger_value(
    first: float, second: float, expected: float
) -> None:
    seen = Evidence(NOW_S)
    labels = {"namespace": NAMESPACE, "pod": "a"}
    answer = [Series({**labels, "x": x}, v, NOW_S) for x, v in (("1", first), ("2", second))]
    add_answer(seen, Question.OFFERED, answer, SCRAPE)
    assert rate(seen, pods("a")) == Known(expected, NOW_S)


@pytest.mark.parametrize(
    ("name", "workload"),
    [
        ("chat-7d9f8b6c5d-x2x4z", "chat"),
        ("my-chat-8b-7d9f8b6c5d-x2x4z", "my-chat-8b"),
        ("chat-x2x4z", "chat"),
        ("chat-0", "chat"),
        ("chat-0-1", "chat"),
        ("chat", "chat"),
        ("chat-frontend", "chat-frontend"),
    ],
)
def test_the_workload_is_told_by_the_pods_name(name: str, workload: str) -> None:
    assert workload_of(name) == workload


NUMBERS = st.one_of(
    st.none(), st.floats(0, 1e4), st.sampled_from([math.nan, math.inf, -math.inf, -3.0])
)


@given(
    offered=st.lists(NUMBERS, min_size=1, max_size=6),
    faults=st.dictionaries(
        st.sampled_from(["stale", "down", "short", "begun", "doubled"]),
        st.sets(st.integers(0, 5), max_size=6),
    ),
)
def test_whatever_is_missing_a_known_rate_is_finite_and_complete_or_a_lower_bound(
    offered: list[float | None], faults: dict[str, set[int]]
) -> None:
    """I2: a rate that may lower replicas has seen every pod."""
    names = [str(i) for i in range(len(offered))]
    values = {n: v for n, v in zip(names, offered, strict=True) if v is not None}
    wrong = {f: {str(i) for i in at} for f, at in faults.items()}
    found = rate(evidence(wrong, offered=values), pods(*names))
    if isinstance(found, Unknown):
        return
    assert math.isfinite(found.value)
    assert found.value >= 0
    if not found.lower_bound:
        assert all(v is not None and math.isfinite(v) for v in offered)
        doubtful = [faults.get(f, set()) for f in ("stale", "short", "begun", "doubled")]
        assert not any(str(i) in names for at in doubtful for i in at)
