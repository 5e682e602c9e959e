"""The questions of a tick: constant in number, complete in names, bounded in length."""

from __future__ import annotations

import pytest

from sojourn import engines
from sojourn.observe.queries import Question, Selected, questions
from sojourn.observe.settings import ScrapeSettings

ALL = frozenset(engines.all_engines())
SCRAPE = ScrapeSettings()


def test_the_number_of_questions_does_not_grow_with_the_engines() -> None:
    assert len(questions(frozenset({"vllm"}), SCRAPE)) == len(questions(ALL, SCRAPE)) == 9


def test_engines_without_metrics_ask_nothing() -> None:
    assert questions(frozenset({"custom"}), SCRAPE) == {}
    assert questions(frozenset(), SCRAPE) == {}


def test_every_name_an_engine_exports_is_asked_for() -> None:
    text = " ".join(questions(ALL, SCRAPE).values())
    for engine in engines.all_engines().values():
        for role, metrics in engine.metrics.items():
            for metric in metrics:
                assert metric.name in text, f"{engine.name} {role} {metric.name}"


def test_no_query_is_longer_than_a_form_can_carry() -> None:
    assert max(map(len, questions(ALL, SCRAPE).values())) < 10_000


def test_old_and_new_names_are_alternatives_and_never_summed() -> None:
    """FC-017."""
    expression = questions(frozenset({"vllm"}), SCRAPE)[Question.KV_USAGE]
    new, _, old = expression.partition(" or ")
    assert "kv_cache_usage_perc" in new
    assert "gpu_cache_usage_perc" in old
    assert expression.count("max by (namespace,pod)") == 2


def test_a_storm_is_told_of_engines_that_count_refusals() -> None:
    for name, told in (("vllm", True), ("triton", True), ("tgi", False), ("sglang", False)):
        expression = questions(frozenset({name}), SCRAPE)[Question.OFFERED]
        assert ('"role","storm"' in expression) is told, name


CHAT = Selected((("service", "chat"),), frozenset({"vllm"}))


def test_selectors_are_asked_for_within_the_same_questions() -> None:
    plain = questions(frozenset({"vllm"}), SCRAPE)
    some = questions(frozenset({"vllm"}), SCRAPE, (CHAT, Selected((), frozenset({"tgi"}))))
    assert list(some) == list(plain)
    for question, expression in plain.items():
        assert some[question].startswith(f"({expression}) or (label_replace(")
        assert '"selection","0"' in some[question]
    only = questions(frozenset(), SCRAPE, (CHAT,))
    assert list(only) == list(plain)


@pytest.mark.parametrize("question", list(Question))
def test_every_selector_of_a_selection_but_that_of_a_scrape_names_its_labels(
    question: Question,
) -> None:
    expression = questions(frozenset(), SCRAPE, (CHAT,))[question]
    selectors = [part.split("}")[0] for part in expression.split("{")[1:] if "=" in part]
    without = [s for s in selectors if 'service="chat"' not in s and not s[0].isdigit()]
    assert without == (['pod!=""'] if question is Question.HEALTH else [])


@pytest.mark.parametrize("question", list(Question))
def test_every_selector_names_a_pod_and_the_operators_matchers(question: Question) -> None:
    """FC-023, FC-024."""
    scrape = ScrapeSettings(matchers=('cluster="a"',))
    expression = questions(ALL, scrape)[question]
    selectors = [part.split("}")[0] for part in expression.split("{")[1:] if "=" in part]
    selectors = [s for s in selectors if not s[0].isdigit()]
    assert selectors
    assert all('cluster="a",pod!=""' in selector for selector in selectors)


def test_copies_of_a_series_are_joined_before_anything_is_summed() -> None:
    """FC-021."""
    expression = questions(frozenset({"vllm"}), ScrapeSettings(replica_labels=("r",)))
    assert "sum by (namespace,pod) (max without (r) (rate(" in expression[Question.OFFERED]
    assert "sum by (namespace,pod) (rate(" not in expression[Question.OFFERED]


def test_labels_of_pods_can_be_mapped() -> None:
    """FC-022."""
    scrape = ScrapeSettings(namespace_label="exported_namespace", pod_label="kubernetes_pod")
    expression = questions(frozenset({"vllm"}), scrape)[Question.OFFERED]
    assert "by (exported_namespace,kubernetes_pod)" in expression
    assert "by (namespace" not in expression


@pytest.mark.parametrize(
    ("window_s", "interval_s", "expected_s"), [(60, 15, 60), (60, 30, 120), (6, 1, 6), (1, 1, 4)]
)
def test_a_window_holds_four_scrapes_at_least(
    window_s: float, interval_s: float, expected_s: float
) -> None:
    scrape = ScrapeSettings(window_s=window_s, scrape_interval_s=interval_s)
    assert scrape.rate_window_s == expected_s
    text = questions(frozenset({"vllm"}), scrape)[Question.OFFERED]
    assert f"[{round(expected_s * 1000)}ms]" in text


@pytest.mark.parametrize(("interval_s", "expected_s"), [(15, 90), (30, 90), (1, 62)])
def test_a_sample_older_than_two_scrapes_and_a_window_is_stale(
    interval_s: float, expected_s: float
) -> None:
    """FC-011."""
    assert ScrapeSettings(scrape_interval_s=interval_s).freshness_s == expected_s
