"""What a command is about: a manifest, flags alone, or a manifest with flags on top.

Flags are written into the object a manifest would hold, and both go through the same reader: one
set of rules, one set of messages.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sojourn.cli.exits import UsageError

if TYPE_CHECKING:
    from sojourn.catalogue import Catalogue
    from sojourn.facts.declaration import Declaration
    from sojourn.facts.profile import Profile

_SERVICE, _ENGINE, _LOAD = "Service", "Engine", "Load and SLO"


def _option(help: str, *names: str, panel: str, metavar: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar)


@dataclass(frozen=True)
class Given:
    """A service, from a manifest and flags."""

    file: Annotated[
        Path | None,
        _option(
            "Manifest with the InferenceService (and its ServingProfile); - reads standard input.",
            "--file",
            "-f",
            panel=_SERVICE,
            metavar="FILE",
        ),
    ] = None
    service: Annotated[
        str | None,
        _option(
            "Which one, if the manifest holds several.",
            "--service",
            panel=_SERVICE,
            metavar="NAME",
        ),
    ] = None
    profile: Annotated[
        Path | None,
        _option(
            "Manifest with the ServingProfile: measured service time.",
            "--profile",
            panel=_SERVICE,
            metavar="FILE",
        ),
    ] = None
    model: Annotated[
        str | None,
        _option("Model, see `sojourn models`.", "--model", "-m", panel=_SERVICE, metavar="NAME"),
    ] = None
    config: Annotated[
        Path | None,
        _option(
            "config.json of a model that is not in the catalogue.",
            "--config",
            panel=_SERVICE,
            metavar="FILE",
        ),
    ] = None
    precision: Annotated[
        str | None,
        _option(
            "Of the weights: fp16 bf16 fp8 int8 int4.",
            "--precision",
            panel=_SERVICE,
            metavar="NAME",
        ),
    ] = None
    max_length: Annotated[
        int | None,
        _option(
            "Most tokens of a request, prompt and output.",
            "--max-length",
            panel=_SERVICE,
            metavar="TOKENS",
        ),
    ] = None
    gpu: Annotated[
        str | None,
        _option("GPU type, see `sojourn gpus`.", "--gpu", "-g", panel=_SERVICE, metavar="TYPE"),
    ] = None
    tensor_parallel: Annotated[
        int | None,
        _option(
            "GPUs that share each layer.",
            "--tp",
            "--tensor-parallel",
            panel=_SERVICE,
            metavar="N",
        ),
    ] = None
    engine: Annotated[
        str | None,
        _option("vllm sglang tgi trtllm triton custom.", "--engine", panel=_ENGINE, metavar="NAME"),
    ] = None
    engine_version: Annotated[
        str | None, _option("Such as 0.11.", "--engine-version", panel=_ENGINE, metavar="VERSION")
    ] = None
    batching: Annotated[
        str | None,
        _option(
            "Continuous or Dynamic; --max-wait alone means Dynamic.",
            "--batching",
            panel=_ENGINE,
            metavar="KIND",
        ),
    ] = None
    max_batch: Annotated[
        str | None,
        _option(
            "Largest max batch to choose, or MIN..MAX; MIN..MIN pins it.",
            "--max-batch",
            panel=_ENGINE,
            metavar="N",
        ),
    ] = None
    max_wait: Annotated[
        str | None,
        _option(
            "Dynamic: longest a request waits for its batch.",
            "--max-wait",
            panel=_ENGINE,
            metavar="DURATION",
        ),
    ] = None
    queue_capacity: Annotated[
        int | None,
        _option(
            "Requests that may wait at a replica; more are refused.",
            "--queue",
            panel=_ENGINE,
            metavar="N",
        ),
    ] = None
    fixed: Annotated[
        str | None,
        _option("T_fixed, measured.", "--fixed", panel=_ENGINE, metavar="DURATION"),
    ] = None
    per_request: Annotated[
        str | None,
        _option("t_req, measured.", "--per-request", panel=_ENGINE, metavar="DURATION"),
    ] = None
    slo: Annotated[
        str | None,
        _option(
            "End to end, 2s or 2s@99 with its percentile.",
            "--slo",
            panel=_LOAD,
            metavar="DURATION",
        ),
    ] = None
    first_token: Annotated[
        str | None,
        _option("SLO of the time to first token.", "--ttft", panel=_LOAD, metavar="DURATION"),
    ] = None
    output_token: Annotated[
        str | None,
        _option("SLO of the time per output token.", "--itl", panel=_LOAD, metavar="DURATION"),
    ] = None
    prompt_tokens: Annotated[
        str | None,
        _option("Tokens in, MEAN or MEAN/P99.", "--prompt-tokens", panel=_LOAD, metavar="TOKENS"),
    ] = None
    output_tokens: Annotated[
        str | None,
        _option("Tokens out, MEAN or MEAN/P99.", "--output-tokens", panel=_LOAD, metavar="TOKENS"),
    ] = None
    target: Annotated[
        int | None,
        _option(
            "Load to size for; 75 unless the manifest says.",
            "--target-utilization",
            panel=_LOAD,
            metavar="PERCENT",
        ),
    ] = None
    objective: Annotated[
        str | None,
        _option(
            "MaxBatch (largest within the SLO) or MinLatency.",
            "--objective",
            panel=_LOAD,
            metavar="NAME",
        ),
    ] = None
    max_replicas: Annotated[
        int | None,
        _option("Replicas there may be.", "--max-replicas", panel=_LOAD, metavar="N"),
    ] = None


@dataclass(frozen=True)
class Subject:
    """What was given, read: one declaration, its profile and the catalogue it is read against.

    Attributes:
        from_flags: no manifest: bounds nobody declared are no verdict.
    """

    declaration: Declaration
    profile: Profile | None
    catalogue: Catalogue
    from_flags: bool

    @property
    def name(self) -> str:
        """Name of the service, or of its model where only flags were given."""
        return self.declaration.model.name if self.from_flags else self.declaration.ref.name


def read(given: Given) -> Subject:
    """The declaration of what was given.

    Raises:
        UsageError: nothing to plan, a file that cannot be read, or which service is not clear.
        InvalidObject: every problem of the object, by field.
    """
    from sojourn import api  # noqa: PLC0415
    from sojourn.cli import flags  # noqa: PLC0415

    documents = list(_documents(given.file)) if given.file else []
    body = _service_body(documents, given) if given.file else flags.blank(given)
    flags.write_into(body, given)
    declaration = flags.named(lambda: api.read(body), from_flags=given.file is None)
    return Subject(
        declaration,
        _profile(documents, given, declaration),
        _catalogue(given, declaration),
        from_flags=given.file is None,
    )


def _documents(path: Path) -> Iterator[Mapping[str, Any]]:
    """Every object of a YAML or JSON file, items of lists one by one."""
    for document in _yaml(path):
        if isinstance(document, Mapping) and str(document.get("kind", "")).endswith("List"):
            yield from (item for item in document.get("items") or () if isinstance(item, Mapping))
        elif isinstance(document, Mapping):
            yield document


def _yaml(path: Path) -> list[Any]:
    """Every document of a file, or of the standard input for ``-``."""
    import yaml  # noqa: PLC0415

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        return list(yaml.load_all(text, loader))
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise UsageError(f"{path} is not a text file: byte {exc.start} is no UTF-8") from exc
    except yaml.YAMLError as exc:
        where = getattr(exc, "problem_mark", None)
        line = f"line {where.line + 1}: " if where else ""
        raise UsageError(f"{path} is not YAML: {line}{getattr(exc, 'problem', exc)}") from exc


def _service_body(documents: list[Mapping[str, Any]], given: Given) -> dict[str, Any]:
    found = [d for d in documents if d.get("kind") == "InferenceService"]
    names = [str((d.get("metadata") or {}).get("name")) for d in found]
    if given.service is not None:
        found = [d for d, name in zip(found, names, strict=True) if name == given.service]
    if len(found) == 1:
        return dict(found[0])
    if not names:
        raise UsageError(f"{given.file} holds no InferenceService")
    raise UsageError(f"{given.file} {_none_chosen(names, given.service)}")


def _none_chosen(names: list[str], asked: str | None) -> str:
    listed = ", ".join(names)
    if asked is not None:
        return f"holds no InferenceService {asked}, but {listed}"
    return f"holds {len(names)} services ({listed}): name one by --service"


def _profile(
    documents: list[Mapping[str, Any]], given: Given, declaration: Declaration
) -> Profile | None:
    """The profile given by itself, else the one beside the service that it refers to."""
    from sojourn import api  # noqa: PLC0415

    if given.fixed is not None:
        return None
    if given.profile is not None:
        found = [d for d in _documents(given.profile) if d.get("kind") == "ServingProfile"]
        if len(found) != 1:
            raise UsageError(f"{given.profile} holds {len(found)} ServingProfiles: expected one")
        return api.read_profile(found[0])
    for document in documents:
        named = (document.get("metadata") or {}).get("name") == declaration.profile_ref
        if document.get("kind") == "ServingProfile" and named:
            return api.read_profile(document)
    return None


def _catalogue(given: Given, declaration: Declaration) -> Catalogue:
    from sojourn.catalogue import Catalogue, huggingface  # noqa: PLC0415

    if given.config is None:
        return Catalogue()
    if not given.config.is_file():
        raise UsageError(f"{given.config} is no file: expected a model's config.json")
    name = declaration.model.name
    architecture = huggingface.from_config(given.config, name)
    return Catalogue(added_models={name.strip().lower(): architecture})
