"""The book's M/G/1 super-request surrogate (S3, S6): batches as customers of one M/G/1 queue.

B requests are one super-request arriving at rate lambda1/B and served in T_svc(B). It is a
conservative screen and a teaching view, not the sizing model: real batches arrive more regularly
than a Poisson stream, and it counts the time a batch takes to gather and the time it waits for the
server one after the other although they overlap. docs/explanation/queueing.md shows by how much.

Every function broadcasts rates (of one replica) against batches and gives seconds; load 1 and above
gives inf.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from sojourn.facts.service_time import BatchServiceTime
from sojourn.model import service_time
from sojourn.model.domain import FloatArray, counting, fraction, non_negative


def load(rate_per_s: npt.ArrayLike, batches: npt.ArrayLike, law: BatchServiceTime) -> FloatArray:
    """Rho = lambda1 T_svc(B) / B, no unit."""
    sizes = counting("max batch", batches)
    return np.asarray(non_negative("rate", rate_per_s) * service_time.service_s(law, sizes) / sizes)


def second_moment_s2(law: BatchServiceTime, batches: npt.ArrayLike) -> FloatArray:
    """E[T_svc^2] = T_svc(B)^2 (1 + CV^2), in square seconds; CV^2 = 0 is the deterministic case."""
    return np.asarray(service_time.service_s(law, batches) ** 2 * (1 + law.scv))


def third_moment_s3(law: BatchServiceTime, batches: npt.ArrayLike) -> FloatArray:
    """E[T_svc^3] of a gamma law, s^3 (1 + CV^2)(1 + 2 CV^2), in cubic seconds."""
    seconds = service_time.service_s(law, batches)
    return np.asarray(seconds**3 * (1 + law.scv) * (1 + 2 * law.scv))


def queue_wait_s(
    rate_per_s: npt.ArrayLike, batches: npt.ArrayLike, law: BatchServiceTime
) -> FloatArray:
    """E[W] = (lambda1/B) E[T_svc^2] / (2 (1 - rho)) (Pollaczek-Khinchine).

    Source: S6 of the theory.
    """
    sizes = counting("max batch", batches)
    rho = load(rate_per_s, sizes, law)
    moment = second_moment_s2(law, sizes)
    wait_s = np.asarray(rate_per_s) / sizes * moment / (2 * _room(rho))
    return np.asarray(np.where(_stable(rho), wait_s, np.inf))


def batch_wait_s(rate_per_s: npt.ArrayLike, batches: npt.ArrayLike) -> FloatArray:
    """E[T_batch] = (B - 1) / (2 lambda1), the window that always fills (S4 with T = inf).

    0 for B = 1; inf at rate 0 for larger batches, which then never fill.
    """
    sizes = counting("max batch", batches)
    rates = non_negative("rate", rate_per_s)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(np.where(sizes > 1, (sizes - 1) / (2 * rates), 0.0))


def latency_mean_s(
    rate_per_s: npt.ArrayLike, batches: npt.ArrayLike, law: BatchServiceTime
) -> FloatArray:
    """E[T] = E[W] + E[T_batch] + E[T_svc] (S3).

    >>> from sojourn.facts.service_time import LinearServiceTime
    >>> float(latency_mean_s(100.0, 8, LinearServiceTime(0.050, 0.0005)).round(4))
    0.1451
    """
    return np.asarray(
        queue_wait_s(rate_per_s, batches, law)
        + batch_wait_s(rate_per_s, batches)
        + service_time.service_s(law, batches)
    )


def latency_std_s(
    rate_per_s: npt.ArrayLike, batches: npt.ArrayLike, law: BatchServiceTime
) -> FloatArray:
    """Sigma of the sojourn time from the surrogate's own moments; inf at load 1.

    Var W = E[W]^2 + (lambda1/B) E[T_svc^3] / (3 (1 - rho)) (Takacs 1962);
    Var T_batch = (B^2 - 1) / (12 lambda1^2) + (B - 1) / (2 lambda1^2), place in the batch uniform;
    sigma^2 = Var W + Var T_batch + T_svc^2 CV^2.
    """
    sizes = counting("max batch", batches)
    rates = np.asarray(rate_per_s, dtype=float)
    rho = load(rates, sizes, law)
    moment = third_moment_s3(law, sizes)
    wait = queue_wait_s(rates, sizes, law) ** 2 + rates / sizes * moment / (3 * _room(rho))
    with np.errstate(divide="ignore", invalid="ignore"):
        gather = np.where(sizes > 1, ((sizes**2 - 1) / 12 + (sizes - 1) / 2) / rates**2, 0.0)
    service = service_time.service_s(law, sizes) ** 2 * law.scv
    return np.asarray(np.sqrt(np.where(_stable(rho), wait + gather + service, np.inf)))


def exponential_quantile_s(mean_s: npt.ArrayLike, probability: npt.ArrayLike) -> FloatArray:
    """-ln(1 - q) E[T]: the sojourn time taken for exponential; 4.605 E[T] at 0.99.

    Source: S11 step 4 of the theory, printed as 4.6 E[T].
    """
    return np.asarray(-np.log1p(-fraction("percentile", probability)) * np.asarray(mean_s))


def gaussian_quantile_s(
    mean_s: npt.ArrayLike, std_s: npt.ArrayLike, probability: npt.ArrayLike
) -> FloatArray:
    """E[T] + z(q) sigma: the sojourn time taken for normal; z to three decimals, 2.326 at 0.99.

    Source: S11 step 4 of the theory, printed as E + 2.33 sigma.
    """
    factor = np.round(normal_quantile(probability), 3)
    return np.asarray(np.asarray(mean_s) + factor * np.asarray(std_s))


def normal_quantile(probability: npt.ArrayLike) -> FloatArray:
    """Z with Phi(z) = q, to 1e-12, any shape."""
    levels = fraction("percentile", probability)
    return np.asarray([_normal_quantile(float(q)) for q in levels.flat]).reshape(levels.shape)


def _normal_quantile(level: float) -> float:
    low, high = -40.0, 40.0
    # Bisection on erfc: 80 halvings cost 40 us and need no table of constants.
    for _ in range(80):
        middle = (low + high) / 2
        if 0.5 * math.erfc(-middle / math.sqrt(2)) < level:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _stable(rho: FloatArray) -> npt.NDArray[np.bool_]:
    return np.asarray(rho < 1 - 1e-9)


def _room(rho: FloatArray) -> FloatArray:
    return np.asarray(np.where(_stable(rho), 1 - rho, 1.0))
