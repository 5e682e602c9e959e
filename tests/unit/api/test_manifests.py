"""The manifests people apply: base, chart and examples, as files."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sojourn import api

ROOT = Path(__file__).parents[3]
BASE = ROOT / "deploy/base"
CHART = ROOT / "charts/sojourn"
EXAMPLES = sorted((ROOT / "deploy/examples").glob("*.yaml"))


def documents(path: Path) -> list[dict[str, Any]]:
    return [body for body in yaml.safe_load_all(path.read_text()) if body]


def one(name: str, kind: str) -> dict[str, Any]:
    (found,) = [body for body in documents(BASE / name) if body["kind"] == kind]
    return found


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_reads_and_says_what_it_shows(path: Path) -> None:
    assert path.read_text().startswith("# ")
    for body in documents(path):
        if body["kind"] == "InferenceService":
            api.read(body)
        elif body["kind"] == "ServingProfile":
            api.read_profile(body)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_target_leaves_the_replicas_out_and_refers_to_the_variable(path: Path) -> None:
    for body in documents(path):
        if body["kind"] == "Deployment":
            assert "replicas" not in body["spec"]
            (engine,) = body["spec"]["template"]["spec"]["containers"]
            assert "--max-num-seqs=$(SOJOURN_MAX_BATCH)" in engine["args"]
            assert body["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_every_profile_and_target_an_admitted_example_names_is_there() -> None:
    bodies = [body for path in EXAMPLES for body in documents(path)]
    named = {(body["kind"], body["metadata"]["name"]) for body in bodies}
    assert ("ServingProfile", "llama-3.1-8b-a100") in named
    assert {("Deployment", "chat"), ("Deployment", "gpt3")} <= named


def test_the_webhook_gets_our_kinds_only_and_never_a_subresource() -> None:
    for webhook in one("webhook.yaml", "ValidatingWebhookConfiguration")["webhooks"]:
        (rule,) = webhook["rules"]
        assert rule["apiGroups"] == ["serving.sojourn.dev"]
        assert set(rule["operations"]) <= {"CREATE", "UPDATE"}
        assert not [r for r in rule["resources"] if "/" in r or "*" in r]
        assert webhook["timeoutSeconds"] == 5
        assert webhook["matchPolicy"] == "Equivalent"
        assert webhook["sideEffects"] == "None"


@pytest.mark.parametrize("name", ["validate", "validate-profile"])
def test_both_kinds_are_judged_outside_the_excluded_namespaces(name: str) -> None:
    webhooks = one("webhook.yaml", "ValidatingWebhookConfiguration")["webhooks"]
    (webhook,) = [w for w in webhooks if w["name"] == f"{name}.serving.sojourn.dev"]
    assert webhook["failurePolicy"] == "Fail"
    assert webhook["rules"][0]["operations"] == ["CREATE", "UPDATE"]
    assert webhook["clientConfig"]["service"]["path"] == f"/{name}"
    excluded = webhook["namespaceSelector"]["matchExpressions"][0]
    assert excluded["values"] == ["kube-system", "sojourn-system"]


def test_the_operator_runs_twice_restricted_and_probed() -> None:
    spec = one("deployment.yaml", "Deployment")["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert spec["replicas"] == 2
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)
    assert "podAntiAffinity" in pod["affinity"]
    budget = one("poddisruptionbudget.yaml", "PodDisruptionBudget")["spec"]
    assert budget["selector"] == spec["selector"]


def test_ports_of_services_probes_and_settings_agree() -> None:
    settings = yaml.safe_load((BASE / "settings.yaml").read_text())
    (container,) = one("deployment.yaml", "Deployment")["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {
        "webhook": settings["webhook"]["port"],
        "health": settings["healthPort"],
        "metrics": settings["metricsPort"],
    }
    services = {body["metadata"]["name"] for body in documents(BASE / "service.yaml")}
    assert services == {settings["webhook"]["service"], "sojourn-metrics"}
    webhook = one("webhook.yaml", "ValidatingWebhookConfiguration")
    assert webhook["metadata"]["name"] == settings["webhook"]["configuration"]


def test_every_value_a_template_asks_for_has_a_default() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for path in CHART.glob("templates/**/*"):
        for name in re.findall(
            r"\.Values\.([A-Za-z0-9.]+)", path.read_text() if path.is_file() else ""
        ):
            place: Any = values
            for step in name.split("."):
                assert step in place, f"{path.name}: {name}"
                place = place[step]


def test_the_image_runs_without_root_from_the_locked_packages() -> None:
    text = (ROOT / "deploy/Dockerfile").read_text()
    assert "USER 65532:65532" in text
    assert "--require-hashes -r runtime.lock" in text
