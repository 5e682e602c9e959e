"""The first lists: what an older or a stricter cluster does not serve does not stop them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sojourn.act.kube import Kube
from sojourn.catalogue import Catalogue
from sojourn.controller.handlers import WATCHED
from sojourn.controller.registry import Registry
from sojourn.controller.sync import sync, sync_unwatched
from sojourn.facts.declaration import ObjectRef, TargetRef
from sojourn.facts.reading import Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import TargetState
from sojourn.observe.cluster import ClusterState
from tests.unit.api.objects import smallest
from tests.unit.cli.fake_api import FakeApi, serving
from tests.unit.observe.builders import declaration, deployment

OWN = "/apis/serving.sojourn.dev/v1alpha1"


def every_list() -> dict[str, dict[str, Any]]:
    """An empty list of each kind, in the version that is asked for first."""
    paths = [f"{OWN}/servingprofiles", f"{OWN}/inferenceservices"]
    for group, version, plural, _ in WATCHED:
        paths.append(f"/apis/{group}/{version}/{plural}" if group else f"/api/{version}/{plural}")
    return {path: {"items": []} for path in paths}


def synced(
    api: FakeApi, folder: Path, *namespaces: str, registry: Registry | None = None
) -> tuple[bool, ClusterState]:
    cluster = ClusterState()
    known = registry or Registry(Catalogue())

    async def once(kubeconfig: Path) -> bool:
        kube = await Kube.connect(str(kubeconfig))
        try:
            return await sync(kube, known, cluster, namespaces)
        finally:
            await kube.close()

    with serving(api, folder) as kubeconfig:
        return asyncio.run(once(kubeconfig)), cluster


def test_a_kind_that_no_watch_has_brought_is_listed_again_and_no_other(tmp_path: Path) -> None:
    """Installed beside a running operator, and served only after Kopf had looked for it."""
    body = deployment("late")
    path = "/apis/apps/v1/deployments"
    api = FakeApi({**every_list(), path: {"items": [body]}})
    for brought in (False, True):
        cluster = ClusterState()
        if brought:
            cluster.apply("Deployment", None, deployment("seen"))

        async def once(kubeconfig: Path, known: ClusterState = cluster) -> None:
            kube = await Kube.connect(str(kubeconfig))
            try:
                await sync_unwatched(kube, known)
            finally:
                await kube.close()

        with serving(api, tmp_path) as kubeconfig:
            asyncio.run(once(kubeconfig))
        listed = cluster.target_state(declaration(target=TargetRef("late")))
        assert isinstance(listed, Unknown) is brought
        assert cluster.synced("LeaderWorkerSet")


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


def in_namespaces(*namespaces: str) -> dict[str, dict[str, Any]]:
    """The same lists, of each namespace where the kind has one."""
    lists = every_list()
    for path, body in every_list().items():
        root, _, plural = path.rpartition("/")
        for namespace in namespaces:
            lists[f"{root}/namespaces/{namespace}/{plural}"] = body
    return lists


def test_a_right_that_is_missing_in_one_namespace_is_missing_there_only(tmp_path: Path) -> None:
    """FC-138, for lists: team-b's binding is gone, team-a goes on."""
    forbidden = {
        path for path in in_namespaces("team-b") if "/namespaces/team-b/" in path
    }  # fmt: skip
    lists = in_namespaces("team-a", "team-b")
    lists["/apis/apps/v1/namespaces/team-a/deployments"] = {"items": [deployment()]}
    complete, cluster = synced(FakeApi(lists, forbidden=forbidden), tmp_path, "team-a", "team-b")
    assert complete
    assert isinstance(cluster.target_state(declaration()), TargetState)
    other = replace(declaration(), ref=ObjectRef("team-b", "chat", "u", 1))
    found = cluster.target_state(other)
    assert isinstance(found, Unknown)
    assert found.reason is Reason.TARGET_FORBIDDEN
    assert "may not list" in found.why


def test_our_own_kinds_forbidden_everywhere_or_not_served_are_nothing_to_begin_with(
    tmp_path: Path,
) -> None:
    services = f"{OWN}/inferenceservices"
    assert not synced(FakeApi(every_list(), forbidden={services}), tmp_path)[0]
    gone = {path: body for path, body in every_list().items() if path != services}
    registry = Registry(Catalogue())
    registry.put(smallest_service(), 0.0)
    assert not synced(FakeApi(gone), tmp_path, registry=registry)[0]
    assert len(registry) == 1, "what was known is kept until the kind is there again"


def smallest_service() -> dict[str, Any]:
    return {**smallest(), "metadata": {"namespace": "prod", "name": "chat", "uid": "u"}}
