"""Admission through a real API server, kubectl and TLS: what a user sees."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from sojourn.cli import validate_read
from sojourn.cli.validate import judge
from tests.controlplane.plane import ControlPlane
from tests.integration.operators import NAMESPACE, REPOSITORY, Operators, service, unstable
from tests.unit.controller import specs
from tests.waiting import eventually

GUARDED = REPOSITORY / "deploy" / "overlays" / "guard"


@pytest.fixture(scope="module")
def operators(control_plane: ControlPlane) -> Iterator[Operators]:
    options = {"check": "1s", "overlap": "3s", "probe": "1s"}
    with Operators(control_plane, webhook=options, overlay=GUARDED, direct=True) as made:
        yield made


@dataclass(frozen=True)
class Told:
    """What the API server said of one creation."""

    status: int
    causes: list[dict[str, str]]
    warnings: list[str]


async def asked(plane: ControlPlane, bodies: list[dict[str, Any]]) -> list[Told]:
    """All bodies created as a dry run, eight at a time, with what a client library gets to see."""
    plane.kubectl("create", "serviceaccount", "asker", "-n", "default")
    role = ("create", "clusterrolebinding", "asker", "--clusterrole=cluster-admin")
    plane.kubectl(*role, "--serviceaccount=default:asker")
    token = plane.kubectl("create", "token", "asker", "-n", "default", check=True).stdout.strip()
    tls = ssl.create_default_context(cafile=str(plane.ca_file))
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    path = "/apis/serving.sojourn.dev/v1alpha1/namespaces/default/inferenceservices?dryRun=All"
    slots = asyncio.Semaphore(8)

    async def one(session: aiohttp.ClientSession, body: dict[str, Any]) -> Told:
        async with (
            slots,
            session.post(plane.api_url + path, data=json.dumps(body), ssl=tls) as answer,
        ):
            content = await answer.json()
            causes = (content.get("details") or {}).get("causes") or []
            texts = [text.split('"', 1)[1] for text in answer.headers.getall("Warning", [])]
            plain = [text[:-1].replace('\\"', '"') for text in texts]
            return Told(answer.status, causes, plain)

    async with aiohttp.ClientSession(headers=headers) as session:
        return list(await asyncio.gather(*(one(session, body) for body in bodies)))


def patched(operators: Operators, namespace: str, name: str, patch: dict[str, Any]) -> Any:
    return operators.plane.kubectl(
        "patch", "infsvc", name, "-n", namespace, "--type=merge", "-p", json.dumps(patch)
    )


def test_a_valid_object_is_stored_without_a_word(operators: Operators, namespace: str) -> None:
    answer = operators.create(namespace, service("good"))
    assert answer.returncode == 0
    # FC-100: the target may be applied later.
    assert "denied" not in answer.stderr


def test_kubectl_shows_every_finding_with_its_numbers(operators: Operators, namespace: str) -> None:
    body = unstable("bad")
    body["spec"]["slo"] = {"latency": "40ms"}
    told = operators.create(namespace, body).stderr
    assert "Error from server (Forbidden)" in told
    assert "Unstable: max batch 4 cannot keep up with 100/s" in told
    assert "Raise max batch to 8" in told
    assert "SLOUnreachable: latency of 40ms" in told
    assert "serving.sojourn.dev/admission-bypass" in told


def test_a_machine_reads_reason_and_field_of_every_cause(
    operators: Operators, namespace: str
) -> None:
    path = f"/apis/serving.sojourn.dev/v1alpha1/namespaces/{namespace}/inferenceservices"
    body = unstable("bad")
    answer = operators.plane.kubectl(
        *("create", "--raw", path, "-f", "-", "-v=8"), input=json.dumps(body)
    )
    status = next(
        json.loads(line[line.index('{"kind":"Status"') :].split("\n")[0])
        for line in answer.stderr.splitlines()
        if '{"kind":"Status"' in line
    )
    assert status["code"] == 403
    assert status["reason"] == "Forbidden"
    (cause,) = status["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("Unstable", "spec.engine.maxBatchSize.max")


def test_the_cluster_and_the_command_line_say_the_same_of_every_object(
    operators: Operators, tmp_path: Path
) -> None:
    # FC-103, I7: after the API server's defaults and over the wire, word for word.
    rng = random.Random(7)
    bodies = [specs.sensible(rng, f"s{number}") for number in range(150)]
    for number, body in enumerate(bodies):
        body["spec"]["scaleTargetRef"] = {"name": f"t{number}"}
        body["metadata"]["annotations"] = {"example.com/padding": "x" * 50_000}
    told = asyncio.run(asked(operators.plane, bodies))
    manifest = tmp_path / "all.yaml"
    manifest.write_text(yaml.safe_dump_all(bodies, sort_keys=False))
    offline = judge(validate_read.documents([str(manifest)], "default"))
    compared = 0
    for heard, judged in zip(told, offline, strict=True):
        if heard.status == 422:  # the schema's own rules: the webhook is not asked
            assert judged.verdict == "REJECT"
            continue
        compared += 1
        assert (heard.status == 403) is (judged.verdict == "REJECT")
        rejected = judged.review.rejected
        assert [cause["message"] for cause in heard.causes] == [f.message for f in rejected]
        assert heard.warnings == list(judged.review.warnings)
    assert compared > 80
    assert {judged.verdict for judged in offline} >= {"REJECT", "WARN", "OK"}


def test_the_bypass_is_an_event_and_a_condition(operators: Operators, namespace: str) -> None:
    body = unstable("traced")
    body["metadata"]["annotations"] = {"serving.sojourn.dev/admission-bypass": "trial"}
    operators.create(namespace, body)

    def conditions() -> dict[str, str]:
        status = operators.plane.get("infsvc", "traced", "-n", namespace).get("status", {})
        return {one["type"]: one["message"] for one in status.get("conditions", ())}

    eventually(lambda: "AdmissionBypassed" in conditions(), 60, "the condition is set")
    assert conditions()["AdmissionBypassed"] == "Unstable waived by annotation: trial"
    events = operators.plane.get("events", "-n", namespace)["items"]
    assert "AdmissionBypassed" in {one["reason"] for one in events}


def test_a_warning_is_a_warning_of_kubectl(operators: Operators, namespace: str) -> None:
    body = service("quiet")
    del body["spec"]["traffic"]
    answer = operators.create(namespace, body)
    assert answer.returncode == 0
    assert "Warning: NoPeakDeclared: " in answer.stderr


def test_the_bypass_stores_it_and_leaves_a_trace(operators: Operators, namespace: str) -> None:
    (one,) = operators.operators
    counter = 'sojourn_admissions_total{answer="bypassed"}'
    body = unstable("known-better")
    body["metadata"]["annotations"] = {"serving.sojourn.dev/admission-bypass": "load test"}
    since = operators.plane.audit_position()
    answer = operators.create(namespace, body)
    assert answer.returncode == 0
    assert "admitted by bypass (load test): Unstable" in answer.stderr
    assert one.metric(counter) >= 1
    assert f"admission bypassed (load test): CREATE InferenceService {namespace}/known-better" in (
        operators.log()
    )
    audited = [
        event.get("annotations", {})
        for event in operators.plane.audit_events(since)
        if event.get("objectRef", {}).get("name") == "known-better"
    ]
    assert any("Unstable" in value for notes in audited for value in notes.values())


def test_a_namespace_labelled_warn_stores_it_with_a_warning(
    operators: Operators, namespace: str
) -> None:
    label = "serving.sojourn.dev/admission=warn"
    operators.plane.kubectl("label", "namespace", namespace, label, check=True)

    def stored() -> bool:
        answer = operators.create(namespace, unstable("tolerated"), dry_run=True)
        return answer.returncode == 0 and "would be denied" in answer.stderr

    eventually(stored, 10, "the namespace only warns")


def test_a_namespace_labelled_off_is_not_judged(operators: Operators, namespace: str) -> None:
    label = "serving.sojourn.dev/admission=off"
    operators.plane.kubectl("label", "namespace", namespace, label, check=True)

    def stored() -> bool:
        answer = operators.create(namespace, unstable("unseen"), dry_run=True)
        return answer.returncode == 0 and "Warning" not in answer.stderr

    eventually(stored, 10, "the namespace is not judged")


def test_an_update_is_judged_for_what_it_changes(operators: Operators, namespace: str) -> None:
    # FC-101: an object that violates a rule may still be labelled, and edited elsewhere.
    body = unstable("old-sinner")
    body["metadata"]["annotations"] = {"serving.sojourn.dev/admission-bypass": "before the rule"}
    operators.create(namespace, body)
    unbypassed = patched(
        operators,
        namespace,
        "old-sinner",
        {"metadata": {"annotations": {"serving.sojourn.dev/admission-bypass": None}}},
    )
    assert unbypassed.returncode == 0
    assert "Warning: Unstable" in unbypassed.stderr
    unrelated = patched(operators, namespace, "old-sinner", {"spec": {"scaling": {"mode": "Off"}}})
    assert unrelated.returncode == 0
    assert "Warning: Unstable" in unrelated.stderr
    worse = patched(operators, namespace, "old-sinner", {"spec": {"traffic": {"peakRate": 200}}})
    assert "denied the request: Unstable" in worse.stderr
    better = patched(
        operators, namespace, "old-sinner", {"spec": {"engine": {"maxBatchSize": {"max": 8}}}}
    )
    assert better.returncode == 0, better.stderr


def test_an_object_under_deletion_is_never_held(operators: Operators, namespace: str) -> None:
    # FC-099: removing a finalizer is an update too.
    body = unstable("leaving")
    body["metadata"]["annotations"] = {"serving.sojourn.dev/admission-bypass": "x"}
    body["metadata"]["finalizers"] = ["example.com/mine"]
    operators.create(namespace, body)
    operators.plane.kubectl("delete", "infsvc", "leaving", "-n", namespace, "--wait=false")
    annotation = {"serving.sojourn.dev/admission-bypass": None}
    patch = {"metadata": {"finalizers": None, "annotations": annotation}}
    assert patched(operators, namespace, "leaving", patch).returncode == 0
    eventually(
        lambda: operators.plane.kubectl("get", "infsvc", "leaving", "-n", namespace).returncode,
        10,
        "the object is gone",
    )


def test_status_and_deletion_are_not_sent(operators: Operators) -> None:
    # FC-105, FC-097: our kinds only, creations and updates of the main resource only.
    configuration = operators.plane.get("validatingwebhookconfiguration", "sojourn-validating")
    for webhook in configuration["webhooks"]:
        for rule in webhook["rules"]:
            assert set(rule["operations"]) <= {"CREATE", "UPDATE"}
            assert rule["apiGroups"] == ["serving.sojourn.dev"]
            assert all("/" not in resource for resource in rule["resources"])
        assert webhook["timeoutSeconds"] <= 5
        assert webhook["sideEffects"] == "None"


def test_the_probe_sees_the_refusal_and_the_bundle_is_right(operators: Operators) -> None:
    # FC-093: the check is a gauge, and the certificate is in the Secret.
    (one,) = operators.operators
    eventually(lambda: one.metric("sojourn_webhook_probe_refused") == 1, 40, "the probe is refused")
    assert one.metric("sojourn_webhook_ca_matches") == 1
    secret = operators.plane.get("secret", "sojourn-webhook-tls", "-n", NAMESPACE)
    assert {"ca.crt", "tls.crt", "tls.key"} <= set(secret["data"])
    assert operators.plane.get("infsvc", "-n", NAMESPACE)["items"] == []


def test_a_bundle_that_somebody_broke_is_mended(operators: Operators, namespace: str) -> None:
    patch = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    operators.plane.kubectl(
        *("patch", "validatingwebhookconfiguration", "sojourn-validating"),
        *("--type=json", "-p", json.dumps(patch)),
        check=True,
    )

    def judged() -> bool:
        answer = operators.create(namespace, unstable("again"), dry_run=True)
        return "denied the request: Unstable" in answer.stderr

    eventually(judged, 20, "the webhook is trusted again")


def deployment(name: str, *arguments: str, gpus: int = 1) -> dict[str, Any]:
    container = {
        "name": "engine",
        "image": "vllm/vllm-openai:v0.17.0",
        "args": list(arguments),
        "resources": {"limits": {"nvidia.com/gpu": gpus}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": {"serving.sojourn.dev/guard": "enabled"}},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A10G"},
                    "containers": [container],
                },
            },
        },
    }


def test_a_guarded_deployment_that_would_not_start_is_refused(
    operators: Operators, namespace: str
) -> None:
    model = "--model=meta-llama/Llama-3.1-8B-Instruct"
    told = operators.create(namespace, deployment("long", model, "--max-model-len=131072"))
    assert "denied the request: WontStart" in told.stderr
    assert "131072" in told.stderr
    fits = operators.create(namespace, deployment("short", model, "--max-model-len", "4096"))
    assert fits.returncode == 0, fits.stderr


def test_an_unlabelled_deployment_is_not_sent(operators: Operators, namespace: str) -> None:
    body = deployment("free", "--model=meta-llama/Llama-3.1-8B-Instruct")
    del body["metadata"]["labels"]
    assert operators.create(namespace, body).stderr == ""
