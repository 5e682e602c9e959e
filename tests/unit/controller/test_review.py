"""Review: what an admission request is answered, from memory alone."""

from __future__ import annotations

import copy
import json
import random
import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.catalogue import Catalogue
from sojourn.cli import validate_read, validate_write
from sojourn.cli.validate import Output, judge
from sojourn.controller import review as reviews
from sojourn.controller.registry import Registry
from sojourn.controller.review import Review, Reviewer
from sojourn.controller.server import response_of
from sojourn.facts.finding import Verdict
from sojourn.facts.reasons import Reason
from tests.integration.operators import service, unstable
from tests.unit.controller import specs

NAMES = Catalogue()
BYPASS = "serving.sojourn.dev/admission-bypass"
REMEDY = re.compile(
    r"\b(expected|should|such as|exclude|use|raise|declare|lower|keep|did you mean|needs|give|"
    r"describe|must|set|nearest|remove|write|run|add|shorten)\b",
    re.IGNORECASE,
)


def reviewer(rate_per_s: float | None = None, registry: Registry | None = None) -> Reviewer:
    held = registry or Registry(NAMES)
    return Reviewer(held, NAMES.gpus(), held.sharing_target, lambda _: rate_per_s)


def placed(body: dict[str, Any]) -> dict[str, Any]:
    body["metadata"]["namespace"] = "default"
    return body


def changed(body: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {**body, "spec": {**body["spec"], **spec}}


def reasons(review: Review, verdict: Verdict) -> set[Reason]:
    return {f.reason for f in review.findings if f.verdict is verdict}


GOOD, BAD = placed(service("chat")), placed(unstable("chat"))


def test_a_good_object_is_admitted_without_a_word() -> None:
    assert reviewer().review(GOOD, None) == Review()


def test_an_unstable_one_is_denied_with_all_its_numbers_and_the_way_around() -> None:
    denial = reviewer().review(BAD, None).denial
    assert denial is not None
    assert denial.startswith("Unstable: max batch 4 cannot keep up with 100/s")
    assert BYPASS in denial


def test_an_object_under_deletion_is_admitted_unseen() -> None:
    # FC-099
    leaving = {**BAD, "metadata": {**BAD["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert reviewer().review(leaving, GOOD) == Review()


def test_a_target_that_is_not_there_yet_is_no_reason_to_deny() -> None:
    # FC-100
    assert reviewer().review(GOOD, None).denial is None


def test_metadata_of_a_violating_object_may_change_with_a_warning() -> None:
    # FC-101
    labelled = {**BAD, "metadata": {**BAD["metadata"], "labels": {"a": "b"}}}
    review = reviewer().review(labelled, BAD)
    assert review.denial is None
    assert review.warnings[0].startswith("Unstable: ")
    assert "does not change it" in review.warnings[0]


def test_metadata_may_change_though_judging_breaks() -> None:
    def broken(_: object) -> float | None:
        raise RuntimeError("a fault of ours")

    held = Registry(NAMES)
    faulty = Reviewer(held, (), held.sharing_target, lambda _: None)
    case = faulty.prepare(BAD, BAD)
    assert case is not None
    odd = Reviewer(None, (), held.sharing_target, broken)  # type: ignore[arg-type]
    assert odd.judge(case) == Review()


def test_an_unrelated_change_of_a_violating_object_warns() -> None:
    relaxed = changed(BAD, scaling={**BAD["spec"]["scaling"], "mode": "Off"})
    review = reviewer().review(relaxed, BAD)
    assert review.denial is None
    assert reasons(review, Verdict.WARN) == {Reason.UNSTABLE}


@pytest.mark.parametrize(
    "change",
    [
        {"traffic": {"peakRate": 150}},
        {"scaling": {"minReplicas": 1, "maxReplicas": 1, "targetUtilizationPercent": 60}},
    ],
)
def test_a_change_of_what_is_violated_is_judged(change: dict[str, Any]) -> None:
    assert reviewer().review(changed(BAD, **change), BAD).denial is not None


def test_a_change_that_mends_it_is_admitted() -> None:
    assert reviewer().review(GOOD, BAD).denial is None


def test_another_violation_beside_an_old_one_is_denied() -> None:
    worse = changed(BAD, slo={"latency": "40ms"})
    review = reviewer().review(worse, BAD)
    assert reasons(review, Verdict.REJECT) == {Reason.SLO_UNREACHABLE}
    assert reasons(review, Verdict.WARN) == {Reason.UNSTABLE}


def test_an_update_below_what_the_live_load_needs_is_denied_with_the_number_needed() -> None:
    before = changed(GOOD, traffic={}, scaling={"minReplicas": 1, "maxReplicas": 8})
    after = changed(before, scaling={"minReplicas": 1, "maxReplicas": 2})
    review = reviewer(rate_per_s=500.0).review(after, before)
    assert review.denial is not None
    assert "500/s (the observed rate) on 2 replicas" in review.denial
    assert "run 4 replicas (0.84)" in review.denial
    assert reviewer(rate_per_s=500.0).review(before, before).denial is None


def test_a_smaller_max_batch_than_the_live_load_needs_is_denied() -> None:
    before = changed(GOOD, traffic={})
    small = changed(
        before, engine={**before["spec"]["engine"], "maxBatchSize": {"min": 1, "max": 4}}
    )
    denial = reviewer(rate_per_s=100.0).review(small, before).denial
    assert denial is not None
    assert "Raise max batch to 8" in denial


def test_an_invalid_object_that_was_stored_invalid_may_be_edited_elsewhere() -> None:
    old = changed(GOOD, slo={"latency": "12 parsecs"})
    new = changed(old, scaling={"minReplicas": 1, "maxReplicas": 3})
    assert reviewer().review(new, old).denial is None
    assert reviewer().review(new, GOOD).denial is not None


def test_the_bypass_admits_and_says_so() -> None:
    body = {**BAD, "metadata": {**BAD["metadata"], "annotations": {BYPASS: "load test"}}}
    review = reviewer().review(body, None)
    assert (review.denial, review.bypassed, review.answer) == (None, "load test", "bypassed")
    assert review.warnings[0].startswith("admitted by bypass (load test): Unstable: ")


def test_the_bypass_does_not_admit_what_cannot_be_read() -> None:
    body = changed(GOOD, slo={"latency": "12 parsecs"})
    body["metadata"] = {**body["metadata"], "annotations": {BYPASS: "please"}}
    review = reviewer().review(body, None)
    assert review.denial is not None
    assert BYPASS not in review.denial


def test_a_namespace_that_warns_turns_the_denial_into_warnings() -> None:
    review = reviews.softened(reviewer().review(BAD, None))
    assert review.denial is None
    assert review.warnings[0].startswith("would be denied, but this namespace only warns: Unstable")


def test_a_profile_of_one_batch_is_denied_and_names_the_field() -> None:
    body = {
        "apiVersion": "serving.sojourn.dev/v1alpha1",
        "kind": "ServingProfile",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"points": [{"batch": 1, "latency": "50ms"}]},
    }
    review = reviews.review_profile(body, None)
    assert review.denial is not None
    assert "spec.points" in review.denial
    assert reviews.review_profile(body, body).denial is None


def test_a_machine_reads_reason_field_and_message_of_every_cause() -> None:
    asked = {"kind": {"group": "serving.sojourn.dev", "kind": "InferenceService"}, "name": "chat"}
    bad = changed(BAD, slo={"latency": "40ms"})
    review = reviewer().review(bad, None)
    response = response_of("u1", review, asked)["response"]
    status = response["status"]
    assert (response["uid"], response["allowed"]) == ("u1", False)
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert [cause["reason"] for cause in status["details"]["causes"]] == [
        "Unstable",
        "SLOUnreachable",
    ]
    assert all(cause["field"].startswith("spec.") for cause in status["details"]["causes"])


def test_a_maximum_that_is_left_out_is_refused() -> None:
    # FC-052
    body = changed(GOOD, scaling={"minReplicas": 3, "maxReplicas": None})
    denial = reviewer().review(body, None).denial
    assert denial is not None
    assert "spec.scaling.maxReplicas" in denial


@settings(max_examples=30)
@given(st.integers(0, 10**9), st.booleans())
def test_webhook_and_command_line_say_the_same_word_for_word(seed: int, mutate: bool) -> None:
    rng = random.Random(seed)
    body = (specs.mutated if mutate else specs.sensible)(rng)
    review = reviewer().review(copy.deepcopy(body), None)
    text = yaml.safe_dump(body, allow_unicode=True, sort_keys=False)
    (found,) = validate_read._parsed("x.yaml", text, "default")
    (judged,) = judge([found])
    assert judged.review == review
    written = json.loads(validate_write.written([judged], Output.JSON))
    response = response_of("u", review, {})["response"]
    causes = response.get("status", {}).get("details", {}).get("causes", [])
    rejected = [f for f in written["objects"][0]["findings"] if f["verdict"] == "REJECT"]
    assert [c["message"] for c in causes] == [f["message"] for f in rejected[: len(causes)]]
    assert response["allowed"] is (written["objects"][0]["verdict"] != "REJECT")


def fuzz(count: int, seed: int) -> None:
    judge_one = reviewer()
    rng = random.Random(seed)
    for number in range(count):
        body = specs.mutated(rng) if number % 3 else specs.sensible(rng)
        review = judge_one.review(body, None)
        for finding in review.rejected:
            shown = f"{finding} of {json.dumps(body, default=str)[:2000]}"
            assert finding.field, shown
            assert REMEDY.search(finding.message), shown
            if finding.reason is not Reason.INVALID_OBJECT:
                assert re.search(r"\d", finding.message) or "catalogue" in finding.message, shown
        if review.denial is not None:
            assert review.rejected


def test_random_objects_never_break_it_and_every_denial_names_a_remedy() -> None:
    fuzz(150, seed=1)


@pytest.mark.slow
def test_fifty_thousand_random_objects_never_break_it() -> None:
    fuzz(50_000, seed=2)
