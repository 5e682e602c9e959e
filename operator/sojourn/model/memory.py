"""Where a GPU's memory goes, whether the engine starts, and how many requests it holds.

    kv_pool = budget - weights - activation - non_torch - graphs (where the engine counts them)

Source: docs/explanation/memory.md; constants by engine version in ``memory_engines.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sojourn.errors import ModelDomainError
from sojourn.facts.architecture import Architecture, AttentionKind
from sojourn.facts.declaration import KvLayout
from sojourn.facts.memory import Fit, Footprint, MemoryAnswer
from sojourn.model import kv, weights
from sojourn.model import memory_engines as engines
from sojourn.model.memory_engines import EngineMemory, Share
from sojourn.units import GIB

_USUAL_WIDTH = 3.5  # feed-forward width over hidden size where the parameters do not tell

# Captured graphs (logs on A10G with sizes 1 to 1,024 and on H100 with 8 to 80 layers): engines
# capture up to twice the sequences, at most 512. An 8-bit cache takes another attention kernel
# with its own workspace; experts add theirs.
_GRAPHS_BYTES = 0.12 * GIB
_GRAPHS_BYTES_PER_SIZE_AND_LAYER = 3.3e-5 * GIB
_GRAPHS_NARROW_CACHE_BYTES = 0.35 * GIB
_GRAPHS_EXPERTS_BYTES = 0.9 * GIB
_GRAPHS_LARGEST_SIZE = 512

# A prefill step holds the gated feed-forward's input, output and product (6.5 bytes a unit of
# width with the allocator's rounding) and two residuals, for each token, in 16 bits.
_WIDTH_BYTES = 6.5
_HIDDEN_BYTES = 4.0


def answer(footprint: Footprint, row: EngineMemory | None = None) -> MemoryAnswer:
    """Where each GPU's memory goes, and whether the engine starts: fits, does not, too close.

    Args:
        row: the engine's constants; None takes the table's.

    Raises:
        Indivisible: tensor parallelism cannot share out heads or vocabulary.
        ModelDomainError: a precision, length or parallel size that is not possible.

    Source: docs/explanation/memory.md, "The budget".
    """
    setting = _setting(footprint, row)
    costs = _costs(footprint, setting)
    pool = costs.pool_bytes
    placement = _placement(footprint, setting, setting.batched_tokens)
    request = kv.kv_request_bytes(footprint.architecture, setting.max_length, placement)
    margin = pool - request
    peak = _startup_peak_bytes(footprint, setting, costs)
    limit = footprint.gpu.memory_bytes
    band = setting.row.band_bytes
    low = band + _undeclared_bytes(footprint, setting, costs)
    return MemoryAnswer(
        fit=_fit(margin, (low, band), peak > limit),
        budget_bytes=costs.budget_bytes,
        weights_bytes=costs.weights_bytes,
        activation_bytes=costs.activation_bytes,
        non_torch_bytes=costs.non_torch_bytes,
        graphs_bytes=costs.graphs_bytes,
        kv_pool_bytes=pool,
        kv_bytes_per_token=kv.kv_bytes_per_token(
            footprint.architecture,
            footprint.tensor_parallel,
            footprint.pipeline_parallel,
            placement.value_bytes,
        ),
        kv_request_bytes=request,
        kv_tokens=max(0.0, pool) / request * setting.max_length if request else math.inf,
        margin_bytes=margin,
        band_bytes=band,
        max_length_tokens=setting.max_length,
        max_concurrent=_concurrent(footprint, setting, pool, setting.max_length),
        covered=setting.row.covered,
        startup_peak_bytes=peak,
        startup_limit_bytes=limit,
    )


def requests_that_fit(
    footprint: Footprint, mean_tokens: float, pool_bytes: float | None = None
) -> int:
    """Requests one data-parallel rank holds at once, B_KV at the design length.

    Paged: each takes the pages of its own length. Contiguous: each takes maxLength, whatever it
    fills (``kv.contiguous_waste``). Not bounded by max batch.

    Args:
        mean_tokens: prompt and output of the mean request, 1 to maxLength.
        pool_bytes: KV pool if already known (``answer(...).kv_pool_bytes``).

    Raises:
        ModelDomainError: mean tokens below 1, or as ``answer`` raises.
    """
    if not mean_tokens >= 1:
        raise ModelDomainError("mean tokens", mean_tokens, "1 or more")
    setting = _setting(footprint)
    pool = _costs(footprint, setting).pool_bytes if pool_bytes is None else pool_bytes
    contiguous = footprint.kv_layout is KvLayout.CONTIGUOUS
    return _concurrent(footprint, setting, pool, setting.max_length if contiguous else mean_tokens)


@dataclass(frozen=True)
class _Setting:
    """What the engine would run with: declared values, else its own defaults."""

    row: EngineMemory
    utilisation: float
    max_length: int
    max_batch: int
    batched_tokens: int


@dataclass(frozen=True)
class _Costs:
    budget_bytes: float
    weights_bytes: float
    activation_bytes: float
    non_torch_bytes: float
    graphs_bytes: float
    pool_bytes: float


def _setting(footprint: Footprint, row: EngineMemory | None = None) -> _Setting:
    row = row or engines.engine_memory(footprint.engine, footprint.engine_version)
    length = footprint.max_length_tokens or footprint.architecture.max_length_tokens
    if length < 1:
        raise ModelDomainError("maxLength", length, "1 or more")
    engine, version, gpu = footprint.engine, footprint.engine_version, footprint.gpu
    tokens = footprint.max_batched_tokens or engines.default_batched_tokens(
        engine, version, gpu, length
    )
    batch = footprint.max_batch or min(engines.default_max_batch(engine, version, gpu), tokens)
    utilisation = footprint.memory_utilisation
    if utilisation is None:
        utilisation = engines.default_utilisation(row, footprint.tensor_parallel)
    if not 0 < utilisation <= 1:
        raise ModelDomainError("memoryUtilization", utilisation, "more than 0, up to 1")
    return _Setting(row, utilisation, length, batch, tokens)


def _placement(footprint: Footprint, setting: _Setting, in_flight: int) -> kv.KvPlacement:
    paged = footprint.kv_layout is KvLayout.PAGED
    bounded = setting.row.windows_bounded and paged
    precision = footprint.precision or footprint.architecture.precision
    return kv.KvPlacement(
        tensor_parallel=footprint.tensor_parallel,
        pipeline_parallel=footprint.pipeline_parallel,
        value_bytes=kv.kv_value_bytes(footprint.kv_precision, precision),
        block_tokens=kv.BLOCK_TOKENS if paged else 1,
        in_flight_tokens=in_flight if bounded else setting.max_length,
        grouped=bounded and engines.is_vllm(footprint.engine),
    )


def _costs(footprint: Footprint, setting: _Setting) -> _Costs:
    row, total = setting.row, footprint.gpu.memory_bytes
    weight = weights.weights_bytes(
        footprint.architecture,
        footprint.precision,
        footprint.tensor_parallel,
        footprint.pipeline_parallel,
    )
    activation = _activation_bytes(footprint, setting)
    gpus = footprint.tensor_parallel * footprint.pipeline_parallel
    outside = row.parallel_bytes if gpus > 1 else row.single_bytes
    graphs = 0.0 if footprint.eager else _graphs_bytes(footprint, setting)
    inside = graphs if row.graphs_inside else 0.0
    match row.share:
        case Share.TOTAL:
            budget = total * setting.utilisation
            pool = budget - weight - activation - outside - inside
        case Share.WEIGHTS_AND_POOL:
            budget = total * setting.utilisation
            pool = budget - weight
        case Share.FREE:
            pool = (total - weight - activation - outside) * setting.utilisation
            budget = pool + weight + activation + outside
    return _Costs(budget, weight, activation, outside, graphs, pool)


def _activation_bytes(footprint: Footprint, setting: _Setting) -> float:
    """The activation peak: the sampler over all sequences, or the largest prefill step."""
    model, row = footprint.architecture, setting.row
    sampler = row.sampler_bytes * setting.max_batch * model.vocabulary
    prefill = _prefill_bytes(model, footprint.tensor_parallel) * setting.batched_tokens
    floor = 0.0 if footprint.eager else row.compile_floor_bytes
    experts = row.experts_bytes if model.experts else 0.0
    return max(sampler, prefill, floor) + experts + engines.constant_bytes(row, footprint.gpu)


def _prefill_bytes(model: Architecture, tensor_parallel: int) -> float:
    """Activation bytes of one token in a prefill step, from the feed-forward's width."""
    if not model.feed_forward_parameters:
        width = _USUAL_WIDTH * model.hidden
    elif model.experts:
        expert = model.feed_forward_parameters / (model.experts * model.layers)
        width = model.experts_per_token * expert / (3 * model.hidden)
    else:
        width = model.feed_forward_parameters / (3 * model.hidden * model.layers)
    copies = max(1, model.experts_per_token)  # each routed expert returns its own hidden state
    hidden = (_HIDDEN_BYTES + 2.0 * (copies - 1)) * model.hidden
    return _WIDTH_BYTES * width / tensor_parallel + hidden


def _graphs_bytes(footprint: Footprint, setting: _Setting) -> float:
    model = footprint.architecture
    largest = footprint.graph_capture_size or min(2 * setting.max_batch, _GRAPHS_LARGEST_SIZE)
    layers = kv.heaviest_stage_layers(model.layers, footprint.pipeline_parallel)
    narrow = kv.kv_value_bytes(footprint.kv_precision, "bf16") < 2
    return (
        _GRAPHS_BYTES
        + _GRAPHS_BYTES_PER_SIZE_AND_LAYER * largest * layers
        + (_GRAPHS_NARROW_CACHE_BYTES if narrow else 0.0)
        + (_GRAPHS_EXPERTS_BYTES if model.experts else 0.0)
    )


def _startup_peak_bytes(footprint: Footprint, setting: _Setting, costs: _Costs) -> float:
    """Most the engine holds of a card while it starts.

    After the pool is taken and graphs are captured the sampler warms up with max batch sequences;
    captured graphs keep the allocator from reusing for that more of the profiled peak than its
    constant part. Without graphs it is reused: eager starts survived every sum above the card.
    """
    row = setting.row
    outside = 0.0 if row.graphs_inside else costs.graphs_bytes
    if row.share is Share.WEIGHTS_AND_POOL:
        return costs.budget_bytes + outside + costs.activation_bytes + costs.non_torch_bytes
    if not engines.is_vllm(footprint.engine):
        return costs.budget_bytes
    if footprint.eager or not row.covered:
        return costs.budget_bytes + outside
    sampler = row.sampler_bytes * setting.max_batch * footprint.architecture.vocabulary
    reused = engines.constant_bytes(row, footprint.gpu)
    return costs.budget_bytes + outside + max(0.0, sampler - reused)


def _undeclared_bytes(footprint: Footprint, setting: _Setting, costs: _Costs) -> float:
    """Memory the engine's default max batch takes that a smaller, undeclared one would not.

    gpt-oss-120b on one H100 is refused by vLLM 0.11 with 1,024 sequences and started with fewer:
    as long as nobody says which, that is no reason to reject.
    """
    if footprint.max_batch is not None:
        return 0.0
    least = _activation_bytes(footprint, replace(setting, max_batch=1))
    return costs.activation_bytes - least


def _fit(margin_bytes: float, bands_bytes: tuple[float, float], peak_exceeds: bool) -> Fit:
    below, above = bands_bytes
    if margin_bytes < -below:
        return Fit.WONT_START
    if margin_bytes <= above or peak_exceeds:
        return Fit.TOO_CLOSE
    return Fit.FITS


def _concurrent(footprint: Footprint, setting: _Setting, pool: float, tokens: float) -> int:
    """Requests of ``tokens`` the pool holds; sliding layers keep their window alone."""
    placement = _placement(footprint, setting, 0)
    request = kv.kv_request_bytes(footprint.architecture, tokens, placement)
    return max(0, math.floor(pool / request)) if request else _UNBOUNDED


_UNBOUNDED = 2**31 - 1


def only_recurrent(architecture: Architecture) -> bool:
    """True when no layer keeps tokens: KV memory then bounds nothing by length."""
    return all(group.kind is AttentionKind.RECURRENT for group in architecture.attention)


def effective_max_batch(footprint: Footprint) -> int:
    """Max batch declared, or the one the engine starts for when nobody says.

    Raises:
        ModelDomainError: as ``answer`` raises.
    """
    return _setting(footprint).max_batch
