"""Whole outputs kept in tests/golden: ``UPDATE_GOLDEN=1 pytest`` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "golden" / "cli"


def agrees(name: str, text: str) -> None:
    """Assert that ``text`` is what is kept under ``name``; trailing blanks do not count."""
    path = FOLDER / name
    tidy = "\n".join(line.rstrip() for line in text.rstrip("\n").splitlines()) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(tidy)
    assert tidy == path.read_text(), f"{name} differs; UPDATE_GOLDEN=1 writes it anew"
