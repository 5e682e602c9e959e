"""Flags as fields of an InferenceService."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from sojourn.cli.exits import UsageError
from sojourn.errors import InvalidObject

if TYPE_CHECKING:
    from sojourn.cli.given import Given

T = TypeVar("T")

_UNBOUNDED = 100_000
"""Stands for a maximum nobody declared: the schema wants one."""

_FIELDS = {
    "model": ("spec.model.name", "--model"),
    "precision": ("spec.model.precision", "--precision"),
    "max_length": ("spec.model.maxLength", "--max-length"),
    "gpu": ("spec.gpu.type", "--gpu"),
    "tensor_parallel": ("spec.gpu.tensorParallel", "--tp"),
    "engine": ("spec.engine.name", "--engine"),
    "engine_version": ("spec.engine.version", "--engine-version"),
    "batching": ("spec.engine.batching", "--batching"),
    "max_wait": ("spec.engine.maxBatchWait", "--max-wait"),
    "queue_capacity": ("spec.engine.queueCapacity", "--queue"),
    "fixed": ("spec.serviceTime.fixed", "--fixed"),
    "per_request": ("spec.serviceTime.perRequest", "--per-request"),
    "first_token": ("spec.slo.timeToFirstToken", "--ttft"),
    "output_token": ("spec.slo.interTokenLatency", "--itl"),
    "target": ("spec.scaling.targetUtilizationPercent", "--target-utilization"),
    "objective": ("spec.scaling.objective", "--objective"),
    "max_replicas": ("spec.scaling.maxReplicas", "--max-replicas"),
}
_SPLIT = {
    "spec.engine.maxBatchSize": "--max-batch",
    "spec.slo.latency": "--slo",
    "spec.slo.percentile": "--slo",
    "spec.traffic.promptTokens": "--prompt-tokens",
    "spec.traffic.outputTokens": "--output-tokens",
}


def blank(given: Given) -> dict[str, Any]:
    """The object flags alone are written into.

    Raises:
        UsageError: without model, GPU and an SLO there is nothing to plan.
    """
    slo = given.slo or given.first_token or given.output_token
    wanted = {"--model": given.model or given.config, "--gpu": given.gpu, "--slo": slo}
    missing = [flag for flag, value in wanted.items() if not value]
    if missing:
        raise UsageError(
            f"{' and '.join(missing)} missing: give a manifest with -f FILE, or --model, --gpu "
            "and --slo"
        )
    return {
        "apiVersion": "serving.sojourn.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "plan"},
        "spec": {
            "model": {"name": given.config.parent.name if given.config else ""},
            "gpu": {},
            "slo": {},
            "scaleTargetRef": {"name": "plan"},
            "scaling": {"maxReplicas": _UNBOUNDED},
        },
    }


def write_into(body: dict[str, Any], given: Given) -> None:
    """Write each flag that was given into its field, over what the manifest says."""
    for attribute, (path, _) in _FIELDS.items():
        value = getattr(given, attribute)
        if value is not None:
            _put(body, path, value)
    if given.max_wait is not None and given.batching is None and given.file is None:
        _put(body, "spec.engine.batching", "Dynamic")
    if given.fixed is not None or given.per_request is not None:
        body["spec"].pop("profileRef", None)
    _write_composed(body, given)


def _write_composed(body: dict[str, Any], given: Given) -> None:
    """Write the flags whose text stands for several fields, or for a mapping."""
    if given.max_batch is not None:
        _put(body, "spec.engine.maxBatchSize", _interval(given.max_batch))
    if given.slo is not None:
        latency, _, percentile = given.slo.partition("@")
        _put(body, "spec.slo.latency", latency)
        if percentile:
            _put(body, "spec.slo.percentile", percentile)
    if given.prompt_tokens is not None:
        _put(body, "spec.traffic.promptTokens", _tokens(given.prompt_tokens, "--prompt-tokens"))
    if given.output_tokens is not None:
        _put(body, "spec.traffic.outputTokens", _tokens(given.output_tokens, "--output-tokens"))


def named(read: Callable[[], T], *, from_flags: bool) -> T:
    """What ``read`` returns; where flags alone were given, problems name the flag.

    Raises:
        InvalidObject: with every problem found.
    """
    try:
        return read()
    except InvalidObject as exc:
        if not from_flags:
            raise
        raise InvalidObject([(_flag_of(path), text) for path, text in exc.problems]) from exc


def _flag_of(path: str) -> str:
    for field, flag in (*_FIELDS.values(), *_SPLIT.items()):
        if path == field or path.startswith((f"{field}.", f"{field}[")):
            return flag
    return path


def _put(body: dict[str, Any], path: str, value: object) -> None:
    """Set a field by its path; every object on the way is copied, so the source stays whole."""
    *parents, last = path.split(".")
    here = body
    for name in parents:
        held = here.get(name)
        here[name] = dict(held) if isinstance(held, dict) else {}
        here = here[name]
    here[last] = value


def _interval(text: str) -> dict[str, int]:
    low, dots, high = text.partition("..")
    try:
        return {"min": int(low), "max": int(high)} if dots else {"max": int(low)}
    except ValueError:
        raise UsageError(
            f"--max-batch {text} cannot be read: expected a number or two, 64 or 8..64"
        ) from None


def _tokens(text: str, flag: str) -> dict[str, int]:
    mean, slash, p99 = text.partition("/")
    try:
        return {"mean": int(mean), "p99": int(p99)} if slash else {"mean": int(mean)}
    except ValueError:
        raise UsageError(
            f"{flag} {text} cannot be read: expected the mean, 512, or mean and P99, 512/2048"
        ) from None
