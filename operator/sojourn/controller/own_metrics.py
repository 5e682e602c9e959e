"""The operator's own metrics, for its dashboard and alerts."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from sojourn.act.execute import Applied
from sojourn.facts.reasons import Reason

ANSWER_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30)


class OwnMetrics:
    """Gauges and counters of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.services = Gauge(
            "sojourn_services", "InferenceServices in memory", registry=self.registry
        )
        self.leader = Gauge(
            "sojourn_leader", "1 while this process holds the lease", registry=self.registry
        )
        self.tick_seconds = Histogram(
            "sojourn_tick_seconds", "Duration of a tick", buckets=SECONDS, registry=self.registry
        )
        self.queries = Gauge(
            "sojourn_prometheus_queries",
            "Prometheus queries since the start",
            registry=self.registry,
        )
        self.decisions = Counter(
            "sojourn_decisions", "Decisions by row", ["row"], registry=self.registry
        )
        self.writes = Counter("sojourn_writes", "Writes by kind", ["kind"], registry=self.registry)
        self.desired = Gauge(
            "sojourn_desired_replicas",
            "Replicas wanted, for an HPA or KEDA; absent while a service is held",
            ["namespace", "name"],
            registry=self.registry,
        )
        self.blind_scale_downs = Counter(
            "sojourn_blind_scale_downs",
            "Scale-downs written without a known rate; always 0",
            registry=self.registry,
        )
        self._add_admission_metrics()

    def _add_admission_metrics(self) -> None:
        self.admissions = Counter(
            "sojourn_admissions", "Admission answers", ["answer"], registry=self.registry
        )
        self.admission_reasons = Counter(
            "sojourn_admission_findings",
            "Findings of admission by reason and verdict",
            ["reason", "verdict"],
            registry=self.registry,
        )
        self.admission_seconds = Histogram(
            "sojourn_admission_seconds",
            "Time to answer one admission request",
            buckets=ANSWER_SECONDS,
            registry=self.registry,
        )
        self.ca_matches = Gauge(
            "sojourn_webhook_ca_matches",
            "1 while caBundle of the webhook configuration trusts what this process serves",
            registry=self.registry,
        )
        self.certificate_ends = Gauge(
            "sojourn_webhook_certificate_not_after_seconds",
            "When the served certificate ends, in seconds since 1970",
            registry=self.registry,
        )
        self.probe_refused = Gauge(
            "sojourn_webhook_probe_refused",
            "1 when the API server last refused a known-bad object by our webhook, as it must",
            registry=self.registry,
        )

    def lease_lost(self) -> None:
        """Take back what only the holder of the lease may say."""
        self.leader.set(0.0)
        self.desired.clear()

    def ticked(self, applied: Iterable[Applied]) -> None:
        """Count one tick's decisions and writes."""
        self.desired.clear()
        for done in applied:
            decision = done.plan.decision
            self.decisions.labels(decision.row).inc()
            # A held service has no fresh answer: without a value an HPA keeps what runs.
            if decision.after.replicas is not None and decision.row is not Reason.HOLD:
                self.desired.labels(*done.plan.ref.key).set(decision.after.replicas)
            self._count_writes(done)
            shrinks = (decision.after.replicas or 0) < (decision.before.replicas or 0)
            if done.scaled and shrinks and decision.row is Reason.HOLD:
                self.blind_scale_downs.inc()

    def _count_writes(self, done: Applied) -> None:
        for kind, happened in (
            ("scale", done.scaled),
            ("batch", done.batch_written),
            ("status", done.status is not None),
        ):
            if happened:
                self.writes.labels(kind).inc()
