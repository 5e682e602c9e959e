"""The registry: objects in memory, resolved once a change."""

from __future__ import annotations

from typing import Any

from sojourn.catalogue import Catalogue
from sojourn.controller.registry import Registry
from sojourn.controller.tick import rivalry
from sojourn.decide import planning
from sojourn.facts.policy import Policy
from sojourn.facts.reasons import Reason
from tests.unit.decide.builders import autoscaled, situation

NOW_S = 1000.0


def body(name: str = "chat", generation: int = 1, uid: str = "u1", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "prod", "name": name, "uid": uid, "generation": generation},
        "spec": {
            "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"},
            "gpu": {"type": "A100-80GB"},
            "slo": {"latency": "10s"},
            "scaleTargetRef": {"name": "chat"},
            "scaling": {"maxReplicas": 8},
            **spec,
        },
    }


def registry(*bodies: dict[str, Any]) -> Registry:
    one = Registry(Catalogue())
    for each in bodies:
        one.put(each, NOW_S)
    return one


def test_a_service_is_resolved_once_and_again_only_when_its_spec_changes() -> None:
    one = registry(body())
    (first,) = one.entries()
    serving = first.serving
    assert not one.put(body(), NOW_S + 60)
    assert next(one.entries()).serving is serving
    assert one.put(body(generation=2, slo={"latency": "5s"}), NOW_S + 60)
    changed = next(one.entries())
    assert changed.serving is not serving
    assert changed.serving is not None
    assert changed.serving.service.goal.latency_s == 5.0


def test_an_object_made_anew_under_its_name_starts_with_no_past() -> None:
    one = registry(body())
    one.put(body(uid="u2"), NOW_S + 500)
    assert next(one.entries()).past.since_s == NOW_S + 500


def test_an_object_that_cannot_be_read_keeps_its_problems_and_harms_no_other() -> None:
    one = registry(body("bad", slo={"latency": "abc"}), body("good", uid="u9"))
    bad, good = one.get(("prod", "bad")), one.get(("prod", "good"))
    assert bad is not None
    assert bad.declaration is None
    assert [p.reason for p in bad.problems] == [Reason.INVALID_OBJECT]
    assert bad.problems[0].field == "spec.slo.latency"
    assert good is not None
    assert good.serving is not None


def test_of_two_services_on_one_target_the_older_scales_it_and_the_next_takes_over() -> None:
    """FC-082 and FC-083: a rename creates the new one before the old one goes."""
    old, new = body("old", uid="u1"), body("new", uid="u2")
    old["metadata"]["creationTimestamp"] = "2026-11-01T08:00:00Z"
    new["metadata"]["creationTimestamp"] = "2026-11-29T08:00:00Z"
    one = registry(old, new)

    def before(name: str) -> tuple[str, ...]:
        entry = one.get(("prod", name))
        assert entry is not None
        assert entry.declaration is not None
        return one.sharing_target(entry.declaration)

    assert before("old") == ()
    assert before("new") == ("InferenceService old",)
    one.drop(old)
    assert before("new") == ()


def test_of_two_services_of_one_age_the_first_by_name_scales_the_target() -> None:
    one = registry(body("a"), body("b", uid="u2"))
    first, second = one.get(("prod", "a")), one.get(("prod", "b"))
    assert first is not None
    assert second is not None
    assert first.declaration is not None
    assert second.declaration is not None
    assert one.sharing_target(first.declaration) == ()
    assert one.sharing_target(second.declaration) == ("InferenceService a",)


def test_an_object_under_deletion_is_left_alone() -> None:
    gone = body()
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert list(registry(gone).entries()) == []


def test_a_profile_that_arrives_later_is_used_at_once() -> None:
    one = registry(body(profileRef={"name": "p"}))
    entry = one.get(("prod", "chat"))
    assert entry is not None
    assert entry.resolved is not None
    assert [f.reason for f in entry.resolved.findings] == [Reason.PROFILE_MISSING]
    one.put_profile(
        {
            "metadata": {"namespace": "prod", "name": "p", "uid": "up", "generation": 1},
            "spec": {
                "model": "meta-llama/Llama-3.1-8B-Instruct",
                "gpu": {"type": "A100-80GB"},
                "engine": "vllm",
                "points": [{"batch": 1, "latency": "2s"}, {"batch": 32, "latency": "4s"}],
            },
        }
    )
    entry = one.get(("prod", "chat"))
    assert entry is not None
    assert entry.resolved is not None
    assert entry.resolved.findings == ()


def test_a_spec_that_changes_during_a_tick_is_resolved_for_the_next() -> None:
    one = registry(body())
    (entry,) = one.entries()
    begun_with = entry.resolved, entry.serving
    assert entry.serving is not None
    one.put(body(generation=2, scaling={"maxReplicas": 9}), NOW_S)
    one.put_profile({"metadata": {"namespace": "prod", "name": "p"}, "spec": {}})
    assert (entry.resolved, entry.serving) == begun_with
    (again,) = one.entries()
    assert again.serving is not None
    assert again.serving.service.declaration.scaling.max_replicas == 9
    one.put({**body(generation=3), "spec": {}}, NOW_S)
    (unreadable,) = one.entries()
    assert unreadable.serving is None
    assert unreadable.problems


def test_what_a_list_brought_and_the_watch_did_not_is_told() -> None:
    one = registry(body())
    assert one.unwatched() == {("prod", "chat")}
    one.watched(body())
    assert one.unwatched() == set()
    one.put(body(generation=2, slo={"latency": "5s"}), NOW_S)
    assert one.unwatched() == {("prod", "chat")}


def test_a_full_list_forgets_what_it_does_not_hold() -> None:
    one = registry(body("a"), body("b", uid="u2"))
    one.keep_only({("prod", "a")})
    assert [entry.ref.name for entry in one.entries()] == ["a"]


def status(controller: str, at: str) -> dict[str, Any]:
    return {"controller": controller, "lastDecision": {"at": at}}


def rival_after(ours: dict[str, Any], seen: dict[str, Any]) -> tuple[str, float] | None:
    one = registry(body())
    entry = one.get(("prod", "chat"))
    assert entry is not None
    entry.status = ours
    one.put({**body(), "status": seen}, NOW_S + 5)
    return entry.rival


def test_another_installation_is_one_that_writes_after_us() -> None:
    """FC-084."""
    ours, at = "op-a/sojourn", "2026-09-21T00:00:10Z"
    later, earlier = "2026-09-21T00:00:12Z", "2026-09-21T00:00:08Z"
    assert rival_after(status(ours, at), status("op-b/sojourn", later)) == (
        "op-b/sojourn",
        NOW_S + 5,
    )
    assert rival_after(status(ours, at), status("op-b/sojourn", earlier)) is None, "predecessor"
    assert rival_after(status(ours, at), status(ours, later)) is None, "another process of ours"
    assert rival_after({}, status("op-b/sojourn", later)) is None, "nothing written yet"
    assert rival_after(status(ours, at), {"lastDecision": {"at": later}}) is None, "older release"


def test_two_installations_are_told_on_the_object_and_each_goes_on() -> None:
    """FC-084: both see the other, so both say it."""
    one = autoscaled()
    done = planning.plan(situation(one, 4000, 1), one, Policy(), (rivalry("op-b/sojourn"),))
    (conflict,) = [c for c in done.conditions if c.type == "Conflict"]
    assert (conflict.status, conflict.reason) == (True, Reason.MULTIPLE_CONTROLLERS)
    assert "op-b/sojourn" in conflict.message
    assert done.write_replicas
