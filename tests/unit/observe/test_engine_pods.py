"""The pods whose engines may be spoken to: addresses of the cluster, incarnations that change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sojourn.facts.declaration import BatchPolicy, Declaration, Scaling
from sojourn.facts.situation import EnginePod, TargetState
from tests.unit.observe.builders import cluster_of, declaration, pod, pod_names

LIVE = replace(declaration(), scaling=Scaling(max_replicas=4, batch_policy=BatchPolicy.LIVE))


def serving(restarts: int) -> Any:
    (name,) = pod_names(1)
    body = pod(name)
    body["status"] |= {"podIP": "10.4.0.7", "containerStatuses": [{"restartCount": restarts}]}
    return body


def engine_pods(of: Declaration, restarts: int = 0) -> tuple[EnginePod, ...]:
    cluster = cluster_of(pods=1)
    cluster.apply("Pod", "MODIFIED", serving(restarts))
    state = cluster.target_state(of)
    assert isinstance(state, TargetState)
    return state.engine_pods


def test_a_live_service_has_its_serving_pods_with_their_addresses() -> None:
    (one,) = engine_pods(LIVE)
    assert one.address == "10.4.0.7"


def test_a_restarted_container_is_another_incarnation() -> None:
    assert engine_pods(LIVE, 0)[0].incarnation != engine_pods(LIVE, 1)[0].incarnation


def test_a_service_whose_batch_is_rolled_out_has_none() -> None:
    assert engine_pods(declaration()) == ()
