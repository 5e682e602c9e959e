"""What an end-to-end test does: apply a service, put load on it, ask how it stands."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.controlplane.plane import ControlPlane
from tests.controlplane.proxy import Proxy
from tests.e2e.demo import theatre
from tests.e2e.demo.client import Client
from tests.e2e.demo.fleet import Fleet
from tests.e2e.demo.installation import ACCOUNT, NAMESPACE, Installation
from tests.e2e.demo.stage import Part, Stage

OPERATOR = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
SEED = 7


@dataclass(frozen=True)
class House:
    """A plane with Sojourn, and engines in its pods.

    Attributes:
        api, prometheus: what the operator reaches the API server and Prometheus through.
    """

    plane: ControlPlane
    client: Client
    fleet: Fleet
    installation: Installation
    api: Proxy
    prometheus: Proxy

    @property
    def tick_s(self) -> float:
        return self.installation.pace.tick_s

    def stage(self, namespace: str, parts: Sequence[Part]) -> Stage:
        """Apply the examples of the parts, wait for their first pods and name the cast."""
        names = {name for part in parts for name in (part.name, *PROFILES.get(part.name, ()))}
        theatre.apply(self.plane, namespace, theatre.manifests(self.plane, *names))
        theatre.await_serving(self.fleet, namespace, *(part.name for part in parts))
        stage = Stage(self.fleet, self.client, namespace, np.random.default_rng(SEED))
        stage.cast(parts)
        return stage

    def status(self, namespace: str, name: str) -> dict[str, Any]:
        """Status of an InferenceService; empty before the first decision."""
        status: dict[str, Any] = self.client.service(namespace, name).get("status") or {}
        return status

    def condition(self, namespace: str, name: str, kind: str) -> Mapping[str, str]:
        """A condition; empty if it is not there."""
        conditions = self.status(namespace, name).get("conditions") or []
        return next((c for c in conditions if c["type"] == kind), {})

    def replicas(self, namespace: str, name: str) -> int:
        """Replicas of a Deployment's spec."""
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        return int(self.client.get(path)["spec"]["replicas"])

    def ticks(self) -> float:
        """Ticks the running operator has made."""
        return self.installation.metric("sojourn_tick_seconds_count")

    def writes(self, namespace: str, since: int) -> list[dict[str, Any]]:
        """The operator's successful writes in a namespace, from the audit log."""
        return [
            event
            for event in self.plane.audit_events(since)
            if event["user"]["username"] == OPERATOR
            and event["verb"] not in ("get", "list", "watch")
            and event.get("objectRef", {}).get("namespace") == namespace
            and event["responseStatus"]["code"] < 300
        ]


PROFILES = {"chat": ("chat-engine", "llama-3.1-8b-a100")}


def throughout(ticks: int, house: House, holds: Callable[[], bool], what: str) -> None:
    """Assert that something stays true while the operator makes so many ticks."""
    until = house.ticks() + ticks
    while house.ticks() < until:
        assert holds(), what
        # A look every tenth of a second; the end is the operator's own count of ticks.
        time.sleep(0.1)
