"""The doctor: what is well, what is not, and what to do about it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli import objects
from tests.unit.cli.fake_api import Answer, Body, FakeApi, serving

GROUP = "/apis/serving.sojourn.dev/v1alpha1"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/sojourn-system/leases/sojourn"
WEBHOOKS = (
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/sojourn-validating"
)
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
PROBE = f"{GROUP}/namespaces/sojourn-system/inferenceservices"
SETTINGS = "/api/v1/namespaces/sojourn-system/configmaps"
PROMETHEUS = "/api/v1/namespaces/monitoring/services/prom:9090/proxy/api/v1/query"


def lease(age_s: float = 5.0) -> Body:
    renewed = datetime.now(UTC) - timedelta(seconds=age_s)
    stamp = renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"spec": {"holderIdentity": "sojourn-1", "renewTime": stamp}}


def allowed(_: Body) -> Answer:
    return 201, {"status": {"allowed": True}}


def refused(_: Body) -> Answer:
    why = 'admission webhook "validate.serving.sojourn.dev" denied the request: Unstable: max batch'
    return 403, {"message": why}


def healthy() -> FakeApi:
    config = {"data": {"settings.yaml": "prometheus: {url: http://prom.monitoring.svc:9090}"}}
    count = {"data": {"result": [{"metric": {}, "value": [0, "3"]}]}}
    hooks = {"webhooks": [{"clientConfig": {"caBundle": "Y2E="}}]}
    names = ("inferenceservices", "servingprofiles")
    return FakeApi(
        objects={
            "/version": {"gitVersion": "v1.33.1"},
            GROUP: {"resources": [{"name": name} for name in names]},
            LEASE: lease(),
            WEBHOOKS: hooks,
            SETTINGS: {"items": [{"metadata": {"name": "sojourn-settings-x"}, **config}]},
            PROMETHEUS: count,
            f"{GROUP}/inferenceservices": {"items": [objects.service(objects.status())]},
            objects.TARGET_PATH: objects.deployment(),
        },
        posts={REVIEWS: allowed, PROBE: refused},
    )


def examined(api: FakeApi, tmp_path: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    with serving(api, tmp_path) as kubeconfig:
        ran = objects.sojourn("doctor", "--kubeconfig", str(kubeconfig), "-o", "json")
    return ran.code, {one["subject"]: one for one in json.loads(ran.out)}


def test_healthy_cluster_passes_every_check(tmp_path: Path) -> None:
    code, found = examined(healthy(), tmp_path)
    assert code == 0
    assert {one["state"] for one in found.values()} == {"ok"}
    assert found["metrics"]["text"] == "3 engine pods are seen"


def broken(change: str) -> FakeApi:
    api = healthy()
    match change:
        case "crds":
            del api.objects[GROUP]
        case "lease":
            api.objects[LEASE] = lease(age_s=600)
        case "permissions":
            api.posts[REVIEWS] = lambda body: (
                201,
                {"status": {"allowed": body["spec"]["resourceAttributes"]["verb"] != "patch"}},
            )
        case "webhook absent":
            del api.objects[WEBHOOKS]
        case "webhook deaf":
            api.posts[PROBE] = lambda body: (201, body)
        case "webhook unreachable":
            api.posts[PROBE] = lambda _: (500, {"message": "failed calling webhook: refused"})
        case "prometheus":
            del api.objects[PROMETHEUS]
        case "status":
            api.objects[f"{GROUP}/inferenceservices"] = {"items": [objects.service()]}
    return api


@pytest.mark.parametrize(
    ("change", "subject", "text", "remedy"),
    [
        ("crds", "CRDs", "not served", "kubectl apply --server-side -k crds"),
        ("lease", "operator", "last renewed the lease 60", "logs deploy/sojourn"),
        ("permissions", "permissions", "may not patch", "deploy/base/rbac.yaml"),
        ("webhook absent", "webhook", "nothing is refused", "helm install"),
        ("webhook deaf", "webhook", "was admitted", "webhook.yaml"),
        ("webhook unreachable", "webhook", "failed calling webhook", "endpoints sojourn-webhook"),
        ("prometheus", "Prometheus", "does not answer", "prometheus.url"),
        ("status", "prod/gpt3", "has no status", "operator's line"),
    ],
)
def test_each_trouble_fails_with_its_remedy(
    change: str, subject: str, text: str, remedy: str, tmp_path: Path
) -> None:
    code, found = examined(broken(change), tmp_path)
    assert code == 1
    assert found[subject]["state"] == "FAIL"
    assert text in found[subject]["text"]
    assert remedy in found[subject]["remedy"]


def test_container_that_ignores_max_batch_is_a_warning_with_the_argument_to_add(
    tmp_path: Path,
) -> None:
    api = healthy()
    api.objects[objects.TARGET_PATH] = objects.deployment(1, "--port=8000")
    code, found = examined(api, tmp_path)
    assert code == 0
    assert found["prod/gpt3"]["state"] == "warn"
    assert "$(SOJOURN_MAX_BATCH)" in found["prod/gpt3"]["remedy"]


def test_what_we_may_not_look_at_is_skipped_not_failed(tmp_path: Path) -> None:
    api = healthy()
    api.forbidden |= {LEASE, REVIEWS, PROBE, SETTINGS}
    code, found = examined(api, tmp_path)
    assert code == 0
    for subject in ("operator", "permissions", "webhook", "Prometheus"):
        assert found[subject]["state"] == "skip"


def test_cluster_that_does_not_answer_is_exit_code_3(tmp_path: Path) -> None:
    with serving(FakeApi(), tmp_path) as kubeconfig:
        pass
    ran = objects.sojourn("doctor", "--kubeconfig", str(kubeconfig))
    assert ran.code == 3
    assert ran.err.startswith("sojourn: GET /version")
