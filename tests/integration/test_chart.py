"""The chart through helm itself. Slow: where helm is missing it is built, once, into the cache."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sojourn.controller.settings import Settings
from tests.controlplane.binaries import cache_folder
from tests.controlplane.plane import ControlPlane

ROOT = Path(__file__).parents[2]
CHART = str(ROOT / "charts/sojourn")
HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
# A helm built without its release flags believes in an ancient Kubernetes.
KUBERNETES = ("--kube-version", "1.34.0")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def helm() -> Path:
    """A helm, from PATH, the cache, or the Go module proxy."""
    found = shutil.which("helm")
    if found is not None:
        return Path(found)
    folder = cache_folder() / HELM.rsplit("@", 1)[-1]
    if not (folder / "helm").exists():
        folder.mkdir(parents=True, exist_ok=True)
        go = ["go", "install", "-trimpath", "-ldflags", "-s -w", HELM]
        subprocess.run(go, env={**os.environ, "GOBIN": str(folder)}, check=True)
    return folder / "helm"


def rendered(helm: Path, *arguments: str, name: str = "sojourn") -> list[dict[str, Any]]:
    command = [str(helm), "template", name, CHART, "-n", "sojourn-system", *KUBERNETES, *arguments]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return [body for body in yaml.safe_load_all(answer.stdout) if body]


def by_kind(bodies: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(body["kind"], body["metadata"]["name"]): body for body in bodies}


def settings_in(bodies: list[dict[str, Any]]) -> Settings:
    (text,) = [b["data"]["settings.yaml"] for b in bodies if b["kind"] == "ConfigMap"]
    return Settings.model_validate(yaml.safe_load(text))


def test_helm_finds_nothing_to_complain_about(helm: Path) -> None:
    command = [str(helm), "lint", "--strict", CHART]
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout


def test_the_chart_renders_the_objects_of_the_base(helm: Path, control_plane: ControlPlane) -> None:
    built = control_plane.kubectl("kustomize", str(ROOT / "deploy/base"), check=True).stdout
    base, chart = by_kind(list(yaml.safe_load_all(built))), by_kind(rendered(helm))
    only = {key for key in set(base) ^ set(chart) if key[0] != "ConfigMap"}
    assert only == {("Namespace", "sojourn-system")}
    for key in set(base) & set(chart):
        for part in ("rules", "webhooks", "subjects", "roleRef"):
            assert chart[key].get(part) == base[key].get(part), key
    assert settings_in(list(base.values())) == settings_in(list(chart.values()))


def test_an_api_server_takes_every_object(helm: Path, control_plane: ControlPlane) -> None:
    control_plane.kubectl("apply", "-f", str(ROOT / "deploy/base/namespace.yaml"), check=True)
    text = yaml.safe_dump_all(rendered(helm))
    answer = control_plane.kubectl("apply", "--dry-run=server", "-f", "-", input=text)
    assert answer.returncode == 0, answer.stderr


def test_two_renders_of_equal_values_are_equal_and_hold_no_certificate(helm: Path) -> None:
    """FC-088: what is made at template time would show as drift, and as a new CA, each time."""
    first = rendered(helm)
    assert first == rendered(helm)
    webhooks = [w for b in first for w in b.get("webhooks", ())]
    assert webhooks
    assert not [w for w in webhooks if w["clientConfig"].get("caBundle")]


def test_names_follow_the_release_and_settings_are_merged(helm: Path) -> None:
    set_values = ("--set", "settings.thresholds.lowUtilizationPercent=40")
    bodies = rendered(helm, *set_values, "--set", "tick=5s", name="other")
    settings = settings_in(bodies)
    assert settings.webhook.secret == "other-webhook-tls"
    assert settings.thresholds.low_utilization_percent == 40
    assert settings.tick == 5.0
    assert ("ValidatingWebhookConfiguration", settings.webhook.configuration) in by_kind(bodies)


def test_without_a_webhook_nothing_of_it_is_left(helm: Path) -> None:
    bodies = rendered(helm, "--set", "webhook.enabled=false")
    assert not [b for b in bodies if b["kind"] == "ValidatingWebhookConfiguration"]
    assert not [b for b in bodies if b["metadata"]["name"].endswith("-webhook")]
    assert settings_in(bodies).webhook.enabled is False


def test_with_cert_manager_it_makes_the_certificate_of_the_service(helm: Path) -> None:
    objects = by_kind(rendered(helm, "--set", "certManager.enabled=true"))
    certificate = objects[("Certificate", "sojourn-webhook-tls")]["spec"]
    assert certificate["secretName"] == "sojourn-webhook-tls"
    assert "sojourn-webhook.sojourn-system.svc" in certificate["dnsNames"]
    webhook = objects[("ValidatingWebhookConfiguration", "sojourn-validating")]
    injected = webhook["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    assert injected == "sojourn-system/sojourn-webhook-tls"


def test_the_guard_is_rendered_when_asked_for(helm: Path) -> None:
    guard = ("ValidatingWebhookConfiguration", "sojourn-validating-guard")
    assert guard not in by_kind(rendered(helm))
    objects = by_kind(rendered(helm, "--set", "guard.enabled=true"))
    source = yaml.safe_load((ROOT / "deploy/overlays/guard/webhook.yaml").read_text())
    assert objects[guard]["webhooks"] == source["webhooks"]


def test_without_crds_none_is_rendered(helm: Path) -> None:
    bodies = rendered(helm, "--set", "crds.install=false")
    assert not [b for b in bodies if b["kind"] == "CustomResourceDefinition"]
