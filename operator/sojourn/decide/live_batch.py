"""Max batch on engines that take a new one while they run: no rollout, so at every tick.

What such an engine was given is lost when it restarts, so the plan always says what all pods are
to have; ``act`` speaks to those that lack it.
"""

from __future__ import annotations

from dataclasses import replace

from sojourn import engines
from sojourn.decide import holds
from sojourn.decide.table import Live, Row, evaluate
from sojourn.engines.version import parse_version
from sojourn.facts.declaration import BatchPolicy, BatchRefMode, Declaration
from sojourn.facts.plan import LiveBatch
from sojourn.facts.situation import Situation, TargetState

DISTRUST_S = 600.0
"""A max batch that an engine did not take is not counted on for so long."""


def is_live(declaration: Declaration) -> bool:
    """Max batch is to be changed on running engines."""
    policy, mode = declaration.scaling.batch_policy, declaration.engine.max_batch_ref.mode
    if policy is BatchPolicy.FIXED or mode is BatchRefMode.NONE:
        return False
    return policy is BatchPolicy.LIVE or mode is BatchRefMode.LIVE


def running(situation: Situation, target: TargetState) -> int | None:
    """Max batch the engines run with: what they were given, else what they were started with."""
    if is_live(situation.service.declaration):
        return situation.past.live_batch or target.max_batch
    return target.max_batch


def objection(declaration: Declaration, target: TargetState) -> str | None:
    """Why this engine cannot be given a max batch while it runs; None when it can."""
    try:
        engine = engines.find(declaration.engine.name)
    except engines.EngineUnknown as exc:
        return str(exc)
    if engine.live_endpoint is None:
        return f"{engine.title} takes no new max batch while it runs: use maxBatchPolicy Rollout"
    version = _version(declaration, target)
    parsed = parse_version(version) if version else None
    if parsed is None or engine.live_since is None or parsed >= engine.live_since:
        return None
    first = ".".join(map(str, engine.live_since))
    return f"{engine.title} {version} takes no new max batch while it runs, {first} does"


def row(situation: Situation, live: Live, max_batch: int | None) -> Row:
    """The row of the table where all engines are about to get ``max_batch``.

    A row that adds replicas is answered by the batch where the batch is enough, and a batch that
    needs more replicas gets them. Replicas are removed only for a batch that runs already, and
    nothing is counted on that an engine has just refused.
    """
    now = evaluate(live)
    if max_batch in (None, live.max_batch) or _refused(situation):
        return now
    then = evaluate(replace(live, max_batch=max_batch or live.max_batch, measured=None))
    if then.replicas > live.replicas:
        return then
    if now.replicas > live.replicas:
        text = f"{now.message}; with max batch {max_batch} these are enough"
        return Row(now.reason, live.replicas, text)
    return now


def wanted(situation: Situation, target: TargetState, max_batch: int | None) -> LiveBatch | None:
    """What all pods are to have; None leaves them alone."""
    declaration = situation.service.declaration
    if max_batch is None or not is_live(declaration) or objection(declaration, target):
        return None
    if holds.switched_off(situation) or holds.not_written(situation, target):
        return None
    engine = engines.find(declaration.engine.name)
    return LiveBatch(
        max_batch=max_batch,
        engine=engine.name,
        version=_version(declaration, target),
        port=engine.live_port,
        model=declaration.model.name,
        pipeline_parallel=declaration.gpu.pipeline_parallel,
        pods=target.engine_pods,
    )


def _refused(situation: Situation) -> bool:
    refused_at_s = situation.past.live_refused_at_s
    return refused_at_s is not None and situation.now_s - refused_at_s < DISTRUST_S


def _version(declaration: Declaration, target: TargetState) -> str | None:
    """What the image tag says, else what the spec does."""
    return target.engine_version or declaration.engine.version
