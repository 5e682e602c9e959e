"""What each engine version takes of a GPU beside weights and KV cache: one table of constants.

Fitted on published start-up logs (``benchmarks/memory.py`` prints how well). vLLM 0.17 and later is
covered by 85 logs on H100 and A10G; every other row is a reading of few logs or of the engine's
source and carries the wide band.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from sojourn.facts.gpu import Gpu
from sojourn.units import GIB

COVERED_BAND_BYTES = 0.5 * GIB
WIDE_BAND_BYTES = 1.5 * GIB

_LARGE_CARD_BYTES = 70 * GIB  # from here vLLM doubles its defaults, A100 excepted
_CARD_CLASS_BYTES = 30 * GIB


class Share(StrEnum):
    """What an engine's memory fraction is a fraction of."""

    TOTAL = "total"  # of the card, for everything (vLLM, TGI)
    WEIGHTS_AND_POOL = "weights and pool"  # of the card; activations come on top (SGLang)
    FREE = "free"  # of what weights and activations leave (TensorRT-LLM, LMDeploy)


@dataclass(frozen=True)
class EngineMemory:
    """One row of the table.

    Attributes:
        since: first version the row holds for.
        utilisation: the engine's default memory fraction.
        share: what that is a fraction of.
        sampler_bytes: k1, per sequence and vocabulary entry at the sampler's peak.
        constant_bytes: c, activation that does not depend on the load, on cards from 30 GiB.
        small_card_constant_bytes: the same on smaller cards.
        compile_floor_bytes: least activation peak when the engine compiles (not eager).
        experts_bytes: added for mixture-of-experts models.
        single_bytes: outside the framework's allocator on one GPU (driver context, libraries).
        parallel_bytes: the same from two GPUs on (communication buffers).
        graphs_inside: captured graphs come out of the budget.
        windows_bounded: the allocator frees sliding layers' pages beyond the window.
        covered: fitted on logs, so the narrow band holds.
    """

    since: tuple[int, int]
    utilisation: float
    share: Share = Share.TOTAL
    sampler_bytes: float = 39.0
    constant_bytes: float = 0.0
    small_card_constant_bytes: float = 0.0
    compile_floor_bytes: float = 0.0
    experts_bytes: float = 0.0
    single_bytes: float = 0.15 * GIB
    parallel_bytes: float = 0.55 * GIB
    graphs_inside: bool = False
    windows_bounded: bool = True
    covered: bool = False

    @property
    def band_bytes(self) -> float:
        """The error the row's own predictions carry."""
        return COVERED_BAND_BYTES if self.covered else WIDE_BAND_BYTES


# The sampler's peak is 14.2 bytes a sequence and vocabulary entry: six vocabularies from 32k to
# 256k on H100 and 19 to 1,024 sequences on A10G agree within 3 %. Before 0.17 it was 39 (0.7 to
# 0.15: six logs). With that, 31 A10G logs leave a standard deviation of 0.03 GiB.
_VLLM = (
    EngineMemory(since=(0, 0), utilisation=0.90, windows_bounded=False),
    EngineMemory(since=(0, 11), utilisation=0.90, single_bytes=0.14 * GIB),
    EngineMemory(
        since=(0, 17),
        utilisation=0.90,
        sampler_bytes=14.2,
        constant_bytes=0.16 * GIB,
        small_card_constant_bytes=0.02 * GIB,
        compile_floor_bytes=0.6 * GIB,
        experts_bytes=0.29 * GIB,
        single_bytes=0.25 * GIB,
        parallel_bytes=2.1 * GIB,
        covered=True,
    ),
    EngineMemory(  # graphs inside by the wheel's default, but logs disagree: not covered
        since=(0, 20),
        utilisation=0.92,
        sampler_bytes=14.2,
        constant_bytes=0.16 * GIB,
        small_card_constant_bytes=0.02 * GIB,
        compile_floor_bytes=1.0 * GIB,
        experts_bytes=0.29 * GIB,
        single_bytes=0.25 * GIB,
        parallel_bytes=2.1 * GIB,
        graphs_inside=True,
    ),
    EngineMemory(
        since=(0, 21),
        utilisation=0.92,
        sampler_bytes=14.2,
        constant_bytes=0.16 * GIB,
        small_card_constant_bytes=0.02 * GIB,
        compile_floor_bytes=1.0 * GIB,
        experts_bytes=0.29 * GIB,
        single_bytes=0.25 * GIB,
        parallel_bytes=2.1 * GIB,
        graphs_inside=True,
        covered=True,
    ),
)

_TABLE: dict[str, tuple[EngineMemory, ...]] = {
    "vllm": _VLLM,
    # The static fraction covers weights and pool; its default depends on TP (``_sglang_fraction``).
    "sglang": (
        EngineMemory(
            since=(0, 0), utilisation=0.88, share=Share.WEIGHTS_AND_POOL, sampler_bytes=14.2
        ),
    ),
    # Warm-up prefills max-batch-prefill-tokens before the pool is sized.
    "tgi": (EngineMemory(since=(0, 0), utilisation=1.0, windows_bounded=False),),
    "trtllm": (EngineMemory(since=(0, 0), utilisation=0.90, share=Share.FREE),),
    "lmdeploy": (EngineMemory(since=(0, 0), utilisation=0.80, share=Share.FREE),),
}
_ALIASES = {"tensorrt-llm": "trtllm", "tensorrtllm": "trtllm", "lorax": "tgi"}

# Engines nobody measured: the book's budget with 0.5 GiB of overhead.
_OTHER = EngineMemory(
    since=(0, 0),
    utilisation=0.90,
    sampler_bytes=0.0,
    constant_bytes=0.5 * GIB,
    small_card_constant_bytes=0.5 * GIB,
    windows_bounded=False,
)

_VERSION = re.compile(r"v?(\d+)\.(\d+)")


def version_of(text: str | None) -> tuple[int, int] | None:
    """Major and minor number of a version text; None when it has none.

    >>> version_of("v0.20.2rc1.dev249")
    (0, 20)
    """
    found = _VERSION.match(text or "")
    return (int(found[1]), int(found[2])) if found else None


def is_vllm(engine: str) -> bool:
    """True for vLLM, whose start-up check and defaults are known by version."""
    return engine.lower() == "vllm"


def engine_memory(engine: str, version: str | None) -> EngineMemory:
    """The row for an engine version; the newest, not covered, when the version is unknown."""
    name = engine.lower()
    rows = _TABLE.get(_ALIASES.get(name, name))
    if rows is None:
        return _OTHER
    known = version_of(version)
    # Builds numbered 0.1.dev… come from a checkout without tags and say nothing about the version.
    if known is None or (name == "vllm" and known < (0, 2)):
        return _uncovered(rows[-1])
    return next(row for row in reversed(rows) if row.since <= known)


def default_utilisation(row: EngineMemory, tensor_parallel: int) -> float:
    """The memory fraction an engine takes when nobody says one."""
    if row.share is not Share.WEIGHTS_AND_POOL:
        return row.utilisation
    for least, fraction in ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87)):
        if tensor_parallel >= least:
            return fraction
    return row.utilisation


def default_max_batch(engine: str, version: str | None, gpu: Gpu) -> int:
    """Sequences the engine starts for when nobody says: vLLM 1,024 on large cards, else 256."""
    if not is_vllm(engine):
        return 256
    known = version_of(version)
    if known is not None and (0, 2) <= known < (0, 8):
        return 256
    return 1024 if _large(gpu) else 256


def default_batched_tokens(
    engine: str, version: str | None, gpu: Gpu, max_length_tokens: int
) -> int:
    """Prompt tokens of the largest step when nobody says."""
    if not is_vllm(engine):
        return 4096 if engine.lower() in ("tgi", "lorax") else 8192
    known = version_of(version)
    if known is not None and (0, 2) <= known < (0, 8):
        return max(max_length_tokens, 2048)  # no chunked prefill: one whole prompt a step
    return 8192 if _large(gpu) else 2048


def constant_bytes(row: EngineMemory, gpu: Gpu) -> float:
    """Constant activation of the card's class."""
    small = gpu.memory_bytes < _CARD_CLASS_BYTES
    return row.small_card_constant_bytes if small else row.constant_bytes


def _large(gpu: Gpu) -> bool:
    return gpu.memory_bytes >= _LARGE_CARD_BYTES and not gpu.name.upper().startswith("A100")


def _uncovered(row: EngineMemory) -> EngineMemory:
    return replace(row, covered=False)
