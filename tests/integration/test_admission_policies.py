"""Admission without a webhook: the generated policies on a CRD that has lost its rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import policies
from sojourn.api import crd
from tests.controlplane.components import API_ONLY
from tests.controlplane.plane import ControlPlane
from tests.integration.operators import service, unstable
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
POLICIES = ROOT / "deploy" / "validatingadmissionpolicy"
BYPASS = "serving.sojourn.dev/admission-bypass"


def without_rules(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            name: without_rules(value)
            for name, value in node.items()
            if name != "x-kubernetes-validations"
        }
    return [without_rules(one) for one in node] if isinstance(node, list) else node


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """An API server with our kinds, their rules taken out, and the policies."""
    with ControlPlane(components=API_ONLY) as made:
        bare = yaml.safe_dump_all([without_rules(one) for one in crd.definitions()])
        made.kubectl("apply", "-f", "-", input=bare, check=True)
        for kind in ("inferenceservices", "servingprofiles"):
            name = f"crd/{kind}.serving.sojourn.dev"
            made.kubectl("wait", name, "--for=condition=Established", check=True)
        made.kubectl("apply", "-k", str(POLICIES), check=True)
        eventually(
            lambda: "Unstable" in create(made, "default", unstable("first")).stderr,
            30,
            "the policies are in force",
        )
        yield made


def create(plane: ControlPlane, namespace: str, body: dict[str, Any], *options: str) -> Any:
    return plane.kubectl(
        *("create", "--dry-run=server", "-n", namespace, "-f", "-", *options),
        input=json.dumps(body),
    )


def test_every_rule_of_the_schema_is_a_rule_of_a_policy() -> None:
    rendered = json.dumps(crd.definitions())
    there = rendered.count('"rule": ')
    here = sum(
        len(one["spec"]["validations"])
        for one in policies.documents()
        if one["metadata"]["name"].endswith("-rules") and "validations" in one["spec"]
    )
    assert here == there


def test_no_policy_reaches_beyond_our_group_or_needs_a_parameter() -> None:
    # FC-108
    for document in policies.documents():
        spec = document["spec"]
        assert "paramKind" not in spec
        assert "paramRef" not in spec
        for rule in spec.get("matchConstraints", {}).get("resourceRules", ()):
            assert rule["apiGroups"] == ["serving.sojourn.dev"]
            assert set(rule["operations"]) == {"CREATE", "UPDATE"}
            assert all("/" not in name for name in rule["resources"])


def test_the_api_server_finds_no_fault_in_any_expression(plane: ControlPlane) -> None:
    for one in plane.get("validatingadmissionpolicies")["items"]:
        warnings = one.get("status", {}).get("typeChecking", {}).get("expressionWarnings", [])
        assert warnings == [], one["metadata"]["name"]


def test_a_valid_object_passes(plane: ControlPlane) -> None:
    answer = create(plane, "default", service("good"))
    assert answer.returncode == 0, answer.stderr
    for example in ("chat", "gpt3", "full", "profile"):
        text = (ROOT / "deploy" / "examples" / f"{example}.yaml").read_text()
        for body in yaml.safe_load_all(text):
            answer = create(plane, "default", body)
            assert answer.returncode == 0, answer.stderr


BROKEN = [
    pytest.param({"slo": {}}, "set at least one of latency", id="no SLO"),
    pytest.param(
        {"engine": {"name": "custom", "batching": "Dynamic"}}, "needs maxBatchWait", id="no wait"
    ),
    pytest.param(
        {"scaling": {"minReplicas": 3, "maxReplicas": 2}}, "minReplicas", id="min above max"
    ),
    pytest.param(
        {"scaling": {"minReplicas": 0, "maxReplicas": 2}}, "wake source", id="FC zero without wake"
    ),
    pytest.param({"traffic": {"rate": 100, "peakRate": 10}}, "peakRate is below rate", id="peak"),
]


@pytest.mark.parametrize(("spec", "text"), BROKEN)
def test_a_broken_rule_is_refused_with_its_message(
    plane: ControlPlane, spec: dict[str, Any], text: str
) -> None:
    assert text in create(plane, "default", service("bad", **spec)).stderr


def test_stability_is_computed_from_the_declared_service_time(plane: ControlPlane) -> None:
    told = create(plane, "default", unstable("bad")).stderr
    assert "Unstable: max batch 4 cannot keep up with 100" in told
    assert "utilisation 1.3, stable below 1" in told
    assert "maxReplicas to 2" in told


def test_an_slo_below_a_lone_request_is_refused(plane: ControlPlane) -> None:
    told = create(plane, "default", service("fast", slo={"latency": "40ms"})).stderr
    assert "SLOUnreachable: latency of 40ms" in told
    assert "50.5ms" in told


def test_the_bypass_waives_the_arithmetic_and_not_the_rules(plane: ControlPlane) -> None:
    body = unstable("known")
    body["metadata"]["annotations"] = {BYPASS: "load test"}
    assert create(plane, "default", body).returncode == 0
    body["spec"]["slo"] = {}
    assert create(plane, "default", body).returncode != 0


@pytest.mark.parametrize("policy", ["warn", "off"])
def test_the_namespace_label_softens_or_silences(plane: ControlPlane, policy: str) -> None:
    name = f"ns-{policy}"
    plane.kubectl("create", "namespace", name, check=True)
    label = f"serving.sojourn.dev/admission={policy}"
    plane.kubectl("label", "namespace", name, label, check=True)

    def admitted() -> bool:
        answer = create(plane, name, unstable("tolerated"))
        return answer.returncode == 0 and ("Unstable" in answer.stderr) is (policy == "warn")

    eventually(admitted, 10, f"a namespace labelled {policy} admits it")
