"""Time to first token behind a router that counts: whoever comes keeps the next ones away.

A replica that has just got a request counts one more than before, so the next ones rather go
elsewhere. Followed is the difference D between its own number and the other's of two levelled
replicas, on the clock of mean gaps: requests come to it at rate 2 while D < 0, 1 at D = 0, none
while D > 0, and to the other likewise; the other's leave at rate 1, its own at the end of a step.
More than two replicas are a little more regular still, so the answer stays on the safe side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sojourn.model import poisson
from sojourn.model.continuous.arrivals import Arrivals
from sojourn.model.continuous.machine import Machine
from sojourn.model.continuous.steps import Atoms
from sojourn.model.domain import FloatArray

_FARTHEST = 6
_FASTEST = 3.0
_JUMPS = 64
_MOST = 6
_RESIDUALS = 12
_MOST_PHI = 0.9
# More own arrivals a step than this do not fit into the counts kept.
_MOST_ARRIVALS = 1.5
# With fewer prompts in a step the budget spreads them, which ``backlog`` follows.
_LEAST_BUDGET = 2.0


@dataclass(frozen=True, eq=False)
class _Walk:
    """D between the ends of own steps, by jumps of its uniformised chain.

    Attributes:
        arrive: rates of own arrivals, from state to state, float array (d, d).
        jumps: P(k own arrivals, from d to e) in n jumps, float array (n, k, d, e).
        left: the same wherever it goes, float array (n, k, d).
    """

    arrive: FloatArray
    jumps: FloatArray
    left: FloatArray

    def counted(self, gaps: float) -> FloatArray:
        """P(own arrivals = k, D goes from d to e) in a time, float array (k, d, e)."""
        return np.asarray(np.tensordot(_jumps(np.array(gaps)), self.jumps, 1))

    def ahead(self, found: FloatArray, gaps: FloatArray) -> FloatArray:
        """Rates of an own arrival after k others, by the state it leaves, (r, p, k, d).

        Args:
            found: law of D at the start, float array (p, d).
            gaps: times, float array (r, p).
        """
        led = np.einsum("pd,nkde->pnke", found, self.jumps)
        return np.asarray(np.einsum("rpn,pnke->rpke", _jumps(gaps), led) @ self.arrive)

    def behind(self, gaps: FloatArray) -> FloatArray:
        """P(k own arrivals) in a time by the state at its start, shape of ``gaps`` + (k, d)."""
        return np.asarray(np.tensordot(_jumps(gaps), self.left, 1))


def _jumps(gaps: FloatArray) -> FloatArray:
    return poisson.pmf(_FASTEST * gaps, _JUMPS)


@lru_cache(maxsize=1)
def _walk() -> _Walk:
    states = np.arange(-_FARTHEST, _FARTHEST + 1)
    own = np.where(states < 0, 2.0, np.where(states == 0, 1.0, 0.0))
    arrive = np.diag(own[:-1], 1)
    others = np.diag(np.ones(states.size - 1), 1) + np.diag(own[::-1][1:], -1)
    stay = np.diag(_FASTEST - (arrive + others).sum(1)) + others
    jumps = np.zeros((_JUMPS, _MOST, states.size, states.size))
    jumps[0, 0] = np.eye(states.size)
    for n in range(1, _JUMPS):
        jumps[n] = jumps[n - 1] @ stay / _FASTEST
        jumps[n, 1:] += jumps[n - 1, :-1] @ arrive / _FASTEST
    return _Walk(arrive, jumps, jumps.sum(-1))


def applies(machine: Machine, stream: Arrivals) -> bool:
    """Whether the replicas are levelled and few enough requests come in a step."""
    phi = min(stream.rate_per_s * machine.prompt_s, _MOST_PHI)
    mean = stream.rate_per_s * machine.full_step_s / (1 - phi)
    roomy = machine.prompts_per_budget >= _LEAST_BUDGET
    return stream.pooled > 1 and roomy and mean < _MOST_ARRIVALS


def first_token(machine: Machine, stream: Arrivals, step_s: float, phi: float) -> Atoms:
    """First-token times of arrivals that find a busy replica with a free place.

    Args:
        step_s: h, a step without prompts.
        phi: share of time spent on prompts.
    """
    walk, rate = _walk(), stream.rate_per_s
    before_s = step_s / (1 - min(phi, _MOST_PHI))
    earlier = walk.counted(rate * before_s) @ _leaving(rate * before_s)
    start = _stationary(earlier.sum(0))
    rest = ((np.arange(_RESIDUALS) + 0.5) / _RESIDUALS)[:, None]
    length_s = step_s + machine.prompt_s * np.arange(_MOST)
    # Prompts of the running step arrived in the step before it.
    ahead = walk.ahead(start @ earlier, rate * (1 - rest) * length_s)
    behind = walk.behind(rate * rest * length_s)
    mass = np.einsum("rpjd,rpid,p->rpji", ahead, behind, length_s)
    company = np.arange(_MOST)
    values = (rest * length_s + step_s)[:, :, None, None] + machine.prompt_s * (
        1 + company[:, None] + company[None, :]
    )
    kept = mass > 1e-9 * mass.sum()
    return Atoms(values[kept], mass[kept] / mass[kept].sum())


def _leaving(gaps: float) -> FloatArray:
    """Own requests that end with a step lower D, float array (d, d)."""
    size = 2 * _FARTHEST + 1
    down = np.arange(size)[:, None] - np.arange(size)[None, :]
    law = poisson.pmf(np.array(gaps), size)
    shift = np.where(down >= 0, law[np.maximum(down, 0)], 0.0)
    shift[:, 0] += 1 - shift.sum(1)
    return np.asarray(shift)


def _stationary(moves: FloatArray) -> FloatArray:
    balance = np.vstack([moves.T - np.eye(moves.shape[0]), np.ones(moves.shape[0])])
    target = np.append(np.zeros(moves.shape[0]), 1.0)
    return np.asarray(np.linalg.lstsq(balance, target, rcond=None)[0])
