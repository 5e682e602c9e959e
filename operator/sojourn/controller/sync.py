"""Full lists: the first picture at start, and a fresh one now and then.

Watches bring changes; only a list says what is *not* there. Until every list has arrived nothing
is decided, and what a broken watch lost is found by the next one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from sojourn import api
from sojourn.act.kube import Kube, Request
from sojourn.controller.handlers import EVERYWHERE, OLDER, WATCHED
from sojourn.controller.registry import Registry
from sojourn.errors import ClusterUnavailable
from sojourn.observe.cluster import ClusterState

log = logging.getLogger(__name__)

PAGE = 500


async def sync(
    kube: Kube, registry: Registry, cluster: ClusterState, namespaces: Sequence[str] = ()
) -> bool:
    """List every kind into memory; True when all lists that matter arrived.

    Where no answer comes at all the rest is not asked for: each would wait out its time limit.

    Args:
        namespaces: the ones this release owns; none means all.
    """
    try:
        return await _sync_all(kube, registry, cluster, namespaces)
    except ClusterUnavailable as exc:
        log.warning("lists: %s", exc)
        return False


async def _sync_all(
    kube: Kube, registry: Registry, cluster: ClusterState, namespaces: Sequence[str]
) -> bool:
    complete = await _sync_own(kube, registry, namespaces)
    return await _sync_kinds(kube, cluster, namespaces, WATCHED) and complete


async def sync_unwatched(kube: Kube, cluster: ClusterState, namespaces: Sequence[str] = ()) -> None:
    """List the kinds of which no watch has brought anything yet.

    Kopf looks for a kind when its definition changes. Where the API server serves it only a moment
    later, nobody looks again: what is installed beside a running operator would not be followed.
    """
    kinds = [one for one in WATCHED if not cluster.watched(one[3])]
    try:
        await _sync_kinds(kube, cluster, namespaces, kinds)
    except ClusterUnavailable as exc:
        log.warning("lists: %s", exc)


async def _sync_kinds(
    kube: Kube,
    cluster: ClusterState,
    namespaces: Sequence[str],
    kinds: Iterable[tuple[str, str, str, str]],
) -> bool:
    complete = True
    for group, version, plural, kind in kinds:
        before = cluster.events_seen
        within = () if plural in EVERYWHERE else namespaces
        versions = (version, *OLDER.get(group, ()))
        try:
            ask = partial(_listed, kube, group, versions, plural)
            items, forbidden = await _where_allowed(ask, plural, within)
        except ClusterUnavailable as exc:
            if exc.status is None:
                raise
            log.warning("list of %s: %s", plural, exc.why)
            complete = False
            continue
        if len(forbidden) < len(within or ("",)):
            cluster.replace(kind, items, before)
        for where, why in forbidden.items():
            # Waiting would not bring it: decide without, and say what is missing.
            cluster.mark_forbidden(kind, why, where)
    return complete


Bodies = list[Mapping[str, Any]]


async def _where_allowed(
    ask: Callable[[Sequence[str]], Awaitable[Bodies]], plural: str, namespaces: Sequence[str]
) -> tuple[Bodies, dict[str, str]]:
    """Objects of a kind, and the namespaces that may not be asked, each with what was answered.

    One tenant's missing right is that tenant's; without namespaces it is everybody's, under "".
    """
    items: Bodies = []
    forbidden: dict[str, str] = {}
    for where in namespaces or ("",):
        try:
            items += await ask((where,) if where else ())
        except ClusterUnavailable as exc:
            if exc.status != 403:
                raise
            forbidden[where] = f"the operator may not list {plural} ({exc.why})"
            log.warning("%s", forbidden[where])
    return items, forbidden


async def _listed(
    kube: Kube, group: str, versions: Sequence[str], plural: str, namespaces: Sequence[str]
) -> Bodies:
    """All objects of a kind, in the first version that is served; none where none is."""
    for version in versions:
        paths = _paths(group, version, plural, namespaces)
        try:
            return [item for path in paths async for item in _items(kube, path)]
        except ClusterUnavailable as exc:
            if exc.status != 404:
                raise
    return []


async def _sync_own(kube: Kube, registry: Registry, namespaces: Sequence[str]) -> bool:
    """Our own kinds; False when they are served or may be read nowhere: nothing is to be done."""

    async def listed(plural: str) -> tuple[Bodies, dict[str, str]]:
        async def ask(where: Sequence[str]) -> Bodies:
            paths = _paths(api.GROUP, api.VERSION, plural, where)
            return [item for path in paths async for item in _items(kube, path)]

        return await _where_allowed(ask, plural, namespaces)

    try:
        profiles, _ = await listed(api.SERVING_PROFILE.plural)
        services, forbidden = await listed(api.INFERENCE_SERVICE.plural)
    except ClusterUnavailable as exc:
        if exc.status is None:
            raise
        log.warning("list of our own kinds: %s", exc.why)
        return False
    if len(forbidden) == len(namespaces or ("",)):
        return False
    for body in profiles:
        registry.put_profile(body)
    for body in services:
        registry.put(body, time.time())
    registry.keep_only({(b["metadata"]["namespace"], b["metadata"]["name"]) for b in services})
    return True


def _paths(group: str, version: str, plural: str, namespaces: Sequence[str]) -> list[str]:
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    if not namespaces:
        return [f"{root}/{plural}"]
    return [f"{root}/namespaces/{namespace}/{plural}" for namespace in namespaces]


async def _items(kube: Kube, path: str) -> AsyncIterator[Mapping[str, Any]]:
    token = ""
    while True:
        query = (("limit", str(PAGE)), *((("continue", token),) if token else ()))
        page = await kube.call(Request("GET", path, query=query))
        for item in page.get("items") or []:
            yield item
        token = (page.get("metadata") or {}).get("continue") or ""
        if not token:
            return
