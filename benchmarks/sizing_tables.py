"""Fill the dimensionless table that sizing reads: five minutes on two cores.

    python -m benchmarks.sizing_tables

Writes operator/sojourn/model/data/dynamic.npz. Run it again when the exact model changes; the table
test compares a sample of its entries with fresh evaluations.
"""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from sojourn.facts.replica import DynamicReplica, OperatingPoint
from sojourn.facts.service_time import LinearServiceTime
from sojourn.model import dimensionless
from sojourn.model.domain import FloatArray
from sojourn.model.exact_model import ExactModel

TARGET = Path(__file__).parents[1] / "operator" / "sojourn" / "model" / "data" / "dynamic.npz"


def one_batch(index: int) -> FloatArray:
    """Percentiles in units of s_B for one tabled batch: (share, window, CV^2, load, level)."""
    batch = dimensionless.BATCHES[index]
    shape = (
        len(dimensionless.FIXED_SHARES),
        len(dimensionless.WAITS),
        len(dimensionless.SCVS),
        dimensionless.LOADS_PER_BATCH,
        len(dimensionless.LEVELS),
    )
    table = np.zeros(shape)
    for f, w, v in itertools.product(*(range(size) for size in shape[:3])):
        if batch == 1 and (f, w) != (0, 0):
            table[f, w, v] = table[0, 0, v]  # one by one: neither matters
            continue
        fixed = dimensionless.FIXED_SHARES[f]
        law = LinearServiceTime(fixed, (1 - fixed) / batch, dimensionless.SCVS[v])
        replica = DynamicReplica(law, batch, dimensionless.WAITS[w])
        for i, load in enumerate(dimensionless.loads(batch)):
            point = OperatingPoint(replica, float(load) * batch)
            answer = ExactModel().sojourn(point, dimensionless.LEVELS)
            table[f, w, v, i] = [seconds for _, seconds in answer.latency.quantiles_s]
    print(f"max batch {batch} done", flush=True)
    return table


def main() -> None:
    """Evaluate every entry and write the file."""
    largest_first = range(len(dimensionless.BATCHES) - 1, -1, -1)
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        slices = list(pool.map(one_batch, largest_first))
    TARGET.parent.mkdir(exist_ok=True)
    np.savez_compressed(TARGET, quantiles=np.stack(slices[::-1]).astype(np.float32))


if __name__ == "__main__":
    main()
