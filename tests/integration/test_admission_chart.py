"""The chart's switches for admission: ports, the host's network, cert-manager."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sojourn.controller.settings import CertificateSource
from tests.integration.test_chart import helm, rendered, settings_in

__all__ = ["helm"]

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def test_port_host_network_and_patience_are_values(helm: Path) -> None:
    # FC-104: control planes that reach the nodes on a few ports only.
    values = ("webhook.port=10250", "hostNetwork=true", "webhook.timeoutSeconds=3")
    bodies = rendered(helm, *(word for value in values for word in ("--set", value)))
    (deployment,) = [b for b in bodies if b["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    assert pod["hostNetwork"] is True
    ports = {p["name"]: p["containerPort"] for p in pod["containers"][0]["ports"]}
    assert ports["webhook"] == settings_in(bodies).webhook.port == 10250
    (configuration,) = [b for b in bodies if b["kind"] == "ValidatingWebhookConfiguration"]
    assert configuration["webhooks"][0]["timeoutSeconds"] == 3
    notes = (ROOT / "charts/sojourn/templates/NOTES.txt").read_text()
    assert "firewall rule" in notes


def test_with_cert_manager_the_operator_only_reads_what_is_mounted(helm: Path) -> None:
    bodies = rendered(helm, "--set", "certManager.enabled=true")
    webhook = settings_in(bodies).webhook
    assert webhook.certificates is CertificateSource.MOUNTED
    (deployment,) = [b for b in bodies if b["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    mounts = {m["name"]: m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
    assert Path(mounts["webhook-tls"]) == webhook.folder
    secrets = {v["name"]: v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}
    (certificate,) = [b for b in bodies if b["kind"] == "Certificate"]
    assert secrets["webhook-tls"] == certificate["spec"]["secretName"]
    (configuration,) = [b for b in bodies if b["kind"] == "ValidatingWebhookConfiguration"]
    note = configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    assert note.endswith(certificate["metadata"]["name"])
    assert yaml.safe_dump(configuration).count("caBundle") == 0
