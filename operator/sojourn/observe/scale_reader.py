"""Targets of kinds that are not watched, read through their scale subresource.

The one reader of ``observe`` that calls the Kubernetes API. It asks at most once a target and
``interval_s``, in a thread, with a time limit.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from kubernetes import client
from urllib3.exceptions import HTTPError

from sojourn.facts.declaration import Declaration
from sojourn.facts.reading import Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import TargetState
from sojourn.observe.cluster import WATCHED
from sojourn.observe.pods import Pods


@dataclass(frozen=True)
class Scale:
    """A scale subresource: replicas asked for, and the labels of its pods (``key=value``)."""

    replicas: int
    labels: tuple[str, ...]

    def state(self, pods: Pods, sharing: tuple[str, ...]) -> TargetState:
        """What a target is known to be without its template: its max batch stays unknown."""
        ready_at_s = [pod.ready_at_s for pod in pods.serving if pod.ready_at_s is not None]
        return TargetState(
            spec_replicas=self.replicas,
            ready_replicas=len(pods.serving),
            pods_pending=max(self.replicas - len(pods.serving), 0),
            other_owners=sharing,
            youngest_ready_at_s=max(ready_at_s, default=None),
            pods_terminating=sum(pod.terminating for pod in pods.live),
            blocked=next((pod.blocked for pod in pods.live if pod.blocked), ""),
        )


class ScaleReader:
    """Reads scales through an API client; ``plural_of`` maps a kind to its resource name."""

    def __init__(
        self,
        api: client.ApiClient,
        plurals: dict[str, str] | None = None,
        interval_s: float = 10.0,
        timeout_s: float = 5.0,
    ) -> None:
        self._custom = client.CustomObjectsApi(api)
        self._plurals = plurals or {}
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="scale")
        self._known: dict[tuple[str, str, str], tuple[float, Scale | Unknown]] = {}

    def reads(self, kind: str) -> bool:
        """True for kinds that no watch tells about."""
        return kind not in WATCHED

    async def read(self, declaration: Declaration) -> Scale | Unknown:
        """The target's scale, or why it is not known."""
        target = declaration.target
        key = (target.kind, declaration.ref.namespace, target.name)
        at_s, known = self._known.get(key, (float("-inf"), None))
        if known is not None and time.monotonic() - at_s < self._interval_s:
            return known
        loop = asyncio.get_running_loop()
        try:
            found = await asyncio.wait_for(
                loop.run_in_executor(self._pool, self._ask, declaration), 2 * self._timeout_s
            )
        except TimeoutError:
            found = Unknown(
                Reason.NOT_OBSERVED, f"reading the scale of {target.name} took too long"
            )
        self._known[key] = (time.monotonic(), found)
        return found

    def close(self) -> None:
        """Let the threads go."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, declaration: Declaration) -> Scale | Unknown:
        target, namespace = declaration.target, declaration.ref.namespace
        group, _, version = target.api_version.rpartition("/")
        plural = self._plurals.get(target.kind, f"{target.kind.lower()}s")
        what = f"{target.kind} {namespace}/{target.name}"
        try:
            body: Any = self._custom.get_namespaced_custom_object_scale(
                group, version, namespace, plural, target.name, _request_timeout=self._timeout_s
            )
        except client.ApiException as error:
            return _unknown(what, error.status)
        except (HTTPError, OSError) as error:
            return Unknown(Reason.NOT_OBSERVED, f"{what}: {type(error).__name__}")
        selector = str((body.get("status") or {}).get("selector") or "")
        labels = tuple(part for part in selector.split(",") if "=" in part and "!" not in part)
        if not labels:
            return Unknown(Reason.NOT_OBSERVED, f"the scale of {what} names no pods")
        return Scale(int((body.get("spec") or {}).get("replicas") or 0), labels)


def _unknown(what: str, status: int | None) -> Unknown:
    if status == 404:
        return Unknown(Reason.TARGET_MISSING, f"{what} does not exist or has no scale")
    if status in (401, 403):
        return Unknown(Reason.TARGET_FORBIDDEN, f"reading the scale of {what} is forbidden")
    return Unknown(Reason.NOT_OBSERVED, f"reading the scale of {what} failed with {status}")
