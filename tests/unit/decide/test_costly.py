"""The costly answers of a tick: asked once for a rate and its noise, and never waited for."""

from __future__ import annotations

from dataclasses import replace

from sojourn.decide import planning
from sojourn.facts.plan import Plan
from sojourn.facts.policy import Policy
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import Figures, Past
from tests.unit.decide.builders import autoscaled, plan, situation

ONE = autoscaled(engine={"max_batch": 32})


def decided(rate: float, figures: Figures, *, may_solve: bool) -> Plan:
    state = situation(ONE, rate, 2, past=Past(0.0, figures=figures))
    return planning.plan(replace(state, may_solve=may_solve), ONE, Policy())


def test_noise_of_the_rate_asks_the_model_nothing_new() -> None:
    first = plan(ONE, 600.0, 2)
    assert first.figures is not None
    again = decided(601.0, first.figures, may_solve=False)
    assert again.report.predicted is first.report.predicted is not None


def test_without_time_to_solve_replicas_are_decided_and_figures_wait() -> None:
    done = decided(1600.0, Figures(), may_solve=False)
    assert done.report.predicted is None
    assert done.report.limits.min_batch is None
    solved = plan(ONE, 1600.0, 2)
    assert done.decision.after.replicas == solved.decision.after.replicas
    assert not done.write_max_batch


def test_a_service_never_solved_is_held_when_its_turn_has_not_come() -> None:
    fresh = replace(ONE)  # a copy knows no answers
    state = replace(situation(ONE, 1600.0, 2), may_solve=False, may_begin=False)
    held = planning.plan(state, fresh, Policy())
    assert held.decision.row is Reason.HOLD
    assert held.decision.after.replicas == 2
    plan(fresh, 1600.0, 2)
    assert (planning.plan(state, fresh, Policy()).decision.after.replicas or 0) > 2


def test_a_prediction_at_the_grid_is_within_a_few_percent_of_the_rate_itself() -> None:
    for rate in (20.0, 333.0, 777.0, 930.0):
        done = plan(ONE, rate, 2)
        assert done.report.predicted is not None
        exact = ONE.utilisation(rate, 2, 32)
        assert abs((1 - done.report.predicted.utilisation) / (1 - exact) - 1) < 0.03
