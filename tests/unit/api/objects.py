"""Objects the tests of this room start from."""

import copy
from typing import Any

SMALLEST: dict[str, Any] = {
    "apiVersion": "serving.sojourn.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "chat", "namespace": "prod"},
    "spec": {
        "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"},
        "gpu": {"type": "A100-80GB"},
        "slo": {"latency": "10s"},
        "scaleTargetRef": {"name": "chat"},
    },
}

FULL_SPEC: dict[str, Any] = {
    "model": {
        "name": "meta-llama/Llama-2-70b-hf",
        "architecture": {
            "layers": 80,
            "hiddenSize": 8192,
            "attentionHeads": 64,
            "keyValueHeads": 8,
            "headDim": 128,
            "parameters": "68.98G",
            "vocabulary": 32000,
            "slidingWindow": {"tokens": 4096, "everyNthLayerFull": 6},
            "recurrentLayers": 0,
        },
        "precision": "fp16",
        "kvCachePrecision": "auto",
        "maxLength": 4096,
    },
    "gpu": {
        "type": "A100-80GB",
        "memory": "80Gi",
        "tensorParallel": 4,
        "pipelineParallel": 1,
        "dataParallel": 1,
        "memoryUtilization": 90,
    },
    "engine": {
        "name": "vllm",
        "version": "0.11",
        "batching": "Dynamic",
        "maxBatchSize": {"min": 1, "max": 256},
        "maxBatchWait": "5ms",
        "queueCapacity": 1000,
        "kvLayout": "Paged",
        "maxBatchedTokens": 8192,
        "maxBatchRef": {"mode": "Env", "container": "engine", "env": "SOJOURN_MAX_BATCH"},
    },
    "slo": {
        "latency": "2s",
        "timeToFirstToken": "500ms",
        "interTokenLatency": "50ms",
        "percentile": 99,
    },
    "traffic": {
        "rate": 40,
        "peakRate": "120500m",
        "promptTokens": {"mean": 1200, "p99": 3500},
        "outputTokens": {"mean": 250, "p99": 900},
        "routing": "Random",
    },
    "serviceTime": {"fixed": "50ms", "perRequest": "500us", "scv": "0.1"},
    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
    "scaling": {
        "mode": "Auto",
        "actuation": "Direct",
        "minReplicas": 1,
        "maxReplicas": 8,
        "targetUtilizationPercent": 75,
        "objective": "MaxBatch",
        "tailRule": "Exact",
        "maxBatchPolicy": "Rollout",
        "behavior": {
            "scaleDown": {
                "stabilizationWindowSeconds": 120,
                "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
            },
            "scaleUp": {"tolerance": "0.05"},
        },
        "coldStart": "240s",
    },
    "metrics": {"selector": {"service": "chat"}, "arrivalRateQuery": "sum(rate(x[1m]))"},
}

PROFILE: dict[str, Any] = {
    "apiVersion": "serving.sojourn.dev/v1alpha1",
    "kind": "ServingProfile",
    "metadata": {"name": "llama2-70b-a100x4", "namespace": "prod"},
    "spec": {
        "model": "meta-llama/Llama-2-70b-hf",
        "gpu": {"type": "A100-80GB", "tensorParallel": 4},
        "promptTokens": 512,
        "outputTokens": 128,
        "points": [
            {"batch": 8, "latency": "54ms"},
            {"batch": 1, "latency": "50.5ms"},
            {"batch": 32, "latency": "66ms"},
        ],
        "continuous": {
            "iterationFixed": "12ms",
            "iterationPerRequest": "250us",
            "prefillPerToken": "40us",
        },
    },
}


def smallest(**metadata: Any) -> dict[str, Any]:
    """A private copy of the smallest object, with metadata added."""
    body = copy.deepcopy(SMALLEST)
    body["metadata"].update(metadata)
    return body


def full() -> dict[str, Any]:
    """A private copy of an object with every field."""
    return {**copy.deepcopy(SMALLEST), "spec": copy.deepcopy(FULL_SPEC)}


def with_value(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """``body`` changed in place at a dotted path below spec; "-" as value removes the field."""
    *parents, last = path.split(".")
    place = body["spec"]
    for name in parents:
        place = place.setdefault(name, {})
    if value == "-":
        del place[last]
    else:
        place[last] = value
    return body
