"""Rows of tests/data/queueing_reference.json, each with its id."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

PATH = Path(__file__).parents[2] / "data" / "queueing_reference.json"


@cache
def table() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(PATH.read_text())
    return loaded


def exact(system: str) -> list[dict[str, Any]]:
    return [row for row in table()["exact"] if row["system"] == system]


def simulated(system: str) -> list[dict[str, Any]]:
    return [row for row in table()["simulated"] if row["system"] == system]


def ids(row: dict[str, Any]) -> str:
    return str(row["id"])
