"""What stands around a container: its pod's volumes, the ConfigMaps they and its environment name.

A Secret is never looked into: what it sets is not known, and said to be so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import yaml

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_SUBSTITUTED = re.compile(r"\$\$|\$\(([^()$]+)\)")

MOST_CHARACTERS = 65_536
"""Variables made of variables double with each line: what grows beyond is no command line."""

TOO_LONG = f"longer than {MOST_CHARACTERS} characters"

NOT_READ = "is not read"
"""Why a ConfigMap is not known, unless the caller knows better."""


@dataclass(frozen=True)
class Surroundings:
    """What a container's words may refer to.

    Attributes:
        pod: spec of the pod, for its volumes.
        config_maps: ``data`` of the namespace's ConfigMaps by name, as far as they are known.
        missing: what is said of a ConfigMap that is not among them.
    """

    pod: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    config_maps: Mapping[str, Mapping[str, str]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    missing: str = NOT_READ

    def config_map(self, name: object) -> Mapping[str, Any] | None:
        """Data of a ConfigMap; None when it is not known."""
        found = self.config_maps.get(str(name))
        return found if isinstance(found, Mapping) else None


ALONE = Surroundings()
"""Nothing is known but the container."""


@dataclass(frozen=True)
class Environment:
    """Variables of a container.

    Attributes:
        values: those whose text is known.
        unknown: those that are set, and why their text is not known.
        others: why a variable that is in neither may be set all the same; empty when it is not.
    """

    values: Mapping[str, str]
    unknown: Mapping[str, str]
    others: str = ""

    def why_unknown(self, name: str) -> str:
        """Why the text of a variable is not known; empty when it is, or nobody defines it."""
        if name in self.values:
            return ""
        if name in self.unknown:
            return f"{name} is {self.unknown[name]}"
        return f"{name} {self.others}" if self.others else ""


def environment_of(container: Mapping[str, Any], around: Surroundings = ALONE) -> Environment:
    """Variables of ``env`` and ``envFrom``; ``env`` wins, and sees those before it."""
    values, unknown, others = dict[str, str](), dict[str, str](), ""
    for source in entries(container, "envFrom"):
        others = _taken(source, around, values) or others
    for entry in entries(container, "env"):
        name = str(entry.get("name") or "")
        values.pop(name, None)
        unknown.pop(name, None)
        taken = entry.get("valueFrom")
        if "value" in entry or not isinstance(taken, Mapping):
            text, why = substituted(
                str(entry.get("value") or ""), Environment(values, unknown, others)
            )
        else:
            text, why = _from(taken, around)
        if why:
            unknown[name] = why
        else:
            values[name] = text
    return Environment(values, unknown, others)


def substituted(text: str, environment: Environment) -> tuple[str, str]:
    """A text with its ``$(NAME)`` put in as Kubernetes does, and why one of them is not known.

    What nobody defines stays as it is written, as it does in the cluster. O(characters).
    """
    pieces, why, at = list[str](), "", 0
    for match in _SUBSTITUTED.finditer(text):
        put = "$"
        if name := match.group(1):
            why = why or environment.why_unknown(name)
            put = environment.values.get(name, match.group())
        pieces += (text[at : match.start()], put)
        at = match.end()
    pieces.append(text[at:])
    if sum(map(len, pieces)) > MOST_CHARACTERS:
        return "", TOO_LONG
    return "".join(pieces), why


def referred(text: str) -> tuple[str, ...]:
    """Names a text refers to as ``$(NAME)``; ``$$(NAME)`` is an escaped one."""
    return tuple(m.group(1) for m in _REFERENCE.finditer(text) if m.group(1))


def file_of(
    path: str, container: Mapping[str, Any], around: Surroundings
) -> tuple[Mapping[str, Any] | None, str]:
    """The YAML mapping mounted at a path, and why it is not known."""
    mount = _mount_of(path, container)
    if mount is None:
        return None, f"{path} is a file of the image or of a volume, which {NOT_READ}"
    volumes = entries(around.pod, "volumes")
    volume = next((v for v in volumes if v.get("name") == mount.get("name")), {})
    text, why = _held(volume, _inside(path, mount), around)
    if text is None:
        return None, f"{path} is {why}"
    try:
        read = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None, f"{path} is no YAML"
    return (read, "") if isinstance(read, Mapping) else (None, f"{path} holds no mapping")


def entries(node: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], ...]:
    """The mappings of a list; none when it is no list."""
    held = node.get(name)
    return tuple(e for e in held if isinstance(e, Mapping)) if isinstance(held, list) else ()


def _taken(source: Mapping[str, Any], around: Surroundings, values: dict[str, str]) -> str:
    """Puts in what an ``envFrom`` entry sets; answers why it is not known what that is."""
    if isinstance(secret := source.get("secretRef"), Mapping):
        return f"may be set by the Secret {secret.get('name')}"
    named = source.get("configMapRef")
    name = named.get("name") if isinstance(named, Mapping) else None
    held = around.config_map(name)
    if held is None:
        return f"may be set by the ConfigMap {name}, which {around.missing}"
    prefix = str(source.get("prefix") or "")
    values |= {f"{prefix}{key}": str(value) for key, value in held.items()}
    return ""


def _from(taken: Mapping[str, Any], around: Surroundings) -> tuple[str, str]:
    """Text of a ``valueFrom``, or why it is not known."""
    if isinstance(secret := taken.get("secretKeyRef"), Mapping):
        return "", f"set by a Secret ({secret.get('name')})"
    if not isinstance(wanted := taken.get("configMapKeyRef"), Mapping):
        return "", "set when the pod starts"
    name, key = wanted.get("name"), str(wanted.get("key"))
    held = around.config_map(name)
    if held is None:
        return "", f"set by the ConfigMap {name}, which {around.missing}"
    if key not in held:
        return "", f"set by the ConfigMap {name}, which has no key {key}"
    return str(held[key]), ""


def _mount_of(path: str, container: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The innermost mount that a path is below; None when it is below none."""
    mounts = [m for m in entries(container, "volumeMounts") if _below(path, m) is not None]
    return max(mounts, key=lambda m: len(str(m.get("mountPath"))), default=None)


def _inside(path: str, mount: Mapping[str, Any]) -> str:
    """The place of a path in the volume that is mounted."""
    parts = str(mount.get("subPath") or ""), _below(path, mount) or ""
    return "/".join(part for part in parts if part).strip("/")


def _below(path: str, mount: Mapping[str, Any]) -> str | None:
    """The rest of a path below a mount; None when it is elsewhere."""
    place = str(mount.get("mountPath") or "").rstrip("/")
    if path == place:
        return ""
    return path[len(place) + 1 :] if place and path.startswith(f"{place}/") else None


def _held(volume: Mapping[str, Any], key: str, around: Surroundings) -> tuple[str | None, str]:
    """Text of a file of a volume, or why it is not known."""
    why = "in a volume that is no ConfigMap"
    for kind, source in _sources(volume):
        if kind == "secret":
            why = f"set by a Secret ({source.get('secretName') or source.get('name')})"
            continue
        name = source.get("name")
        held = around.config_map(name)
        paths = {str(i.get("path")): str(i.get("key")) for i in entries(source, "items")}
        wanted = paths.get(key, "") if paths else key
        if held is None:
            why = f"set by the ConfigMap {name}, which {around.missing}"
        elif wanted in held:
            return str(held[wanted]), ""
        else:
            why = f"set by the ConfigMap {name}, which has no key for {key}"
    return None, why


def _sources(volume: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """ConfigMaps and Secrets of a volume, plain or projected."""
    projected = volume.get("projected")
    parts = entries(projected, "sources") if isinstance(projected, Mapping) else (volume,)
    for part in parts:
        for kind in ("configMap", "secret"):
            if isinstance(source := part.get(kind), Mapping):
                yield kind, source
