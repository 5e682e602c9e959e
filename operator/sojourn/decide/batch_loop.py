"""The loop of max batch: a rollout is a cost, so a change must earn it.

Engines that take a new max batch while they run pay no rollout: there a change needs to be outside
the tolerance, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sojourn.decide import live_batch
from sojourn.facts.declaration import BatchPolicy, BatchRefMode
from sojourn.facts.policy import Policy
from sojourn.facts.reasons import Reason
from sojourn.facts.situation import Situation, TargetState


@dataclass(frozen=True)
class BatchWish:
    """The max batch the model would run, beside the live one.

    Attributes:
        live: max batch now; None when the target does not say.
        wanted: max batch of the chosen objective.
        feasible: least and largest max batch within the serving constraint at the live replicas.
        replicas_saved: replicas fewer with ``wanted`` at the design rate.
        restores_slo: the live batch misses the SLO where the wanted one keeps it.
        replicas_needed: what the load needs while the pods are replaced, at the live max batch.
    """

    live: int | None
    wanted: int
    feasible: tuple[int, int] | None
    replicas_saved: int
    restores_slo: bool
    replicas_needed: int = 1


@dataclass(frozen=True)
class BatchMove:
    """The outcome: max batch to run, whether it is written now, and why or why not.

    Attributes:
        write: the target's variable is written, so its pods are replaced.
        live: the running engines are to have ``max_batch``, changed or not.
    """

    max_batch: int | None
    write: bool
    reason: Reason
    message: str
    wanted: bool
    live: bool = False


@dataclass(frozen=True)
class _Case:
    situation: Situation
    target: TargetState
    wish: BatchWish
    policy: Policy


def move(situation: Situation, target: TargetState, wish: BatchWish, policy: Policy) -> BatchMove:
    """Decide on max batch: the first objection keeps the live one."""
    case = _Case(situation, target, wish, policy)
    if live_batch.is_live(situation.service.declaration):
        return _live_move(case)
    if not _worth_it(case):
        return BatchMove(wish.live, False, Reason.STEADY, "max batch is within tolerance", False)
    for objection in OBJECTIONS:
        if text := objection(case):
            return BatchMove(wish.live, False, Reason.HOLD, text, True)
    before = "unset" if wish.live is None else wish.live
    text = f"max batch {before} -> {wish.wanted}: {_gain(wish)}"
    return BatchMove(wish.wanted, True, Reason.BATCH_CHANGED, text, True)


def _live_move(case: _Case) -> BatchMove:
    """The wanted max batch at once, within what the engine was started with."""
    wish = case.wish
    if text := live_batch.objection(case.situation.service.declaration, case.target):
        return BatchMove(wish.live, False, Reason.HOLD, text, wish.wanted != wish.live)
    started_with = case.target.max_batch
    wanted = wish.wanted if started_with is None else min(wish.wanted, started_with)
    if wish.live is not None and not _worth_it(replace(case, wish=replace(wish, wanted=wanted))):
        text = "max batch is within tolerance"
        return BatchMove(wish.live, False, Reason.STEADY, text, False, live=True)
    text = "" if wanted == wish.live else f"max batch {wish.live} -> {wanted}: without a restart"
    return BatchMove(wanted, False, Reason.BATCH_CHANGED, text, True, live=True)


def _worth_it(case: _Case) -> bool:
    wish = case.wish
    if wish.live is None:
        return case.target.batch_referenced
    if wish.feasible is not None and not wish.feasible[0] <= wish.live <= wish.feasible[1]:
        return wish.wanted != wish.live
    change = abs(wish.wanted - wish.live) / wish.live
    return change >= case.policy.batch_tolerance


def _not_allowed(case: _Case) -> str | None:
    declaration = case.situation.service.declaration
    if declaration.scaling.batch_policy is BatchPolicy.FIXED:
        return "spec.scaling.maxBatchPolicy is Fixed"
    if declaration.engine.max_batch_ref.mode is not BatchRefMode.ENV:
        return f"maxBatchRef mode {declaration.engine.max_batch_ref.mode} is not written"
    return None


def _not_referenced(case: _Case) -> str | None:
    if case.target.batch_referenced:
        return None
    variable = case.situation.service.declaration.engine.max_batch_ref.env
    return f"no argument of the target refers to $({variable})"


def _manual(case: _Case) -> str | None:
    """A template that nobody rolls out would be taken for the max batch that runs."""
    waits = case.target.rollout_manual
    return f"{waits}: a new max batch would not reach the pods" if waits else None


def _moving(case: _Case) -> str | None:
    if case.target.rollout_running:
        return "a rollout is running"
    if case.target.pods_pending:
        return f"{case.target.pods_pending} pods are still starting"
    events = case.situation.past.scale_events
    if events and case.situation.now_s - events[-1].at_s < case.policy.quiet_s:
        return f"the scale changed less than {case.policy.quiet_s:g} s ago"
    return None


def _too_thin(case: _Case) -> str | None:
    """Capacity may not fall below the need while pods are replaced."""
    left = case.target.ready_replicas - case.target.rollout_unavailable
    if left >= case.wish.replicas_needed:
        return None
    return (
        f"a rollout may leave {left} of {case.target.ready_replicas} replicas, "
        f"{case.wish.replicas_needed} are needed: set the strategy's maxUnavailable to 0"
    )


def _no_room(case: _Case) -> str | None:
    """Where no pod may be missing the first new one comes on top, and quota must let it."""
    quota, target = case.situation.quota_replicas, case.target
    if quota is None or target.rollout_unavailable > 0 or quota > target.spec_replicas:
        return None
    return (
        f"a rollout begins with one replica more, and quota allows {quota} where "
        f"{target.spec_replicas} run: raise it, or set the strategy's maxUnavailable to 1"
    )


def _impatient(case: _Case) -> str | None:
    if case.wish.restores_slo or case.wish.live is None:
        return None
    since = case.situation.past.batch_wanted_since_s
    waited = 0.0 if since is None else case.situation.now_s - since
    if waited < case.policy.batch_patience_s:
        return f"wanted for {waited:.0f} s of {case.policy.batch_patience_s:g} s"
    return None


def _over_budget(case: _Case) -> str | None:
    # What this process remembers, and what the target shows of those before it.
    known = (case.situation.past.batch_changed_at_s, case.target.batch_written_at_s)
    ago = min((case.situation.now_s - at_s for at_s in known if at_s is not None), default=None)
    if ago is None or ago >= case.policy.batch_interval_s:
        return None
    return f"last changed {ago:.0f} s ago, at most once in {case.policy.batch_interval_s:g} s"


def _no_gain(case: _Case) -> str | None:
    wish = case.wish
    if wish.live is None or wish.restores_slo or wish.replicas_saved > 0:
        return None
    if wish.feasible is not None and not wish.feasible[0] <= wish.live <= wish.feasible[1]:
        return None
    return "no replica saved and the SLO is kept as it is"


OBJECTIONS: tuple[Callable[[_Case], str | None], ...] = (
    _not_allowed,
    _not_referenced,
    _manual,
    _moving,
    _no_gain,
    _over_budget,
    _too_thin,
    _no_room,
    _impatient,  # last: it is the one that passes by waiting
)


def _gain(wish: BatchWish) -> str:
    if wish.live is None:
        return "the variable was not set"
    if wish.restores_slo:
        return "the SLO is kept with it"
    if wish.replicas_saved > 0:
        return f"saves {wish.replicas_saved} replicas"
    return "the live one is outside the feasible interval"
