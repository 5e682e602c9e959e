"""A tick's gathering: a constant number of queries, one Observation a service, never an error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from sojourn.facts.declaration import (
    Declaration,
    DeclaredEngine,
    MetricsSource,
    ObjectRef,
    TargetRef,
)
from sojourn.facts.reading import Known, Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import Observation, TargetState
from sojourn.observe.cluster import ClusterState
from sojourn.observe.gather import Gatherer
from sojourn.observe.prometheus import PrometheusSource
from sojourn.observe.queries import Question, questions
from sojourn.observe.settings import PrometheusSettings, ScrapeSettings
from tests.unit.observe.builders import (
    NOW_S,
    add_service,
    cluster_of,
    declaration,
    pod_names,
    synced_cluster,
)
from tests.unit.observe.fake_prometheus import Asked, FakePrometheus, Reply, document, vector

SCRAPE = ScrapeSettings()
Observed = Mapping[tuple[str, str], Observation]


def gather(
    prometheus: FakePrometheus,
    cluster: ClusterState,
    services: list[Declaration],
    ticks: int = 1,
    scrape: ScrapeSettings = SCRAPE,
) -> list[Observed]:
    async def run() -> list[Observed]:
        source = PrometheusSource(PrometheusSettings(prometheus.url, timeout_s=2))
        try:
            gatherer = Gatherer(cluster, source, scrape)
            return [await gatherer.gather(services, {}, NOW_S) for _ in range(ticks)]
        finally:
            source.close()

    return asyncio.run(run())


def answering(
    replies: Mapping[str, Reply], others: Callable[[Asked], Reply] = lambda _: vector()
) -> Callable[[Asked], Reply]:
    """Replies by question (``in_flight`` for "in flight"); the rest is an empty vector."""
    asked = questions(frozenset({"vllm"}), SCRAPE)
    by_text = {text: replies.get(q.name.lower()) for q, text in asked.items()}

    def answer(request: Asked) -> Reply:
        query = request.parameters["query"]
        return by_text[query] or vector() if query in by_text else others(request)

    return answer


def by_pod(values: Mapping[str, Any], namespace: str = "team-a", **labels: str) -> Any:
    return [({"namespace": namespace, "pod": p, **labels}, v) for p, v in values.items()]


def healthy(rate: float = 5.0, pods: int = 2) -> dict[str, Reply]:
    names = pod_names(pods)
    running = by_pod(dict.fromkeys(names, 3), role="running")
    waiting = by_pod(dict.fromkeys(names, 1), role="waiting")
    return {
        "offered": vector(*by_pod(dict.fromkeys(names, rate)), at_s=NOW_S),
        "in_flight": vector(*running, *waiting, at_s=NOW_S),
        "latency": vector(
            ({"namespace": "team-a", "workload": "chat", "role": "p99"}, "0.9"), at_s=NOW_S
        ),
        "tokens": vector(
            ({"namespace": "team-a", "workload": "chat", "role": "prompt_tokens"}, "700"),
            at_s=NOW_S,
        ),
    }


KEY = ("team-a", "chat")


def test_every_signal_reaches_the_service_it_belongs_to(prometheus: FakePrometheus) -> None:
    prometheus.answer = answering(healthy())
    (found,) = gather(prometheus, cluster_of(), [declaration()])
    observation = found[KEY]
    assert isinstance(observation.target, TargetState)
    assert observation.target.ready_replicas == 2
    assert observation.signals.rate_per_s == Known(10.0, NOW_S)
    assert observation.signals.running == Known(6.0, NOW_S)
    assert observation.signals.waiting == Known(2.0, NOW_S)
    assert observation.signals.latency_p99_s == Known(0.9, NOW_S)
    assert observation.signals.prompt_tokens == Known(700.0, NOW_S)
    assert isinstance(observation.signals.kv_usage, Unknown)


@pytest.mark.parametrize("services", [1, 200])
def test_the_number_of_queries_does_not_grow_with_the_services(
    prometheus: FakePrometheus, services: int
) -> None:
    cluster, declared = synced_cluster(), []
    for i in range(services):
        add_service(cluster, f"s{i}", "team-a", pods=1)
        declared.append(declaration(f"s{i}", query="rate(gateway[1m])"))
    gather(prometheus, cluster, declared, ticks=2)
    assert len(prometheus.asked) <= 2 * 12
    assert len(prometheus.asked) == 2 * 9 + 2


def test_all_queries_of_a_tick_share_one_instant(prometheus: FakePrometheus) -> None:
    gather(prometheus, cluster_of(), [declaration()])
    assert {asked.parameters["time"] for asked in prometheus.asked} == {f"{NOW_S:.3f}"}


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(Reply(503, b"busy"), id="503"),
        pytest.param(Reply(500, b"oops"), id="500"),
        pytest.param(Reply(200, b"<html>sign in</html>"), id="HTML"),
        pytest.param(
            document({"status": "success", "data": {"result": []}, "isPartial": True}),
            id="partial",
        ),
    ],
)
def test_an_outage_costs_one_query_a_tick_and_makes_every_signal_unknown(
    prometheus: FakePrometheus, reply: Reply
) -> None:
    """FC-001 and FC-004: an outage is never a zero."""
    prometheus.answer = lambda _: reply
    *_, found = gather(prometheus, cluster_of(), [declaration()], ticks=3)
    signals = found[KEY].signals
    for reading in (signals.rate_per_s, signals.running, signals.kv_usage, signals.latency_p99_s):
        assert isinstance(reading, Unknown)
        assert reading.reason is Reason.PROMETHEUS_UNAVAILABLE
    assert isinstance(found[KEY].target, TargetState), "the cluster is still seen"
    assert len(prometheus.asked) == 3


def test_after_an_outage_the_next_tick_sees_everything(prometheus: FakePrometheus) -> None:
    replies = iter([Reply(503, b"busy")])
    well = answering(healthy())
    prometheus.answer = lambda asked: next(replies, None) or well(asked)
    before, after = gather(prometheus, cluster_of(), [declaration()], ticks=2)
    assert isinstance(before[KEY].signals.rate_per_s, Unknown)
    assert after[KEY].signals.rate_per_s == Known(10.0, NOW_S)


def test_a_clock_that_disagrees_makes_ages_and_so_everything_unknown(
    prometheus: FakePrometheus,
) -> None:
    """FC-141."""
    prometheus.answer = answering(healthy())
    prometheus.shift_s = -90
    (found,) = gather(prometheus, cluster_of(), [declaration()])
    rate = found[KEY].signals.rate_per_s
    assert isinstance(rate, Unknown)
    assert "clock" in rate.why


def test_the_same_model_in_two_namespaces_is_two_services(prometheus: FakePrometheus) -> None:
    """FC-023."""
    cluster = cluster_of(pods=1)
    add_service(cluster, "chat", "team-b", pods=1)
    name = pod_names(1)[0]
    series = by_pod({name: 1500.0}) + by_pod({name: 10.0}, "team-b")
    prometheus.answer = answering({"offered": vector(*series, at_s=NOW_S)})
    services = [declaration(), declaration(namespace="team-b")]
    (found,) = gather(prometheus, cluster, services)
    assert found[KEY].signals.rate_per_s == Known(1500.0, NOW_S)
    assert found["team-b", "chat"].signals.rate_per_s == Known(10.0, NOW_S)


def test_a_missing_target_is_the_reason_of_every_signal(prometheus: FakePrometheus) -> None:
    (found,) = gather(prometheus, synced_cluster(), [declaration()])
    assert isinstance(found[KEY].target, Unknown)
    rate = found[KEY].signals.rate_per_s
    assert isinstance(rate, Unknown)
    assert rate.reason is Reason.TARGET_MISSING


def test_an_engine_nobody_described_is_asked_nothing_and_breaks_nothing(
    prometheus: FakePrometheus,
) -> None:
    services = [declaration(engine=DeclaredEngine("nobody"))]
    (found,) = gather(prometheus, cluster_of(), services)
    assert isinstance(found[KEY].signals.rate_per_s, Unknown)
    assert prometheus.asked == []


QUERY = 'rate(gateway{ns="{{namespace}}"}[1m])'


def gateway(value: str) -> Reply:
    return vector(({"sojourn_service": "team-a/chat"}, value))


def test_a_gateways_rate_wins_over_the_engines(prometheus: FakePrometheus) -> None:
    prometheus.answer = answering(healthy(), lambda _: gateway("42"))
    (found,) = gather(prometheus, cluster_of(), [declaration(query=QUERY)])
    assert found[KEY].signals.rate_per_s == Known(42.0, NOW_S)


def test_a_gateway_is_evidence_even_without_pods(prometheus: FakePrometheus) -> None:
    """The wake source of a service at zero."""
    prometheus.answer = answering({}, lambda _: gateway("3"))
    (found,) = gather(prometheus, cluster_of(pods=0), [declaration(query=QUERY)])
    assert found[KEY].signals.rate_per_s == Known(3.0, NOW_S)


@pytest.mark.parametrize("reply", [vector(), gateway("NaN"), gateway("-1"), Reply(503, b"busy")])
def test_without_the_gateways_answer_the_engines_rate_is_a_lower_bound(
    prometheus: FakePrometheus, reply: Reply
) -> None:
    prometheus.answer = answering(healthy(), lambda _: reply)
    (found,) = gather(prometheus, cluster_of(), [declaration(query=QUERY)])
    assert found[KEY].signals.rate_per_s == Known(10.0, NOW_S, lower_bound=True)


def test_a_gateways_rate_counts_no_storm_and_without_it_the_storm_stays(
    prometheus: FakePrometheus,
) -> None:
    (first, *_) = names = pod_names(2)
    offered = by_pod(dict.fromkeys(names, 90.0))
    replies = healthy() | {
        "offered": vector(*offered, *by_pod({first: 30.0}, role="storm"), at_s=NOW_S)
    }
    for answer, rate in ((gateway("42"), 42.0), (vector(), 120.0)):

        def custom(_: Asked, reply: Reply = answer) -> Reply:
            return reply

        prometheus.answer = answering(replies, custom)
        (found,) = gather(prometheus, cluster_of(), [declaration(query=QUERY)])
        signals = found[KEY].signals
        assert signals.rate_per_s == Known(rate, NOW_S, lower_bound=rate == 120.0)
        assert bool(signals.retry_storm) is (rate == 120.0)


def test_custom_queries_can_be_switched_off(prometheus: FakePrometheus) -> None:
    prometheus.answer = answering(healthy(), lambda _: gateway("42"))
    off = ScrapeSettings(custom_queries=False)
    (found,) = gather(prometheus, cluster_of(), [declaration(query=QUERY)], scrape=off)
    assert found[KEY].signals.rate_per_s == Known(10.0, NOW_S)


def test_one_authors_bad_query_is_his_own_and_is_not_asked_again(
    prometheus: FakePrometheus,
) -> None:
    cluster = cluster_of(pods=1)
    add_service(cluster, "bad", "team-a", pods=1)

    def custom(asked: Asked) -> Reply:
        if "bad_function" in asked.parameters["query"]:
            return document({"status": "error", "error": "unknown function"}, 400)
        return gateway("42")

    prometheus.answer = answering({}, custom)
    services = [declaration("bad", query="bad_function(up)"), declaration(query=QUERY)]
    ticks = gather(prometheus, cluster, services, ticks=4)
    assert ticks[-1][KEY].signals.rate_per_s == Known(42.0, NOW_S)
    bad = ticks[-1]["team-a", "bad"].signals.rate_per_s
    assert isinstance(bad, Unknown)
    assert "unknown function" in bad.why
    assert sum("bad_function" in query for query in prometheus.queries) == 1


def test_no_answer_of_one_question_hides_another(prometheus: FakePrometheus) -> None:
    replies = {**healthy(), "kv_usage": Reply(503, b"busy")}
    prometheus.answer = answering(replies)
    (found,) = gather(prometheus, cluster_of(), [declaration()])
    signals = found[KEY].signals
    assert signals.rate_per_s == Known(10.0, NOW_S)
    assert isinstance(signals.kv_usage, Unknown)
    assert signals.kv_usage.reason is Reason.PROMETHEUS_UNAVAILABLE


def test_a_service_whose_quota_is_known_gets_its_replicas(prometheus: FakePrometheus) -> None:
    cluster = cluster_of(pods=2)
    quota = {
        "metadata": {"name": "q", "namespace": "team-a"},
        "status": {
            "hard": {"requests.nvidia.com/gpu": "3"},
            "used": {"requests.nvidia.com/gpu": "2"},
        },
    }
    cluster.apply("ResourceQuota", None, quota)
    (found,) = gather(prometheus, cluster, [declaration()])
    assert found[KEY].quota_replicas == 3


def test_a_scrape_interval_that_is_not_prometheus_own_is_said_once(
    prometheus: FakePrometheus, caplog: pytest.LogCaptureFixture
) -> None:
    short = vector(*by_pod(dict.fromkeys(pod_names(2), 2), role="short"), at_s=NOW_S)
    prometheus.answer = answering({**healthy(), "health": short})
    *_, found = gather(prometheus, cluster_of(), [declaration()], ticks=3)
    assert found[KEY].signals.rate_per_s == Known(10.0, NOW_S, lower_bound=True)
    assert caplog.text.count("is the scrape interval in the settings") == 1
    caplog.clear()
    prometheus.answer = answering(healthy())
    gather(prometheus, cluster_of(), [declaration()])
    assert "scrape interval" not in caplog.text


def test_a_selector_has_evidence_of_its_own(prometheus: FakePrometheus) -> None:
    def custom(asked: Asked) -> Reply:
        """What the longer questions answer: both services' pods, each selection apart."""
        query = asked.parameters["query"]
        if "deriv(" not in query:
            return vector(*by_pod(dict.fromkeys(pod_names(1), 1), role="running"), at_s=NOW_S)
        names = dict.fromkeys(pod_names(1), 900)
        return vector(
            *by_pod(names),
            *by_pod(dict.fromkeys(names, 40), selection="0"),
            *by_pod(dict.fromkeys(names, 70), selection="1"),
            at_s=NOW_S,
        )

    prometheus.answer = custom
    cluster = cluster_of(pods=1)
    a, b = (
        replace(declaration(), ref=ObjectRef("team-a", n), metrics=MetricsSource(((n, "x"),)))
        for n in "ab"
    )
    everything = [declaration(), *(replace(d, target=TargetRef("chat")) for d in (b, a))]
    (found,) = gather(prometheus, cluster, everything)
    rates = {name: s.signals.rate_per_s for (_, name), s in found.items()}
    assert {n: r.value for n, r in rates.items() if isinstance(r, Known)} == {
        "chat": 900.0,
        "a": 40.0,
        "b": 70.0,
    }
    assert len(prometheus.queries) == len(questions(frozenset({"vllm"}), SCRAPE))


def test_more_selectors_than_are_asked_for_are_unknown_and_say_so(
    prometheus: FakePrometheus,
) -> None:
    prometheus.answer = lambda _: vector()
    services = [
        replace(
            declaration(target=TargetRef("chat")),
            ref=ObjectRef("team-a", f"s{number:02}"),
            metrics=MetricsSource((("service", f"{number:02}"),)),
        )
        for number in range(51)
    ]
    (found,) = gather(prometheus, cluster_of(), services)
    last = found["team-a", "s50"].signals.rate_per_s
    assert isinstance(last, Unknown)
    assert "more than 50 different spec.metrics.selector are in use" in last.why
    first = found["team-a", "s49"].signals.rate_per_s
    assert isinstance(first, Unknown)
    assert "different spec.metrics.selector" not in first.why


def test_questions_have_distinct_texts() -> None:
    texts = questions(frozenset({"vllm"}), SCRAPE)
    assert len(set(texts.values())) == len(texts)


def test_an_outage_is_logged_when_it_begins_and_when_it_ends(
    prometheus: FakePrometheus, caplog: pytest.LogCaptureFixture
) -> None:
    replies = [Reply(503), Reply(503), None]
    up = answering(healthy())

    def answer(request: Asked) -> Reply:
        reply = replies[0]
        if reply is None:
            return up(request)
        replies.pop(0)
        return reply

    prometheus.answer = answer
    gather(prometheus, cluster_of(), [declaration()], ticks=3)
    assert caplog.text.count("no metrics, so nothing is scaled down") == 1
    assert "503" in caplog.text
    assert caplog.text.count("metrics are back") == 1


def test_a_scrape_that_lands_between_two_questions_proves_nobody_idle(
    prometheus: FakePrometheus,
) -> None:
    """The pods' first samples since Prometheus restarted: gauges at zero, no rate yet."""
    idle = dict.fromkeys(pod_names(2), 0)
    gauges = (*by_pod(idle, role="running"), *by_pod(idle, role="waiting"))
    prometheus.answer = answering({"in_flight": vector(*gauges, at_s=NOW_S)})
    (found,) = gather(prometheus, cluster_of(), [declaration()])
    assert isinstance(found[KEY].signals.rate_per_s, Unknown)
    assert prometheus.queries[0] == questions(frozenset({"vllm"}), SCRAPE)[Question.HEALTH]
