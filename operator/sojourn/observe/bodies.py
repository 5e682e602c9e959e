"""Bodies of Kubernetes objects: who one is, and the small forms its fields come in."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sojourn.errors import UnitError
from sojourn.units import parse_quantity

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Identity:
    """Who an object is and who controls it; ``owner_uid`` is empty without a controller."""

    kind: str
    namespace: str
    name: str
    uid: str
    owner_uid: str = ""
    owner_kind: str = ""
    owner_name: str = ""


def identity_of(kind: str, body: Body) -> Identity:
    """Who an object is."""
    metadata = body.get("metadata") or {}
    owners = metadata.get("ownerReferences") or ()
    owner: Body = next((o for o in owners if o.get("controller")), {})
    return Identity(
        kind=kind,
        # Interned: thousands of pods share their namespace and owners.
        namespace=sys.intern(str(metadata.get("namespace") or "")),
        name=str(metadata.get("name") or ""),
        uid=str(metadata.get("uid") or ""),
        owner_uid=sys.intern(str(owner.get("uid") or "")),
        owner_kind=sys.intern(str(owner.get("kind") or "")),
        owner_name=sys.intern(str(owner.get("name") or "")),
    )


def condition(status: Body, kind: str) -> Body:
    """The condition of that type; empty without one."""
    found: Body = next((c for c in status.get("conditions") or () if c.get("type") == kind), {})
    return found


def quantities(amounts: Body) -> Iterator[tuple[str, float]]:
    """Names and amounts; what cannot be read is left out."""
    for name, text in amounts.items():
        try:
            yield str(name), parse_quantity(text)
        except UnitError:
            continue


def devices_of(containers: Iterable[Any]) -> dict[str, float]:
    """Extended resources of a pod: GPUs, MIG slices and their like carry a domain."""
    total: dict[str, float] = {}
    for container in containers:
        resources = container.get("resources") or {}
        asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        for name, amount in quantities(asked):
            if "/" in name:
                total[name] = total.get(name, 0.0) + amount
    return total


def unix_s(text: object) -> float | None:
    """Unix seconds of a time as Kubernetes writes it; None for anything else."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None
