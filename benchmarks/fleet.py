"""A platform's fleet: services of several engines and batchings, their pods and their load.

Objects as the API server holds them and load as engines would count it, for the benchmarks of a
tick. Services of one kind differ only in name.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sojourn.controller.registry import Entry
from sojourn.facts.replica import ContinuousReplica
from sojourn.observe.settings import ScrapeSettings

Key = tuple[str, str]
Event = tuple[str, str | None, dict[str, Any]]

SCRAPE = ScrapeSettings()
BATCH = 32
NOISE = 0.05
"""Largest relative deviation of a rate from its level; each service and tick draws its own."""

MODELS = ("meta-llama/Llama-3.1-8B-Instruct", "mistralai/Mistral-7B-v0.1", "Qwen/Qwen2.5-7B")
GPUS = ("A100-80GB", "H100-80GB")
SAFE = "bcdfghjklmnpqrstvwxz2456789"
HASH = "7d9f8b6c5d"

IMAGES = {
    "vllm": ("vllm/vllm-openai:v0.20.1", "--max-num-seqs"),
    "sglang": ("lmsysorg/sglang:v0.5.2", "--max-running-requests"),
    "tgi": ("ghcr.io/huggingface/text-generation-inference:3.3.4", "--max-batch-size"),
    "trtllm": ("nvcr.io/nvidia/tensorrt-llm/release:1.1.0", "--max-batch-size"),
    "triton": ("nvcr.io/nvidia/tritonserver:25.08-py3", "--max-batch-size"),
}
ENGINES = ("triton", "vllm", "vllm", "sglang", "vllm", "triton", "tgi", "vllm", "trtllm", "vllm")
"""By kind: two of ten collect batches, as classifiers do; the others batch continuously."""


class Load(NamedTuple):
    """What one service's engines count; rates in requests per second, times in seconds."""

    namespace: str
    name: str
    engine: str
    pods: tuple[str, ...]
    rate_per_s: float
    running: float
    p50_s: float
    p99_s: float


def body(number: int, kind: int) -> dict[str, Any]:
    """One InferenceService."""
    chance = random.Random(kind)
    engine = ENGINES[kind % len(ENGINES)]
    spec: dict[str, Any] = {
        "model": {"name": chance.choice(MODELS), "maxLength": 8192},
        "gpu": {"type": chance.choice(GPUS)},
        "slo": {"latency": f"{chance.randint(8, 30)}s"},
        "scaleTargetRef": {"name": f"service-{number}"},
        "traffic": {
            "peakRate": chance.randint(10, 60),
            "promptTokens": {"mean": chance.randint(200, 2000)},
            "outputTokens": {"mean": chance.randint(100, 400)},
        },
        "engine": {"name": engine, "maxBatchSize": {"min": 4, "max": 64}},
        "scaling": {"maxReplicas": 20},
    }
    if engine == "triton":
        spec["engine"] |= {"maxBatchSize": {"min": 1, "max": 32}, "maxBatchWait": "5ms"}
        spec["slo"] = {"latency": f"{chance.randint(300, 2000)}ms"}
        spec["serviceTime"] = {
            "fixed": f"{chance.randint(20, 80)}ms", "perRequest": f"{chance.randint(300, 900)}us",
        }  # fmt: skip
        spec["traffic"] = {"peakRate": chance.randint(500, 2000)}
    namespace, name = f"team-{number // 50}", f"service-{number}"
    metadata = {"namespace": namespace, "name": name, "uid": f"uid-{number}", "generation": 1}
    return {"metadata": metadata, "spec": spec}


def _workload_events(key: Key, engine: str, replicas: int) -> Iterator[Event]:
    """A Deployment, its ReplicaSet and its Ready pods."""
    owner = f"{key[1]}-{HASH}"
    yield "Deployment", None, _deployment(key, engine, replicas)
    metadata = _metadata(key[0], owner, ("Deployment", key[1]))
    yield "ReplicaSet", None, {"metadata": metadata}
    for name in _pod_names(key[1], replicas):
        yield "Pod", None, _pod(key, name)


def _pod_names(service: str, count: int) -> tuple[str, ...]:
    return tuple(f"{service}-{HASH}-{SAFE[i % 27]}{SAFE[i // 27]}k4z" for i in range(count))


def _pod(key: Key, name: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    metadata = _metadata(key[0], name, ("ReplicaSet", f"{key[1]}-{HASH}"))
    metadata["labels"] = {"app": key[1], "pod-template-hash": HASH}
    return {"metadata": metadata, "status": {"phase": "Running", "conditions": [ready]}}


def _deployment(key: Key, engine: str, replicas: int) -> dict[str, Any]:
    image, flag = IMAGES[engine]
    container = {
        "name": "engine",
        "image": image,
        "args": [f"{flag}=$(SOJOURN_MAX_BATCH)"],
        "env": [{"name": "SOJOURN_MAX_BATCH", "value": str(BATCH)}],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    return {
        "metadata": _metadata(*key, None),
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
        "status": {"replicas": replicas, "updatedReplicas": replicas, "observedGeneration": 1},
    }


def _metadata(namespace: str, name: str, owner: tuple[str, str] | None) -> dict[str, Any]:
    found: dict[str, Any] = {"namespace": namespace, "name": name, "generation": 1}
    found["uid"] = f"{namespace}/{name}"
    if owner is not None:
        reference = {"kind": owner[0], "name": owner[1], "uid": f"{namespace}/{owner[1]}"}
        found["ownerReferences"] = [{**reference, "controller": True}]
    return found


@dataclass
class Fleet:
    """Entries with the replicas they run and the load they get.

    Attributes:
        level_per_s: rate of each service without noise.
        noise: largest relative deviation of a tick's rate and latencies from their level.
    """

    entries: list[Entry]
    replicas: int
    noise: float = NOISE
    level_per_s: dict[Key, float] = field(default_factory=dict)
    running: dict[Key, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        chance = random.Random(0)
        for entry in self.entries:
            assert entry.serving is not None, entry.resolved
            each = entry.serving.capacity_per_s(BATCH)
            self.level_per_s[entry.ref.key] = each * chance.uniform(0.3, 5.6)
            self.running[entry.ref.key] = self.replicas
        self._chance = random.Random(1)

    def events(self) -> Iterator[Event]:
        """Watch events of the fleet as it begins."""
        for entry in self.entries:
            yield from _workload_events(entry.ref.key, _engine(entry), self.replicas)

    def scale(self, key: Key, engine: str, after: int) -> Iterator[Event]:
        """Watch events of a scale that was written; new pods have been Ready for long."""
        before, self.running[key] = self.running[key], after
        yield "Deployment", "MODIFIED", _deployment(key, engine, after)
        for name in _pod_names(key[1], after)[before:]:
            yield "Pod", "ADDED", _pod(key, name)
        for name in _pod_names(key[1], before)[after:]:
            yield "Pod", "DELETED", _pod(key, name)

    def loads(self) -> list[Load]:
        """What this tick's window holds."""
        return [self._load(entry) for entry in self.entries]

    def _load(self, entry: Entry) -> Load:
        key = entry.ref.key
        pods = _pod_names(key[1], self.running[key])
        rate = self.level_per_s[key] * self._deviation()
        goal = entry.serving.service.goal if entry.serving else None
        limit_s = goal.latency_s if goal and goal.latency_s else 1.0
        return Load(
            *key,
            _engine(entry),
            pods,
            rate,
            _running(entry, rate / max(1, len(pods))),
            0.4 * limit_s * self._deviation(),
            0.8 * limit_s * self._deviation(),
        )

    def _deviation(self) -> float:
        return 1 + self._chance.uniform(-self.noise, self.noise)


def _engine(entry: Entry) -> str:
    return entry.declaration.engine.name if entry.declaration else ""


def _running(entry: Entry, rate_per_s: float) -> float:
    """Requests in a replica's batch by Little's law and the profile's own line."""
    replica = entry.serving.service.replica if entry.serving else None
    if not isinstance(replica, ContinuousReplica):
        return 0.0
    step, steps = replica.iteration, replica.output.mean
    fixed_s = steps * step.fixed_s + step.per_prompt_token_s * replica.prompt_tokens
    slack = 1 - rate_per_s * steps * step.per_request_s
    return min(replica.max_batch, rate_per_s * fixed_s / slack) if slack > 0 else replica.max_batch
