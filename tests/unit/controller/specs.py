"""Random InferenceServices: sensible ones, and what hands and templates make of them."""

from __future__ import annotations

import copy
import random
from typing import Any

MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct",
    "meta-llama/Llama-2-70b-hf",
    "GPT-3",
    "openai/gpt-oss-120b",
    "deepseek-ai/DeepSeek-V3",
    "meta-llama/Lama-3.1-8B",
)
GPUS = ("A100-80GB", "H100-80GB", "A10G", "L4", "H100", "T4", "A100-80G")
JUNK: tuple[Any, ...] = (
    None,
    "",
    0,
    -1,
    1,
    2**63,
    10**30,
    0.5,
    True,
    "1",
    "1s",
    "-1s",
    "0s",
    "1e3",
    "10Gi",
    "NaN",
    [],
    {},
    ["x"],
    {"x": 1},
    "x" * 300,
    "ünï",
    "\x00",
)


def sensible(rng: random.Random, name: str = "chat") -> dict[str, Any]:
    """A service that the schema accepts; whether it works is another matter."""
    dynamic = rng.random() < 0.5
    spec: dict[str, Any] = {
        "model": {"name": rng.choice(MODELS)},
        "gpu": {"type": rng.choice(GPUS), "tensorParallel": rng.choice((1, 1, 2, 4, 8, 3))},
        "engine": _engine(rng, dynamic=dynamic),
        "slo": {"latency": rng.choice(("40ms", "120ms", "1s", "10s", "60s"))},
        "scaleTargetRef": {"name": name},
        "scaling": {"minReplicas": rng.choice((0, 1, 1, 1)), "maxReplicas": rng.randint(1, 12)},
        "traffic": _traffic(rng),
    }
    if rng.random() < 0.7:
        spec["model"]["maxLength"] = rng.choice((1024, 4096, 8192, 131072))
    if rng.random() < 0.2:
        spec["model"]["precision"] = rng.choice(("fp16", "fp8", "int4"))
    if rng.random() < 0.2:
        spec["slo"]["timeToFirstToken"] = rng.choice(("1ms", "30ms"))
    if dynamic and rng.random() < 0.8:
        spec["serviceTime"] = {
            "fixed": f"{rng.randint(1, 200)}ms",
            "perRequest": f"{rng.randint(1, 5000)}us",
        }
    return {
        "apiVersion": "serving.sojourn.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def _engine(rng: random.Random, *, dynamic: bool) -> dict[str, Any]:
    engine: dict[str, Any] = {"name": "custom" if dynamic else rng.choice(("vllm", "sglang"))}
    if rng.random() < 0.8:
        low, high = rng.choice((1, 1, 1, 4)), rng.choice((1, 2, 4, 8, 16, 64, 256))
        engine["maxBatchSize"] = {"min": low, "max": max(low, high)}
        if rng.random() < 0.2:
            engine["kvLayout"] = "Contiguous"
    if dynamic:
        engine |= {"batching": "Dynamic", "maxBatchWait": rng.choice(("0s", "5ms", "20ms", "3s"))}
    if rng.random() < 0.2:
        engine["queueCapacity"] = rng.choice((1, 10, 1000))
    return engine


def _traffic(rng: random.Random) -> dict[str, Any]:
    traffic: dict[str, Any] = {}
    if rng.random() < 0.8:
        traffic["peakRate"] = rng.choice((1, 10, 100, "12500m", 3000))
    if rng.random() < 0.5:
        traffic |= {"promptTokens": {"mean": 300}, "outputTokens": {"mean": 80, "p99": 400}}
    return traffic


def mutated(rng: random.Random, name: str = "chat") -> dict[str, Any]:
    """A sensible service with up to three parts replaced, dropped, renamed or added."""
    body = copy.deepcopy(sensible(rng, name))
    for _ in range(rng.randint(1, 3)):
        parts = list(_parts(body["spec"]))
        holder, key = rng.choice(parts) if parts else (body, "spec")
        if key not in holder:
            continue
        match rng.randint(0, 3):
            case 0:
                holder[key] = rng.choice(JUNK)
            case 1:
                del holder[key]
            case 2:
                holder[key.upper()] = holder.pop(key)
            case _:
                holder[f"{key}s"] = rng.choice(JUNK)
        if not isinstance(body["spec"], dict):
            break
    return body


def _parts(node: Any) -> Any:
    if isinstance(node, dict):
        for key, value in node.items():
            yield node, key
            yield from _parts(value)
