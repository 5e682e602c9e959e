"""The first lists: what an older or a stricter cluster does not serve does not stop them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sojourn.act.kube import Kube
from sojourn.catalogue import Catalogue
from sojourn.controller.handlers import WATCHED
from sojourn.controller.registry import Registry
from sojourn.controller.sync import sync
from sojourn.observe.cluster import ClusterState
from tests.unit.cli.fake_api import FakeApi, serving
from tests.unit.observe.builders import declaration

OWN = "/apis/serving.sojourn.dev/v1alpha1"


def every_list() -> dict[str, dict[str, Any]]:
    """An empty list of each kind, in the version that is asked for first."""
    paths = [f"{OWN}/servingprofiles", f"{OWN}/inferenceservices"]
    for group, version, plural, _ in WATCHED:
        paths.append(f"/apis/{group}/{version}/{plural}" if group else f"/api/{version}/{plural}")
    return {path: {"items": []} for path in paths}


def synced(api: FakeApi, folder: Path) -> tuple[bool, ClusterState]:
    cluster = ClusterState()

    async def once(kubeconfig: Path) -> bool:
        kube = await Kube.connect(str(kubeconfig))
        try:
            return await sync(kube, Registry(Catalogue()), cluster)
        finally:
            await kube.close()

    with serving(api, folder) as kubeconfig:
        return asyncio.run(once(kubeconfig)), cluster


def test_a_cluster_before_v1_of_dra_is_asked_for_its_older_version(tmp_path: Path) -> None:
    lists = every_list()
    for plural in ("resourceslices", "resourceclaims"):
        del lists[f"/apis/resource.k8s.io/v1/{plural}"]
    device = {"string": "NVIDIA-H100-80GB-HBM3"}
    spec = {
        "driver": "gpu.nvidia.com",
        "pool": {"name": "a", "generation": 1},
        "nodeName": "a",
        "devices": [{"name": "gpu-0", "basic": {"attributes": {"productName": device}}}],
    }
    slices = {"items": [{"metadata": {"name": "s"}, "spec": spec}]}
    lists["/apis/resource.k8s.io/v1beta1/resourceslices"] = slices
    complete, cluster = synced(FakeApi(lists), tmp_path)
    assert complete
    room = cluster.gpu_room(declaration(), cluster.pods_of(declaration()))
    assert room is not None
    assert room.free == 1


@pytest.mark.parametrize("absent", ["resource.k8s.io", "leaderworkerset.x-k8s.io"])
def test_a_cluster_without_a_group_has_none_of_its_objects(tmp_path: Path, absent: str) -> None:
    lists = {path: body for path, body in every_list().items() if absent not in path}
    complete, cluster = synced(FakeApi(lists), tmp_path)
    assert complete
    assert cluster.synced("ResourceSlice")
    assert cluster.synced("LeaderWorkerSet")


def test_forbidden_nodes_stop_nothing_and_nothing_is_claimed_of_gpus(tmp_path: Path) -> None:
    """FC-063: nodes that may not be listed."""
    api = FakeApi(every_list(), forbidden={"/api/v1/nodes"})
    complete, cluster = synced(api, tmp_path)
    assert complete
    assert not cluster.synced("Node")
    service = declaration()
    assert cluster.gpu_room(service, cluster.pods_of(service)) is None
