"""Explain and doctor on a real API server with a real operator, as a user would run them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.demo.installation import Installation
from tests.waiting import eventually

PROGRAM = Path(sys.executable).parent / "sojourn"
EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"

pytestmark = pytest.mark.usefixtures("installation")


@pytest.fixture(scope="module")
def installation(control_plane: ControlPlane) -> Iterator[Installation]:
    with Installation(control_plane) as running:
        yield running


def sojourn(plane: ControlPlane, *words: str, config: Path | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        [str(PROGRAM), *words, "--kubeconfig", str(config or plane.kubeconfig)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


def applied(plane: ControlPlane, namespace: str) -> None:
    for name in ("gpt3-deployment.yaml", "gpt3.yaml"):
        plane.kubectl("apply", "-n", namespace, "-f", str(EXAMPLES / name), check=True)

    def decided() -> bool:
        body = plane.get("infsvc", "gpt3", "-n", namespace)
        return bool((body.get("status") or {}).get("lastDecision"))

    eventually(decided, 60.0, "the operator has decided on gpt3")


def explained(plane: ControlPlane, namespace: str, *words: str) -> dict[str, Any]:
    code, out, err = sojourn(plane, "explain", "gpt3", "-n", namespace, "-o", "json", *words)
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def test_explain_shows_the_live_service_beside_the_operator_s_own_decision(
    control_plane: ControlPlane, namespace: str
) -> None:
    applied(control_plane, namespace)
    found = explained(control_plane, namespace, "--rate", "100")
    assert found["replicas"] == 1
    assert found["row"] == "Steady"
    assert found["operator"]["row"] in ("Hold", "Steady")
    assert {one["type"] for one in found["conditions"]} >= {"Ready", "MetricsAvailable"}


def test_explain_degrades_without_permission_for_the_target(
    control_plane: ControlPlane, namespace: str
) -> None:
    applied(control_plane, namespace)
    control_plane.kubectl("create", "serviceaccount", "reader", "-n", namespace, check=True)
    rules = ("--verb=get", "--resource=inferenceservices.serving.sojourn.dev")
    control_plane.kubectl("create", "role", "reader", "-n", namespace, *rules, check=True)
    binding = ("--role=reader", f"--serviceaccount={namespace}:reader")
    control_plane.kubectl("create", "rolebinding", "reader", "-n", namespace, *binding, check=True)
    config = control_plane.service_account_kubeconfig(namespace, "reader")
    words = ("explain", "gpt3", "-n", namespace, "-o", "json", "--rate", "100")
    code, out, err = sojourn(control_plane, *words, config=config)
    assert code == 0, err
    assert any("may not be read" in note for note in json.loads(out)["notes"])


def test_explain_of_nothing_is_exit_code_3(control_plane: ControlPlane, namespace: str) -> None:
    code, _, err = sojourn(control_plane, "explain", "gpt3", "-n", namespace)
    assert code == 3
    assert "does not exist" in err


def test_doctor_finds_a_fresh_installation_well_and_an_unscraped_service_not(
    control_plane: ControlPlane, namespace: str
) -> None:
    applied(control_plane, namespace)
    words = ("doctor", "-n", namespace, "--prometheus", control_plane.prometheus_url)
    code, out, err = sojourn(control_plane, *words, "-o", "json")
    outcomes = json.loads(out)
    found = {one["subject"]: one for one in outcomes}
    for subject in ("API server", "CRDs", "operator", "permissions", "webhook", "Prometheus"):
        assert found[subject]["state"] == "ok", found[subject]
    # Nothing serves the engine's metrics here: the service is held, and the doctor says so.
    assert code == 1, err
    failed = [one for one in outcomes if one["state"] == "FAIL"]
    assert {one["subject"] for one in failed} == {f"{namespace}/gpt3"}
    assert all(one["remedy"] for one in failed)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tgi", "trtllm"])
def test_prometheus_understands_the_questions_about_a_service_s_history(
    engine: str, control_plane: ControlPlane
) -> None:
    what = ("--model", "GPT-3", "--gpu", "A100-80GB", "--engine", engine, "--hours", "0.01")
    done = subprocess.run(
        [str(PROGRAM), "profile", "--prometheus", control_plane.prometheus_url, *what],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    # An expression it cannot read would be exit code 3; no series is what we have here.
    assert "0 samples with requests running" in done.stderr
    assert done.returncode == 2
