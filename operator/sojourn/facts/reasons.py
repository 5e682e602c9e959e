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
    LENGTH_ABOVE_MODEL = "LengthAboveModel"
    GPUS_UNUSED = "GPUsUnused"
    ARGUMENT_UNREADABLE = "ArgumentUnreadable"
    GPU_SHARED = "GPUShared"
    UNSTABLE = "Unstable"
    SLO_UNREACHABLE = "SLOUnreachable"
    SLO_MISSED_AT_PEAK = "SLOMissedAtPeak"
    UTILIZATION_ABOVE_TARGET = "UtilizationAboveTarget"
    BATCH_WAIT_TOO_LONG = "BatchWaitTooLong"
    QUEUE_BELOW_BATCH = "QueueBelowBatch"
    MIN_REPLICAS_ZERO = "MinReplicasZero"
    QUERY_COUNTS_EVERYBODY = "QueryCountsEverybody"
    SELECTOR_OVERLAP = "SelectorOverlap"
    GRACE_TOO_SHORT = "GraceTooShort"
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
    RETRY_STORM = "RetryStorm"
    NOT_OBSERVED = "NotObserved"
    NOT_SOLVED = "NotSolved"
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
    LIVE_BATCH_FAILED = "LiveBatchFailed"
    INTERNAL_ERROR = "InternalError"
    AS_DECLARED = "AsDeclared"
    FRESH = "Fresh"
    FITS = "Fits"
    STABLE = "Stable"
    ATTAINABLE = "Attainable"
    CONVERGING = "Converging"
    CONVERGED = "Converged"
    PODS_PENDING = "PodsPending"
    CAPACITY_BLOCKED = "CapacityBlocked"
    FROM_PROFILE = "FromProfile"
    MEASURED_AGREES = "MeasuredAgrees"
    MEASURED_DISAGREES = "MeasuredDisagrees"
    FITTED = "Fitted"
    FIT_INACCURATE = "FitInaccurate"
    FIT_REFUSED = "FitRefused"
    NO_CONFLICT = "NoConflict"
    EXTERNAL_WRITER = "ExternalWriter"
    MULTIPLE_CONTROLLERS = "MultipleControllers"
    UNLIMITED = "Unlimited"


MEANING: dict[Reason, str] = {
    Reason.INVALID_OBJECT: "A field is missing, unknown or of the wrong form; nothing is decided.",
    Reason.MODEL_UNKNOWN: "The model is neither in the catalogue nor described inline.",
    Reason.GPU_UNKNOWN: "The GPU type is neither in the catalogue nor given a memory size.",
    Reason.WONT_START: "Weights, overhead and one longest request exceed the GPU memory.",
    Reason.OUT_OF_MEMORY: "The largest batch, or the start-up peak, exceeds the GPU memory.",
    Reason.MEMORY_TOO_CLOSE: "Memory fits or not within the memory model's own error.",
    Reason.KV_LIMITED: "The KV cache holds fewer requests than max batch.",
    Reason.LENGTH_ABOVE_MODEL: "The length declared exceeds what the model was made for.",
    Reason.GPUS_UNUSED: "A container asks for more GPUs than its engine is started on.",
    Reason.ARGUMENT_UNREADABLE: "An engine's argument is not known, or none the engine takes.",
    Reason.GPU_SHARED: "Other pods use the same card at the same time: its memory is not divided.",
    Reason.UNSTABLE: "More requests arrive than can be served: the queue grows without bound.",
    Reason.SLO_UNREACHABLE: "A lone request on an idle replica already takes longer than the SLO.",
    Reason.SLO_MISSED_AT_PEAK: "Stable at peak with maxReplicas, but slower than the SLO.",
    Reason.UTILIZATION_ABOVE_TARGET: "At peak with maxReplicas the load exceeds the target.",
    Reason.BATCH_WAIT_TOO_LONG: "Waiting for a batch to fill costs more than it brings.",
    Reason.QUEUE_BELOW_BATCH: "The queue is shorter than a batch, so no full batch ever gathers.",
    Reason.MIN_REPLICAS_ZERO: "No replicas are allowed, and nothing could wake the service.",
    Reason.QUERY_COUNTS_EVERYBODY: "The arrival query matches no namespace, model or pod.",
    Reason.SELECTOR_OVERLAP: "Another workload's pods match the target's selector, or the reverse.",
    Reason.GRACE_TOO_SHORT: "Pods told to stop are killed before their longest answers are out.",
    Reason.TARGET_CONFLICT: "Somebody else scales the same target; nothing is written.",
    Reason.NO_PEAK_DECLARED: "Stability cannot be judged before traffic is seen or declared.",
    Reason.PROFILE_MISSING: "The ServingProfile named in profileRef does not exist.",
    Reason.SERVICE_TIME_ESTIMATED: "The service time is estimated, not measured.",
    Reason.EXTRAPOLATED: "The batch is beyond twice the range that was measured.",
    Reason.INDICATIVE: "The model's answer is outside its validated range.",
    Reason.BYPASSED: "Admission verdicts were waived by the bypass annotation.",
    Reason.BATCH_BELOW_MINIMUM: "Row: max batch is below the least that carries the load.",
    Reason.LATENCY_ABOVE_SLO: "Row: the percentile exceeds the SLO.",
    Reason.UTILIZATION_HIGH: "Row: the load exceeds the upper threshold (0.85).",
    Reason.UTILIZATION_LOW: "Row: the load is below the lower threshold (0.50).",
    Reason.STEADY: "Row: nothing is to be changed.",
    Reason.HOLD: "Row: something needed is not known, so nothing is taken away.",
    Reason.PROMETHEUS_UNAVAILABLE: "Prometheus gave no usable answer.",
    Reason.NO_SERIES: "No series matches the pods of the target.",
    Reason.STALE_SERIES: "The latest sample is too old.",
    Reason.NOT_A_NUMBER: "The value is not a number, infinite or negative.",
    Reason.WINDOW_NOT_FULL: "The window of the rate is not yet full of samples.",
    Reason.LOW_COVERAGE: "Too few of the target's pods are scraped.",
    Reason.DUPLICATE_SERIES: "The same pod appears in several series.",
    Reason.RETRY_STORM: "More requests are refused than completed: many counted ones return.",
    Reason.NOT_OBSERVED: "The signal has not been observed yet.",
    Reason.NOT_SOLVED: "The operator has just begun and has not solved this service yet.",
    Reason.TARGET_MISSING: "The target of scaleTargetRef does not exist.",
    Reason.TARGET_FORBIDDEN: "The operator may not read or scale the target.",
    Reason.PAUSED: "The object carries the pause annotation; nothing is written.",
    Reason.MODE_OFF: "scaling.mode is Off; nothing is decided.",
    Reason.MAX_REPLICAS: "Limited by maxReplicas.",
    Reason.MIN_REPLICAS: "Held up by minReplicas.",
    Reason.STABILIZATION: "Held by the stabilisation window.",
    Reason.POLICY: "Paced by a policy of scaling.behavior.",
    Reason.QUOTA: "Limited by a resource quota of the namespace.",
    Reason.CAPACITY: "Fewer GPUs of the type are free than needed; bounds only a fixed pool.",
    Reason.MEMORY: "Limited by GPU memory.",
    Reason.TOLERANCE: "The change is within the tolerance.",
    Reason.EVIDENCE: "Not scaled down, because evidence is missing or too young.",
    Reason.RECOMMEND: "scaling.mode is Recommend: reported, not written.",
    Reason.SCALED_UP: "Replicas were added.",
    Reason.SCALED_DOWN: "Replicas were removed.",
    Reason.BATCH_CHANGED: "Max batch was written, or given to the running engines.",
    Reason.BATCH_NOT_REFERENCED: "No argument of the container refers to the max-batch variable.",
    Reason.BATCH_FIELD_OWNED_ELSEWHERE: "Somebody else owns the max-batch variable; not forced.",
    Reason.LIVE_BATCH_FAILED: "An engine did not take the new max batch; tried again each minute.",
    Reason.WRITE_FAILED: "The API server refused a write, or did not answer.",
    Reason.INTERNAL_ERROR: "A fault in the operator; replicas are held. Please report it.",
    Reason.AS_DECLARED: "As declared; nothing stands in the way.",
    Reason.FRESH: "The signals are known and fresh.",
    Reason.FITS: "Memory fits.",
    Reason.STABLE: "The load is below 1: the queue stays bounded.",
    Reason.ATTAINABLE: "The SLO can be kept.",
    Reason.CONVERGING: "A change is on its way.",
    Reason.CONVERGED: "The target is as decided, from fresh signals.",
    Reason.PODS_PENDING: "Replicas were asked for and do not serve yet.",
    Reason.CAPACITY_BLOCKED: "Pods asked for cannot be placed or created; the message says why.",
    Reason.FROM_PROFILE: "The service time was measured.",
    Reason.MEASURED_AGREES: "Measurements agree with the model.",
    Reason.MEASURED_DISAGREES: "Measurements disagree with the model.",
    Reason.FITTED: "A line fits the points of the profile.",
    Reason.FIT_INACCURATE: "The line is too far from a point of the profile; it is not used.",
    Reason.FIT_REFUSED: "No line can be fitted: batches do not vary, or a time is negative.",
    Reason.NO_CONFLICT: "Nobody else scales the target.",
    Reason.EXTERNAL_WRITER: "Somebody else keeps setting the replicas back; the message says who.",
    Reason.MULTIPLE_CONTROLLERS: "Another installation of Sojourn decides on the same object.",
    Reason.UNLIMITED: "No limit changed the decision.",
}
"""One line for people on each reason; docs/reference/reasons.md is made of it."""
