"""How long a new replica takes to be ready, until one of the target's own has been seen."""

from __future__ import annotations

from sojourn.catalogue import records
from sojourn.facts.architecture import Architecture


def cold_start_s(architecture: Architecture) -> tuple[float, str]:
    """Seconds from pod start to ready on a node that is present, and where they come from.

    The median of the class of size: a judgement from 24 published start-ups, not a measurement.
    """
    classes = records.read("cold_start.json")["classes"]
    for entry in classes:
        if architecture.parameters <= entry.get("max_parameters", float("inf")):
            return float(entry["median_s"]), _source(entry)
    raise AssertionError("the last class has no bound")


def _source(entry: records.Record) -> str:
    return (
        f"median of {entry['name']} models on a warm node, p90 {entry['p90_s']} s; "
        "judged from 24 published start-ups"
    )
