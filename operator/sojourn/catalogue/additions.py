"""A user's own models and GPUs beside the built-in ones, without a release.

The mapping has the form of a file or ConfigMap that the caller has read::

    models:
      acme/chat-13b:
        aliases: [chat]
        layers: 40
        hiddenSize: 5120
        attentionHeads: 40
        maxLength: 8192
      acme/other: {config: {…}}          # the contents of a Hugging Face config.json
    gpus:
      X100: {memory: 64Gi, bandwidth: 2T, fp16: 400T, fp8: 800T, price: "2.50", labels: [ACME-X100]}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sojourn.catalogue import huggingface, inline
from sojourn.catalogue import names as spelling
from sojourn.catalogue.catalogue import Catalogue
from sojourn.errors import InvalidModelConfig, ModelDomainError, UnitError
from sojourn.facts.architecture import Architecture
from sojourn.facts.declaration import DeclaredArchitecture, LatentAttention, SlidingWindow
from sojourn.facts.gpu import Gpu
from sojourn.units import parse_quantity

_MODEL_KEYS = {
    "layers": "layers",
    "hiddenSize": "hidden",
    "attentionHeads": "attention_heads",
    "keyValueHeads": "kv_heads",
    "headDim": "head_dim",
    "vocabulary": "vocabulary",
    "recurrentLayers": "recurrent_layers",
}
_OTHER_MODEL_KEYS = {
    "aliases", "config", "parameters", "slidingWindow", "latentAttention", "precision", "maxLength",
}  # fmt: skip
_GPU_KEYS = {"aliases", "labels", "memory", "bandwidth", "fp16", "fp8", "price", "resource"}


def with_additions(additions: Mapping[str, Any] | None = None) -> Catalogue:
    """The built-in catalogue with a user's additions.

    Raises:
        InvalidModelConfig: an unknown key, a missing or impossible value, named by its path.
    """
    content = additions or {}
    if not isinstance(content, Mapping):
        raise InvalidModelConfig("additions", "expected an object with models and gpus")
    _refuse_unknown("additions", content, {"models", "gpus"})
    added_models: dict[str, Architecture] = {}
    for name, entry in _entries(content, "models"):
        model = _model(name, entry)
        for spelled in (name, *_texts(f"models.{name}.aliases", entry.get("aliases"))):
            added_models[spelled.strip().lower()] = model
    added_gpus: dict[str, Gpu] = {}
    for name, entry in _entries(content, "gpus"):
        card = _gpu(name, entry)
        aliases = _texts(f"gpus.{name}.aliases", entry.get("aliases"))
        for spelled in (name, *aliases, *card.product_labels):
            added_gpus[spelling.gpu_key(spelled)] = card
    return Catalogue(added_models, added_gpus)


def _entries(content: Mapping[str, Any], part: str) -> list[tuple[str, Mapping[str, Any]]]:
    entries = content.get(part) or {}
    if not isinstance(entries, Mapping):
        raise InvalidModelConfig(part, "expected an object of name: entry")
    for name, entry in entries.items():
        if not isinstance(entry, Mapping):
            raise InvalidModelConfig(f"{part}.{name}", "expected an object")
    return list(entries.items())


def _model(name: str, entry: Mapping[str, Any]) -> Architecture:
    path = f"models.{name}"
    _refuse_unknown(path, entry, set(_MODEL_KEYS) | _OTHER_MODEL_KEYS)
    try:
        if entry.get("config") is not None:
            return huggingface.from_config(entry["config"], name)
        declared = DeclaredArchitecture(
            **{ours: _whole(path, entry, key) for key, ours in _MODEL_KEYS.items() if key in entry},
            parameters=_quantity(path, entry, "parameters"),
            sliding_window=_window(path, entry),
            latent_attention=_latent(path, entry),
        )
        length = _whole(path, entry, "maxLength") if "maxLength" in entry else None
        return inline.architecture_from(declared, name, entry.get("precision"), length)
    except ModelDomainError as exc:
        raise InvalidModelConfig(f"{path}.{exc.name}", str(exc)) from exc
    except TypeError as exc:
        raise InvalidModelConfig(path, "layers, hiddenSize and attentionHeads are needed") from exc


def _window(path: str, entry: Mapping[str, Any]) -> SlidingWindow | None:
    part = entry.get("slidingWindow")
    if part is None:
        return None
    inner = _object(f"{path}.slidingWindow", part, {"tokens", "everyNthLayerFull"})
    nth = _whole(path, inner, "everyNthLayerFull") if "everyNthLayerFull" in inner else None
    return SlidingWindow(_whole(f"{path}.slidingWindow", inner, "tokens"), nth)


def _latent(path: str, entry: Mapping[str, Any]) -> LatentAttention | None:
    part = entry.get("latentAttention")
    if part is None:
        return None
    where = f"{path}.latentAttention"
    inner = _object(where, part, {"kvLoraRank", "ropeHeadDim"})
    return LatentAttention(_whole(where, inner, "kvLoraRank"), _whole(where, inner, "ropeHeadDim"))


def _gpu(name: str, entry: Mapping[str, Any]) -> Gpu:
    path = f"gpus.{name}"
    _refuse_unknown(path, entry, _GPU_KEYS)
    memory = _quantity(path, entry, "memory")
    if not memory or memory < 0:
        raise InvalidModelConfig(f"{path}.memory", "is missing or not more than 0")
    return Gpu(
        name=name,
        memory_bytes=memory,
        bandwidth_bytes_per_s=_quantity(path, entry, "bandwidth"),
        dense_fp16_flop_per_s=_quantity(path, entry, "fp16"),
        dense_fp8_flop_per_s=_quantity(path, entry, "fp8"),
        price_per_hour_usd=_quantity(path, entry, "price"),
        product_labels=_texts(f"{path}.labels", entry.get("labels")),
        resource=str(entry.get("resource", "nvidia.com/gpu")),
        source="added by the user",
    )


def _object(path: str, part: Any, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(part, Mapping):
        raise InvalidModelConfig(path, "expected an object")
    _refuse_unknown(path, part, known)
    return part


def _refuse_unknown(path: str, entry: Mapping[str, Any], known: set[str]) -> None:
    for key in entry:
        if key not in known:
            raise InvalidModelConfig(
                f"{path}.{key}", f"unknown key; known: {', '.join(sorted(known))}"
            )


def _whole(path: str, entry: Mapping[str, Any], key: str) -> int:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidModelConfig(f"{path}.{key}", f"is {value!r}, expected a whole number")
    return value


def _quantity(path: str, entry: Mapping[str, Any], key: str) -> float | None:
    value = entry.get(key)
    if value is None:
        return None
    try:
        return parse_quantity(value)
    except UnitError as exc:
        raise InvalidModelConfig(f"{path}.{key}", str(exc)) from exc


def _texts(path: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise InvalidModelConfig(path, "expected a list of names")
    return tuple(value)
