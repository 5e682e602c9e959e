"""HPA semantics, against the arithmetic of the published algorithm."""

from __future__ import annotations

import pytest

from sojourn.decide import behaviour
from sojourn.facts.declaration import Behaviour, ScalingPolicy, ScalingRules
from sojourn.facts.situation import Past, Recommendation, ScaleEvent

NOW_S = 1000.0


def rules(
    *policies: tuple[str, int, float], window_s: float = 0.0, select: str = "Max"
) -> ScalingRules:
    return ScalingRules(window_s, tuple(ScalingPolicy(*policy) for policy in policies), select)


def past(
    recommendations: tuple[tuple[float, int], ...] = (),
    events: tuple[tuple[float, int], ...] = (),
    since_s: float = 0.0,
) -> Past:
    return Past(
        since_s,
        tuple(Recommendation(NOW_S - ago, n) for ago, n in recommendations),
        tuple(ScaleEvent(NOW_S - ago, n) for ago, n in events),
    )


@pytest.mark.parametrize(
    ("current", "wanted", "policies", "select", "events", "expected"),
    [
        pytest.param(3, 20, (("Percent", 100, 15),), "Max", (), 6, id="up 100 % doubles"),
        pytest.param(3, 20, (("Pods", 4, 15),), "Max", (), 7, id="up 4 pods adds 4"),
        pytest.param(
            3, 20, (("Percent", 100, 15), ("Pods", 4, 15)), "Max", (), 7, id="up Max takes more"
        ),
        pytest.param(
            3, 20, (("Percent", 100, 15), ("Pods", 4, 15)), "Min", (), 6, id="up Min takes less"
        ),
        pytest.param(1, 9, (("Percent", 50, 15),), "Max", (), 2, id="up 50 % of 1 rounds to 2"),
        pytest.param(
            7, 20, (("Pods", 4, 60),), "Max", ((10, 4),), 7, id="up counts what the period added"
        ),
        pytest.param(
            7, 20, (("Pods", 4, 60),), "Max", ((70, 4),), 11, id="up forgets an older period"
        ),
        pytest.param(10, 1, (("Percent", 10, 60),), "Max", (), 9, id="down 10 % of 10"),
        pytest.param(10, 1, (("Pods", 3, 60),), "Max", (), 7, id="down 3 pods"),
        pytest.param(
            10, 1, (("Percent", 10, 60), ("Pods", 3, 60)), "Max", (), 7, id="down Max goes further"
        ),
        pytest.param(
            10, 1, (("Percent", 10, 60), ("Pods", 3, 60)), "Min", (), 9, id="down Min goes less far"
        ),
        pytest.param(10, 1, (("Pods", 3, 60),), "Disabled", (), 10, id="down disabled holds"),
        pytest.param(
            8, 1, (("Pods", 3, 60),), "Max", ((10, -2),), 7, id="down counts what was removed"
        ),
    ],
)
def test_policies_pace_a_change(
    current: int,
    wanted: int,
    policies: tuple[tuple[str, int, float], ...],
    select: str,
    events: tuple[tuple[float, int], ...],
    expected: int,
) -> None:
    one = rules(*policies, select=select)
    replicas, clip = behaviour.paced(
        current, wanted, Behaviour(up=one, down=one), past(events=events), NOW_S
    )
    assert replicas == expected
    assert clip is not None


@pytest.mark.parametrize(
    ("current", "wanted", "seen", "expected"),
    [
        pytest.param(5, 2, ((100, 4), (50, 3)), 4, id="down takes the largest of the window"),
        pytest.param(5, 2, ((400, 5), (50, 3)), 3, id="down forgets what is older"),
        pytest.param(5, 2, ((100, 9),), 5, id="down never turns into up"),
        pytest.param(5, 8, ((100, 2),), 8, id="up is immediate by default"),
        pytest.param(5, 5, ((100, 9),), 5, id="no change wanted, none made"),
    ],
)
def test_stabilisation_remembers_its_window(
    current: int, wanted: int, seen: tuple[tuple[float, int], ...], expected: int
) -> None:
    replicas, _ = behaviour.stabilised(current, wanted, Behaviour(), past(seen), NOW_S)
    assert replicas == expected


def test_scale_up_with_a_window_waits_for_its_least_need() -> None:
    up = rules(("Percent", 100, 15), window_s=60)
    replicas, clip = behaviour.stabilised(2, 8, Behaviour(up=up), past(((30, 3), (10, 6))), NOW_S)
    assert replicas == 3
    assert clip is not None


def test_a_process_younger_than_the_window_never_scales_down() -> None:
    replicas, clip = behaviour.stabilised(5, 1, Behaviour(), past(since_s=NOW_S - 20), NOW_S)
    assert replicas == 5
    assert clip is not None


@pytest.mark.parametrize(
    ("current", "wanted", "expected"),
    [
        pytest.param(20, 19, 20, id="5 % fewer is within the default 10 %"),
        pytest.param(20, 18, 20, id="exactly 10 % is within"),
        pytest.param(20, 17, 17, id="15 % fewer is not"),
        pytest.param(20, 21, 21, id="upwards the default is none"),
        pytest.param(1, 0, 0, id="the last replica is a whole one"),
    ],
)
def test_a_change_within_the_tolerance_of_its_direction_is_not_made(
    current: int, wanted: int, expected: int
) -> None:
    replicas, clip = behaviour.tolerated(current, wanted, Behaviour())
    assert replicas == expected
    assert (clip is None) == (replicas == wanted)
