"""Pages whose commands run: what a page shows is what the command prints.

A ``console`` block holds commands (``$ sojourn …``) and their output; ``UPDATE_GOLDEN=1`` writes
the outputs anew. Commands that need a cluster stand in ``sh`` blocks and do not run here.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.cli.objects import ROOT, sojourn

PAGES = sorted(
    path
    for folder in ("tutorial", "how-to")
    for path in (ROOT / "docs" / folder).glob("*.md")
    if "$ sojourn" in path.read_text()
)
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Shown:
    """One command and the output a page shows for it."""

    command: str
    output: str


def shown(block: str) -> Iterator[Shown]:
    """The commands of a block, each with what follows it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        end = 1
        while lines[end - 1].endswith("\\"):
            end += 1
        yield Shown("\n".join(lines[:end]), "\n".join(lines[end:]).rstrip())


def printed(command: str) -> str:
    """What the command prints, errors after results."""
    words = shlex.split(command.replace("\\\n", " "))
    assert words[0] == "sojourn", f"{command}: only our own commands run; use a sh block"
    ran = sojourn(*words[1:])
    lines = (ran.out + ran.err).splitlines()
    return "\n".join(line.rstrip() for line in lines).rstrip()


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_commands_of_a_page_print_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    for block in BLOCK.findall(text):
        if "$ sojourn" not in block:
            continue
        fresh = [Shown(one.command, printed(one.command)) for one in shown(block)]
        if os.environ.get("UPDATE_GOLDEN"):
            body = "\n".join(f"$ {one.command}\n{one.output}".rstrip() for one in fresh)
            text = text.replace(f"```console\n{block}```", f"```console\n{body}\n```")
            page.write_text(text)
            continue
        assert list(shown(block)) == fresh


def test_tutorial_is_among_the_pages() -> None:
    assert "gpt3.md" in [page.name for page in PAGES]
