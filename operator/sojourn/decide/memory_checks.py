"""Admission checks on memory: does it start, does it fit, how many at once."""

from __future__ import annotations

from sojourn.decide.proposal import Proposal
from sojourn.facts.declaration import KvLayout
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.memory import Fit
from sojourn.facts.reasons import Reason
from sojourn.model import memory_remedies
from sojourn.units import GIB, format_gib

STARTUP_DOUBT = 2.0
"""Error bands above the card from where a start is refused: of 215 published starts the highest
that succeeded is at 1.8 (0.89 GiB over)."""


def weights_or_request_exceed_memory(proposal: Proposal) -> Finding | None:
    """The engine would not start: weights, or weights and one request of maxLength, do not fit."""
    answer = proposal.service.memory
    if answer.fit is not Fit.WONT_START:
        return None
    message = f"{_what_does_not_fit(proposal)} {_remedy(proposal)}"
    numbers = (
        ("weights_bytes", answer.weights_bytes),
        ("budget_bytes", answer.budget_bytes),
        ("short_by_bytes", -answer.margin_bytes),
    )
    return Finding(Reason.WONT_START, Verdict.REJECT, "spec.gpu", message, numbers)


def contiguous_batch_exceeds_memory(proposal: Proposal) -> Finding | None:
    """Contiguous layout: maxBatchSize.max reservations of maxLength do not fit."""
    service = proposal.service
    engine = service.declaration.engine
    answer = service.memory
    if answer.fit is Fit.WONT_START or engine.kv_layout is not KvLayout.CONTIGUOUS:
        return None
    if service.bounds.maximum <= answer.max_concurrent:
        return None
    message = (
        f"the contiguous KV cache reserves {format_gib(answer.kv_request_bytes)} a request of "
        f"{answer.max_length_tokens} tokens on each GPU: {service.bounds.maximum} need "
        f"{format_gib(service.bounds.maximum * answer.kv_request_bytes)}, "
        f"{format_gib(answer.kv_pool_bytes)} there. "
        f"Use max batch {answer.max_concurrent}, a shorter maxLength, or kvLayout Paged."
    )
    return Finding(
        Reason.OUT_OF_MEMORY,
        Verdict.REJECT,
        "spec.engine.maxBatchSize.max",
        message,
        (("largest_batch", answer.max_concurrent),),
    )


def startup_peak_exceeds_memory(proposal: Proposal) -> Finding | None:
    """What lies outside the budget while the engine starts does not fit beside it."""
    answer = proposal.service.memory
    over = answer.startup_peak_bytes - answer.startup_limit_bytes
    if answer.fit is Fit.WONT_START or over <= STARTUP_DOUBT * answer.band_bytes:
        return None
    remedy = _remedy(proposal)
    message = (
        f"while it starts, the engine holds {format_gib(answer.startup_peak_bytes)} of the "
        f"{format_gib(answer.startup_limit_bytes)} of each GPU: its budget of "
        f"{format_gib(answer.budget_bytes)}, captured graphs and a sampler warm-up of max batch "
        f"{proposal.service.bounds.maximum}, {format_gib(over)} too many. {remedy}"
    )
    return Finding(
        Reason.OUT_OF_MEMORY,
        Verdict.REJECT,
        "spec.engine.maxBatchSize.max",
        message,
        (("startup_peak_bytes", answer.startup_peak_bytes), ("short_by_bytes", over)),
    )


def memory_too_close(proposal: Proposal) -> Finding | None:
    """Within the memory model's own error of the limit: never a rejection."""
    answer = proposal.service.memory
    if answer.fit is not Fit.TOO_CLOSE or startup_peak_exceeds_memory(proposal) is not None:
        return None
    over = answer.startup_peak_bytes - answer.startup_limit_bytes
    if over > 0 and answer.margin_bytes > answer.band_bytes:
        what = (
            f"{format_gib(answer.startup_peak_bytes)} held while it starts, of "
            f"{format_gib(answer.startup_limit_bytes)}"
        )
    else:
        what = (
            f"{answer.margin_bytes / GIB:+.1f} GiB of KV cache beside one request of "
            f"{answer.max_length_tokens} tokens"
        )
    message = (
        f"too close to call: {what}, known to within {answer.band_bytes / GIB:.1f} GiB. "
        "Lower maxLength, max batch or memoryUtilization, or use more GPUs, to be sure."
    )
    return Finding(
        Reason.MEMORY_TOO_CLOSE,
        Verdict.WARN,
        "spec.gpu",
        message,
        (("margin_bytes", answer.margin_bytes), ("band_bytes", answer.band_bytes)),
    )


def gpu_shared(proposal: Proposal) -> Finding | None:
    """A time-sliced card is not divided: what others leave of its memory nobody can tell."""
    declared, card = proposal.service.declaration.gpu, proposal.service.footprint.gpu
    if not card.shared or declared.memory_bytes is not None:
        return None
    message = (
        f"{declared.type} is shared with other pods by time-slicing or MPS: it is judged as if all "
        f"{format_gib(card.memory_bytes)} were this service's. Declare spec.gpu.memory, its share."
    )
    return Finding(Reason.GPU_SHARED, Verdict.WARN, "spec.gpu.type", message)


def length_above_model(proposal: Proposal) -> Finding | None:
    """Engines end at a length the model was not made for, unless its positions are stretched."""
    service = proposal.service
    longest = service.footprint.architecture.max_length_tokens
    asked = service.memory.max_length_tokens
    if service.declaration.model.architecture is not None or asked <= longest:
        return None  # An architecture described inline says nothing of its positions.
    message = (
        f"maxLength {asked} exceeds the {longest} tokens of {service.footprint.architecture.name}: "
        "engines refuse to start with it unless the model's positions are stretched (rope scaling)."
    )
    numbers = (("asked_tokens", float(asked)), ("model_tokens", float(longest)))
    return Finding(
        Reason.LENGTH_ABOVE_MODEL, Verdict.WARN, "spec.model.maxLength", message, numbers
    )


def kv_below_max_batch(proposal: Proposal) -> Finding | None:
    """Paged layout: the KV cache holds fewer requests than max batch; they queue, none fails."""
    service = proposal.service
    limit = service.bounds.kv_limit
    if service.declaration.engine.kv_layout is not KvLayout.PAGED or limit is None:
        return None
    if limit >= service.bounds.maximum or service.memory.fit is Fit.WONT_START:
        return None
    message = (
        f"the KV cache holds {limit} requests of {service.design_tokens:.0f} tokens, max batch is "
        f"{service.bounds.maximum}: {limit} is what the queue model works with."
    )
    return Finding(
        Reason.KV_LIMITED,
        Verdict.WARN,
        "spec.engine.maxBatchSize.max",
        message,
        (("concurrent", limit),),
    )


def _what_does_not_fit(proposal: Proposal) -> str:
    service, answer = proposal.service, proposal.service.memory
    gpu = service.declaration.gpu
    per_replica = gpu.tensor_parallel * gpu.pipeline_parallel
    where = "the GPU" if per_replica == 1 else f"each of {per_replica} GPUs"
    precision = service.footprint.precision or service.architecture.precision
    usable = (
        f"{format_gib(answer.budget_bytes)} usable ({format_gib(service.gpu.memory_bytes)} x "
        f"{answer.budget_bytes / service.gpu.memory_bytes:.2f})"
    )
    weights = f"the weights of {service.architecture.name} in {precision} need " + (
        f"{format_gib(answer.weights_bytes)} on {where}"
    )
    if answer.weights_bytes > answer.budget_bytes:
        short = answer.weights_bytes - answer.budget_bytes
        return f"{weights}, {usable}: {format_gib(short)} short."
    return (
        f"one request of {answer.max_length_tokens} tokens needs "
        f"{format_gib(answer.kv_request_bytes)} of KV cache on {where}; {weights}, "
        f"{format_gib(max(0.0, answer.kv_pool_bytes))} is left of {usable}: "
        f"{format_gib(-answer.margin_bytes)} short."
    )


def _remedy(proposal: Proposal) -> str:
    text = memory_remedies.remedies(proposal.service.footprint, proposal.gpus).text()
    return text or "Nothing in the catalogue fits it in as many cards: use a smaller model."
