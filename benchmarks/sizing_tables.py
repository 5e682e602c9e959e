"""Fill the dimensionless table that sizing reads: 20 minutes on one core.

    python -m benchmarks.sizing_tables

Writes operator/sojourn/model/data/dynamic.npz. Run it again when the exact model changes; the table
test compares a sample of its entries with fresh evaluations.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from sojourn.facts.replica import DynamicReplica, OperatingPoint
from sojourn.facts.service_time import LinearServiceTime
from sojourn.model import dimensionless
from sojourn.model.exact_model import ExactModel

TARGET = Path(__file__).parents[1] / "operator" / "sojourn" / "model" / "data" / "dynamic.npz"


def fill() -> None:
    """Evaluate every entry and write the file."""
    shape = (
        len(dimensionless.BATCHES),
        len(dimensionless.FIXED_SHARES),
        len(dimensionless.WAITS),
        len(dimensionless.SCVS),
        dimensionless.LOADS_PER_BATCH,
        len(dimensionless.LEVELS),
    )
    table = np.zeros(shape, dtype=np.float32)
    for b, batch in enumerate(dimensionless.BATCHES):
        for f, w, v in itertools.product(*(range(size) for size in shape[1:4])):
            if batch == 1 and (f, w) != (0, 0):
                table[b, f, w, v] = table[b, 0, 0, v]  # one by one: neither matters
                continue
            law = LinearServiceTime(
                dimensionless.FIXED_SHARES[f],
                (1 - dimensionless.FIXED_SHARES[f]) / batch,
                dimensionless.SCVS[v],
            )
            replica = DynamicReplica(law, batch, dimensionless.WAITS[w])
            for i, load in enumerate(dimensionless.loads(batch)):
                point = OperatingPoint(replica, float(load) * batch)
                answer = ExactModel().sojourn(point, dimensionless.LEVELS)
                table[b, f, w, v, i] = [seconds for _, seconds in answer.latency.quantiles_s]
        print(f"max batch {batch} done", flush=True)
    TARGET.parent.mkdir(exist_ok=True)
    np.savez_compressed(TARGET, quantiles=table)


if __name__ == "__main__":
    fill()
