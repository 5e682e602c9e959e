"""The fit of a ServingProfile as its status."""

from dataclasses import replace

from sojourn.api.profile_status import profile_status
from sojourn.api.v1alpha1.status import ServingProfileStatus
from sojourn.facts.declaration import ObjectRef
from sojourn.facts.fit import ServiceTimeFit
from sojourn.facts.service_time import LinearServiceTime

REF = ObjectRef("prod", "p", "u-1", 3)
NOW, LATER = "2026-01-31T08:00:00Z", "2026-01-31T09:00:00Z"
FIT = ServiceTimeFit(
    law=LinearServiceTime(0.050, 0.0005),
    r_squared=0.99981,
    max_relative_error=0.0051,
    worst_batch=8,
    smallest_batch=1,
    largest_batch=32,
    tolerance=0.1,
    is_linear=True,
    is_valid=True,
)


def test_a_fit_is_shown_with_its_error_and_range() -> None:
    shown = profile_status(REF, FIT, None, None, NOW)
    assert shown == {
        "observedGeneration": 3,
        "fixed": "50ms",
        "perRequest": "500us",
        "rSquared": "0.9998",
        "maxRelativeErrorPercent": 1,
        "range": {"min": 1, "max": 32},
        "conditions": [
            {
                "type": "Valid",
                "status": "True",
                "reason": "Fitted",
                "message": "largest deviation 0.5 % at batch 8",
                "observedGeneration": 3,
                "lastTransitionTime": NOW,
            }
        ],
    }
    ServingProfileStatus.model_validate(shown)


def test_a_fit_too_far_from_its_points_is_not_valid_and_says_what_to_do() -> None:
    bad = replace(FIT, max_relative_error=0.2, is_valid=False)
    (valid,) = profile_status(REF, bad, None, None, NOW)["conditions"]
    assert (valid["status"], valid["reason"]) == ("False", "FitInaccurate")
    assert "measure more batches" in valid["message"]


def test_a_refused_fit_shows_why_and_no_line() -> None:
    shown = profile_status(REF, None, "batches do not vary", None, NOW)
    assert set(shown) == {"observedGeneration", "conditions"}
    assert shown["conditions"][0]["reason"] == "FitRefused"


def test_a_declared_line_is_valid_as_it_is() -> None:
    (valid,) = profile_status(REF, None, None, None, NOW)["conditions"]
    assert (valid["status"], valid["reason"]) == ("True", "AsDeclared")


def test_the_transition_time_stays_while_the_fit_stays_valid() -> None:
    first = profile_status(REF, FIT, None, None, NOW)
    assert profile_status(REF, FIT, None, first, LATER) == first
    (valid,) = profile_status(REF, None, "negative", first, LATER)["conditions"]
    assert valid["lastTransitionTime"] == LATER
