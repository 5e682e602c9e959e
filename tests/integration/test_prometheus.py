"""Signals read from a real Prometheus that scrapes real pages, through every usual fault."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sojourn.facts.declaration import Declaration, DeclaredEngine, MetricsSource, ObjectRef
from sojourn.facts.reading import Known, Reading, Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import Signals
from sojourn.observe.cluster import ClusterState
from sojourn.observe.gather import Gatherer
from sojourn.observe.prometheus import PrometheusSource
from sojourn.observe.settings import PrometheusSettings, ScrapeSettings
from tests.controlplane.components import Component
from tests.controlplane.plane import ControlPlane
from tests.controlplane.prometheus import PrometheusSettings as Scraping
from tests.integration import pod_exporter
from tests.integration.pod_exporter import Page, PodExporter, Vllm, broken, fixed
from tests.unit.observe.builders import add_service, declaration, pod, pod_names, synced_cluster
from tests.waiting import eventually

SAMPLES = Path(__file__).parents[1] / "data" / "metrics_samples"
INTERVAL_S = 0.5
NAMESPACES = 36
SCRAPE = ScrapeSettings(window_s=2.0, latency_window_s=2.0, scrape_interval_s=INTERVAL_S)
SOON_S = 20.0


class World:
    """A Prometheus, pages of pods, and the cluster that owns the pods."""

    def __init__(self, plane: ControlPlane, exporter: PodExporter) -> None:
        self.plane = plane
        self.exporter = exporter
        self.cluster = synced_cluster()
        # Discovery takes new targets at most each five seconds, so two pods a namespace are known
        # from the beginning, without a single series.
        self._namespaces = [f"team-{number}" for number in range(NAMESPACES)]
        for namespace in self._namespaces:
            for name in pod_names(2):
                exporter.add(namespace, name, fixed(""))
        self.publish()

    def namespace(self) -> str:
        """A namespace of its own for a test."""
        return self._namespaces.pop()

    def serve(self, namespace: str, *pages: Page, engine: str = "vllm") -> Declaration:
        """A service with one Ready pod a page."""
        add_service(self.cluster, "chat", namespace, pods=len(pages))
        for name, page in zip(pod_names(len(pages)), pages, strict=True):
            self.exporter.replace(namespace, name, page)
        return declaration("chat", namespace, engine=DeclaredEngine(engine))

    def publish(self) -> None:
        """Tell Prometheus of the pods."""
        self.plane.prometheus_targets(self.exporter.targets)

    def signals(
        self,
        service: Declaration,
        scrape: ScrapeSettings = SCRAPE,
        timeout_s: float = 3.0,
        beside: tuple[Declaration, ...] = (),
    ) -> Signals:
        """One tick's signals of one service, asked for with those of others."""

        async def run() -> Signals:
            settings = PrometheusSettings(self.plane.prometheus_url, timeout_s=timeout_s)
            source = PrometheusSource(settings)
            try:
                gatherer = Gatherer(self.cluster, source, scrape)
                found = await gatherer.gather([service, *beside], {}, time.time())
                return found[service.ref.key].signals
            finally:
                source.close()

        return asyncio.run(run())

    def until(
        self,
        service: Declaration,
        holds: Callable[[Signals], Any],
        what: str,
        scrape: ScrapeSettings = SCRAPE,
    ) -> Signals:
        """The first signals for which something holds."""
        seen: list[Signals] = []

        def look() -> bool:
            seen[:] = [self.signals(service, scrape)]
            assert holds(seen[0]), seen[0]
            return True

        eventually(look, SOON_S, what)
        return seen[0]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    scraping = Scraping(scrape_interval_s=INTERVAL_S, discovery_interval_s=INTERVAL_S)
    plane = ControlPlane(components=[Component.PROMETHEUS], prometheus=scraping)
    with plane, pod_exporter.running() as exporter:
        yield World(plane, exporter)


def settled(reading: Reading) -> bool:
    """A value from a full window of every pod."""
    return isinstance(reading, Known) and not reading.lower_bound


def unknown(reading: Reading, reason: Reason, why: str = "") -> bool:
    return isinstance(reading, Unknown) and reading.reason is reason and why in reading.why


def value(reading: Reading) -> float:
    assert isinstance(reading, Known), reading
    return reading.value


def test_completions_of_all_pods_make_the_rate(world: World) -> None:
    service = world.serve(world.namespace(), Vllm(40, running=3), Vllm(60, running=5))
    found = world.until(service, lambda s: settled(s.rate_per_s), "a full window")
    assert value(found.rate_per_s) == pytest.approx(100, rel=0.05)
    assert value(found.running) == 8


def test_a_growing_queue_is_offered_load_that_completions_do_not_show(world: World) -> None:
    """FC-027."""
    page = Vllm(480, running=32, waiting_growth_per_s=200)
    service = world.serve(world.namespace(), page)
    found = world.until(service, lambda s: settled(s.rate_per_s), "a full window")
    assert value(found.rate_per_s) == pytest.approx(680, rel=0.05)


def test_refusals_are_demand_until_they_dominate_and_then_are_taken_for_retries(
    world: World,
) -> None:
    few = world.serve(world.namespace(), Vllm(100, running=32, refused_per_s=80))
    storm = world.serve(world.namespace(), Vllm(100, running=32, refused_per_s=900))
    found = world.until(few, lambda s: settled(s.rate_per_s), "a full window")
    assert value(found.rate_per_s) == pytest.approx(180, rel=0.05)
    assert found.retry_storm == ""
    # A storm's rate is a lower bound for ever; its gauges tell when the window is full.
    found = world.until(storm, lambda s: s.retry_storm and settled(s.running), "a storm is seen")
    assert isinstance(found.rate_per_s, Known)
    assert found.rate_per_s.lower_bound
    assert found.rate_per_s.value == pytest.approx(300, rel=0.05)


def test_the_same_model_in_two_namespaces_is_counted_apart(world: World) -> None:
    """FC-023."""
    busy = world.serve(world.namespace(), Vllm(1500))
    quiet = world.serve(world.namespace(), Vllm(10))
    found = world.until(quiet, lambda s: settled(s.rate_per_s), "a full window")
    assert value(found.rate_per_s) == pytest.approx(10, rel=0.1)
    # Prometheus scrapes each target at a time of its own, so one window is full before the other.
    found = world.until(busy, lambda s: settled(s.rate_per_s), "a full window of the other")
    assert value(found.rate_per_s) == pytest.approx(1500, rel=0.05)


def test_flat_counters_are_a_true_zero_whatever_the_latency(world: World) -> None:
    """FC-002 and FC-013."""
    service = world.serve(world.namespace(), Vllm(0, kv="0"))
    found = world.until(service, lambda s: settled(s.rate_per_s), "a full window")
    assert value(found.rate_per_s) == 0
    assert unknown(found.latency_p99_s, Reason.NOT_A_NUMBER)


def test_a_counter_reset_is_neither_a_drop_nor_a_spike(world: World) -> None:
    """FC-014."""
    namespace = world.namespace()
    service = world.serve(namespace, Vllm(500), Vllm(500))
    world.until(service, lambda s: settled(s.rate_per_s), "a full window")
    world.exporter.replace(namespace, pod_names(1)[0], Vllm(500, started=0))
    until_s = time.time() + SCRAPE.rate_window_s + 1
    seen = []
    while time.time() < until_s:
        seen.append(value(world.signals(service).rate_per_s))
    assert min(seen) > 500
    assert max(seen) < 1500
    assert seen[-1] == pytest.approx(1000, rel=0.1)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("gpu_cache_usage_perc",), 0.9),
        (("kv_cache_usage_perc",), 0.9),
        (("gpu_cache_usage_perc", "kv_cache_usage_perc"), 0.9),
        ((), None),
    ],
    ids=["old", "new", "both", "neither"],
)
def test_kv_usage_has_an_old_and_a_new_name(world: World, names: Any, expected: Any) -> None:
    """FC-017."""
    service = world.serve(world.namespace(), Vllm(10, kv="0.9", kv_names=names))
    found = world.until(service, lambda s: settled(s.rate_per_s), "a full window")
    if expected is None:
        assert unknown(found.kv_usage, Reason.NO_SERIES)
    else:
        assert value(found.kv_usage) == expected


@pytest.mark.parametrize("kv", ["NaN", "+Inf", "-1"])
def test_a_gauge_that_is_no_number_is_unknown_and_harms_no_other_signal(
    world: World, kv: str
) -> None:
    service = world.serve(world.namespace(), Vllm(10, kv=kv))
    found = world.until(service, lambda s: settled(s.rate_per_s), "a full window")
    assert unknown(found.kv_usage, Reason.NOT_A_NUMBER)


def test_data_parallel_ranks_are_summed_and_the_fullest_pool_counts(world: World) -> None:
    service = world.serve(world.namespace(), Vllm(10, running=4, waiting=2, ranks=2))
    found = world.until(service, lambda s: settled(s.rate_per_s), "a full window")
    assert value(found.rate_per_s) == pytest.approx(20, rel=0.1)
    assert (value(found.running), value(found.waiting), value(found.kv_usage)) == (8, 4, 0.5)


def test_percentiles_and_token_means_come_by_workload(world: World) -> None:
    pages = [Vllm(50, latency_s=0.9), Vllm(50, latency_s=0.9)]
    service = world.serve(world.namespace(), *pages)
    found = world.until(service, lambda s: settled(s.latency_p99_s), "a percentile")
    assert found.latency_p99_bucket_s == (0.8, 1.0)
    assert 0.8 < value(found.latency_p50_s) < value(found.latency_p99_s) < 1.0
    assert value(found.prompt_tokens) == pytest.approx(700)
    assert value(found.output_tokens) == pytest.approx(200)


def test_a_pod_that_cannot_be_scraped_makes_the_rate_unknown(world: World) -> None:
    namespace = world.namespace()
    service = world.serve(namespace, Vllm(10), Vllm(10))
    world.until(service, lambda s: settled(s.rate_per_s), "a full window")
    world.exporter.replace(namespace, pod_names(1)[0], broken)
    found = world.until(
        service, lambda s: unknown(s.rate_per_s, Reason.LOW_COVERAGE), "a pod is not seen"
    )
    assert isinstance(found.rate_per_s, Unknown)
    assert "cannot scrape" in found.rate_per_s.why


def test_a_pod_that_prometheus_forgets_is_missing_and_not_idle(world: World) -> None:
    """FC-001."""
    namespace = world.namespace()
    service = world.serve(namespace, Vllm(10))
    world.until(service, lambda s: settled(s.rate_per_s), "a full window")
    world.exporter.take_away(namespace, pod_names(1)[0])
    world.publish()
    world.until(service, lambda s: unknown(s.rate_per_s, Reason.NO_SERIES), "no series")


def test_a_departed_pods_requests_leave_with_the_window(world: World) -> None:
    """FC-010."""
    namespace = world.namespace()
    service = world.serve(namespace, Vllm(30), Vllm(30, waiting=80))
    world.until(service, lambda s: settled(s.rate_per_s), "a full window")
    gone = pod_names(2)[1]
    world.cluster.apply("Pod", "DELETED", pod(gone, namespace))
    world.exporter.take_away(namespace, gone)
    world.publish()
    right_after = world.signals(service)
    assert value(right_after.rate_per_s) == pytest.approx(60, rel=0.2)
    assert value(right_after.waiting) == 0
    world.until(service, lambda s: value(s.rate_per_s) < 35, "the window has passed")


def test_a_new_pod_makes_the_rate_a_lower_bound_until_its_window_is_full(world: World) -> None:
    """FC-015."""
    namespace = world.namespace()
    service = world.serve(namespace, Vllm(30))
    world.until(service, lambda s: settled(s.rate_per_s), "a full window")
    new = pod_names(2)[1]
    owner = ("ReplicaSet", "chat-7d9f8b6c5d")
    world.cluster.apply("Pod", "ADDED", pod(new, namespace, owner=owner, ready_at_s=time.time()))
    world.exporter.replace(namespace, new, Vllm(30))
    young = world.signals(service).rate_per_s
    assert isinstance(young, Known)
    assert young.lower_bound
    found = world.until(service, lambda s: settled(s.rate_per_s), "a full window again")
    assert value(found.rate_per_s) == pytest.approx(60, rel=0.1)


def test_copies_of_an_ha_pair_are_counted_once(world: World) -> None:
    """FC-021."""
    namespace, name = world.namespace(), pod_names(1)[0]
    page = Vllm(500, running=4)
    service = world.serve(namespace, page)
    world.exporter.take_away(namespace, name)
    for replica in ("a", "b"):
        world.exporter.add(namespace, name, page, prometheus_replica=replica)
    world.publish()
    found = world.until(service, lambda s: settled(s.rate_per_s), "a full window")
    assert value(found.rate_per_s) == pytest.approx(500, rel=0.05)
    assert value(found.running) == 4


def test_copies_under_an_unknown_label_are_refused_and_named(world: World) -> None:
    """FC-021."""
    namespace, name = world.namespace(), pod_names(1)[0]
    service = world.serve(namespace, Vllm(500))
    world.exporter.add(namespace, name, Vllm(500), copy="b")
    world.publish()
    world.until(
        service, lambda s: unknown(s.rate_per_s, Reason.DUPLICATE_SERIES, name), "copies are seen"
    )


def test_a_renamed_namespace_label_is_followed_when_it_is_set(world: World) -> None:
    """FC-022."""
    namespace, name = world.namespace(), pod_names(1)[0]
    service = world.serve(namespace, Vllm(0))
    world.exporter.replace(namespace, name, fixed(""))
    page = Vllm(1000, own_labels=f',namespace="{namespace}"')
    world.exporter.add("monitoring", name, page)
    world.publish()
    mapped = ScrapeSettings(
        window_s=2.0, scrape_interval_s=INTERVAL_S, namespace_label="exported_namespace"
    )
    found = world.until(service, lambda s: settled(s.rate_per_s), "a full window", mapped)
    assert value(found.rate_per_s) == pytest.approx(1000, rel=0.05)
    world.until(service, lambda s: isinstance(s.rate_per_s, Unknown), "not seen without the label")


def test_a_selector_tells_a_services_series_from_others_in_its_pods(world: World) -> None:
    def both(age_s: float) -> str:
        mine = Vllm(40, running=3, own_labels=',team="mine"')
        other = Vllm(900, running=60, own_labels=',team="other"')
        return f"{mine(age_s)}\n{other(age_s)}\n"

    everything = world.serve(world.namespace(), both)
    mine = replace(everything, metrics=MetricsSource(selector=(("team", "mine"),)))
    found = world.until(mine, lambda s: settled(s.rate_per_s), "a full window")
    assert value(found.rate_per_s) == pytest.approx(40, rel=0.1)
    assert value(found.running) == 3
    assert value(world.signals(everything).rate_per_s) == pytest.approx(940, rel=0.05)
    nobody = replace(mine, metrics=MetricsSource(selector=(("team", "nobody"),)))
    assert unknown(world.signals(nobody).rate_per_s, Reason.NO_SERIES)


def test_no_value_of_a_selector_reaches_beyond_its_own_quotes(world: World) -> None:
    service = world.serve(world.namespace(), Vllm(50, running=4))
    world.until(service, lambda s: settled(s.rate_per_s), "a full window")
    texts = ('"} or up{x="', "\\", "\n", "\ufffd", "\x00", "é😀", "\ud800", "`'#")
    odd = tuple(
        replace(
            service,
            ref=ObjectRef(service.ref.namespace, f"odd-{number}"),
            metrics=MetricsSource(selector=(("service", text),)),
        )
        for number, text in enumerate(texts)
    )
    found = world.signals(service, beside=odd)
    assert value(found.running) == 4
    for one in odd:
        assert unknown(world.signals(one).rate_per_s, Reason.NO_SERIES), one.metrics


EXPECTED = [
    ("vllm_0_6", "vllm", 12, 3, 0.4375),
    ("vllm_0_10", "vllm", 24, 7, 0.61),
    ("sglang", "sglang", 18, 2, 0.53),
    ("tgi", "tgi", 16, 5, 15872 / 182704),
    ("trtllm", "trtllm", 28, 6, 0.4874),
    ("triton", "triton", 22, 6, 0.4875),
    ("llama_cpp", "llamacpp", 4, 9, None),
]


@pytest.mark.parametrize(
    ("sample", "engine", "running", "waiting", "kv"), EXPECTED, ids=[e[0] for e in EXPECTED]
)
def test_each_engines_own_page_is_read(
    world: World, sample: str, engine: str, running: float, waiting: float, kv: float | None
) -> None:
    page = fixed((SAMPLES / f"{sample}.txt").read_text())
    service = world.serve(world.namespace(), page, engine=engine)
    found = world.until(
        service,
        lambda s: settled(s.running) and (kv is None or isinstance(s.rate_per_s, Known)),
        "a full window",
    )
    assert value(found.running) == running
    assert value(found.waiting) == waiting
    if kv is None:
        assert isinstance(found.kv_usage, Unknown)
        assert isinstance(found.rate_per_s, Unknown)
    else:
        assert value(found.kv_usage) == pytest.approx(kv)
        # Counters of a fixed page are flat while its gauges say requests run: no reason to shrink.
        assert found.rate_per_s == Known(0.0, found.running.at_s, lower_bound=True)  # type: ignore[union-attr]


def test_an_authors_query_is_asked_with_everybody_elses(world: World) -> None:
    namespace = world.namespace()
    world.serve(namespace, Vllm(25))
    query = 'rate(vllm:request_success_total{namespace="{{namespace}}"}[2s])'
    service = declaration("chat", namespace, query=query)
    world.until(
        service, lambda s: settled(s.rate_per_s) and 20 < value(s.rate_per_s) < 30, "its own rate"
    )


def test_a_stopped_prometheus_is_unknown_and_comes_back_with_an_unfilled_window(
    world: World,
) -> None:
    service = world.serve(world.namespace(), Vllm(40))
    world.until(service, lambda s: settled(s.rate_per_s), "a full window")
    world.plane.stop(Component.PROMETHEUS)
    try:
        rate = world.signals(service).rate_per_s
        assert unknown(rate, Reason.PROMETHEUS_UNAVAILABLE, "connection refused")
        # Longer than the window: nothing of the time before may fill it.
        until_s = time.time() + SCRAPE.rate_window_s
        eventually(lambda: time.time() > until_s, SOON_S, "the window has passed")
    finally:
        world.plane.start(Component.PROMETHEUS)
    first = world.signals(service).rate_per_s
    assert not settled(first), f"a window just begun is not full: {first}"
    found = world.until(service, lambda s: settled(s.rate_per_s), "a full window again")
    assert value(found.rate_per_s) == pytest.approx(40, rel=0.15)


def test_a_hanging_prometheus_costs_its_time_limit_and_no_more(world: World) -> None:
    service = world.serve(world.namespace(), Vllm(40))
    world.until(service, lambda s: settled(s.rate_per_s), "a full window")
    world.plane.pause(Component.PROMETHEUS)
    try:
        began_s = time.monotonic()
        rate = world.signals(service, timeout_s=0.5).rate_per_s
        assert time.monotonic() - began_s < 3
        assert unknown(rate, Reason.PROMETHEUS_UNAVAILABLE, "did not answer")
    finally:
        world.plane.resume(Component.PROMETHEUS)
    world.until(service, lambda s: settled(s.rate_per_s), "evidence again")


def test_a_cluster_without_the_service_asks_and_finds_nothing(world: World) -> None:
    cluster, world.cluster = world.cluster, ClusterState()
    try:
        found = world.signals(declaration("nobody", "nowhere"))
        assert unknown(found.rate_per_s, Reason.NOT_OBSERVED)
    finally:
        world.cluster = cluster
