"""GPUs of the cluster by type: what nodes and DRA drivers offer, what pods hold, what is free.

Nodes tell their card in labels (NVIDIA's and AMD's feature discovery, clouds) and how many in
allocatable resources; DRA drivers tell each device. A card shared by time-slicing or MPS counts
once, however many pods it takes; a MIG slice is a device of its own type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sojourn.observe.bodies import Body, Identity, identity_of, quantities

_PRODUCT_LABELS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "eks.amazonaws.com/instance-gpu-name",
)
_GKE_SLICE = "cloud.google.com/gke-gpu-partition-size"
_GKE_CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"
# What the labels add to the name of a card: that it is shared, and the form it is built in.
_SUFFIX = re.compile(r"(-SHARED|_OAM)$", re.IGNORECASE)
_WHOLE = ("gpu", "gpu.shared", "gaudi")
_REPELS = ("NoSchedule", "NoExecute")

DeviceKey = tuple[str, str, str]
"""DRA driver, pool and name of a device."""


@dataclass(frozen=True)
class Offer:
    """Units of one extended resource that a node offers.

    Attributes:
        product: type of GPU as labelled, ``-MIG-<profile>`` behind it for a slice; empty when no
            label tells.
        units: what pods may ask for in sum.
        share: units one card is divided into; 1 when it is not shared.
    """

    resource: str
    product: str
    units: float
    share: int


@dataclass(frozen=True)
class Node:
    """A node's GPUs; ``usable`` when new pods may come to it."""

    identity: Identity
    offers: tuple[Offer, ...]
    usable: bool


@dataclass(frozen=True)
class Slice:
    """What a DRA driver offers in one part of a pool.

    Attributes:
        place: the node the devices are on; the pool where they are on none.
        pool: driver and name of the pool.
        generation: parts of an older generation no longer count.
        devices: name and product of each device.
    """

    identity: Identity
    place: str
    pool: tuple[str, str]
    generation: int
    devices: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Claim:
    """Devices that a ResourceClaim was given."""

    identity: Identity
    devices: frozenset[DeviceKey]


def node(body: Body) -> Node:
    """What is kept of a Node."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    ready = [c.get("status") for c in status.get("conditions") or () if c.get("type") == "Ready"]
    return Node(
        identity=identity_of("Node", body),
        offers=tuple(_offers((body.get("metadata") or {}).get("labels") or {}, status)),
        usable=not spec.get("unschedulable") and ready in ([], ["True"]),
    )


def _offers(labels: Mapping[str, str], status: Body) -> Iterator[Offer]:
    allocatable = {n: a for n, a in quantities(status.get("allocatable") or {}) if a > 0}
    product = _product(labels)
    sliced = any("/mig-" in resource for resource in allocatable)
    for resource, units in allocatable.items():
        device = resource.partition("/")[2]
        named = product
        if device.startswith("mig-"):
            # The strategy "mixed": each profile is a resource of its own.
            profile = device.removeprefix("mig-").removesuffix(".shared")
            named = product and f"{product}-MIG-{profile}"
        elif device not in _WHOLE or sliced:
            # Beside slices the whole cards of a node cannot be relied on.
            continue
        yield Offer(resource, named, units, _share(labels, resource))


def _product(labels: Mapping[str, str]) -> str:
    """The card or slice that a node's labels name; empty when none does."""
    label = next((str(labels[key]) for key in _PRODUCT_LABELS if labels.get(key)), "")
    product = _SUFFIX.sub("", label)
    partition = labels.get(_GKE_SLICE)
    return f"{product}-MIG-{partition}" if product and partition else product


def _share(labels: Mapping[str, str], resource: str) -> int:
    label = f"{resource.removesuffix('.shared')}.replicas"
    text = str(labels.get(label) or labels.get(_GKE_CLIENTS) or "1")
    return max(1, int(text)) if text.isdecimal() else 1


def resource_slice(body: Body) -> Slice:
    """What is kept of a ResourceSlice, of ``resource.k8s.io`` v1 or v1beta1."""
    spec = body.get("spec") or {}
    driver, pool = str(spec.get("driver") or ""), spec.get("pool") or {}
    name = str(pool.get("name") or "")
    return Slice(
        identity=identity_of("ResourceSlice", body),
        place=str(spec.get("nodeName") or f"{driver}/{name}"),
        pool=(driver, name),
        generation=int(pool.get("generation") or 0),
        devices=tuple(_devices(spec.get("devices") or ())),
    )


def _devices(devices: Any) -> Iterator[tuple[str, str]]:
    for device in devices:
        said = device.get("basic") or device  # v1beta1 has one level more
        product = _device_product(said)
        if product and not _repels(said):
            yield str(device.get("name") or ""), product


def _device_product(said: Body) -> str:
    """What a device is as a product; empty for what is no GPU or cannot be counted."""
    attributes = {_bare(k): v.get("string") for k, v in (said.get("attributes") or {}).items()}
    product, kind = attributes.get("productName"), attributes.get("type") or "gpu"
    if not product or kind not in ("gpu", "mig"):
        return ""
    if kind == "gpu":
        return str(product)
    # Partitions that could be cut from one card exclude each other: not counted.
    if said.get("consumesCounters"):
        return ""
    return f"{product}-MIG-{attributes.get('profile') or ''}"


def _repels(said: Body) -> bool:
    return any(taint.get("effect") in _REPELS for taint in said.get("taints") or ())


def _bare(attribute: str) -> str:
    """Without the driver's domain, which the driver's own attributes may carry or not."""
    return attribute.rpartition("/")[2]


def claim(body: Body) -> Claim:
    """What is kept of a ResourceClaim; devices seen for administration are not taken."""
    allocation = (body.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return Claim(
        identity=identity_of("ResourceClaim", body),
        devices=frozenset(
            (str(r.get("driver")), str(r.get("pool")), str(r.get("device")))
            for r in results
            if not r.get("adminAccess")
        ),
    )
