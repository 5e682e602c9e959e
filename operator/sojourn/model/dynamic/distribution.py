"""The law of the response time, from the waits of everybody in a cycle."""

from __future__ import annotations

import numpy as np

from sojourn.model.dynamic import counts, followers, places
from sojourn.model.dynamic.chain import Chain
from sojourn.model.dynamic.ledger import Law, Ledger, law
from sojourn.model.dynamic.oldest import Oldest
from sojourn.model.dynamic.problem import Problem

_FARTHEST = 1e-6


def response(problem: Problem, chain: Chain, oldest: Oldest | None) -> Law:
    """Law of the response time of accepted requests; its mass should be E[B].

    Args:
        problem: the replica.
        chain: law at dispatch.
        oldest: law of the oldest's time to a free server, if it is known already.
    """
    ledger = Ledger()
    known = places.oldest(problem, chain) if oldest is None else oldest
    followers.collect(problem, known, ledger)
    return law(problem, ledger, _longest_s(problem, known))


def _longest_s(problem: Problem, oldest: Oldest) -> float:
    """A response time that next to nobody exceeds, for the grid of the law."""
    seen = np.cumsum(oldest.mass[::-1])[::-1] > _FARTHEST
    wait_s = float(oldest.edges_s[1:][seen].max(initial=0.0))
    if problem.waits:
        wait_s = max(wait_s, min(problem.wait_s, 2 * problem.batch / problem.rate_per_s))
    stretch = 1.0
    if problem.scv > 0:
        points, values = counts.unit_cdf(problem.scv)
        stretch = float(points[min(points.size - 1, int(np.searchsorted(values, 1 - _FARTHEST)))])
    return wait_s + stretch * problem.full_s
