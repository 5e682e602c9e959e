"""Max batch changes on a live service: pods are replaced one by one, and nobody outside notices."""

import time
from concurrent.futures import Future
from datetime import datetime
from typing import Any

import numpy as np
import pytest
import yaml

from sojourn.simulate.engine import Completion, Outcome
from sojourn.simulate.load import RateStep, staircase, traffic
from tests.e2e.demo import theatre
from tests.e2e.demo.installation import Pace
from tests.e2e.demo.scenario import gpt3
from tests.e2e.house import SEED, House
from tests.waiting import eventually

PACE = Pace(batch_patience_s=6.0, batch_interval_s=45.0)
SERVED_S = 60.0
ROLLED_S = 120.0
LOAD_S = 150.0  # longer than all of it takes
SLOWER = 5
"""Engines at a fifth of the book's pace: a busy machine that sends late sends a fifth as many."""

RATE_PER_S = 360.0 / SLOWER
"""A replica carries a target of 111 / 5 a second at max batch 8, 207 / 5 at 16, 364 / 5 at 32."""

SLO_S = 0.5 * SLOWER
PRESTOP_S = 5  # longer than the nodes' proxies need to learn that the pod leaves
GRACE_S = 12


def manifests(house: House) -> str:
    """GPT-3 of the demo on four replicas behind a Service, max batch at most 8 and left to us."""
    documents = list(yaml.safe_load_all(theatre.manifests(house.plane, "gpt3")))
    fixed, per_request = f"{50 * SLOWER}ms", f"{500 * SLOWER}us"
    for one in documents:
        spec = one["spec"]
        if one["kind"] == "Deployment":
            spec["replicas"] = 4
            spec["template"]["metadata"]["annotations"] |= {
                "sojourn.dev/termination": f"{GRACE_S}s",
                "simulate.sojourn.dev/max-batch": "8",
                "simulate.sojourn.dev/fixed": fixed,
                "simulate.sojourn.dev/per-request": per_request,
            }
            (container,) = spec["template"]["spec"]["containers"]
            del container["env"]
            container["lifecycle"] = {"preStop": {"sleep": {"seconds": PRESTOP_S}}}
        else:
            spec["engine"]["maxBatchSize"] = {"min": 4, "max": 8}
            spec["traffic"] = {"rate": RATE_PER_S, "peakRate": RATE_PER_S}
            spec["serviceTime"] = {"fixed": fixed, "perRequest": per_request}
            spec["slo"]["latency"] = f"{SLO_S:g}s"
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "gpt3"},
        "spec": {"selector": {"app": "gpt3"}, "ports": [{"port": 8000}]},
    }
    return yaml.safe_dump_all([*documents, service])


def play(house: House, namespace: str, duration_s: float) -> "Future[list[Completion]]":
    """Load for a while; every request of it ends, one way or another."""
    rng = np.random.default_rng(SEED)
    part = gpt3((RATE_PER_S,), (duration_s,))
    arrivals = staircase((RateStep(duration_s, RATE_PER_S),), rng)
    load = traffic(arrivals, part.output, part.prompt, rng)
    return house.fleet.play((namespace, "gpt3"), load)


def rollouts_s(house: House, namespace: str, since: int) -> list[float]:
    """When the operator wrote a template, in Unix seconds."""
    return [
        datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()
        for event in house.writes(namespace, since)
        if event["objectRef"]["resource"] == "deployments"
        and "subresource" not in event["objectRef"]
    ]


def deployment(house: House, namespace: str) -> dict[str, Any]:
    return house.client.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/gpt3")


def rolled_out(house: House, namespace: str, batch: int) -> bool:
    """Every pod runs with that max batch, and no other pod is left."""
    body = deployment(house, namespace)
    variables = body["spec"]["template"]["spec"]["containers"][0].get("env") or ()
    status, wanted = body["status"], body["spec"]["replicas"]
    front = house.fleet.front((namespace, "gpt3"))
    seen = {
        "variables": [variable["value"] for variable in variables],
        "observed": status.get("observedGeneration"),
        "pods": (
            status.get("replicas"),
            status.get("updatedReplicas"),
            status.get("readyReplicas"),
        ),
        "engines": [engine.parameters.replica.max_batch for engine in front.engines.values()],
    }
    assert seen == {
        "variables": [str(batch)],
        "observed": body["metadata"]["generation"],
        "pods": (wanted,) * 3,
        "engines": [batch] * wanted,
    }
    return True


def allow(house: House, namespace: str, largest: int) -> None:
    """Let max batch be so large from now on."""
    patch = f'{{"spec":{{"engine":{{"maxBatchSize":{{"max":{largest}}}}}}}}}'
    command = ("patch", "inferenceservice", "gpt3", "--type=merge", "-p", patch, "-n", namespace)
    house.plane.kubectl(*command, check=True)


@pytest.mark.slow
def test_max_batch_rolls_out_once_a_window_without_a_lost_or_late_request(
    house: House, namespace: str
) -> None:
    front = house.fleet.front((namespace, "gpt3"))
    since = house.plane.audit_position()
    theatre.apply(house.plane, namespace, manifests(house))
    eventually(lambda: front.ready == 4, SERVED_S, "four replicas serve")
    playing = play(house, namespace, LOAD_S)
    eventually(lambda: rolled_out(house, namespace, 8), ROLLED_S, "max batch 8 is rolled out")
    # More is wanted, then more again; and a new process must not forget what another has written.
    allow(house, namespace, 16)
    house.installation.stop()
    house.installation.start()
    allow(house, namespace, 32)
    eventually(lambda: rolled_out(house, namespace, 32), ROLLED_S, "max batch 32 is rolled out")
    rolled_at_s = time.monotonic()
    assert not playing.done()
    ended = playing.result(timeout=LOAD_S)

    written_s = rollouts_s(house, namespace, since)
    assert len(written_s) == 2
    # The target keeps the time of a write in whole seconds.
    assert written_s[1] - written_s[0] > PACE.batch_interval_s - 1
    outcomes = {outcome: sum(one.outcome is outcome for one in ended) for outcome in Outcome}
    assert outcomes[Outcome.DONE] == len(ended) > 0.9 * LOAD_S * RATE_PER_S, outcomes
    latencies_s = [
        one.finished_at_s - one.arrived_at_s for one in ended if one.arrived_at_s <= rolled_at_s
    ]
    assert np.percentile(latencies_s, 99) <= SLO_S
    assert "stop ended: stopping" in house.installation.log_text()
    assert house.installation.tracebacks() == []
