"""Which field cases are tests: every development case of these kinds is one, or says what it is."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

TESTS = Path(__file__).parents[1]
CASES = TESTS / "data" / "field_cases.yaml"
KINDS = (
    "metrics-gap",
    "NaN",
    "stale",
    "counter-reset",
    "label collision",
    "scale-to-zero",
    "pending",
    "flapping",
    "quota/limit",
    "rollout",
    "target conflict with HPA",
    "GitOps drift",
    "validation of units",
    "SLO unreachable",
    "leader failover",
    "clock/timezone",
)
_ID = re.compile(r"FC-\d{3}")


@cache
def cases() -> dict[str, dict[str, Any]]:
    """Every development case by its id."""
    return {case["id"]: case for case in yaml.safe_load(CASES.read_text())["cases"]}


def covered() -> dict[str, list[str]]:
    """Files of tests by the id they carry."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        if path != Path(__file__):
            for name in set(_ID.findall(path.read_text())):
                found.setdefault(name, []).append(path.relative_to(TESTS).as_posix())
    return found


def test_every_development_case_of_the_loops_kinds_is_a_test() -> None:
    tested = covered()
    missing = [
        f"{name} ({case['kind']}, {case['level']}): {case['summary']}"
        for name, case in cases().items()
        if case["kind"] in KINDS and name not in tested
    ]
    assert not missing, "\n".join(missing)


def test_a_test_carries_the_id_of_a_case_there_is() -> None:
    assert set(covered()) <= set(cases())


def test_every_kind_is_one_of_the_files_kinds() -> None:
    assert set(KINDS) <= {case["kind"] for case in cases().values()}
