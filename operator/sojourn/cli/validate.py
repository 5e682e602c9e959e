"""``sojourn validate``: the cluster's admission verdict before there is a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from sojourn.cli import exits, screen

if TYPE_CHECKING:
    from sojourn.cli.validate_read import Document
    from sojourn.controller.guard_review import Guard
    from sojourn.controller.review import Review, Reviewer
    from sojourn.facts.declaration import Declaration
    from sojourn.facts.situation import TargetPods


GROUPS = ("apps", "leaderworkerset.x-k8s.io", "ray.io")
"""API groups of the workloads whose engines are judged."""


class Output(StrEnum):
    """How verdicts are written."""

    TEXT = "text"
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    SARIF = "sarif"
    GITHUB = "github"


@dataclass(frozen=True)
class ValidateOptions:
    """Flags of ``sojourn validate``."""

    file: Annotated[
        list[str],
        typer.Option(
            "--file",
            "-f",
            metavar="PATH",
            help="File or folder with manifests; - reads standard input. May be repeated.",
        ),
    ]
    namespace: Annotated[
        str,
        typer.Option("--namespace", "-n", metavar="NAME", help="Of objects that name none."),
    ] = "default"
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 on warnings too.")] = False
    output: Annotated[
        Output,
        typer.Option("--output", "-o", help="text and table are the same; sarif, github for CI."),
    ] = Output.TEXT


@dataclass(frozen=True)
class Judged:
    """One object and what admission says of it."""

    document: Document
    review: Review

    @property
    def verdict(self) -> str:
        """``REJECT``, ``BYPASSED``, ``WARN`` or ``OK``."""
        answer = self.review.answer
        return {"denied": "REJECT", "bypassed": "BYPASSED", "warned": "WARN"}.get(answer, "OK")


def validate(options: ValidateOptions) -> None:
    """What the cluster would say of these manifests: the same checks, the same numbers, offline.

    Objects of other kinds are passed over; a Deployment, StatefulSet, LeaderWorkerSet, RayCluster
    or RayService that an InferenceService scales, or that is labelled for the guard, has the
    arguments of its engine judged, with the ConfigMaps among the files.

    Exit code 1: at least one object would be denied.
    """
    from sojourn.cli import validate_read, validate_write  # noqa: PLC0415

    found = validate_read.documents(options.file, options.namespace)
    judged = judge(found)
    screen.echo(validate_write.written(judged, options.output))
    bad = ("REJECT", "WARN") if options.strict else ("REJECT",)
    if any(one.verdict in bad for one in judged):
        raise typer.Exit(exits.VERDICT)


def judge(found: Iterable[Document]) -> list[Judged]:
    """Every object that admission would see, judged as it would be."""
    from sojourn import api  # noqa: PLC0415
    from sojourn.catalogue import Catalogue  # noqa: PLC0415
    from sojourn.controller.guard_review import Guard  # noqa: PLC0415
    from sojourn.controller.registry import Registry, read  # noqa: PLC0415
    from sojourn.controller.review import Reviewer  # noqa: PLC0415

    documents = list(found)
    names = Catalogue()
    registry = Registry(names)
    ours = [one for one in documents if one.group == api.GROUP]
    for one in ours:
        if one.kind == api.SERVING_PROFILE.kind:
            registry.put_profile(one.body)
    for one in ours:
        if one.kind == api.INFERENCE_SERVICE.kind and read(one.body)[0] is not None:
            registry.put(one.body, 0.0)
    reviewer = Reviewer(
        registry, names.gpus(), registry.sharing_target, lambda _: None, _pods_of(documents)
    )
    guard = Guard(registry, names.gpus())
    maps = _config_maps(documents)
    judged: list[Judged] = []
    for one in documents:
        review = _reviewed(one, reviewer, guard, maps.get(one.namespace, {}))
        if review is not None:
            judged.append(Judged(one, review))
    return judged


def _reviewed(
    document: Document,
    reviewer: Reviewer,
    guard: Guard,
    config_maps: Mapping[str, Mapping[str, str]],
) -> Review | None:
    from sojourn import api  # noqa: PLC0415
    from sojourn.controller import review as reviews  # noqa: PLC0415

    body = document.body
    if document.group == api.GROUP and document.kind == api.SERVING_PROFILE.kind:
        return reviews.review_profile(body, None)
    if document.group == api.GROUP and document.kind == api.INFERENCE_SERVICE.kind:
        return reviewer.review(body, None)
    if not _guarded(document, guard):
        return None
    try:
        return guard.review(body, None, config_maps)
    except (AttributeError, TypeError, ValueError):
        return None  # No workload at all: the API server would refuse it before.


def _guarded(document: Document, guard: Guard) -> bool:
    """Whether it is a workload that a service scales, or whose label asks for the guard."""
    from sojourn.cli.validate_read import metadata_of  # noqa: PLC0415
    from sojourn.controller import guard_review  # noqa: PLC0415
    from sojourn.decide import guard_workload  # noqa: PLC0415

    if document.group not in GROUPS or document.kind not in guard_workload.TEMPLATES:
        return False
    scaled = guard.registry.scaling(document.kind, document.namespace, document.name)
    labels = metadata_of(document.body).get("labels") or {}
    return scaled is not None or labels.get(guard_review.LABEL) == "enabled"


def _pods_of(documents: Iterable[Document]) -> Callable[[Declaration], TargetPods]:
    """What the workloads among the files say of their pods, as the cluster would tell it."""
    from sojourn.observe.cluster import ClusterState  # noqa: PLC0415

    cluster = ClusterState()
    for one in documents:
        if one.group == "apps" and one.kind in ("Deployment", "StatefulSet"):
            with contextlib.suppress(AttributeError, TypeError, ValueError):
                # What is no workload at all the API server would refuse before.
                cluster.apply(one.kind, None, one.body)
    return cluster.target_pods


def _config_maps(documents: Iterable[Document]) -> dict[str, dict[str, Mapping[str, str]]]:
    """Data of the ConfigMaps among the files, by namespace and name."""
    found: dict[str, dict[str, Mapping[str, str]]] = {}
    for one in documents:
        data = one.body.get("data")
        if one.kind == "ConfigMap" and not one.group and isinstance(data, Mapping):
            found.setdefault(one.namespace, {})[one.name] = data
    return found
