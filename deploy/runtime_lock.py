"""The image's packages: the lock without development tools and without what draws figures."""

from __future__ import annotations

import re

ROOT_MARK = "sojourn (pyproject.toml)"
NOT_IN_THE_IMAGE = frozenset({"matplotlib", "plotext"})  # the operator draws nothing

_NAME = re.compile(r"^([A-Za-z0-9._-]+)==")
_VIA = re.compile(r"^    #(?: via)?\s+(.+)$")


def runtime_lock(lock: str) -> str:
    """The part of a lock file, hashes included, that the operator needs at run time.

    A package is needed when the project asks for it, or a needed package does; the lock says so
    in its ``via`` comments.
    """
    blocks = _blocks(lock)
    needed = {
        name for name, _, askers in blocks if ROOT_MARK in askers and name not in NOT_IN_THE_IMAGE
    }
    while True:
        more = {name for name, _, askers in blocks if askers & needed} - needed
        more -= NOT_IN_THE_IMAGE
        if not more:
            break
        needed |= more
    return "".join(text for name, text, _ in blocks if name in needed)


def _blocks(lock: str) -> list[tuple[str, str, set[str]]]:
    """Name, text and askers of every pinned package, in the lock's order."""
    blocks: list[tuple[str, str, set[str]]] = []
    for line in lock.splitlines(keepends=True):
        if match := _NAME.match(line):
            blocks.append((match.group(1), line, set()))
        elif blocks and line.startswith("    "):
            name, text, askers = blocks[-1]
            blocks[-1] = (name, text + line, askers | _askers(line))
    return blocks


def _askers(line: str) -> set[str]:
    match = _VIA.match(line.rstrip())
    return {match.group(1).strip()} if match else set()
