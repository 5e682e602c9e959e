"""Simulated machines and their pods: node manifests and kwok's stages."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

STAGES = Path(__file__).with_name("stages.yaml")
COLD_START_ANNOTATION = "sojourn.dev/cold-start"  # on a pod: a Go duration such as "45s"
TERMINATION_ANNOTATION = "sojourn.dev/termination"


@dataclass(frozen=True)
class NodeShape:
    """What a simulated machine offers and how NVIDIA's feature discovery would label it.

    Attributes:
        gpu_product: label nvidia.com/gpu.product; empty for a machine without GPUs.
        gpus: capacity nvidia.com/gpu.
        gpu_memory_mib: label nvidia.com/gpu.memory, MiB of one GPU.
        cpu, memory: Kubernetes quantities.
        pods: most pods at once.
    """

    gpu_product: str = "NVIDIA-A100-SXM4-80GB"
    gpus: int = 8
    gpu_memory_mib: int = 81920
    cpu: str = "96"
    memory: str = "1Ti"
    pods: int = 250


CPU_ONLY = NodeShape(gpu_product="", gpus=0, gpu_memory_mib=0)


def render_stages(cold_start_s: float) -> str:
    """kwok's configuration: pods are Ready ``cold_start_s`` seconds after their container starts.

    Raises:
        ValueError: a negative time.
    """
    if cold_start_s < 0:
        raise ValueError(f"cold_start_s is {cold_start_s}, it must not be negative")
    return STAGES.read_text().replace("@COLD_START_MS@", str(round(cold_start_s * 1000)))


def manifest(name: str, shape: NodeShape) -> dict[str, Any]:
    """A Node as its kubelet and feature discovery would register it."""
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "type": "kwok",
    }
    resources = {"cpu": shape.cpu, "memory": shape.memory, "pods": str(shape.pods)}
    if shape.gpus:
        labels["nvidia.com/gpu.product"] = shape.gpu_product
        labels["nvidia.com/gpu.count"] = str(shape.gpus)
        labels["nvidia.com/gpu.memory"] = str(shape.gpu_memory_mib)
        resources["nvidia.com/gpu"] = str(shape.gpus)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "status": {"capacity": resources, "allocatable": resources},
    }


def is_ready(item: dict[str, Any]) -> bool:
    """Whether a Node or Pod has the condition Ready with status True."""
    conditions = item.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
