"""Bytes of a model's weights, whole and on the heaviest GPU."""

from __future__ import annotations

from sojourn.errors import Indivisible, ModelDomainError
from sojourn.facts.architecture import Architecture, AttentionKind
from sojourn.model.kv import heaviest_stage_layers

VOCABULARY_PAD = 64  # engines pad the vocabulary to this before they share it out

# Bytes of one weight. Four-bit formats carry scales: 16 bits a group of 64 (int4), 8 bits a group
# of 32 (mxfp4, OCP microscaling) or of 16 (nvfp4).
VALUE_BYTES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 4.25 / 8,
    "mxfp4": 4.25 / 8,
    "nvfp4": 4.5 / 8,
}
_UNQUANTISED = ("fp32", "bf16", "fp16")

# Checkpoints of these formats leave attention in 16 bits: loads of 31.0 GiB (a 31B model with its
# vision tower) and 70.5 GiB (a 122B one) in nvfp4 are met within 6 % and 3 %; four bits throughout
# would miss the first by a third.
_FEED_FORWARD_ONLY = ("mxfp4", "nvfp4")


def value_bytes(precision: str) -> float:
    """Bytes of one weight of that precision.

    Raises:
        ModelDomainError: a precision that is not known.
    """
    if precision not in VALUE_BYTES:
        raise ModelDomainError("precision", precision, ", ".join(VALUE_BYTES))
    return VALUE_BYTES[precision]


def total_weights_bytes(architecture: Architecture, precision: str | None = None) -> float:
    """Bytes of all weights; None is the model's own precision.

    Quantised checkpoints keep embeddings, output head and norms in 16 bits, mxfp4 and nvfp4 all
    but the feed-forward layers. A published load size of the model's own precision wins.

    Raises:
        ModelDomainError: a precision that is not known.
    """
    wanted = precision or architecture.precision
    if architecture.weight_bytes is not None and _same(wanted, architecture.precision):
        return architecture.weight_bytes
    return _body_bytes(architecture, wanted) + _embedding_bytes(architecture, wanted)


def weights_bytes(
    architecture: Architecture,
    precision: str | None = None,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
) -> float:
    """Bytes of weights on the heaviest GPU.

    Tensor parallelism shares all matrices; norms, routers, latent down-projections and the
    key-value heads that ranks outnumber are replicated. A pipeline stage holds its own layers,
    the first the embedding and the last the output head.

    Raises:
        Indivisible: heads, or the vocabulary padded to 64, cannot be shared by tensorParallel.
        ModelDomainError: precision or a parallel size that is not possible.
    """
    check_divisible(architecture, tensor_parallel)
    wanted = precision or architecture.precision
    stage = heaviest_stage_layers(architecture.layers, pipeline_parallel) / architecture.layers
    embedding = _embedding_bytes(architecture, wanted)
    body = total_weights_bytes(architecture, wanted) - embedding
    if pipeline_parallel > 1 and not architecture.tied_embeddings:
        embedding /= 2
    share = 1 / tensor_parallel
    replicated = _replicated_bytes(architecture, wanted, tensor_parallel)
    return stage * (body * share + replicated) + embedding * share


def check_divisible(architecture: Architecture, tensor_parallel: int) -> None:
    """Refuse a tensor-parallel size that cannot share out heads or vocabulary.

    Raises:
        Indivisible: with the field that is not divisible.
        ModelDomainError: tensorParallel below 1.
    """
    if tensor_parallel < 1:
        raise ModelDomainError("tensorParallel", tensor_parallel, "1 or more")
    for group in architecture.attention:
        if group.query_heads % tensor_parallel:
            raise Indivisible("attentionHeads", group.query_heads, tensor_parallel)
        heads = group.kv_heads
        if heads and heads % tensor_parallel and tensor_parallel % heads:
            raise Indivisible("keyValueHeads", heads, tensor_parallel)
    padded = -(-architecture.vocabulary // VOCABULARY_PAD) * VOCABULARY_PAD
    if padded % tensor_parallel:
        raise Indivisible("vocabulary", architecture.vocabulary, tensor_parallel)


def _same(one: str, other: str) -> bool:
    """Bf16 and fp16 weigh the same."""
    return one == other or {one, other} == {"bf16", "fp16"}


def _embedding_bytes(architecture: Architecture, precision: str) -> float:
    each = value_bytes(precision) if precision in _UNQUANTISED else 2.0
    return architecture.embedding_parameters * each


def _body_bytes(architecture: Architecture, precision: str) -> float:
    """Bytes of everything but embedding and head."""
    body = architecture.parameters - architecture.embedding_parameters
    each = value_bytes(precision)
    if precision in _FEED_FORWARD_ONLY and architecture.feed_forward_parameters:
        quantised = architecture.feed_forward_parameters
        return quantised * each + (body - quantised) * 2.0
    return body * each


def _replicated_bytes(architecture: Architecture, precision: str, tensor_parallel: int) -> float:
    """Bytes a rank holds beyond its even share, over all layers."""
    copies = 1 - 1 / tensor_parallel
    parameters = architecture.replicated_parameters * copies
    for group in architecture.attention:
        if group.kind in (AttentionKind.FULL, AttentionKind.SLIDING) and group.kv_heads:
            extra_heads = max(0.0, 1 - group.kv_heads / tensor_parallel)
            per_head = architecture.hidden * (group.key_dim + group.value_dim)
            parameters += group.layers * extra_heads * per_head
    return parameters * value_bytes(precision)
