"""Targets of kinds that are not watched, read through their scale subresource.

The one reader of ``observe`` that calls the Kubernetes API: sparingly, in threads, within a budget
of time a tick.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
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

Key = tuple[str, str, str, str]
"""API version, kind, namespace and name of a target."""


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


@dataclass(frozen=True)
class ScaleSettings:
    """How sparingly scales are read. Seconds.

    Attributes:
        plurals: resource names by kind, where it is not the kind in lower case with an s.
        interval_s: time between two readings of one target.
        max_age_s: oldest reading that still counts.
        budget_s: longest a tick waits for readings.
        most: readings of one tick; the oldest first.
        threads: readings under way at once.
    """

    plurals: tuple[tuple[str, str], ...] = ()
    interval_s: float = 10.0
    max_age_s: float = 60.0
    budget_s: float = 5.0
    most: int = 200
    threads: int = 4


class ScaleReader:
    """Reads the scales of targets no watch tells about: ``refresh`` once a tick, then ``scale``."""

    def __init__(self, api: client.ApiClient, settings: ScaleSettings | None = None) -> None:
        self._custom = client.CustomObjectsApi(api)
        self._settings = settings or ScaleSettings()
        self._plurals = dict(self._settings.plurals)
        self._pool = ThreadPoolExecutor(self._settings.threads, thread_name_prefix="scale")
        self._known: dict[Key, tuple[float, Scale | Unknown]] = {}

    @classmethod
    def connect(
        cls,
        server: str,
        ca_file: str | None,
        client_files: tuple[str | None, str | None],
        token: Callable[[], str | None],
    ) -> ScaleReader:
        """A reader of the cluster at ``server``.

        Args:
            client_files: certificate and key of the operator itself, or None twice.
            token: the bearer token now; asked before each request, so that a rotated one is used.
        """
        configuration = client.Configuration(host=server)
        configuration.ssl_ca_cert = ca_file
        configuration.cert_file, configuration.key_file = client_files

        def refresh(held: client.Configuration) -> None:
            value = token()
            if value is not None:
                held.api_key["BearerToken"] = f"Bearer {value}"

        configuration.refresh_api_key_hook = refresh  # type: ignore[assignment]  # declared as None
        refresh(configuration)
        return cls(client.ApiClient(configuration))

    def reads(self, kind: str) -> bool:
        """True for kinds that no watch tells about."""
        return kind not in WATCHED

    async def refresh(self, declarations: Iterable[Declaration]) -> None:
        """Read what is due, within the tick's budget; what is late is tried again next time."""
        wanted = {_key(d): d for d in declarations if self.reads(d.target.kind)}
        self._known = {key: known for key, known in self._known.items() if key in wanted}
        due = self._due(wanted)
        if not due:
            return
        loop = asyncio.get_running_loop()
        reading = {loop.run_in_executor(self._pool, self._ask, wanted[k]): k for k in due}
        done, late = await asyncio.wait(reading, timeout=self._settings.budget_s)
        for future in late:
            future.cancel()
        for future in done:
            self._known[reading[future]] = (time.monotonic(), future.result())

    def scale(self, declaration: Declaration) -> Scale | Unknown:
        """The target's scale as last read, or why it is not known."""
        at_s, known = self._known.get(_key(declaration), (-math.inf, None))
        if known is None or time.monotonic() - at_s > self._settings.max_age_s:
            return Unknown(
                Reason.NOT_OBSERVED, f"the scale of {declaration.target.name} is not read"
            )
        return known

    def close(self) -> None:
        """Let the threads go."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _due(self, keys: Iterable[Key]) -> list[Key]:
        """What was read longest ago, as much as one tick may read."""
        now_s = time.monotonic()
        due = [key for key in keys if now_s - self._read_at_s(key) >= self._settings.interval_s]
        return sorted(due, key=self._read_at_s)[: self._settings.most]

    def _read_at_s(self, key: Key) -> float:
        return self._known.get(key, (-math.inf, None))[0]

    def _ask(self, declaration: Declaration) -> Scale | Unknown:
        target, namespace = declaration.target, declaration.ref.namespace
        group, _, version = target.api_version.rpartition("/")
        plural = self._plurals.get(target.kind, f"{target.kind.lower()}s")
        what = f"{target.kind} {namespace}/{target.name}"
        try:
            body: Any = self._custom.get_namespaced_custom_object_scale(
                group,
                version,
                namespace,
                plural,
                target.name,
                _request_timeout=self._settings.budget_s,
            )
        except client.ApiException as error:
            return _unknown(what, error.status)
        except (HTTPError, OSError) as error:
            return Unknown(Reason.NOT_OBSERVED, f"{what}: {type(error).__name__}")
        return _scale_of(what, body)


def _key(declaration: Declaration) -> Key:
    target = declaration.target
    return target.api_version, target.kind, declaration.ref.namespace, target.name


def _scale_of(what: str, body: Any) -> Scale | Unknown:
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
