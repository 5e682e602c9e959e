"""Step time estimated from model and GPU, for services without a profile.

A decode step reads the weights once (of experts, those that some request uses) and the context of
every request, and pays for launching each layer; a prefill is bound by compute. How far this is
from measured profiles is part of the answer (``Estimate.error``).
"""

from __future__ import annotations

from dataclasses import dataclass

from sojourn.errors import ModelDomainError
from sojourn.facts.architecture import Architecture
from sojourn.facts.gpu import Gpu
from sojourn.facts.memory import Footprint
from sojourn.facts.service_time import IterationTime
from sojourn.model import kv, weights

_CONTEXT_TOKENS = 1024.0
_REFERENCE_BATCH = 64
_EIGHT_BITS_OR_LESS = ("fp8", "nvfp4", "mxfp4")


@dataclass(frozen=True)
class _Efficiency:
    """Attained fractions of a card's figures and fixed costs, fitted by class of model.

    Attributes:
        bandwidth: of memory bandwidth, reading weights.
        context_bandwidth: the same, reading the KV cache.
        decode, prefill: of dense FLOP/s.
        layer_s: launching one layer.
        collective_s: added per layer when ranks exchange activations.
        error: 90th percentile of |estimated / measured - 1| over the profiles fitted.
    """

    bandwidth: float
    context_bandwidth: float
    decode: float
    prefill: float
    layer_s: float
    collective_s: float
    error: float


# Least absolute log error over published inter-token latencies: 204 points of dense models (median
# error 6 %) and 331 of mixtures of experts (21 %); `python -m benchmarks.profiles`. Whole batches
# of 2024's engines took a quarter longer than the dense estimate in the median.
_DENSE = _Efficiency(0.88, 0.90, 0.80, 0.62, 2.9e-5, 2.5e-5, error=0.20)
_EXPERTS = _Efficiency(0.90, 0.90, 0.80, 0.10, 4.4e-5, 8.3e-5, error=0.70)


@dataclass(frozen=True)
class Estimate:
    """An estimated step time.

    Attributes:
        iteration: the step's parts; the read of each request's context is in ``per_request_s``.
        error: relative error nine in ten measured inter-token latencies stay within.
        text: what was estimated from what, for people.
    """

    iteration: IterationTime
    error: float
    text: str


def estimate(footprint: Footprint, context_tokens: float = _CONTEXT_TOKENS) -> Estimate:
    """Step time of a footprint from the card's bandwidth and compute.

    With experts the time is concave in the batch; the line returned halves the gap between one
    request and the reference batch (the declared max batch, at most 64).

    Args:
        context_tokens: mean tokens a running request keeps (prompt and half its output).

    Raises:
        ModelDomainError: the GPU's bandwidth or compute is not known, or as ``weights_bytes``.

    Source: docs/explanation/memory.md, "Time without a profile".
    """
    gpu, model = footprint.gpu, footprint.architecture
    if gpu.bandwidth_bytes_per_s is None or gpu.dense_fp16_flop_per_s is None:
        raise ModelDomainError("GPU bandwidth and compute", None, "figures; declare serviceTime")
    attained = _EXPERTS if model.experts else _DENSE
    token_s = 2 * model.active_parameters / footprint.tensor_parallel / _flop_per_s(footprint)
    context_s = _context_bytes(footprint, context_tokens) / gpu.bandwidth_bytes_per_s
    most = min(footprint.max_batch or _REFERENCE_BATCH, _REFERENCE_BATCH)
    fixed_s, slope_s = _read_line(footprint, max(most, 2))
    launch_s = attained.layer_s + (attained.collective_s if footprint.tensor_parallel > 1 else 0.0)
    iteration = IterationTime(
        fixed_s=fixed_s / attained.bandwidth + model.layers * launch_s,
        per_request_s=slope_s / attained.bandwidth
        + context_s / attained.context_bandwidth
        + token_s / attained.decode,
        per_prompt_token_s=token_s / attained.prefill,
    )
    kind = "mixture-of-experts" if model.experts else "dense"
    text = (
        f"estimated from {model.name} on {gpu.name}: nine in ten inter-token latencies "
        f"measured of {kind} models lie within {attained.error:.0%}"
    )
    return Estimate(iteration, attained.error, text)


def read_bytes(footprint: Footprint, batch: float) -> float:
    """Weight bytes a decode step of ``batch`` requests reads on one GPU, all stages together.

    Of E experts with k used per token a step touches 1 - (1 - k/E)^n, requests choosing alike.

    Raises:
        ModelDomainError: as ``weights_bytes`` raises.
    """
    model = footprint.architecture
    everything = weights.weights_bytes(model, footprint.precision, footprint.tensor_parallel)
    if not model.experts:
        return everything
    experts = everything * _expert_share(model, footprint.precision or model.precision)
    untouched = float((1 - model.experts_per_token / model.experts) ** batch)
    return everything - experts * untouched


def _read_line(footprint: Footprint, most: int) -> tuple[float, float]:
    """(fixed, slope) seconds of reading weights at full bandwidth, 1 to ``most`` requests."""
    bandwidth = _bandwidth(footprint.gpu)
    one, middle, last = (
        read_bytes(footprint, batch) / bandwidth for batch in (1, (1 + most) / 2, most)
    )
    slope = (last - one) / (most - 1)
    gap = middle - (one + last) / 2
    return max(0.0, one - slope + gap / 2), slope


def _expert_share(model: Architecture, precision: str) -> float:
    """Share of all weight bytes that lies in routed experts."""
    experts = model.feed_forward_parameters * weights.value_bytes(precision)
    return min(1.0, experts / weights.total_weights_bytes(model, precision))


def _context_bytes(footprint: Footprint, context_tokens: float) -> float:
    precision = footprint.precision or footprint.architecture.precision
    placement = kv.KvPlacement(
        tensor_parallel=footprint.tensor_parallel,
        value_bytes=kv.kv_value_bytes(footprint.kv_precision, precision),
        block_tokens=1,
    )
    return kv.kv_request_bytes(footprint.architecture, context_tokens, placement)


def _flop_per_s(footprint: Footprint) -> float:
    gpu = footprint.gpu
    precision = footprint.precision or footprint.architecture.precision
    half = gpu.dense_fp16_flop_per_s or 0.0
    return (gpu.dense_fp8_flop_per_s or half) if precision in _EIGHT_BITS_OR_LESS else half


def _bandwidth(gpu: Gpu) -> float:
    return gpu.bandwidth_bytes_per_s or 0.0
