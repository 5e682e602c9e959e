"""Field cases that need a real API server and real controllers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from sojourn.act import writers
from sojourn.act.execute import Executor
from sojourn.act.kube import Kube
from sojourn.catalogue import Catalogue
from sojourn.controller.registry import Registry
from sojourn.controller.sync import sync
from sojourn.facts.declaration import Declaration, MaxBatchRef, ObjectRef, TargetRef
from sojourn.facts.situation import TargetState
from sojourn.observe.cluster import ClusterState
from tests.controlplane.plane import ControlPlane
from tests.unit.decide.builders import NOW_S, autoscaled, declaration, plan
from tests.waiting import eventually

CRDS = Path(__file__).parents[2] / "crds"


def deployment(name: str, labels: dict[str, str], replicas: int) -> dict[str, Any]:
    args = ["--max-num-seqs=$(SOJOURN_MAX_BATCH)"]
    container = {"name": "engine", "image": "registry.example.com/vllm:1", "args": args}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def hpa(owner: dict[str, Any] | None = None) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"}
    metadata: dict[str, Any] = {"name": "chat"}
    if owner:
        metadata["ownerReferences"] = [owner]
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": {"scaleTargetRef": target, "maxReplicas": 3},
    }


@pytest.fixture
def create(control_plane: ControlPlane, namespace: str) -> Callable[..., None]:
    def made(*bodies: dict[str, Any]) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(bodies)})
        control_plane.kubectl("create", "-n", namespace, "-f", "-", input=text, check=True)

    return made


def declared(namespace: str, target: str) -> Declaration:
    return declaration(ref=ObjectRef(namespace, target, "u", 1), target=TargetRef(target))


def seen(plane: ControlPlane) -> ClusterState:
    """The cluster as the operator's own lists bring it into memory."""
    cluster = ClusterState()

    async def listed() -> None:
        kube = await Kube.connect(str(plane.kubeconfig))
        try:
            await sync(kube, Registry(Catalogue()), cluster)
        finally:
            await kube.close()

    asyncio.run(listed())
    return cluster


def state(plane: ControlPlane, namespace: str) -> TargetState:
    found = seen(plane).target_state(declared(namespace, "chat"))
    assert isinstance(found, TargetState), found
    return found


READER = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader-without-nodes-and-quotas}
rules:
  - {apiGroups: [serving.sojourn.dev], resources: ["*"], verbs: [get, list, watch]}
  - {apiGroups: [apps], resources: ["*"], verbs: [get, list, watch]}
  - {apiGroups: [autoscaling], resources: [horizontalpodautoscalers], verbs: [get, list, watch]}
  - {apiGroups: [""], resources: [pods], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader-without-nodes-and-quotas}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: reader-without-nodes-and-quotas
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: narrow}]
"""


def test_forbidden_lists_are_told_and_do_not_keep_the_operator_from_beginning(
    control_plane: ControlPlane, namespace: str, create: Callable[..., None]
) -> None:
    """FC-063: nodes and quotas may not be listed."""
    for crd in CRDS.glob("serving*.yaml"):
        control_plane.kubectl("apply", "-f", str(crd), check=True)
    control_plane.kubectl("apply", "-f", "-", input=READER, check=True)
    create(deployment("chat", {"app": "chat"}, 1))

    async def begun(user: str) -> tuple[bool, ClusterState]:
        cluster = ClusterState()
        kube = await Kube.connect(str(control_plane.kubeconfig_for(user)))
        try:
            return await sync(kube, Registry(Catalogue()), cluster), cluster
        finally:
            await kube.close()

    def complete() -> bool:
        done, cluster = asyncio.run(begun("narrow"))
        found = cluster.target_state(declared(namespace, "chat"))
        assert done
        assert isinstance(found, TargetState), found
        assert "may not list resourcequotas" in found.quota_unknown
        return True

    eventually(complete, 60, "the rights are in force")
    done, _ = asyncio.run(begun("nobody"))
    assert not done, "without our own kinds there is nothing to begin with"


def test_max_batch_leaves_replicas_labels_and_annotations_to_their_owners(
    control_plane: ControlPlane, namespace: str, create: Callable[..., None]
) -> None:
    """FC-076 and FC-078."""
    create(deployment("chat", {"app": "chat"}, 4))
    annotate = ("annotate", "deployment", "chat", "mesh.example.com/inject=yes")
    control_plane.kubectl(*annotate, "-n", namespace, check=True)

    async def write() -> None:
        kube = await Kube.connect(str(control_plane.kubeconfig))
        try:
            ref = MaxBatchRef(container="engine")
            await writers.write_max_batch(
                kube, namespace, writers.Variable(TargetRef("chat"), ref), 48
            )
            await writers.write_scale(kube, namespace, TargetRef("chat"), 4, 4)
        finally:
            await kube.close()

    asyncio.run(write())
    body = control_plane.get("deployment", "chat", "-n", namespace, "--show-managed-fields")
    assert body["spec"]["replicas"] == 4
    assert body["metadata"]["annotations"]["mesh.example.com/inject"] == "yes"
    ours = [
        entry["fieldsV1"]
        for entry in body["metadata"]["managedFields"]
        if entry["manager"].startswith("sojourn")
    ]
    assert ours
    assert not [fields for fields in ours if "f:metadata" in fields]


def test_pods_belong_to_their_owner_whatever_selectors_match(
    control_plane: ControlPlane, namespace: str, create: Callable[..., None]
) -> None:
    """FC-080: selector ``app: x`` of one matches the pods of both."""
    create(deployment("a", {"app": "x"}, 2), deployment("b", {"app": "x", "role": "y"}, 3))

    def counted() -> bool:
        cluster = seen(control_plane)
        counts = [len(cluster.pods_of(declared(namespace, name)).live) for name in ("a", "b")]
        assert counts == [2, 3]
        told = [cluster.target_pods(declared(namespace, name)).overlapping for name in ("a", "b")]
        assert told == [("Deployment b",), ("Deployment a",)]
        return True

    eventually(counted, 60, "every pod is counted for its owner")


@pytest.mark.parametrize(
    ("owner", "shown"),
    [
        (None, "HorizontalPodAutoscaler chat"),
        ("ScaledObject", "ScaledObject chat"),
    ],
)
def test_an_autoscaler_of_the_target_is_named_and_nothing_written_until_it_goes(
    control_plane: ControlPlane,
    namespace: str,
    create: Callable[..., None],
    owner: str | None,
    shown: str,
) -> None:
    """FC-077 and FC-081; a paused ScaledObject has no HPA, so it is none."""
    reference = {
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "chat", "uid": "k",
        "controller": True,
    }  # fmt: skip
    create(deployment("chat", {"app": "chat"}, 1), hpa(reference if owner else None))
    assert state(control_plane, namespace).other_owners == (shown,)
    done = plan(autoscaled(), 4000, 1, target={"other_owners": (shown,)})
    assert not done.write_replicas
    control_plane.kubectl("delete", "hpa", "chat", "-n", namespace, check=True)
    assert state(control_plane, namespace).other_owners == ()


def test_the_last_client_that_set_replicas_is_known_by_name(
    control_plane: ControlPlane, namespace: str, create: Callable[..., None]
) -> None:
    """FC-087: who it is, as the API server tells it."""
    create(deployment("chat", {"app": "chat"}, 3))
    patch = ("patch", "deployment", "chat", "-n", namespace, "--field-manager=argocd-controller")
    control_plane.kubectl(*patch, "-p", '{"spec":{"replicas":1}}', check=True)
    assert state(control_plane, namespace).replicas_manager == "argocd-controller"


def test_the_scale_of_a_target_has_a_selector_and_our_kind_offers_none_of_its_own(
    control_plane: ControlPlane, namespace: str, create: Callable[..., None]
) -> None:
    """FC-086, but for one thing: the case asks for ``inferenceservices/chat/scale``.

    Our kind has no replicas of its own, only bounds, so a scale of it would be a second place to
    write them. An external autoscaler scales the target, whose scale has what the case asks for.
    """
    create(deployment("chat", {"app": "chat"}, 2))
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/chat/scale"
    scale = json.loads(control_plane.kubectl("get", "--raw", path, check=True).stdout)
    assert scale["spec"]["replicas"] == 2
    assert scale["status"]["selector"] == "app=chat"
    for crd in CRDS.glob("serving*.yaml"):
        (version,) = yaml.safe_load(crd.read_text())["spec"]["versions"]
        assert "scale" not in version["subresources"]


def test_crds_are_small_enough_for_a_plain_apply(control_plane: ControlPlane) -> None:
    """FC-091."""
    for crd in CRDS.glob("serving*.yaml"):
        assert len(json.dumps(yaml.safe_load(crd.read_text()))) <= 200_000
        control_plane.kubectl("apply", "-f", str(crd), check=True)


def test_a_process_without_the_lease_at_the_time_of_the_write_writes_nothing(
    control_plane: ControlPlane, namespace: str, create: Callable[..., None]
) -> None:
    """FC-037: it held the lease when it decided, and lost it before it wrote."""
    create(deployment("gpt3", {"app": "gpt3"}, 1))
    one = autoscaled(ref=ObjectRef(namespace, "gpt3", "uid-1", 1))
    done = plan(one, 4000, 1)
    assert done.write_replicas

    async def apply() -> None:
        kube = await Kube.connect(str(control_plane.kubeconfig))
        try:
            executor = Executor(kube, may_write=lambda: False, host="late")
            (applied,) = await executor.apply([done], lambda _: {"row": "late"}, NOW_S)
            assert not applied.scaled
        finally:
            await kube.close()

    asyncio.run(apply())
    body = control_plane.get("deployment", "gpt3", "-n", namespace)
    assert body["spec"]["replicas"] == 1
    assert (
        control_plane.get("events", "-n", namespace, "--field-selector=reason=ScaledUp")["items"]
        == []
    )


def test_the_second_of_two_installations_sees_the_first_through_the_api_server(
    control_plane: ControlPlane, namespace: str, create: Callable[..., None]
) -> None:
    """FC-084: each writes the status of one object; the later write names who it was."""
    for crd in CRDS.glob("serving*.yaml"):
        control_plane.kubectl("apply", "-f", str(crd), check=True)
    spec = {
        "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"},
        "gpu": {"type": "A100-80GB"},
        "slo": {"latency": "10s"},
        "scaleTargetRef": {"name": "chat"},
    }
    kind = {"apiVersion": "serving.sojourn.dev/v1alpha1", "kind": "InferenceService"}
    create({**kind, "metadata": {"name": "chat"}, "spec": spec})

    def stored() -> dict[str, Any]:
        body: dict[str, Any] = control_plane.get(
            "inferenceservices.serving.sojourn.dev", "chat", "-n", namespace
        )
        return body

    ref = ObjectRef(namespace, "chat", stored()["metadata"]["uid"], 1)

    def written(controller: str, at: str) -> dict[str, Any]:
        change = {"row": "Steady", "from": {}, "to": {}, "message": "nothing to do"}
        status = {"controller": controller, "lastDecision": {"at": at, **change}}

        async def write() -> None:
            kube = await Kube.connect(str(control_plane.kubeconfig))
            try:
                await writers.write_status(kube, ref, status)
            finally:
                await kube.close()

        asyncio.run(write())
        return status

    registry = Registry(Catalogue())
    registry.put(stored(), 0.0)
    entry = registry.get((namespace, "chat"))
    assert entry is not None
    entry.status = written("op-a/sojourn", "2026-09-21T00:00:10Z")
    registry.put(stored(), 10.0)
    assert entry.rival is None
    written("op-b/sojourn", "2026-09-21T00:00:15Z")
    registry.put(stored(), 15.0)
    assert entry.rival == ("op-b/sojourn", 15.0)
