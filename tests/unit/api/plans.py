"""Plans the status tests start from."""

from dataclasses import replace
from typing import Any

from sojourn.facts.declaration import ObjectRef
from sojourn.facts.plan import Clip, Condition, Decision, Limits, Plan, Report, Setting
from sojourn.facts.reading import Known
from sojourn.facts.reasons import Reason
from sojourn.facts.sojourn import Latency, Sojourn

AT_S = 1_769_846_400.0
NOW = "2026-01-31T08:00:00Z"


def predicted(utilisation: float = 0.71) -> Sojourn:
    return Sojourn(
        model="Exact",
        utilisation=utilisation,
        busy_fraction=0.9,
        latency=Latency(0.8, ((0.5, 0.75), (0.99, 1.62))),
        queue_wait_s=0.2,
        batch_wait_s=0.0,
        service_s=0.6,
        mean_batch=9.0,
        blocking=0.0,
        throughput_per_s=6.4,
        in_system=2.5,
    )


def report(rate_per_s: float = 38.4, **changes: Any) -> Report:
    return replace(
        Report(
            rate_per_s=Known(rate_per_s, AT_S),
            latency_p50_s=Known(0.74, AT_S),
            latency_p99_s=Known(1.55, AT_S),
            in_system=Known(14.0, AT_S),
            predicted=predicted(),
            regime="LatencyKnee",
            limits=Limits(12, 40, 106, 6.2, 51.5, "Latency"),
        ),
        **changes,
    )


def decision(before: int = 6, after: int = 7, at_s: float = AT_S, **changes: Any) -> Decision:
    return replace(
        Decision(
            at_s=at_s,
            row=Reason.UTILIZATION_HIGH,
            before=Setting(before, 24),
            after=Setting(after, 24),
            raw=Setting(8, 24),
            message="utilisation 0.87 > 0.85 at 38.4/s; 7 replicas give 0.74, P99 1.62s <= 2s",
            limited_by=(Clip(Reason.MAX_REPLICAS, 7, "7 of 8 wanted: maxReplicas 7"),),
        ),
        **changes,
    )


CONDITIONS = (
    Condition("Ready", True, Reason.CONVERGED, "decided from fresh metrics of this target"),
    Condition("SLOAttainable", None, Reason.NOT_OBSERVED, "not judged"),
    Condition("Conflict", False, Reason.NO_CONFLICT, "nobody else scales the target"),
)


def plan(**changes: Any) -> Plan:
    return replace(
        Plan(
            ref=ObjectRef("prod", "chat", "u-1", 7),
            service=None,
            decision=decision(),
            report=report(),
            conditions=CONDITIONS,
            write_replicas=True,
            ready_replicas=6,
        ),
        **changes,
    )


def steady(at_s: float = AT_S, rate_per_s: float = 38.4, **changes: Any) -> Plan:
    """A plan that writes nothing."""
    quiet = decision(
        7,
        7,
        at_s,
        row=Reason.STEADY,
        limited_by=(),
        raw=Setting(7, 24),
        message=f"utilisation 0.7 at {rate_per_s}/s",
    )
    return plan(
        **({"decision": quiet, "report": report(rate_per_s), "write_replicas": False} | changes)
    )
