"""Admission: every finding with its numbers, and the nearest valid value."""

from __future__ import annotations

from typing import Any

import pytest

from sojourn.decide import admission
from sojourn.facts.declaration import Batching, DeclaredEngine, DeclaredGpu, DeclaredModel, KvLayout
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.reasons import Reason
from tests.unit.decide.builders import proposal


def findings(**changes: Any) -> dict[Reason, Finding]:
    return {finding.reason: finding for finding in admission.admit(proposal(**changes))}


def test_the_book_at_batch_8_is_admitted_without_a_word() -> None:
    assert findings() == {}


def test_the_book_pinned_to_batch_4_is_unstable_with_every_alternative_computed() -> None:
    found = findings(engine={"min_batch": 4, "max_batch": 4})[Reason.UNSTABLE]
    assert found.verdict is Verdict.REJECT
    assert found.message == (
        "max batch 4 cannot keep up with 100/s (spec.traffic.peakRate) on 1 replica: utilisation "
        "1.30, stable below 1. Raise max batch to 8 (utilisation 0.68, target 0.75; stable from "
        "6: 0.88), or run 2 replicas (0.65), or declare at most 76.8/s."
    )


def test_stable_but_above_the_target_warns() -> None:
    found = findings(engine={"max_batch": 6})
    assert set(found) == {Reason.UTILIZATION_ABOVE_TARGET}
    assert "0.88, above the target 0.75" in found[Reason.UTILIZATION_ABOVE_TARGET].message
    assert "Raise max batch to 8" in found[Reason.UTILIZATION_ABOVE_TARGET].message


def test_an_slo_below_a_lone_request_is_unreachable_and_names_the_least() -> None:
    found = findings(slo={"latency_s": 0.040})[Reason.SLO_UNREACHABLE]
    assert found.verdict is Verdict.REJECT
    assert "latency of 40ms at P99 cannot be met" in found.message
    assert "50.5ms" in found.message


def test_a_peak_that_misses_the_slo_warns_with_the_replicas_needed() -> None:
    found = findings(slo={"latency_s": 0.105})[Reason.SLO_MISSED_AT_PEAK]
    assert found.verdict is Verdict.WARN
    assert "Raise maxReplicas to 2" in found.message


def test_llama_70b_on_one_24_gb_card_wont_start_and_names_what_would() -> None:
    found = findings(
        model=DeclaredModel("meta-llama/Llama-2-70b-hf", precision="fp16"),
        gpu=DeclaredGpu("A10G"),
        engine=DeclaredEngine("vllm", "0.11", max_batch=16),
    )[Reason.WONT_START]
    assert found.verdict is Verdict.REJECT
    numbers = dict(found.numbers)
    assert numbers["weights_bytes"] == pytest.approx(68.98e9 * 2, rel=0.01)
    assert "GiB short" in found.message
    assert "Use 8 GPUs (tensorParallel: 8)" in found.message


def test_a_contiguous_cache_that_cannot_hold_max_batch_is_refused_with_the_largest_that_fits() -> (
    None
):
    engine = DeclaredEngine(
        "custom", batching=Batching.DYNAMIC, max_batch=64, kv_layout=KvLayout.CONTIGUOUS
    )
    found = findings(engine=engine)[Reason.OUT_OF_MEMORY]
    largest = int(dict(found.numbers)["largest_batch"])
    assert 0 < largest < 64
    assert f"Use max batch {largest}" in found.message
    engine = DeclaredEngine(
        "custom", batching=Batching.DYNAMIC, max_batch=largest, kv_layout=KvLayout.CONTIGUOUS
    )
    assert Reason.OUT_OF_MEMORY not in findings(engine=engine)


def test_a_paged_cache_below_max_batch_only_warns() -> None:
    found = findings(engine={"max_batch": 256})
    assert found[Reason.KV_LIMITED].verdict is Verdict.WARN


@pytest.mark.parametrize(
    ("changes", "reason", "verdict"),
    [
        ({"engine": {"max_batch_wait_s": 0.2}}, Reason.BATCH_WAIT_TOO_LONG, Verdict.WARN),
        ({"engine": {"queue_capacity": 4}}, Reason.QUEUE_BELOW_BATCH, Verdict.WARN),
        # FC-036: nothing would ever wake it.
        ({"scaling": {"min_replicas": 0}}, Reason.MIN_REPLICAS_ZERO, Verdict.REJECT),
        ({"traffic": {"peak_rate_per_s": None}}, Reason.NO_PEAK_DECLARED, Verdict.WARN),
    ],
)
def test_a_spec_check_finds_its_fault(
    changes: dict[str, Any], reason: Reason, verdict: Verdict
) -> None:
    assert findings(**changes)[reason].verdict is verdict


def test_all_findings_come_in_one_answer() -> None:
    found = findings(
        engine={"min_batch": 4, "max_batch": 4, "max_batch_wait_s": 1.0},
        slo={"latency_s": 0.04},
    )
    assert {Reason.UNSTABLE, Reason.SLO_UNREACHABLE, Reason.BATCH_WAIT_TOO_LONG} <= set(found)
    text = admission.denial(tuple(found.values()))
    assert text.count("\n") == 1
    assert text.startswith("Unstable: ")
