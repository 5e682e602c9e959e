"""Metric actuation with the shipped manifests: our gauge, a real Prometheus, a real HPA controller.

The operator's decision and gauge are real; the cluster's scale is what it observes. KEDA does not
run here: the HPA that it derives from the shipped ScaledObject stands in for it.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from sojourn.act.execute import Applied
from sojourn.catalogue import Catalogue
from sojourn.controller import past as past_of
from sojourn.controller import probes
from sojourn.controller.own_metrics import OwnMetrics
from sojourn.controller.registry import Entry, Registry
from sojourn.decide import planning
from sojourn.facts.policy import Policy
from sojourn.facts.reading import Known, Reading, Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import Signals, Situation, TargetState
from tests.controlplane.components import LOOPBACK, Component, free_ports
from tests.controlplane.plane import ControlPlane
from tests.controlplane.prometheus import PrometheusSettings
from tests.integration import external_metrics
from tests.waiting import eventually

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"
TICK_S = 0.3
SYNC_S = 0.5
WINDOW_S = 8.0
"""Stabilisation of the InferenceService; two in a row would be 16 s."""

SOON_S = 30.0
BLIND = Unknown(Reason.PROMETHEUS_UNAVAILABLE, "connection refused")

pytestmark = pytest.mark.slow


@dataclass
class Decider:
    """One service's ticks on a real scale: what the operator does, apart from Kopf and Prometheus.

    ``rate`` is what it is told to observe; ``seen`` is every (seconds, replicas) it observed.
    """

    plane: ControlPlane
    namespace: str
    metrics: OwnMetrics
    rate: Reading = BLIND
    seen: list[tuple[float, int]] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._registry = Registry(Catalogue())
        self._registry.put_profile(_documents("profile.yaml", self.namespace)[0])
        self.body = _documents("metric-hpa.yaml", self.namespace)[0]
        self.body["metadata"]["generation"] = 0
        self.allow(8, WINDOW_S)

    def allow(self, most: int, window_s: float) -> None:
        """Change ``maxReplicas`` and the scale-down window of the service."""
        self.body["metadata"]["generation"] += 1
        down = {"stabilizationWindowSeconds": int(window_s)}
        # In one step: half-way there the load may be within the table's thresholds.
        up = {"policies": [{"type": "Percent", "value": 1000, "periodSeconds": 1}]}
        behaviour = {"scaleDown": down, "scaleUp": up}
        self.body["spec"]["scaling"] |= {"maxReplicas": most, "behavior": behaviour}
        self._registry.put(self.body, time.time())

    def need(self, replicas: int) -> None:
        """Observe a rate that needs so many replicas."""
        entry = self._entry
        assert entry.serving is not None
        each = entry.serving.within_goal(16).rate_per_s
        self.rate = Known((replicas - 0.5) * each, time.time())

    @property
    def replicas(self) -> int:
        """What the scale asks for now."""
        scale = self.plane.get("deployment", "chat", "-n", self.namespace)
        return int(scale["spec"]["replicas"])

    def run(self) -> None:
        """Tick until stopped."""
        while not self.stopped.wait(TICK_S):
            self._tick(time.time())

    def _tick(self, now_s: float) -> None:
        entry, replicas = self._entry, self.replicas
        if not self.seen or self.seen[-1][1] != replicas:
            self.seen.append((now_s, replicas))
        assert entry.serving is not None
        target = TargetState(
            spec_replicas=replicas,
            ready_replicas=replicas,
            max_batch=16,
            batch_referenced=True,
            container="engine",
        )
        situation = Situation(
            entry.serving.service, now_s, Signals(rate_per_s=self.rate), target, entry.past
        )
        done = Applied(planning.plan(situation, entry.serving, Policy(tick_s=TICK_S)))
        entry.past = past_of.after(entry.past, done, now_s)
        self.metrics.ticked([done])

    @property
    def _entry(self) -> Entry:
        entry = self._registry.get((self.namespace, "chat"))
        assert entry is not None
        return entry


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """HPA controller and Prometheus, both quick."""
    made = ControlPlane(
        components=(
            Component.ETCD, Component.APISERVER, Component.CONTROLLER_MANAGER, Component.PROMETHEUS,
        ),
        prometheus=PrometheusSettings(scrape_interval_s=0.5),
    ).with_controller_manager_flags(
        f"--horizontal-pod-autoscaler-sync-period={round(SYNC_S * 1000)}ms"
    )  # fmt: skip
    with made:
        yield made


@pytest.fixture(scope="module")
def gauge(plane: ControlPlane) -> Iterator[OwnMetrics]:
    """The operator's metrics, served and scraped."""
    metrics = OwnMetrics()
    health, port = free_ports(2)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    serve = probes.serve(health, port, lambda: None, metrics)
    runners = asyncio.run_coroutine_threadsafe(serve, loop).result(10)
    group = {"targets": [f"{LOOPBACK}:{port}"], "labels": {"job": "sojourn"}}
    plane.prometheus_targets([group])  # type: ignore[list-item]
    yield metrics
    for runner in runners:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(scope="module")
def adapter(plane: ControlPlane) -> Iterator[dict[str, str]]:
    """What prometheus-adapter or KEDA would ask Prometheus: expression by namespace/metric."""
    asked: dict[str, str] = {}

    def answer(namespace: str, metric: str, selector: str) -> float | None:
        expression = asked[f"{namespace}/{metric}"]
        matchers = ",".join(f'{k}="{v}"' for k, v in (p.split("=") for p in selector.split(",")))
        found = plane.prometheus_query(expression.replace("<<.LabelMatchers>>", matchers))
        return float(found[0]["value"][1]) if found else None

    with external_metrics.serving(plane, answer):
        yield asked


@pytest.fixture(params=["hpa", "keda"])
def decider(
    request: pytest.FixtureRequest, plane: ControlPlane, gauge: OwnMetrics, adapter: dict[str, str]
) -> Iterator[Decider]:
    """A target at 1 replica under the HPA of the manifest, and the operator deciding on it."""
    namespace = plane.create_namespace(request.param)
    if request.param == "hpa":
        hpa = _documents("metric-hpa.yaml", namespace)[1]
        metric = hpa["spec"]["metrics"][0]["external"]["metric"]["name"]
        matchers = f'namespace="{namespace}",<<.LabelMatchers>>'
        adapter[f"{namespace}/{metric}"] = f"max by (name) ({metric}{{{matchers}}})"
    else:
        hpa, expression = _keda_hpa(_documents("metric-keda.yaml", namespace)[0])
        adapter[f"{namespace}/s0-prometheus"] = expression
    hpa["spec"]["maxReplicas"] = 20
    target = [b for b in _documents("chat-deployment.yaml", namespace) if b["kind"] != "Service"]
    document = {"apiVersion": "v1", "kind": "List", "items": [*target, hpa]}
    plane.kubectl("apply", "-n", namespace, "-f", "-", input=json.dumps(document), check=True)
    one = Decider(plane, namespace, gauge)
    thread = threading.Thread(target=one.run, daemon=True)
    thread.start()
    yield one
    one.stopped.set()
    thread.join()
    plane.kubectl("delete", "hpa", "--all", "-n", namespace, check=True)


def test_an_hpa_follows_the_published_replicas_and_nothing_else(decider: Decider) -> None:
    decider.need(6)
    eventually(lambda: decider.replicas == 6, SOON_S, "the HPA wrote what was published")
    # Not multiplied by pods: it never asked for more than the value.
    assert max(replicas for _, replicas in decider.seen) <= 6

    decider.rate = BLIND
    eventually(lambda: _scaling_active(decider) == "False", SOON_S, "the HPA has no value")
    assert decider.replicas == 6

    decider.need(6)
    eventually(lambda: _scaling_active(decider) == "True", SOON_S, "the HPA has a value again")
    decider.need(2)
    asked_s = time.time()
    eventually(lambda: decider.seen[-1][1] == 2, SOON_S, "fewer replicas")
    # FC-147: one stabilisation window in all, not one on each side.
    assert WINDOW_S - 1 <= decider.seen[-1][0] - asked_s < 2 * WINDOW_S - 1


def test_one_replica_more_than_ten_is_followed_where_the_tolerance_is_nought(
    decider: Decider,
) -> None:
    exact = "tolerance" in _hpa(decider)["spec"]["behavior"]["scaleUp"]
    decider.allow(10, WINDOW_S)
    decider.need(15)
    eventually(lambda: decider.replicas == 10, SOON_S, "ten replicas")
    decider.allow(11 if exact else 12, WINDOW_S)
    wanted = 11 if exact else 12
    eventually(lambda: decider.replicas == wanted, SOON_S, f"{wanted} replicas")


def _hpa(decider: Decider) -> Any:
    return decider.plane.get("hpa", "-n", decider.namespace)["items"][0]


def _scaling_active(decider: Decider) -> str | None:
    conditions = _hpa(decider)["status"].get("conditions", [])
    return next((str(c["status"]) for c in conditions if c["type"] == "ScalingActive"), None)


def _documents(name: str, namespace: str) -> list[Any]:
    """An example's objects in a namespace of the test."""
    text = (EXAMPLES / name).read_text().replace('namespace="default"', f'namespace="{namespace}"')
    bodies = [body for body in yaml.safe_load_all(text) if body]
    for body in bodies:
        body["metadata"]["namespace"] = namespace
    return bodies


def _keda_hpa(scaled: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The HPA that KEDA derives from a ScaledObject, and the query it answers it with."""
    spec, name = scaled["spec"], scaled["metadata"]["name"]
    (trigger,) = spec["triggers"]
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    selector = {"matchLabels": {"scaledobject.keda.sh/name": name}}
    target = {"type": trigger["metricType"], "averageValue": trigger["metadata"]["threshold"]}
    external = {"metric": {"name": "s0-prometheus", "selector": selector}, "target": target}
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": f"keda-hpa-{name}"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment"}
            | spec["scaleTargetRef"],
            "minReplicas": spec["minReplicaCount"],
            "maxReplicas": spec["maxReplicaCount"],
            "metrics": [{"type": "External", "external": external}],
            "behavior": spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"],
        },
    }
    return hpa, str(trigger["metadata"]["query"])
