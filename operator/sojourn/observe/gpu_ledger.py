"""What is free of each type of GPU: offers less what placed pods and claims hold.

An event costs O(1). The tables are made at the first question after a change, in O(nodes), and
answer every service of the tick.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from sojourn.catalogue import Catalogue
from sojourn.errors import GpuUnknown
from sojourn.facts.gpu import GpuRoom
from sojourn.observe.gpus import Claim, DeviceKey, Node, Offer, Slice

_SLACK = 1e-9


@dataclass(frozen=True)
class Ask:
    """GPUs that replicas of one service hold and ask for.

    Attributes:
        product: the type, by any name of it.
        per_pod: GPUs of one pod, all on one node.
        pods: pods of one replica that ask for them.
        nodes: nodes of the replicas that have their pods placed.
    """

    product: str
    per_pod: int
    pods: int
    nodes: tuple[str, ...]


@dataclass
class _Table:
    """One type: whole cards, or slices of them."""

    total: int = 0
    free: int = 0
    # How many nodes have so many free.
    rooms: Counter[int] = field(default_factory=Counter)
    shared_on: set[str] = field(default_factory=set)
    whole: bool = False

    def add(self, place: str, units: tuple[float, float], share: int) -> None:
        total, free = (math.floor(amount / share + _SLACK) for amount in units)
        free = max(free, 0)
        self.total += total
        self.free += free
        self.rooms[free] += 1
        if share > 1:
            self.shared_on.add(place)
        else:
            self.whole = True


class GpuLedger:
    """Keeps nodes, DRA slices and claims, and what pods hold of their node's resources."""

    def __init__(self, names: Catalogue | None = None) -> None:
        self._names = names or Catalogue()
        self._nodes: dict[str, Node] = {}
        self._held: Counter[tuple[str, str]] = Counter()
        self._slices: dict[str, Slice] = {}
        self._claims: dict[tuple[str, str], Claim] = {}
        self._tables: Mapping[str, _Table] | None = None
        self._unnamed: set[str] = set()
        self._key = lru_cache(maxsize=4096)(self._resolved)

    def add(self, record: Node | Slice | Claim) -> None:
        """Take in a node, slice or claim, new or changed."""
        self._tables = None
        if isinstance(record, Node):
            self._nodes[record.identity.name] = record
        elif isinstance(record, Slice):
            self._slices[record.identity.name] = record
        else:
            self._claims[record.identity.namespace, record.identity.name] = record

    def remove(self, record: Node | Slice | Claim) -> None:
        """Forget a node, slice or claim."""
        self._tables = None
        if isinstance(record, Node):
            self._nodes.pop(record.identity.name, None)
        elif isinstance(record, Slice):
            self._slices.pop(record.identity.name, None)
        else:
            self._claims.pop((record.identity.namespace, record.identity.name), None)

    def hold(self, node: str, devices: Iterable[tuple[str, float]], sign: int) -> None:
        """A pod on ``node`` takes devices (``sign`` 1) or gives them back (-1)."""
        for resource, amount in devices:
            self._tables = None
            self._held[node, resource] += sign * amount  # type: ignore[assignment]
            if self._held[node, resource] <= 0:
                del self._held[node, resource]

    def room(self, ask: Ask) -> GpuRoom | None:
        """Room for replicas that ask so; None where a node does not tell what GPU it has."""
        if self._tables is None:
            self._tables = self._made()
        name, resource = self._key(ask.product)
        if resource in self._unnamed:
            return None
        table = self._tables.get(name, _Table())
        pods = sum(nodes * (free // ask.per_pod) for free, nodes in table.rooms.items())
        # A pod tells best; before the first one is placed, a card that no node has whole is shared.
        shared = any(place in table.shared_on for place in ask.nodes)
        if not ask.nodes:
            shared = bool(table.shared_on) and not table.whole
        return GpuRoom(
            type=name,
            total=table.total,
            free=table.free,
            per_replica=ask.per_pod * ask.pods,
            placed=len(ask.nodes),
            fits=len(ask.nodes) + pods // ask.pods,
            shared=shared,
        )

    def _made(self) -> dict[str, _Table]:
        tables: dict[str, _Table] = defaultdict(_Table)
        self._unnamed = set()
        devices = self._devices()
        for place, node in self._nodes.items():
            if node.usable:
                for offer in node.offers:
                    self._count(tables, place, offer, devices)
        for (place, name), (total, free) in devices.items():
            unusable = place in self._nodes and not self._nodes[place].usable
            if not unusable:
                tables[name].add(place, (total, free), 1)
        return tables

    def _count(
        self,
        tables: dict[str, _Table],
        place: str,
        offer: Offer,
        devices: Mapping[tuple[str, str], tuple[int, int]],
    ) -> None:
        name, _ = self._key(offer.product) if offer.product else ("", "")
        if not self._known(offer.product):
            self._unnamed.add(offer.resource)
        # The same cards, told by device plugin and DRA driver: they are counted as devices.
        if name and (place, name) not in devices:
            held = self._held.get((place, offer.resource), 0.0)
            tables[name].add(place, (offer.units, offer.units - held), offer.share)

    def _devices(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Devices of DRA by place and type: all, and those no claim holds."""
        newest: dict[tuple[str, str], int] = {}
        for one in self._slices.values():
            newest[one.pool] = max(newest.get(one.pool, 0), one.generation)
        taken: set[DeviceKey] = set()
        for claim in self._claims.values():
            taken |= claim.devices
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for one in self._slices.values():
            if one.generation < newest[one.pool]:
                continue
            for device, product in one.devices:
                at = (one.place, self._key(product)[0])
                total, free = found.get(at, (0, 0))
                found[at] = (total + 1, free + ((*one.pool, device) not in taken))
        return found

    def _known(self, product: str) -> bool:
        return bool(product) and self._key(product)[1] != ""

    def _resolved(self, product: str) -> tuple[str, str]:
        """Catalogue name and resource of a type; as written, and no resource, if not known."""
        try:
            card = self._names.gpu(product)
        except GpuUnknown:
            return product.strip().lower(), ""
        return card.name, card.resource
