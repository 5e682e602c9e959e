"""Axes of the dimensionless table: percentiles of dynamic batching in units of s_B.

Time scaling removes one parameter: with s_B = 1 a replica without a bound on its queue is B, the
fixed share f = T_fixed / s_B, tau = T / s_B, CV^2 and the load. ``benchmarks.sizing_tables`` fills
the table with the exact model; ``tabled`` reads it.
"""

from __future__ import annotations

import numpy as np

from sojourn.model.domain import FloatArray

BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
FIXED_SHARES = (0.0, 0.35, 0.65, 0.85, 1.0)
WAITS = (0.0, 0.15, 0.5, 1.0)
SCVS = (0.0, 0.1, 0.35, 1.0)
LEVELS = (0.5, 0.9, 0.95, 0.99, 0.999)

_LOADED = (0.05, 0.1, 0.16, 0.23, 0.3, 0.38, 0.46, 0.54, 0.61, 0.68, 0.74, 0.79, 0.84, 0.88)
_BUSY = (0.91, 0.935, 0.955, 0.97)

LOADS_PER_BATCH = 24


def loads(batch: int) -> FloatArray:
    """The 24 loads tabled for a batch: from a hundredth of a request per service up to 0.97."""
    light = np.geomspace(0.01 / batch, 0.05, 6, endpoint=False)
    return np.concatenate((light, _LOADED, _BUSY))
