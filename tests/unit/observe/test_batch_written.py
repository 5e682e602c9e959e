"""When max batch was last written is the target's to tell: processes come and go."""

from typing import Any

from sojourn.facts.situation import TargetState
from tests.unit.observe.builders import declaration, deployment, synced_cluster

AT = "2026-03-01T12:00:00Z"
AT_S = 1772366400.0


def entry(manager: str, time: str) -> dict[str, Any]:
    return {"manager": manager, "operation": "Apply", "time": time, "fieldsV1": {}}


def written_at_s(*entries: dict[str, Any]) -> float | None:
    cluster = synced_cluster()
    body = deployment("chat", "team-a")
    body["metadata"]["managedFields"] = list(entries)
    cluster.apply("Deployment", None, body)
    state = cluster.target_state(declaration("chat", "team-a"))
    assert isinstance(state, TargetState)
    return state.batch_written_at_s


def test_our_field_manager_tells_when_max_batch_was_written() -> None:
    others = entry("kubectl", "2026-03-02T00:00:00Z"), entry("sojourn-scale", AT)
    assert written_at_s(*others, entry("sojourn-batch", AT)) == AT_S


def test_what_nobody_wrote_has_no_time() -> None:
    assert written_at_s(entry("sojourn-scale", AT)) is None
    assert written_at_s(entry("sojourn-batch", "no time")) is None
