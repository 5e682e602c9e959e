"""Names as people write them: keys from strict to loose, and the nearest known ones."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_SEPARATORS = re.compile(r"[\s_]+")
_TUNING = re.compile(r"-(instruct|chat|it|base|pt|sft|hf|thinking)$")
_GPU_NOISE = re.compile(r"nvidia|geforce|tesla|amd|instinct|intel|[\s_.-]+")

# How checkpoints are named when their weights are quantised, and the precision that means.
_QUANTISED = tuple(
    (re.compile(rf"[-.](?:{pattern})$"), precision)
    for pattern, precision in (
        (r"nvfp4", "nvfp4"),
        (r"mxfp4", "mxfp4"),
        (r"fp8(?:-(?:dynamic|block|kv))?|quantized\.w8a8-fp8", "fp8"),
        (r"(?:quantized\.)?w8a8|gptq-int8|int8", "int8"),
        (
            r"(?:awq|gptq)(?:-(?:int4|4bit|w4a16))?|(?:quantized\.)?w4a16|int4(?:-(?:awq|gptq))?"
            r"|(?:bnb-)?4bit|bnb-nf4|nf4",
            "int4",
        ),
    )
)


def model_keys(name: str) -> tuple[str, str, str, str]:
    """Keys of a model name, strict first: whole, without owner, without -hf, without tuning.

    >>> model_keys("meta-llama/Meta-Llama-3-8B-Instruct")[3]
    'llama-3-8b'
    """
    whole = _SEPARATORS.sub("-", name.strip().lower())
    bare = whole.rsplit("/", 1)[-1]
    plain = bare.removesuffix("-hf").removeprefix("meta-")
    tuned = plain
    while (shorter := _TUNING.sub("", tuned)) != tuned:
        tuned = shorter
    return whole, bare, plain, tuned


def split_quantisation(name: str) -> tuple[str, str] | None:
    """Name of the unquantised model and the precision, or None if the name has no such ending.

    >>> split_quantisation("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic")
    ('redhatai/llama-3.3-70b-instruct', 'fp8')
    """
    lower = _SEPARATORS.sub("-", name.strip().lower())
    for pattern, precision in _QUANTISED:
        shorter = pattern.sub("", lower)
        if shorter != lower:
            return shorter, precision
    return None


def gpu_key(name: str) -> str:
    """A GPU name without vendor words and separators.

    >>> gpu_key("NVIDIA-GeForce-RTX-4090")
    'rtx4090'
    """
    return _GPU_NOISE.sub("", name.strip().lower())


def nearest(name: str, known: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """The known names closest in spelling, compared without owner and ``-hf``.

    Names that begin with the one asked for come first: "A100" is short for two cards.
    """
    by_key: dict[str, str] = {}
    for item in known:
        by_key.setdefault(model_keys(item)[2], item)
    wanted = model_keys(name)[2]
    longer = [key for key in by_key if key.startswith(wanted)]
    close = difflib.get_close_matches(wanted, by_key, n=count, cutoff=0.0)
    return tuple(by_key[key] for key in dict.fromkeys(longer + close))[:count]
