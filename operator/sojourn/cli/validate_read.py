"""Manifests as they come out of an editor, Helm or kustomize, each object with its lines."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sojourn.cli.exits import UsageError

ENDINGS = (".yaml", ".yml", ".json")
STANDARD_INPUT = "-"
_STEP = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")


@dataclass(frozen=True)
class Document:
    """One object of a file.

    Attributes:
        file: as it was named on the command line, or found below a folder.
        body: the object.
        node: the same with positions.
    """

    file: str
    body: Mapping[str, Any]
    node: yaml.Node

    @property
    def kind(self) -> str:
        """Kind of the object."""
        return str(self.body.get("kind") or "")

    @property
    def group(self) -> str:
        """Group of its apiVersion; empty for the core group."""
        group, slash, _ = str(self.body.get("apiVersion") or "").rpartition("/")
        return group if slash else ""

    @property
    def name(self) -> str:
        """Name of the object."""
        return str(metadata_of(self.body).get("name") or "")

    @property
    def namespace(self) -> str:
        """Namespace of the object."""
        return str(metadata_of(self.body).get("namespace") or "")

    def line_of(self, path: str) -> int:
        """Line of a field, or of the nearest part of its path that is there; from 1."""
        node, line = self.node, self.node.start_mark.line
        for name, index in _STEP.findall(path):
            found = _step(node, name or index)
            if found is None:
                break
            line, node = found
        return int(line) + 1


def documents(paths: Iterable[str], namespace: str) -> list[Document]:
    """Every object below the paths; lists are opened.

    Args:
        paths: files, folders, or - for standard input.
        namespace: of objects that name none, as ``kubectl -n``.

    Raises:
        UsageError: a path does not exist, or a file is no YAML.
    """
    return [
        one
        for path in paths
        for file, text in _texts(path)
        for one in _parsed(file, text, namespace)
    ]


def _texts(path: str) -> Iterator[tuple[str, str]]:
    if path == STANDARD_INPUT:
        yield "<standard input>", sys.stdin.read()
        return
    place = Path(path)
    if not place.exists():
        raise UsageError(f"{path} does not exist")
    files = sorted(place.rglob("*")) if place.is_dir() else [place]
    for file in files:
        if file == place or (file.suffix in ENDINGS and file.is_file()):
            try:
                yield str(file), file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as exc:
                raise UsageError(f"{file} cannot be read: {exc}") from exc


def _parsed(file: str, text: str, namespace: str) -> Iterator[Document]:
    loader = yaml.SafeLoader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is None:
                continue
            yield from _opened(file, node, loader.construct_document(node), namespace)
    except (yaml.YAMLError, ValueError, RecursionError) as exc:
        hint = " Templates must be rendered first: helm template ... | sojourn validate -f -."
        template = hint if "{{" in text else ""
        raise UsageError(f"{file} is no YAML: {_short(exc)}{template}") from exc
    finally:
        loader.dispose()


def _opened(file: str, node: yaml.Node, body: object, namespace: str) -> Iterator[Document]:
    """The object, or the items of a List."""
    if not isinstance(body, dict) or "kind" not in body:
        return
    items = body.get("items")
    if str(body["kind"]).endswith("List") and isinstance(items, list):
        found = _step(node, "items")
        nodes = getattr(found[1], "value", []) if found is not None else []
        for one, item in zip(nodes, items, strict=False):
            yield from _opened(file, one, item, namespace)
        return
    metadata = body.get("metadata")
    if isinstance(metadata, dict) and metadata.get("namespace") is None:
        body = {**body, "metadata": {**metadata, "namespace": namespace}}
    yield Document(file, body, node)


def _step(node: yaml.Node, name: str) -> tuple[int, yaml.Node] | None:
    """Line and node of a mapping's entry, or of a list's item by index or by its name."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == name:
                return key.start_mark.line, value
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            named = _step(item, "name") if isinstance(item, yaml.MappingNode) else None
            if str(index) == name or (named is not None and named[1].value == name):
                return item.start_mark.line, item
    return None


def metadata_of(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Metadata of an object, empty when it has none."""
    metadata = body.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def _short(error: Exception) -> str:
    """A YAML error without its excerpt."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error) or type(error).__name__
    return f"line {mark.line + 1}: {problem}." if mark is not None else f"{problem}."
