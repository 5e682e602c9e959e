"""The custom resources on a real API server: accepted, nothing pruned, nonsense refused."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sojourn import api
from sojourn.api.status import status
from sojourn.errors import InvalidObject
from tests.controlplane.plane import ControlPlane
from tests.unit.api.objects import PROFILE, SMALLEST, full, with_value
from tests.unit.api.plans import NOW, plan
from tests.unit.api.test_reading import BAD_FIELDS

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "deploy/examples").glob("*.yaml"))
BAD_EXAMPLES = sorted((ROOT / "tests/data/bad_examples").glob("*.yaml"))
DEFINITIONS = sorted((ROOT / "crds").glob("serving*.yaml"))
KINDS = ("inferenceservices.serving.sojourn.dev", "servingprofiles.serving.sojourn.dev")
LARGEST_BYTES = 200_000

KSERVE_LIKE = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: inferenceservices.serving.kserve.io}
spec:
  group: serving.kserve.io
  scope: Namespaced
  names:
    {kind: InferenceService, plural: inferenceservices, singular: inferenceservice,
     shortNames: [isvc]}
  versions:
    - name: v1beta1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, properties: {predictor: {type: string}}}
"""


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with our CRDs established."""
    control_plane.kubectl("apply", "-k", str(ROOT / "crds"), check=True)
    for kind in KINDS:
        wait = ("wait", "--for=condition=Established", f"crd/{kind}", "--timeout=30s")
        control_plane.kubectl(*wait, check=True)
    return control_plane


@pytest.fixture
def kserve(cluster: ControlPlane) -> Iterator[None]:
    """A kind of the same name in another group."""
    cluster.kubectl("apply", "-f", "-", input=KSERVE_LIKE, check=True)
    wait = ("wait", "--for=condition=Established", "crd/inferenceservices.serving.kserve.io")
    cluster.kubectl(*wait, "--timeout=30s", check=True)
    yield
    cluster.kubectl("delete", "crd", "inferenceservices.serving.kserve.io")


def applied(cluster: ControlPlane, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
    named = {**body, "metadata": {"name": body["metadata"]["name"]}}
    answer = cluster.kubectl(
        "apply", "-n", namespace, "-f", "-", "-o", "json", input=json.dumps(named), check=True
    )
    stored: dict[str, Any] = json.loads(answer.stdout)
    return stored


def missing(given: Any, stored: Any, at: str) -> list[str]:
    """Paths of what was given and is not stored the same."""
    if isinstance(given, dict) and isinstance(stored, dict):
        return [
            path
            for name, value in given.items()
            for path in missing(value, stored.get(name), f"{at}.{name}")
        ]
    if isinstance(given, list) and isinstance(stored, list) and len(given) == len(stored):
        pairs = enumerate(zip(given, stored, strict=True))
        return [p for i, (one, kept) in pairs for p in missing(one, kept, f"{at}[{i}]")]
    return [] if given == stored else [at]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "crds").glob("serving*.yaml")), ids=lambda p: p.name
)
def test_a_definition_stays_below_200_kB(path: Path) -> None:
    assert path.stat().st_size < LARGEST_BYTES


@pytest.mark.parametrize("kind", KINDS)
def test_the_api_server_finds_the_schema_structural(cluster: ControlPlane, kind: str) -> None:
    stored = json.loads(cluster.kubectl("get", "crd", kind, "-o", "json", check=True).stdout)
    conditions = {c["type"]: c["status"] for c in stored["status"]["conditions"]}
    assert conditions["Established"] == conditions["NamesAccepted"] == "True"
    assert "NonStructuralSchema" not in conditions


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_stored_with_nothing_pruned(
    cluster: ControlPlane, namespace: str, path: Path
) -> None:
    for body in yaml.safe_load_all(path.read_text()):
        if body["apiVersion"].startswith("keda.sh/"):
            continue  # KEDA is not installed here; its object is checked in test_metric_actuation
        stored = applied(cluster, namespace, body)
        assert missing(body.get("spec", {}), stored.get("spec", {}), "spec") == []


def test_every_field_survives_and_reads_the_same_before_and_after(
    cluster: ControlPlane, namespace: str
) -> None:
    stored = applied(cluster, namespace, full())
    before, after = api.read(full()), api.read(stored)
    assert missing(full()["spec"], stored["spec"], "spec") == []
    assert {**vars(after), "ref": None} == {**vars(before), "ref": None}


def test_the_smallest_object_gets_the_defaults_that_reading_gives(
    cluster: ControlPlane, namespace: str
) -> None:
    stored = applied(cluster, namespace, SMALLEST)
    assert stored["spec"]["engine"] == {"name": "vllm", "kvLayout": "Paged"}
    assert stored["spec"]["slo"] == {"latency": "10s", "percentile": "99"}
    assert stored["spec"]["gpu"]["tensorParallel"] == 1
    before, after = api.read(SMALLEST), api.read(stored)
    assert {**vars(after), "ref": None} == {**vars(before), "ref": None}


@pytest.fixture(scope="module")
def refusals(cluster: ControlPlane) -> list[str]:
    """What kubectl says of each bad example; one call, because each costs a second."""
    folder = str(ROOT / "tests/data/bad_examples")
    answer = cluster.kubectl("create", "--dry-run=server", "-f", folder)
    assert answer.stdout == "", "an object was accepted"
    return re.split(r"^(?=The |Error from server|error:)", answer.stderr, flags=re.MULTILINE)


@pytest.mark.parametrize("path", BAD_EXAMPLES, ids=lambda path: path.stem)
def test_a_bad_example_is_refused_with_a_clear_message(refusals: list[str], path: Path) -> None:
    text = path.read_text()
    opening = "# expect: "
    lines = [line.removeprefix(opening) for line in text.splitlines() if line.startswith(opening)]
    name = yaml.safe_load(text)["metadata"]["name"]
    (told,) = [one for one in refusals if f'"{name}"' in one or f"/{name}.yaml" in one]
    assert lines[0] in told


@pytest.mark.parametrize("path", BAD_EXAMPLES, ids=lambda path: path.stem)
def test_a_bad_example_is_refused_offline_too(path: Path) -> None:
    body = yaml.safe_load(path.read_text())
    reader = api.read if body["kind"] == "InferenceService" else api.read_profile
    with pytest.raises(InvalidObject):
        reader(body)


def test_what_reading_refuses_the_api_server_refuses(cluster: ControlPlane) -> None:
    bodies = []
    for index, (path, value, _) in enumerate(BAD_FIELDS):
        body = with_value(full(), path, value)
        bodies.append({**body, "metadata": {"name": f"bad-{index}"}})
    documents = "\n---\n".join(json.dumps(body) for body in bodies)
    answer = cluster.kubectl("create", "--dry-run=server", "-f", "-", input=documents)
    assert answer.stdout == "", "an object was accepted"
    for body in bodies:
        assert f'"{body["metadata"]["name"]}"' in answer.stderr or "unknown field" in answer.stderr


def test_the_target_cannot_be_changed(cluster: ControlPlane, namespace: str) -> None:
    applied(cluster, namespace, SMALLEST)
    patch = {"spec": {"scaleTargetRef": {"name": "other"}}}
    answer = cluster.kubectl(
        "patch", "infsvc", "chat", "-n", namespace, "--type=merge", "-p", json.dumps(patch)
    )
    assert "scaleTargetRef is immutable" in answer.stderr


def write_status(cluster: ControlPlane, namespace: str, content: dict[str, Any]) -> dict[str, Any]:
    body = {
        "apiVersion": "serving.sojourn.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat"},
        "status": content,
    }
    answer = cluster.kubectl(
        *("apply", "-n", namespace, "--server-side", "--subresource=status"),
        *("--field-manager=sojourn", "--force-conflicts", "-f", "-", "-o", "json"),
        input=json.dumps(body),
        check=True,
    )
    stored: dict[str, Any] = json.loads(answer.stdout)
    return stored


def test_a_status_is_stored_whole_and_leaves_the_generation(
    cluster: ControlPlane, namespace: str
) -> None:
    first = applied(cluster, namespace, SMALLEST)
    content = status(plan(), None, NOW)
    stored = write_status(cluster, namespace, content)
    assert stored["status"] == content
    assert stored["metadata"]["generation"] == first["metadata"]["generation"]


def test_the_status_is_out_of_reach_of_an_ordinary_apply(
    cluster: ControlPlane, namespace: str
) -> None:
    body = {**SMALLEST, "status": {"regime": "Mine"}}
    assert "status" not in applied(cluster, namespace, body)


def test_the_columns_show_the_service(cluster: ControlPlane, namespace: str) -> None:
    applied(cluster, namespace, SMALLEST)
    write_status(cluster, namespace, status(plan(), None, NOW))
    shown = cluster.kubectl("get", "infsvc", "-n", namespace, check=True).stdout
    head, row = (" ".join(line.split()) for line in shown.splitlines())
    assert head == "NAME MODEL GPU SLO RATE UTIL P99 REPLICAS BATCH READY LIMITED-BY AGE"
    assert row.startswith(
        "chat meta-llama/Llama-3.1-8B-Instruct A100-80GB 10s 38400m 71 1.62s 6 24 True MaxReplicas "
    )
    wide = cluster.kubectl("get", "infsvc", "-n", namespace, "-o", "wide", check=True).stdout
    assert wide.splitlines()[0].split()[-5:] == ["DESIRED", "MIN", "MAX", "REGIME", "ROW"]


def test_both_kinds_are_in_the_category_and_have_short_names(
    cluster: ControlPlane, namespace: str
) -> None:
    applied(cluster, namespace, SMALLEST)
    applied(cluster, namespace, PROFILE)
    shown = cluster.kubectl("get", "sojourn", "-n", namespace, "-o", "name", check=True).stdout
    assert set(shown.split()) == {
        "inferenceservice.serving.sojourn.dev/chat",
        "servingprofile.serving.sojourn.dev/llama2-70b-a100x4",
    }
    assert cluster.kubectl("get", "sprof", "-n", namespace).returncode == 0


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("infsvc.spec.slo", "End-to-end latency (sojourn time"),
        ("infsvc.spec.scaling", "Most replicas; admission judges"),
        ("infsvc.status.rate", "replicas are held"),
        ("sprof.spec.points", "Time the batch took"),
    ],
)
def test_explain_shows_the_descriptions(cluster: ControlPlane, field: str, text: str) -> None:
    shown = cluster.kubectl("explain", field, check=True).stdout
    assert text in " ".join(shown.split())


@pytest.mark.usefixtures("kserve")
def test_beside_kserve_the_short_name_and_the_full_name_are_ours(
    cluster: ControlPlane, namespace: str
) -> None:
    applied(cluster, namespace, SMALLEST)
    theirs = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "theirs"},
        "spec": {"predictor": "x"},
    }
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=json.dumps(theirs), check=True)
    for name in ("infsvc", KINDS[0]):
        shown = cluster.kubectl("get", name, "-n", namespace, "-o", "name", check=True).stdout
        assert shown.split() == ["inferenceservice.serving.sojourn.dev/chat"]
    shown = cluster.kubectl("get", "isvc", "-n", namespace, "-o", "name", check=True).stdout
    assert shown.split() == ["inferenceservice.serving.kserve.io/theirs"]


def test_the_base_is_accepted_whole(cluster: ControlPlane) -> None:
    built = cluster.kubectl("kustomize", str(ROOT / "deploy/base"), check=True).stdout
    cluster.kubectl("apply", "-f", str(ROOT / "deploy/base/namespace.yaml"), check=True)
    answer = cluster.kubectl("apply", "--dry-run=server", "-f", "-", input=built)
    assert answer.returncode == 0, answer.stderr
    assert "Warning: would violate PodSecurity" not in answer.stderr
