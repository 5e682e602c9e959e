"""The pass over many batch servers against the event machines, request by request."""

from __future__ import annotations

import numpy as np
import pytest

from sojourn.facts.replica import DynamicReplica
from sojourn.facts.service_time import LinearServiceTime
from sojourn.simulate import least_loaded
from sojourn.simulate.batch_core import BatchCore
from sojourn.simulate.job import Request


@pytest.mark.parametrize("max_wait_s", [0.0, 0.03, 0.2])
@pytest.mark.parametrize("capacity", [None, 20, 9])
@pytest.mark.parametrize("servers", [2, 5])
def test_the_pass_and_the_event_machines_agree_on_every_request(
    max_wait_s: float, capacity: int | None, servers: int
) -> None:
    replica = DynamicReplica(LinearServiceTime(0.05, 0.001), 16, max_wait_s, capacity)
    count = 3000
    arrivals_s = np.cumsum(np.random.default_rng(4).exponential(1 / (230 * servers), count))
    served = least_loaded.serve(replica, arrivals_s, np.random.default_rng(1), servers)
    seen = np.full(count, np.nan)
    seen[served.index] = served.end_s
    assert seen == pytest.approx(_event_by_event(replica, arrivals_s, servers), nan_ok=True)
    assert served.batch_sizes.sum() == served.index.size


def _event_by_event(replica: DynamicReplica, arrivals_s: np.ndarray, servers: int) -> np.ndarray:
    """When each arrival was done, nan where it was lost."""
    rng = np.random.default_rng(1)
    ties = rng.random(arrivals_s.size)
    cores = [BatchCore(replica, rng) for _ in range(servers)]
    jobs = []
    for now_s, tie in zip(arrivals_s.tolist(), ties.tolist(), strict=True):
        for core in cores:
            core.advance(now_s)
        inside = [core.running + core.waiting for core in cores]
        level = [which for which, number in enumerate(inside) if number == min(inside)]
        jobs.append(cores[level[int(tie * len(level))]].submit(Request(), now_s))
    for core in cores:
        core.advance(1e9)
    return np.array([np.nan if job is None else job.finished_at_s for job in jobs])
