"""The fit of a ServingProfile as its status."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sojourn.api.status import condition_entry, objects_in
from sojourn.facts.declaration import ObjectRef
from sojourn.facts.fit import ServiceTimeFit
from sojourn.facts.plan import Condition
from sojourn.facts.reasons import Reason
from sojourn.units import format_duration

_VALID = "Valid"


def profile_status(
    ref: ObjectRef,
    fit: ServiceTimeFit | None,
    refusal: str | None,
    previous: Mapping[str, Any] | None,
    now: str,
) -> dict[str, Any]:
    """The status of one ServingProfile; the same fit gives the same status.

    Args:
        fit: the line; None when it was declared as such, or when no line could be fitted.
        refusal: why no line could be fitted; None otherwise.
        now: RFC 3339 time.
    """
    before = {one.get("type"): one for one in objects_in((previous or {}).get("conditions"))}
    valid = condition_entry(
        _verdict(fit, refusal), before.get(_VALID, {}), ref.generation, now, limit=1024
    )
    status: dict[str, Any] = {"observedGeneration": ref.generation, "conditions": [valid]}
    if fit is not None:
        status |= {
            "fixed": format_duration(fit.law.fixed_s),
            "perRequest": format_duration(fit.law.per_request_s),
            "rSquared": f"{fit.r_squared:.4f}",
            "maxRelativeErrorPercent": math.ceil(100 * fit.max_relative_error - 1e-9),
            "range": {"min": round(fit.smallest_batch), "max": round(fit.largest_batch)},
        }
    return status


def _verdict(fit: ServiceTimeFit | None, refusal: str | None) -> Condition:
    if refusal is not None:
        return Condition(_VALID, False, Reason.FIT_REFUSED, refusal)
    if fit is None:
        return Condition(_VALID, True, Reason.AS_DECLARED, "the service time is used as declared")
    error = f"largest deviation {100 * fit.max_relative_error:.1f} % at batch {fit.worst_batch:g}"
    if not fit.is_valid:
        text = f"{error}: measure more batches, or each batch more often"
        return Condition(_VALID, False, Reason.FIT_INACCURATE, text)
    return Condition(_VALID, True, Reason.FITTED, error)
