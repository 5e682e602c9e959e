"""Settings of the operator that a decision may look at; the book's values are the defaults."""

from __future__ import annotations

from dataclasses import dataclass

from sojourn.errors import ModelDomainError


@dataclass(frozen=True)
class Policy:
    """Thresholds of the decision table and the patience of the max-batch loop.

    Attributes:
        low_utilisation: below it, fewer replicas are tried.
        high_utilisation: above it, replicas are added.
        batch_tolerance: relative change of max batch worth a rollout.
        batch_patience_s: how long another max batch must be wanted first.
        batch_interval_s: least time between two rollouts for max batch.
        quiet_s: no max-batch change this soon after a change of scale.
        rate_window_s: window of the rates; no scale-down while a serving pod is younger.
        tick_s: time between decisions.
        free_queries: custom PromQL of an InferenceService is run.
        hold_without_quota: no growth while the namespace's quotas cannot be read.
        fixed_gpus: no nodes come when pods wait for GPUs, so no more replicas are asked for than
            the GPUs take.

    Raises:
        ModelDomainError: unless 0 < low < high < 1 and every time is positive.
    """

    low_utilisation: float = 0.50
    high_utilisation: float = 0.85
    batch_tolerance: float = 0.25
    batch_patience_s: float = 600.0
    batch_interval_s: float = 1800.0
    quiet_s: float = 60.0
    rate_window_s: float = 60.0
    tick_s: float = 15.0
    free_queries: bool = True
    hold_without_quota: bool = False
    fixed_gpus: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.low_utilisation < self.high_utilisation < 1:
            raise ModelDomainError(
                "low and high utilisation",
                (self.low_utilisation, self.high_utilisation),
                "0 < low < high < 1",
            )
        if min(self.tick_s, self.rate_window_s, self.batch_interval_s) <= 0:
            raise ModelDomainError("tick, window or interval", 0, "more than 0 seconds")
