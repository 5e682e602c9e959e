"""Batches that start while the server is free: filled within the window, or timed out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sojourn.model import poisson
from sojourn.model.domain import FloatArray
from sojourn.model.dynamic.ledger import Ledger
from sojourn.model.dynamic.problem import Problem

_CELLS = 96


def gathered(problem: Problem, free_by: Callable[[FloatArray], FloatArray], ledger: Ledger) -> None:
    """The server was free before the window ended: the batch filled at t, or timed out with n more.

    Args:
        problem: a replica that waits.
        free_by: P(the server is free for the oldest a time t after its arrival), per cycle.
        ledger: where everybody is written down.
    """
    k, rate = problem.batch - 1, problem.rate_per_s
    end_s = min(problem.wait_s, problem.certain_s)
    bends = problem.bends_s[problem.bends_s < end_s]
    times = np.unique(np.concatenate((np.linspace(0, end_s, _CELLS + 1), bends)))
    middle = (times[1:] + times[:-1]) / 2
    free = free_by(np.concatenate((middle, [end_s])))
    others = poisson.lattice(k - 1)
    stands_for = poisson.on_lattice(np.ones(k), others)
    counted = poisson.at(rate * times, others) @ stands_for
    filled = free[:-1] * np.maximum(-np.diff(counted), 0.0)
    ledger.add(times[:-1], np.diff(times), filled, problem.batch)
    ledger.add(0.0, 0.0, filled.sum(), problem.batch)
    ledger.add(0.0, middle, (k - 1) * filled, problem.batch)
    if problem.wait_s <= problem.certain_s:
        timed_out = free[-1] * poisson.at(rate * problem.wait_s, others) * stands_for
        ledger.add(problem.wait_s, 0.0, timed_out, others + 1)
        ledger.add(0.0, problem.wait_s, others * timed_out, others + 1)
