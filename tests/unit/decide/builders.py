"""States for the tests of decide: the book's GPT-3 service, and what may be changed about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sojourn.catalogue import Catalogue
from sojourn.decide import planning, resolve
from sojourn.decide.capacity import Serving
from sojourn.decide.proposal import Proposal
from sojourn.facts.declaration import (
    Batching,
    Declaration,
    DeclaredEngine,
    DeclaredGpu,
    DeclaredModel,
    ObjectRef,
    Scaling,
    Slo,
    TargetRef,
    Traffic,
)
from sojourn.facts.plan import Plan
from sojourn.facts.policy import Policy
from sojourn.facts.reading import Known, Reading, Unknown
from sojourn.facts.reasons import Reason
from sojourn.facts.service import Service
from sojourn.facts.service_time import LinearServiceTime
from sojourn.facts.situation import Past, Signals, Situation, TargetState
from sojourn.model.choose import model_for

NOW_S = 10_000.0
CATALOGUE = Catalogue()
LONG_SEEN = Past(since_s=0.0)

GPT3 = Declaration(
    ref=ObjectRef("prod", "gpt3", "uid-1", 1),
    model=DeclaredModel("GPT-3", max_length_tokens=2048),
    gpu=DeclaredGpu("A100-80GB", tensor_parallel=8),
    slo=Slo(latency_s=1.0),
    target=TargetRef("gpt3"),
    engine=DeclaredEngine("custom", batching=Batching.DYNAMIC, max_batch=8),
    traffic=Traffic(peak_rate_per_s=100.0),
    scaling=Scaling(min_replicas=1, max_replicas=1),
    service_time=LinearServiceTime(0.050, 0.0005),
)
"""S9: 100 requests/s, T_fixed 50 ms, t_req 0.5 ms, on the book's 8 cards of 80 GB."""


def declaration(**changes: Any) -> Declaration:
    """GPT-3 with parts replaced: ``engine={"max_batch": 4}`` changes one field of a part."""
    parts = {
        name: replace(getattr(GPT3, name), **value) if isinstance(value, dict) else value
        for name, value in changes.items()
    }
    return replace(GPT3, **parts)


def service(**changes: Any) -> Service:
    """The resolved service of a declaration."""
    resolved = resolve.resolve(declaration(**changes), CATALOGUE)
    assert resolved.service is not None, resolved.findings
    return resolved.service


def serving(**changes: Any) -> Serving:
    """The service with its queueing model."""
    one = service(**changes)
    return Serving(one, model_for(one.replica, one.declaration.scaling.tail_rule))


def proposal(**changes: Any) -> Proposal:
    """A proposal of the service, every card of the catalogue to choose from."""
    return Proposal(serving(**changes), gpus=CATALOGUE.gpus())


def autoscaled(**changes: Any) -> Serving:
    """The service allowed 1 to 50 replicas."""
    scaling = {"min_replicas": 1, "max_replicas": 50, **changes.pop("scaling", {})}
    return serving(scaling=scaling, **changes)


def situation(
    one: Serving,
    rate: float | Unknown,
    replicas: int,
    *,
    past: Past = LONG_SEEN,
    target: dict[str, Any] | None = None,
    quota: int | None = None,
) -> Situation:
    """One service at one tick: a rate, the replicas that run, all of them ready."""
    reading: Reading = rate if isinstance(rate, Unknown) else Known(rate, NOW_S)
    state = TargetState(
        spec_replicas=replicas,
        ready_replicas=replicas,
        max_batch=one.service.bounds.maximum,
        batch_referenced=True,
        container="engine",
        youngest_ready_at_s=0.0,
    )
    return Situation(
        service=one.service,
        now_s=NOW_S,
        signals=Signals(rate_per_s=reading),
        target=replace(state, **(target or {})),
        past=past,
        quota_replicas=quota,
    )


def plan(one: Serving, rate: float | Unknown, replicas: int, **changes: Any) -> Plan:
    """The plan at one tick."""
    return planning.plan(situation(one, rate, replicas, **changes), one, Policy())


def replan(state: Situation, one: Serving, **changes: Any) -> Plan:
    """The plan of a situation with parts replaced."""
    return planning.plan(replace(state, **changes), one, Policy())


def without_target(state: Situation) -> Situation:
    """The same with its target deleted."""
    gone = Unknown(Reason.TARGET_MISSING, "there is no Deployment prod/gpt3")
    return replace(state, target=gone)
