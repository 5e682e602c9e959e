"""An answer more than 5 % too optimistic says so: audited on every simulated reference row."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import queueing_honesty
from tests.unit.model import reference

ROWS = [
    row
    for system in ("dynamic-batching", "continuous-batching", "continuous-batching-fleet")
    for row in reference.simulated(system)
]


def quick(row: dict[str, Any]) -> bool:
    return bool(row["system"] != "dynamic-batching" or row["inputs"]["cv2"] == 0)


def audit(row: dict[str, Any]) -> None:
    silent = [
        f"{one.metric} {one.error:+.1%}" for one in queueing_honesty.findings(row) if not one.honest
    ]
    assert not silent


@pytest.mark.parametrize("row", [row for row in ROWS if quick(row)], ids=reference.ids)
def test_an_optimistic_p99_is_warned_of_by_name_and_size(row: dict[str, Any]) -> None:
    audit(row)


@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in ROWS if not quick(row)], ids=reference.ids)
def test_an_optimistic_p99_of_varying_times_is_warned_of(row: dict[str, Any]) -> None:
    audit(row)


def test_most_honest_answers_of_one_engine_are_not_warned_of() -> None:
    found = [
        one
        for row in reference.simulated("continuous-batching")
        for one in queueing_honesty.findings(row)
        if not one.optimistic
    ]
    assert sum(one.warned > 0 for one in found) / len(found) < 0.25
