"""Our behaviour rules against the real HPA controller: the same needs, the same replicas.

The HPA reads an External metric (AverageValue 1, so a value of 7 asks for 7 replicas) from a
metrics server of ours, which notes at each question when it came and how many replicas there were.
From that history ``decide.behaviour`` must give what the HPA wrote before its next question.

Where the two differ, and why:

- tolerance: the HPA compares the unrounded need with the replicas, ours the rounded one, so ours
  holds a change of exactly the tolerance that the HPA may make; the default upwards is 0, not 10 %;
- after a restart both count the current replicas as a recommendation: the HPA once, with the time
  of its start, ours at every tick until a whole window was seen;
- the HPA does nothing at 0 replicas; ours wakes a service whose gateway counts a request.
"""

from __future__ import annotations

import json
import ssl
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from sojourn import api
from sojourn.decide import behaviour
from sojourn.facts.declaration import Behaviour
from sojourn.facts.situation import Past, Recommendation, ScaleEvent
from tests.controlplane.components import Component
from tests.controlplane.plane import ControlPlane
from tests.integration import external_metrics
from tests.waiting import eventually

pytestmark = pytest.mark.slow

SYNC_S = 0.4
"""No multiple of it is a whole second, the grain of windows and periods."""

BLUR_S = 0.15
"""What lies between the HPA's clock readings of one round and the time of its question."""

MAX_REPLICAS = 20
DONE_S = 120.0

QUICK = {"type": "Percent", "value": 100, "periodSeconds": 1}


def steps(*runs: tuple[int, int]) -> tuple[int, ...]:
    """Needs by round: ``(need, rounds)``."""
    return tuple(need for need, rounds in runs for _ in range(rounds))


@dataclass(frozen=True)
class Scenario:
    """Declared rules and the needs that are asked, one a round."""

    name: str
    up: dict[str, Any]
    down: dict[str, Any]
    needs: tuple[int, ...]

    @property
    def declared(self) -> dict[str, Any]:
        exact = {"tolerance": "0"}  # the arithmetic is compared, not two ways of rounding
        return {"scaleUp": self.up | exact, "scaleDown": self.down | exact}


SCENARIOS = (
    Scenario(
        "pods-a-period",
        {"stabilizationWindowSeconds": 0,
         "policies": [{"type": "Pods", "value": 2, "periodSeconds": 3}]},
        {"stabilizationWindowSeconds": 3, "policies": [QUICK]},
        steps((2, 4), (9, 26), (3, 12), (1, 10)),
    ),
    Scenario(
        "widest-policy-wins",
        {"stabilizationWindowSeconds": 0,
         "policies": [{"type": "Percent", "value": 50, "periodSeconds": 2},
                      {"type": "Pods", "value": 1, "periodSeconds": 1}]},
        {"stabilizationWindowSeconds": 0,
         "policies": [{"type": "Percent", "value": 20, "periodSeconds": 2},
                      {"type": "Pods", "value": 1, "periodSeconds": 3}]},
        steps((3, 4), (15, 20), (2, 28)),
    ),
    Scenario(
        "narrowest-policy-wins",
        {"stabilizationWindowSeconds": 0, "selectPolicy": "Min",
         "policies": [{"type": "Percent", "value": 100, "periodSeconds": 2},
                      {"type": "Pods", "value": 3, "periodSeconds": 2}]},
        {"stabilizationWindowSeconds": 0, "selectPolicy": "Min",
         "policies": [{"type": "Percent", "value": 50, "periodSeconds": 2},
                      {"type": "Pods", "value": 4, "periodSeconds": 1}]},
        steps((2, 4), (18, 26), (1, 22)),
    ),
    Scenario(
        "least-need-on-the-way-up",
        {"stabilizationWindowSeconds": 3, "policies": [QUICK]},
        {"stabilizationWindowSeconds": 0, "policies": [QUICK]},
        steps((2, 4), (8, 4), (5, 3), (8, 14), (3, 6), (6, 2), (3, 6), (12, 13)),
    ),
    Scenario(
        "never-down",
        {"stabilizationWindowSeconds": 0, "policies": [QUICK]},
        {"selectPolicy": "Disabled"},
        steps((2, 4), (6, 8), (1, 10), (30, 12), (4, 8)),
    ),
    Scenario(
        "noise",
        {"stabilizationWindowSeconds": 0, "policies": [QUICK]},
        {"stabilizationWindowSeconds": 2,
         "policies": [{"type": "Pods", "value": 1, "periodSeconds": 1}]},
        (7, 5, 8, 6, 9, 5, 4, 7, 3, 2, 6, 5, 8, 2, 2, 3, 9, 1, 1, 2, 1, 1, 7, 1) * 2,
    ),
)  # fmt: skip


@dataclass
class Round:
    """One question of the HPA: when, the replicas it found, and the need it was told."""

    at_s: float
    replicas: int
    need: int


@dataclass
class Recorder:
    """Answers each scenario's needs in turn and notes what the HPA did with them."""

    plane: ControlPlane
    namespace: str
    rounds: dict[str, list[Round]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        pair = self.plane.authority.client("onlooker", ("system:masters",))
        self._tls = ssl.create_default_context(cafile=str(self.plane.ca_file))
        self._tls.load_cert_chain(pair.certificate, pair.key)
        self._needs = {scenario.name: scenario.needs for scenario in SCENARIOS}

    def answer(self, namespace: str, metric: str, selector: str) -> float | None:
        del selector
        seen = self.rounds.setdefault(metric, [])
        needs = self._needs[metric]
        need = needs[min(len(seen), len(needs) - 1)]
        seen.append(Round(time.time(), self._replicas(namespace, metric), need))
        return float(need)

    def finished(self) -> bool:
        return all(len(self.rounds.get(s.name, ())) > len(s.needs) for s in SCENARIOS)

    def _replicas(self, namespace: str, name: str) -> int:
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"
        with urllib.request.urlopen(self.plane.api_url + path, context=self._tls) as answer:
            return int(json.load(answer)["spec"].get("replicas", 0))


@pytest.fixture(scope="module")
def recorded() -> Iterator[dict[str, list[Round]]]:
    """Every scenario's rounds, all run side by side by one HPA controller."""
    plane = ControlPlane(
        components=(Component.ETCD, Component.APISERVER, Component.CONTROLLER_MANAGER)
    ).with_controller_manager_flags(
        f"--horizontal-pod-autoscaler-sync-period={round(SYNC_S * 1000)}ms",
        f"--concurrent-horizontal-pod-autoscaler-syncs={len(SCENARIOS)}",
    )
    with plane:
        namespace = plane.create_namespace("parity")
        recorder = Recorder(plane, namespace)
        with external_metrics.serving(plane, recorder.answer):
            objects = [body for s in SCENARIOS for body in (_deployment(s), _hpa(s))]
            document = {"apiVersion": "v1", "kind": "List", "items": objects}
            plane.kubectl(
                "create", "-n", namespace, "-f", "-", input=json.dumps(document), check=True
            )
            eventually(recorder.finished, DONE_S, "every need was asked for")
        yield recorder.rounds


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_the_hpa_and_our_rules_give_the_same_replicas_round_by_round(
    scenario: Scenario, recorded: dict[str, list[Round]]
) -> None:
    rules = api.read(_service(scenario.declared)).scaling.behaviour
    rounds = recorded[scenario.name]
    moved = {one.replicas for one in rounds}
    assert len(moved) > 2, "the scenario moves replicas at all"
    for number in range(1, len(rounds) - 1):
        wrote = rounds[number + 1].replicas
        ours = {_ours(rounds[: number + 1], rules, blur) for blur in (-BLUR_S, 0.0, BLUR_S)}
        assert wrote in ours, _told(scenario, rounds, number, ours)


def _ours(rounds: list[Round], rules: Behaviour, blur_s: float) -> int:
    """What our rules write in the last of these rounds, after the same history."""
    now, earlier = rounds[-1], rounds[:-1]
    past = Past(
        since_s=rounds[0].at_s,
        recommendations=tuple(Recommendation(r.at_s, min(r.need, 10**6)) for r in earlier),
        scale_events=tuple(
            ScaleEvent(before.at_s, after.replicas - before.replicas)
            for before, after in pairwise(rounds)
            if after.replicas != before.replicas
        ),
    )
    now_s = now.at_s + blur_s
    wanted, _ = behaviour.tolerated(now.replicas, now.need, rules)
    wanted, _ = behaviour.stabilised(now.replicas, wanted, rules, past, now_s)
    wanted, _ = behaviour.paced(now.replicas, wanted, rules, past, now_s)
    return max(1, min(MAX_REPLICAS, wanted))


def _told(scenario: Scenario, rounds: list[Round], number: int, ours: set[int]) -> str:
    start_s = rounds[0].at_s
    trace = " ".join(f"{r.at_s - start_s:.2f}s:{r.replicas}<{r.need}" for r in rounds[: number + 2])
    return f"{scenario.name}, round {number}: ours {sorted(ours)}, seconds:replicas<need {trace}"


def _service(behaviour: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": "chat", "namespace": "parity", "generation": 1},
        "spec": {
            "model": {"name": "GPT-3"},
            "gpu": {"type": "A100-80GB"},
            "slo": {"latency": "1s"},
            "scaleTargetRef": {"name": "chat"},
            "scaling": {"maxReplicas": MAX_REPLICAS, "behavior": behaviour},
        },
    }


def _deployment(scenario: Scenario) -> dict[str, Any]:
    labels = {"app": scenario.name}
    container = {"name": "engine", "image": "registry.example.com/engine:1"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": scenario.name},
        "spec": {
            "replicas": scenario.needs[0],
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def _hpa(scenario: Scenario) -> dict[str, Any]:
    metric = {"metric": {"name": scenario.name}, "target": {"type": "AverageValue",
                                                            "averageValue": "1"}}  # fmt: skip
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": scenario.name},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "apps/v1", "kind": "Deployment", "name": scenario.name,
            },
            "minReplicas": 1,
            "maxReplicas": MAX_REPLICAS,
            "metrics": [{"type": "External", "external": metric}],
            "behavior": scenario.declared,
        },
    }  # fmt: skip
