"""Workloads that select each other's pods, found by labels."""

from __future__ import annotations

import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sojourn.observe.selectors import Labels, Selectors, pod_labels_of, selector_of

LABELS = st.frozensets(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), max_size=2)
WORKLOADS = st.lists(st.tuples(st.sampled_from("pqr"), LABELS, LABELS), max_size=12)


def found(*workloads: tuple[str, Labels, Labels]) -> dict[str, set[str]]:
    known: Selectors[str] = Selectors()
    for name, selector, labels in workloads:
        known.put(name, selector, labels)
    return {name: known.overlapping(name) for name, _, _ in workloads}


def labelled(**labels: str) -> Labels:
    return frozenset(labels.items())


def test_a_selector_that_matches_another_s_pods_is_told_to_both() -> None:
    """FC-080."""
    wide, narrow = labelled(app="x"), labelled(app="x", role="y")
    assert found(("a", wide, wide), ("b", narrow, narrow)) == {"a": {"b"}, "b": {"a"}}


def test_selectors_that_differ_in_a_label_share_nothing() -> None:
    one, other = labelled(app="x", name="1"), labelled(app="x", name="2")
    assert found(("a", one, one), ("b", other, other)) == {"a": set(), "b": set()}


@given(WORKLOADS)
def test_the_index_finds_what_comparing_all_pairs_finds(
    workloads: list[tuple[str, Labels, Labels]],
) -> None:
    last = {name: (selector, labels) for name, selector, labels in workloads if selector}
    known: Selectors[str] = Selectors()
    for name, selector, labels in workloads:
        if selector:
            known.put(name, selector, labels)
    for name, (selector, labels) in last.items():
        expected = {
            other
            for other, (theirs, carried) in last.items()
            if other != name and (selector <= carried or theirs <= labels)
        }
        assert known.overlapping(name) == expected
    for name in last:
        known.drop(name)
    assert len(known) == 0


def test_a_deployment_that_is_none_has_no_labels() -> None:
    specs: tuple[dict[str, Any], ...] = (
        {},
        {"selector": None, "template": []},
        {"selector": {"matchLabels": [1]}},
    )
    for spec in specs:
        assert selector_of(spec) == pod_labels_of(spec) == frozenset()


def test_five_thousand_workloads_with_one_label_in_common_are_asked_quickly() -> None:
    known: Selectors[int] = Selectors()
    for number in range(5000):
        labels = labelled(app="vllm", name=str(number))
        known.put(number, labels, labels)
    begun_s = time.process_time()
    assert not any(known.overlapping(number) for number in range(5000))
    assert time.process_time() - begun_s < 1.0
