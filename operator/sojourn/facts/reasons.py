"""The one enumeration of reasons: conditions, events, metric labels and the reference share it."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """CamelCase and stable. A new reason gets a row in docs/reference/reasons.md by generation."""

    # Admission verdicts.
    INVALID_OBJECT = "InvalidObject"
    MODEL_UNKNOWN = "ModelUnknown"
    GPU_UNKNOWN = "GpuUnknown"
    WONT_START = "WontStart"
    OUT_OF_MEMORY = "OutOfMemory"
    MEMORY_TOO_CLOSE = "MemoryTooClose"
    KV_LIMITED = "KVLimited"
    UNSTABLE = "Unstable"
    SLO_UNREACHABLE = "SLOUnreachable"
    SLO_MISSED_AT_PEAK = "SLOMissedAtPeak"
    UTILIZATION_ABOVE_TARGET = "UtilizationAboveTarget"
    BATCH_WAIT_TOO_LONG = "BatchWaitTooLong"
    QUEUE_BELOW_BATCH = "QueueBelowBatch"
    MIN_REPLICAS_ZERO = "MinReplicasZero"
    TARGET_CONFLICT = "TargetConflict"
    NO_PEAK_DECLARED = "NoPeakDeclared"
    PROFILE_MISSING = "ProfileMissing"
    SERVICE_TIME_ESTIMATED = "ServiceTimeEstimated"
    EXTRAPOLATED = "Extrapolated"
    INDICATIVE = "Indicative"
    BYPASSED = "AdmissionBypassed"

    # Rows of the decision table.
    BATCH_BELOW_MINIMUM = "BatchBelowMinimum"
    LATENCY_ABOVE_SLO = "LatencyAboveSLO"
    UTILIZATION_HIGH = "UtilizationHigh"
    UTILIZATION_LOW = "UtilizationLow"
    STEADY = "Steady"
    HOLD = "Hold"

    # Why a signal is unknown, and so why a service is held.
    PROMETHEUS_UNAVAILABLE = "PrometheusUnavailable"
    NO_SERIES = "NoSeries"
    STALE_SERIES = "StaleSeries"
    NOT_A_NUMBER = "NotANumber"
    WINDOW_NOT_FULL = "WindowNotFull"
    LOW_COVERAGE = "LowCoverage"
    DUPLICATE_SERIES = "DuplicateSeries"
    NOT_OBSERVED = "NotObserved"
    TARGET_MISSING = "TargetMissing"
    TARGET_FORBIDDEN = "TargetForbidden"
    PAUSED = "Paused"
    MODE_OFF = "ModeOff"

    # What limited a decision.
    MAX_REPLICAS = "MaxReplicas"
    MIN_REPLICAS = "MinReplicas"
    STABILIZATION = "Stabilization"
    POLICY = "Policy"
    QUOTA = "Quota"
    CAPACITY = "Capacity"
    MEMORY = "Memory"
    TOLERANCE = "Tolerance"
    EVIDENCE = "Evidence"
    RECOMMEND = "Recommend"

    # Acting, and the rest of a condition's life.
    SCALED_UP = "ScaledUp"
    SCALED_DOWN = "ScaledDown"
    BATCH_CHANGED = "BatchChanged"
    BATCH_NOT_REFERENCED = "BatchNotReferenced"
    BATCH_FIELD_OWNED_ELSEWHERE = "BatchFieldOwnedElsewhere"
    WRITE_FAILED = "WriteFailed"
    INTERNAL_ERROR = "InternalError"
    AS_DECLARED = "AsDeclared"
    FRESH = "Fresh"
    FITS = "Fits"
    STABLE = "Stable"
    ATTAINABLE = "Attainable"
    CONVERGING = "Converging"
    CONVERGED = "Converged"
    PODS_PENDING = "PodsPending"
    FROM_PROFILE = "FromProfile"
    MEASURED_AGREES = "MeasuredAgrees"
    MEASURED_DISAGREES = "MeasuredDisagrees"
    NO_CONFLICT = "NoConflict"
    UNLIMITED = "Unlimited"
