"""What a pod says about the engine to simulate in it.

Annotations of the pod template, all strings:

    simulate.sojourn.dev/batching         Dynamic or Continuous; a pod without it is left alone
    simulate.sojourn.dev/fixed            T_fixed of a batch, or fixed part of a step: "50ms"
    simulate.sojourn.dev/per-request      t_req, added by each request of the batch or step: "500us"
    simulate.sojourn.dev/per-prompt-token added by each prompt token of a step: "45us"
    simulate.sojourn.dev/max-wait         longest wait for a batch to fill
    simulate.sojourn.dev/compression      engine seconds in a second of the wall, default 1

    sojourn.dev/termination               from a pod's deletion to its end: what is not done is lost

A pod without the last one finishes whatever it has. Until a container's preStop sleep is over it
takes requests that still come.

Max batch is the pod's own, as its engine would read it: the container's SOJOURN_MAX_BATCH, else the
ConfigMap's value that the annotation simulate.sojourn.dev/max-batch repeats.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sojourn.facts.replica import ContinuousReplica, DynamicReplica, Replica
from sojourn.facts.service_time import IterationTime, LinearServiceTime, TokenLengths
from sojourn.simulate.engine import EngineParameters
from sojourn.units import parse_duration_s
from tests.controlplane import nodes

PREFIX = "simulate.sojourn.dev/"
MAX_BATCH = "SOJOURN_MAX_BATCH"
DEFAULT_MAX_BATCH = 256


@dataclass(frozen=True)
class PodRef:
    """A simulated pod: where it is, and the service (label ``app``) it serves."""

    namespace: str
    name: str
    app: str
    container: str

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def service(self) -> tuple[str, str]:
        return self.namespace, self.app


def ref_of(body: Mapping[str, Any]) -> PodRef | None:
    """The pod, if an engine is to be simulated in it."""
    metadata = body["metadata"]
    if f"{PREFIX}batching" not in (metadata.get("annotations") or {}):
        return None
    app = (metadata.get("labels") or {}).get("app", metadata["name"])
    return PodRef(
        metadata["namespace"], metadata["name"], app, body["spec"]["containers"][0]["name"]
    )


def serves(body: Mapping[str, Any]) -> bool:
    """Ready and not asked to go."""
    return "deletionTimestamp" not in body["metadata"] and nodes.is_ready(dict(body))


def prestop_s(body: Mapping[str, Any]) -> float:
    """How long its engine goes on as before once the pod was deleted."""
    sleep = (body["spec"]["containers"][0].get("lifecycle") or {}).get("preStop", {}).get("sleep")
    return float((sleep or {}).get("seconds", 0))


def is_cut_off(body: Mapping[str, Any]) -> bool:
    """Whether its time to finish is limited."""
    return nodes.TERMINATION_ANNOTATION in (body["metadata"].get("annotations") or {})


def parameters_of(body: Mapping[str, Any]) -> EngineParameters:
    """The engine its annotations and environment describe.

    Raises:
        KeyError, ValueError: an annotation is missing or cannot be read.
    """
    annotations = body["metadata"]["annotations"]
    own = {k.removeprefix(PREFIX): v for k, v in annotations.items() if k.startswith(PREFIX)}
    batch = _max_batch(body, own)
    return EngineParameters(
        replica=_replica(own, batch),
        model_name=body["metadata"].get("labels", {}).get("app", "simulated"),
        compression=float(own.get("compression", "1")),
    )


def _replica(own: Mapping[str, str], batch: int) -> Replica:
    fixed_s, per_request_s = parse_duration_s(own["fixed"]), parse_duration_s(own["per-request"])
    if own["batching"] == "Dynamic":
        law = LinearServiceTime(fixed_s, per_request_s)
        return DynamicReplica(law, batch, parse_duration_s(own.get("max-wait", "0s")))
    if own["batching"] != "Continuous":
        raise ValueError(f"batching is {own['batching']!r}: Dynamic or Continuous")
    step = IterationTime(fixed_s, per_request_s, parse_duration_s(own["per-prompt-token"]))
    # Requests bring their own lengths; the replica's law is not read by the simulator.
    return ContinuousReplica(step, TokenLengths(1.0), 0.0, batch, max_batched_tokens=8192)


def _max_batch(body: Mapping[str, Any], own: Mapping[str, str]) -> int:
    for variable in body["spec"]["containers"][0].get("env") or ():
        if variable["name"] == MAX_BATCH:
            return int(variable["value"])
    return int(own.get("max-batch", DEFAULT_MAX_BATCH))
