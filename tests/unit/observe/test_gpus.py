"""GPUs of the cluster: nodes, slices, shared cards and DRA devices in, room for replicas out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sojourn.facts.declaration import DeclaredGpu
from sojourn.facts.gpu import GpuRoom
from sojourn.observe.cluster import ClusterState
from tests.unit.observe.builders import cluster_of, declaration, pod, synced_cluster

H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
READY = [{"type": "Ready", "status": "True"}]


def node(name: str, labels: dict[str, str], offers: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"node/{name}", "labels": labels},
        "spec": spec,
        "status": {"allocatable": {"cpu": "96", **offers}, "conditions": READY},
    }


def holder(name: str, on: str, gpus: int, resource: str = "nvidia.com/gpu") -> dict[str, Any]:
    """A pod of somebody else that holds GPUs of a node, or waits for some (no node)."""
    container = {"name": "c", "resources": {"limits": {resource: str(gpus)}}}
    spec = {"nodeName": on, "containers": [container]} if on else {"containers": [container]}
    return pod(name, "other", owner=("StatefulSet", "batch"), spec=spec)


def with_nodes(*nodes: dict[str, Any]) -> ClusterState:
    cluster = synced_cluster()
    for body in nodes:
        cluster.apply("Node", None, body)
    return cluster


def room(cluster: ClusterState, gpu: str = "H100", per_replica: int = 1) -> GpuRoom:
    service = replace(declaration(), gpu=DeclaredGpu(gpu, tensor_parallel=per_replica))
    found = cluster.gpu_room(service, cluster.pods_of(service))
    assert found is not None
    return found


def test_free_gpus_are_those_no_placed_pod_asks_for() -> None:
    eight = {"nvidia.com/gpu": "8"}
    cluster = with_nodes(node("a", H100, eight), node("b", H100, eight), node("c", A100, eight))
    cluster.apply("Pod", None, holder("batch-0", "a", 3))
    cluster.apply("Pod", None, holder("batch-1", "", 8))
    found = room(cluster)
    assert (found.total, found.free, found.fits) == (16, 13, 13)
    assert found.type == "H100"


def test_a_pod_that_went_or_ended_gives_its_gpus_back() -> None:
    cluster = with_nodes(node("a", H100, {"nvidia.com/gpu": "8"}))
    first, second = holder("batch-0", "a", 3), holder("batch-1", "a", 2)
    for body in (first, second):
        cluster.apply("Pod", "ADDED", body)
    assert room(cluster).free == 3
    cluster.apply("Pod", "DELETED", first)
    second["status"]["phase"] = "Succeeded"
    cluster.apply("Pod", "MODIFIED", second)
    assert room(cluster).free == 8


def test_the_gpus_of_one_pod_are_on_one_node() -> None:
    cluster = with_nodes(*(node(name, H100, {"nvidia.com/gpu": "8"}) for name in "abc"))
    for on in "abc":
        cluster.apply("Pod", None, holder(f"batch-{on}", on, 5))
    found = room(cluster, per_replica=4)
    assert (found.free, found.fits) == (9, 0)


@pytest.mark.parametrize("unusable", ["cordoned", "not ready", "gone"])
def test_a_node_that_takes_no_pods_offers_nothing(unusable: str) -> None:
    cluster = with_nodes(node("a", H100, {"nvidia.com/gpu": "8"}))
    body = node("b", H100, {"nvidia.com/gpu": "8"})
    cluster.apply("Node", "ADDED", body)
    assert room(cluster).total == 16
    if unusable == "cordoned":
        body["spec"]["unschedulable"] = True
    elif unusable == "not ready":
        body["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    cluster.apply("Node", "DELETED" if unusable == "gone" else "MODIFIED", body)
    assert room(cluster).total == 8


@pytest.mark.parametrize(
    ("labels", "gpu"),
    [
        ({"nvidia.com/gpu.product": "A100-SXM4-80GB"}, "A100-80GB"),
        ({"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, "H100"),
        ({"karpenter.k8s.aws/instance-gpu-name": "l40s"}, "L40S"),
        ({"eks.amazonaws.com/instance-gpu-name": "t4"}, "T4"),
        ({"nvidia.com/gpu.product": "NVIDIA-B999"}, "nvidia-b999"),
    ],
)
def test_a_type_is_known_by_every_label_that_tells_it(labels: dict[str, str], gpu: str) -> None:
    assert room(with_nodes(node("a", labels, {"nvidia.com/gpu": "8"})), gpu).total == 8


def test_an_amd_card_is_known_by_the_label_of_its_module() -> None:
    labels = {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}
    assert room(with_nodes(node("a", labels, {"amd.com/gpu": "8"})), "MI300X").total == 8


def test_where_a_node_does_not_tell_its_gpu_nothing_is_claimed() -> None:
    cluster = with_nodes(node("a", H100, {"nvidia.com/gpu": "8"}))
    service = declaration()
    assert cluster.gpu_room(service, cluster.pods_of(service)) is not None
    cluster.apply("Node", None, node("b", {}, {"nvidia.com/gpu": "8"}))
    assert cluster.gpu_room(service, cluster.pods_of(service)) is None


def test_nothing_is_claimed_before_the_nodes_are_listed_or_where_some_pods_are_not_seen() -> None:
    service = declaration()
    body = node("a", H100, {"nvidia.com/gpu": "8"})
    seen, partly = ClusterState(), ClusterState(every_namespace=False)
    for cluster in (seen, partly):
        cluster.apply("Node", None, body)
        assert cluster.gpu_room(service, cluster.pods_of(service)) is None
        cluster.mark_synced("Node")
    assert seen.gpu_room(service, seen.pods_of(service)) is not None
    assert partly.gpu_room(service, partly.pods_of(service)) is None


def test_mixed_slices_are_counted_by_profile_and_whole_cards_beside_them_are_not() -> None:
    """FC-071."""
    offers = {"nvidia.com/gpu": "2", "nvidia.com/mig-1g.10gb": "6", "nvidia.com/mig-2g.20gb": "4"}
    cluster = with_nodes(node("a", {**A100, "nvidia.com/mig.strategy": "mixed"}, offers))
    assert room(cluster, "A100-80GB-MIG-2g.20gb").fits == 4
    assert room(cluster, "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb").fits == 6
    assert room(cluster, "A100-80GB").total == 0
    cluster.apply("Pod", None, holder("batch-0", "a", 1, "nvidia.com/mig-2g.20gb"))
    assert room(cluster, "A100-80GB-MIG-2g.20gb").free == 3


def test_a_node_of_the_mixed_strategy_without_slices_offers_its_whole_cards() -> None:
    labels = {**A100, "nvidia.com/mig.strategy": "mixed"}
    offers = {"nvidia.com/gpu": "8", "nvidia.com/mig-1g.10gb": "0"}
    assert room(with_nodes(node("a", labels, offers)), "A100-80GB").total == 8


def test_slices_of_the_single_strategy_are_no_whole_cards() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"}
    cluster = with_nodes(node("a", labels, {"nvidia.com/gpu": "56"}))
    assert room(cluster, "A100-80GB-MIG-1g.10gb").total == 56
    assert room(cluster, "A100-80GB").total == 0


def test_slices_of_a_gke_node_are_told_by_its_partition_size() -> None:
    labels = {
        "cloud.google.com/gke-accelerator": "nvidia-a100-80gb",
        "cloud.google.com/gke-gpu-partition-size": "1g.10gb",
    }
    cluster = with_nodes(node("a", labels, {"nvidia.com/gpu": "7"}))
    assert room(cluster, "A100-80GB-MIG-1g.10gb").total == 7


SLICED = {"nvidia.com/gpu.replicas": "12", "nvidia.com/gpu.sharing-strategy": "time-slicing"}


@pytest.mark.parametrize(
    ("labels", "offers"),
    [
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-SHARED", **SLICED}, "nvidia.com/gpu"),
        ({**A100, **SLICED}, "nvidia.com/gpu.shared"),
        (
            {
                "cloud.google.com/gke-accelerator": "nvidia-a100-80gb",
                "cloud.google.com/gke-max-shared-clients-per-gpu": "12",
            },
            "nvidia.com/gpu",
        ),
    ],
    ids=["time-slicing", "renamed", "gke"],
)
def test_a_shared_card_is_one_card(labels: dict[str, str], offers: str) -> None:
    """FC-070."""
    cluster = with_nodes(node("a", labels, {offers: "12"}))
    found = room(cluster, "A100-80GB")
    assert (found.total, found.fits, found.shared) == (1, 1, True)
    cluster.apply("Pod", None, holder("batch-0", "a", 1, offers))
    assert room(cluster, "A100-80GB").free == 0


def test_a_service_is_on_a_shared_card_only_where_its_pods_are() -> None:
    shared = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED", **SLICED}
    for on, expected in (("whole", False), ("shared", True)):
        cluster = cluster_of(pods=1)
        cluster.apply("Node", None, node("whole", H100, {"nvidia.com/gpu": "8"}))
        cluster.apply("Node", None, node("shared", shared, {"nvidia.com/gpu": "12"}))
        assert room(cluster).shared is False
        for record in cluster.pods_of(declaration()).live:
            container = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
            spec = {"nodeName": on, "containers": [container]}
            cluster.apply("Pod", "MODIFIED", pod(record.name, spec=spec))
        assert (room(cluster).placed, room(cluster).shared) == (1, expected)


def test_replicas_that_have_their_gpus_fit_beside_the_free_ones() -> None:
    two = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    cluster = cluster_of(pods=3, container=two)
    cluster.apply("Node", None, node("a", H100, {"nvidia.com/gpu": "8"}))
    names = [record.name for record in cluster.pods_of(declaration()).live]
    for name in names[:2]:
        spec = {"nodeName": "a", "containers": [two]}
        cluster.apply("Pod", "MODIFIED", pod(name, spec=spec))
    found = room(cluster)
    assert (found.per_replica, found.placed, found.free, found.fits) == (2, 2, 4, 4)
    assert found.shortage(6) == "6 replicas need 8 GPUs more, 4 free of 8 H100"


def device(name: str, kind: str = "gpu", profile: str = "", **more: Any) -> dict[str, Any]:
    attributes = {
        "type": {"string": kind},
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        **({"profile": {"string": profile}} if profile else {}),
    }
    return {
        "name": name,
        "attributes": attributes,
        "capacity": {"memory": {"value": "81559Mi"}},
        **more,
    }


def resource_slice(
    name: str, devices: list[dict[str, Any]], on: str = "a", generation: int = 1
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"slice/{name}"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": on,
            "pool": {"name": on, "generation": generation, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def claim(*devices: str, pool: str = "a", admin: bool = False) -> dict[str, Any]:
    results = [
        {"driver": "gpu.nvidia.com", "pool": pool, "device": one, "request": "gpu"}
        | ({"adminAccess": True} if admin else {})
        for one in devices
    ]
    return {
        "metadata": {"name": "mine", "namespace": "other", "uid": "claim/mine"},
        "status": {"allocation": {"devices": {"results": results}}},
    }


def beta(device: dict[str, Any]) -> dict[str, Any]:
    """A device as v1beta1 has it, its attributes under the driver's domain."""
    basic = {k: v for k, v in device.items() if k != "name"}
    basic["attributes"] = {f"gpu.nvidia.com/{k}": v for k, v in basic["attributes"].items()}
    return {"name": device["name"], "basic": basic}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_devices_of_dra_are_counted_and_claims_take_them(version: str) -> None:
    devices = [device(f"gpu-{i}") for i in range(4)]
    cluster = with_nodes(node("a", {}, {}))
    shape = beta if version == "v1beta1" else dict
    cluster.apply("ResourceSlice", None, resource_slice("s", [shape(d) for d in devices]))
    assert (room(cluster).total, room(cluster).free) == (4, 4)
    cluster.apply("ResourceClaim", "ADDED", claim("gpu-0", "gpu-3"))
    assert (room(cluster).total, room(cluster).free) == (4, 2)
    cluster.apply("ResourceClaim", "DELETED", claim("gpu-0", "gpu-3"))
    assert room(cluster).free == 4
    cluster.apply("ResourceClaim", "ADDED", claim("gpu-0", admin=True))
    assert room(cluster).free == 4


def test_of_a_dra_pool_only_the_newest_generation_counts() -> None:
    cluster = with_nodes(node("a", {}, {}))
    cluster.apply("ResourceSlice", None, resource_slice("old", [device("gpu-0"), device("gpu-1")]))
    cluster.apply("ResourceSlice", None, resource_slice("new", [device("gpu-0")], generation=2))
    assert room(cluster).total == 1


def test_dra_slices_of_a_card_are_a_type_and_possible_partitions_are_none() -> None:
    devices = [
        device("mig-0", "mig", "1g.10gb"),
        device("mig-1", "mig", "1g.10gb", consumesCounters=[{"counterSet": "gpu-0"}]),
        device("vfio-0", "vfio"),
        device("sick", taints=[{"key": "xid", "effect": "NoExecute"}]),
    ]
    cluster = with_nodes(node("a", {}, {}))
    cluster.apply("ResourceSlice", None, resource_slice("s", devices))
    assert room(cluster, "H100-MIG-1g.10gb").total == 1
    assert room(cluster).total == 0


def test_cards_told_by_device_plugin_and_dra_are_counted_once() -> None:
    cluster = with_nodes(node("a", H100, {"nvidia.com/gpu": "4"}))
    devices = [device(f"gpu-{i}") for i in range(4)]
    cluster.apply("ResourceSlice", None, resource_slice("s", devices))
    assert room(cluster).total == 4
