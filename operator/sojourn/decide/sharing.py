"""Services that share one quota: what room there is goes to the most important first.

Each service alone may see the same free GPUs; decided one by one they would all take them, and the
cluster would choose by chance whose pods stay pending.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sojourn.facts.plan import Plan
from sojourn.facts.situation import Situation, TargetState

Key = tuple[str, str]
Case = tuple[Situation, Plan]


def fair_quotas(cases: Sequence[Case]) -> dict[Key, int]:
    """Lowered ``quota_replicas`` of services that must leave room for more important ones.

    Room is counted in GPUs of the namespace. Order: higher ``scaling.priority`` first, then by
    name, so that the answer does not change from tick to tick. O(n log n) over services that grow.
    """
    by_namespace: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        if _growth(case) > 0 and case[0].quota_replicas is not None:
            by_namespace[case[1].ref.namespace].append(case)
    lowered: dict[Key, int] = {}
    for contenders in by_namespace.values():
        if len(contenders) > 1:
            lowered.update(_shared_out(contenders))
    return lowered


def _shared_out(contenders: list[Case]) -> dict[Key, int]:
    room = max(_room_gpus(case) for case in contenders)
    lowered: dict[Key, int] = {}
    for case in sorted(contenders, key=_rank):
        situation, plan = case
        gpus = _gpus(situation)
        granted = min(_growth(case), room // gpus)
        room -= granted * gpus
        if granted < _growth(case):
            lowered[plan.ref.key] = _replicas(situation) + granted
    return lowered


def _rank(case: Case) -> tuple[int, str]:
    return -case[0].service.declaration.scaling.priority, case[1].ref.name


def _growth(case: Case) -> int:
    situation, plan = case
    if not plan.write_replicas:
        return 0
    return max(0, (plan.decision.after.replicas or 0) - _replicas(situation))


def _room_gpus(case: Case) -> int:
    situation = case[0]
    free = (situation.quota_replicas or 0) - _replicas(situation)
    return max(0, free) * _gpus(situation)


def _gpus(situation: Situation) -> int:
    return situation.service.declaration.gpu.per_replica


def _replicas(situation: Situation) -> int:
    target = situation.target
    return target.spec_replicas if isinstance(target, TargetState) else 0
