"""Explain reads a live service, and says what it may not read."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from tests.unit.cli import objects
from tests.unit.cli.fake_api import FakeApi, serving


def explained(api: FakeApi, tmp_path: Path, *words: str) -> objects.Ran:
    with serving(api, tmp_path) as kubeconfig:
        return objects.sojourn("explain", "gpt3", "--kubeconfig", str(kubeconfig), *words)


def data(api: FakeApi, tmp_path: Path, *words: str) -> dict[str, Any]:
    ran = explained(api, tmp_path, "-o", "json", *words)
    assert ran.code == 0, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


def live(rate: str = "100", replicas: int = 1) -> FakeApi:
    return FakeApi(
        {
            objects.SERVICE_PATH: objects.service(objects.status(rate)),
            objects.TARGET_PATH: objects.deployment(replicas),
        }
    )


def test_steady_service_shows_every_row_with_both_sides(tmp_path: Path) -> None:
    ran = explained(live(), tmp_path)
    assert ran.code == 0, ran.err
    for text in (
        "BatchBelowMinimum  load 0.68 >= 1",
        "UtilizationHigh    load 0.68 > 0.85",
        "UtilizationLow     load 0.68 < 0.50",
        "FIRES",
        "seen: 100/s (Prometheus",
        "1 replica (1 ready), max batch 8",
    ):
        assert text in ran.out


def test_row_that_fires_is_the_one_of_the_decision_table(tmp_path: Path) -> None:
    found = data(live(rate="160"), tmp_path)
    assert (found["row"], found["asks_for_replicas"]) == ("BatchBelowMinimum", 2)
    assert [one["row"] for one in found["table"] if one["fires"]] == ["BatchBelowMinimum"]


def test_what_would_change_the_decision_is_where_it_changes(tmp_path: Path) -> None:
    found = data(live(), tmp_path)
    above = next(c for c in found["would_change"] if c["direction"] == "above")
    # Load 0.85 of one replica: 0.85 x 8 / 54 ms.
    assert abs(above["rate_per_s"] - 0.85 * 8 / 0.054) < 0.1
    assert (above["row"], above["replicas"]) == ("UtilizationHigh", 2)


def test_rate_given_by_hand_replaces_the_observed_one(tmp_path: Path) -> None:
    found = data(live(), tmp_path, "--rate", "300")
    assert (found["rate_per_s"], found["rate_from"]) == (300, "--rate")


def test_service_without_status_says_that_the_operator_has_not_come(tmp_path: Path) -> None:
    api = FakeApi(
        {
            objects.SERVICE_PATH: objects.service(),
            objects.TARGET_PATH: objects.deployment(),
        }
    )
    found = data(api, tmp_path)
    assert found["rate_from"] == "spec.traffic.rate"
    assert any("has no status" in note for note in found["notes"])


def test_forbidden_target_leaves_the_replicas_of_the_status(tmp_path: Path) -> None:
    api = live()
    api.forbidden |= {objects.TARGET_PATH, f"{objects.TARGET_PATH}/scale"}
    found = data(api, tmp_path)
    assert (found["replicas"], found["max_batch"]) == (1, 8)
    assert any("may not be read" in note for note in found["notes"])


def test_thresholds_are_those_of_the_operator_s_settings(tmp_path: Path) -> None:
    api = live()
    settings = "prometheus: {url: http://p}\nthresholds: {highUtilizationPercent: 65}\n"
    item = {"metadata": {"name": "sojourn-settings-x"}, "data": {"settings.yaml": settings}}
    api.objects["/api/v1/namespaces/sojourn-system/configmaps"] = {"items": [item]}
    high = next(r for r in data(api, tmp_path)["table"] if r["row"] == "UtilizationHigh")
    assert high["condition"] == "load 0.68 > 0.65"
    assert high["holds"]


def test_settings_that_may_not_be_read_leave_the_book_s_thresholds(tmp_path: Path) -> None:
    notes = data(live(), tmp_path)["notes"]
    assert any("the book's thresholds are shown" in note for note in notes)


def test_unknown_rate_is_told_with_its_reason(tmp_path: Path) -> None:
    unknown = {"state": "Unknown", "reason": "NoSeries", "message": "no series of 2 pods"}
    api = live()
    body = objects.service(objects.status(rate="0") | {"rate": unknown})
    api.objects[objects.SERVICE_PATH] = body
    assert "the rate is unknown: NoSeries: no series of 2 pods" in data(api, tmp_path)["notes"]


def test_missing_service_is_one_line_and_exit_code_3(tmp_path: Path) -> None:
    ran = explained(FakeApi(), tmp_path)
    assert ran.code == 3
    assert ran.err.count("\n") == 1
    assert "InferenceService prod/gpt3: does not exist" in ran.err


def test_forbidden_service_names_the_role_to_ask_for(tmp_path: Path) -> None:
    ran = explained(FakeApi(forbidden={objects.SERVICE_PATH}), tmp_path)
    assert ran.code == 3
    assert "ask for the role sojourn-view" in ran.err


def test_watching_looks_again_until_it_is_interrupted(tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 2.0)
    try:
        ran = explained(live(), tmp_path, "--watch", "--interval", "0.5")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ran.code == 130
    assert ran.out.count("prod/gpt3:") >= 2
