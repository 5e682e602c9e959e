"""Groups of pods and devices of DRA on a real API server: listed, scaled, told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sojourn.act import writers
from sojourn.act.kube import Kube
from sojourn.catalogue import Catalogue
from sojourn.controller.registry import Registry
from sojourn.controller.sync import sync
from sojourn.facts.declaration import (
    Declaration,
    DeclaredGpu,
    DeclaredModel,
    MaxBatchRef,
    ObjectRef,
    Slo,
    TargetRef,
)
from sojourn.facts.situation import TargetState
from sojourn.observe.cluster import WATCHED, ClusterState
from tests.controlplane.plane import ControlPlane
from tests.integration.operators import Operators
from tests.waiting import eventually

T = TypeVar("T")
CRD = Path(__file__).parents[1] / "data" / "leaderworkerset_crd.yaml"
TARGET = TargetRef("deep", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
GROUPS = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: deep}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        containers:
          - name: vllm
            image: vllm/vllm-openai:v0.11.0
            command: ["vllm", "serve", "--max-num-seqs=$(SOJOURN_MAX_BATCH)"]
            env: [{name: SOJOURN_MAX_BATCH, value: "64"}, {name: HF_HOME, value: /models}]
            resources: {limits: {nvidia.com/gpu: "8"}}
    workerTemplate:
      spec:
        containers:
          - name: vllm
            image: vllm/vllm-openai:v0.11.0
            command: ["ray", "start", "--block"]
            resources: {limits: {nvidia.com/gpu: "8"}}
"""


def run(kubeconfig: Path, work: Callable[[Kube], Awaitable[T]]) -> T:
    async def connected() -> T:
        kube = await Kube.connect(str(kubeconfig))
        try:
            return await work(kube)
        finally:
            await kube.close()

    return asyncio.run(connected())


def service(namespace: str, target: TargetRef = TARGET, gpus: int = 16) -> Declaration:
    return Declaration(
        ref=ObjectRef(namespace, "deep"),
        model=DeclaredModel("meta-llama/Llama-3.1-405B-Instruct"),
        gpu=DeclaredGpu("H100", tensor_parallel=gpus),
        slo=Slo(latency_s=10.0),
        target=target,
    )


def listed(control_plane: ControlPlane) -> ClusterState:
    """What one full list tells."""
    cluster = ClusterState()

    async def once(kube: Kube) -> bool:
        return await sync(kube, Registry(Catalogue()), cluster)

    run(control_plane.kubeconfig, once)
    assert all(cluster.synced(kind) for kind in WATCHED)
    return cluster


@pytest.fixture
def install(control_plane: ControlPlane, namespace: str) -> Iterator[Callable[[], Any]]:
    """Installs the kind and an object of it when called; what it answers reads the object."""

    def installed() -> Callable[[], Any]:
        control_plane.kubectl("apply", "-f", str(CRD), check=True)
        control_plane.kubectl("wait", "--for=condition=Established", "-f", str(CRD), check=True)
        control_plane.kubectl("apply", "-n", namespace, "-f", "-", input=GROUPS, check=True)
        return lambda: control_plane.get("leaderworkersets", "deep", "-n", namespace)

    yield installed
    control_plane.kubectl("delete", "-f", str(CRD), check=True)


def test_an_operator_that_runs_already_scales_groups_under_its_shipped_rights(
    control_plane: ControlPlane, namespace: str, install: Callable[[], Any]
) -> None:
    body = {
        "apiVersion": "serving.sojourn.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "deep"},
        "spec": {
            "model": {"name": "meta-llama/Llama-3.1-70B-Instruct"},
            "gpu": {"type": "H100", "tensorParallel": 8, "pipelineParallel": 2},
            "slo": {"latency": "30s"},
            "scaleTargetRef": {
                "apiVersion": TARGET.api_version,
                "kind": TARGET.kind,
                "name": TARGET.name,
            },
            "scaling": {"minReplicas": 3, "maxReplicas": 4},
        },
    }
    with Operators(control_plane) as operators:
        groups = install()
        answer = operators.create(namespace, body)
        assert answer.returncode == 0, answer.stderr
        # No metric is known, and the floor holds all the same.
        eventually(lambda: groups()["spec"]["replicas"] == 3, 60.0, "the floor is written")


def test_a_leader_worker_set_is_listed_scaled_and_given_a_max_batch(
    control_plane: ControlPlane, namespace: str, install: Callable[[], Any]
) -> None:
    groups = install()
    declared = service(namespace)
    cluster = listed(control_plane)
    state = cluster.target_state(declared)
    assert isinstance(state, TargetState)
    assert (state.spec_replicas, state.max_batch, state.container) == (2, 64, "vllm")
    assert state.batch_templates == ("leaderWorkerTemplate.leaderTemplate",)

    async def write(kube: Kube) -> None:
        reference = MaxBatchRef(container=state.container)
        variable = writers.Variable(TARGET, reference, state.batch_templates)
        await writers.write_scale(kube, namespace, TARGET, 2, 3)
        await writers.write_max_batch(kube, namespace, variable, 32)

    before = groups()["spec"]
    # A value in the author's manifest stays the author's; here it is taken out first.
    authored = GROUPS.replace('{name: SOJOURN_MAX_BATCH, value: "64"}, ', "")
    control_plane.kubectl("apply", "-n", namespace, "-f", "-", input=authored, check=True)
    run(control_plane.kubeconfig, write)
    after = groups()["spec"]
    assert after["replicas"] == 3
    leader, worker = (
        after["leaderWorkerTemplate"][role]["spec"]["containers"]
        for role in ("leaderTemplate", "workerTemplate")
    )
    values = {one["name"]: one["value"] for one in leader[0]["env"]}
    assert values == {"SOJOURN_MAX_BATCH": "32", "HF_HOME": "/models"}
    assert leader[0]["command"] == ["vllm", "serve", "--max-num-seqs=$(SOJOURN_MAX_BATCH)"]
    assert worker == before["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"]


def test_devices_that_a_dra_driver_offers_are_counted(
    control_plane: ControlPlane, namespace: str
) -> None:
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                "type": {"string": "gpu"},
                "productName": {"string": "NVIDIA H100 80GB HBM3"},
            },
            "capacity": {"memory": {"value": "81559Mi"}},
        }
        for number in range(8)
    ]
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{namespace}-slice"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "allNodes": True,
            "pool": {"name": namespace, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }
    declared = service(namespace, TargetRef("absent"), gpus=4)

    def free() -> int:
        cluster = listed(control_plane)
        room = cluster.gpu_room(declared, cluster.pods_of(declared))
        assert room is not None
        return room.free

    before = free()
    control_plane.kubectl("create", "-f", "-", input=json.dumps(body), check=True)
    try:
        assert free() == before + 8
    finally:
        control_plane.kubectl("delete", "resourceslice", f"{namespace}-slice", check=True)
