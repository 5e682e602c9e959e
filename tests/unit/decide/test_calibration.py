"""On-line calibration: only when identifiable, only within bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sojourn.decide import calibration
from sojourn.facts.calibration import Calibration
from sojourn.facts.declaration import DeclaredTokens, Traffic
from sojourn.facts.reading import Known, Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.replica import ContinuousReplica
from sojourn.facts.service import Service
from sojourn.facts.situation import ServiceSample, Signals, TargetState
from tests.unit.decide.builders import NOW_S, service


def chat() -> Service:
    """Continuous batching: a lone request of 100 tokens takes 2 s, 20 ms more for each other."""
    from sojourn.facts.declaration import DeclaredEngine
    from sojourn.facts.service_time import LinearServiceTime

    return service(
        engine=DeclaredEngine("vllm", max_batch=64),
        service_time=LinearServiceTime(2.0, 0.020),
        traffic=Traffic(output=DeclaredTokens(100)),
    )


def samples(
    fixed_s: float, per_request_s: float, low: float = 5, high: float = 40, noise: float = 0.02
) -> list[ServiceSample]:
    rng = np.random.default_rng(5)
    running = np.linspace(low, high, 30)
    seconds = (fixed_s + per_request_s * running) * (1 + noise * rng.uniform(-1, 1, 30))
    return [
        ServiceSample(float(i), float(n), float(t))
        for i, (n, t) in enumerate(zip(running, seconds, strict=True))
    ]


def test_an_engine_that_is_slower_than_its_profile_is_seen() -> None:
    found = calibration.calibrate(chat(), samples(2.6, 0.026))
    assert found is not None
    assert found.fixed_factor == pytest.approx(1.3, abs=0.06)
    assert found.per_request_factor == pytest.approx(1.3, abs=0.15)
    assert not found.agrees


def test_factors_are_bounded_to_two() -> None:
    found = calibration.calibrate(chat(), samples(20.0, 0.2))
    assert found is not None
    assert (found.fixed_factor, found.per_request_factor) == (2.0, 2.0)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(samples(2.0, 0.02)[:19], id="too few"),
        pytest.param(samples(2.0, 0.02, 20, 25), id="batch does not vary"),
        pytest.param(samples(2.0, 0.02, noise=0.6), id="residuals above 15 %"),
    ],
)
def test_what_cannot_be_told_is_not_told(seen: list[ServiceSample]) -> None:
    assert calibration.calibrate(chat(), seen) is None


def test_a_dynamic_batching_service_is_left_as_profiled() -> None:
    assert calibration.calibrate(service(), samples(2.0, 0.02)) is None


def test_a_calibrated_service_has_its_line_scaled_and_nothing_else() -> None:
    from sojourn.decide.capacity import Serving
    from sojourn.model.choose import model_for

    one = chat()
    serving = Serving(one, model_for(one.replica))
    scaled = calibration.calibrated(serving, Calibration(1.5, 1.2)).service.replica
    assert isinstance(scaled, ContinuousReplica)
    assert isinstance(one.replica, ContinuousReplica)
    assert scaled.iteration.fixed_s == pytest.approx(1.5 * one.replica.iteration.fixed_s)
    assert scaled.iteration.per_request_s == pytest.approx(
        1.2 * one.replica.iteration.per_request_s
    )
    assert calibration.calibrated(serving, None) is serving


@pytest.mark.parametrize(
    ("signals", "target"),
    [
        pytest.param({"rate_per_s": Unknown(Reason.NO_SERIES, "")}, {}, id="rate unknown"),
        pytest.param({"rate_per_s": Known(10, NOW_S, lower_bound=True)}, {}, id="lower bound"),
        pytest.param({"rate_per_s": Known(0, NOW_S)}, {}, id="idle"),
        pytest.param({"waiting": Known(30, NOW_S)}, {}, id="queue grows"),
        pytest.param({}, {"ready_replicas": 1}, id="pods starting"),
        pytest.param({}, {"rollout_running": True}, id="rollout"),
    ],
)
def test_a_pair_that_would_mislead_is_not_taken(
    signals: dict[str, Any], target: dict[str, Any]
) -> None:
    seen: dict[str, Any] = {
        "rate_per_s": Known(10, NOW_S),
        "running": Known(40, NOW_S),
        "waiting": Known(0, NOW_S),
    }
    state: dict[str, Any] = {"spec_replicas": 2, "ready_replicas": 2}
    good = calibration.sample(Signals(**seen), TargetState(**state), NOW_S)
    assert good == ServiceSample(NOW_S, 20.0, 4.0)
    changed, moved = Signals(**{**seen, **signals}), TargetState(**{**state, **target})
    assert calibration.sample(changed, moved, NOW_S) is None
