"""Fit the correction of round robin and least loaded, and say how well it holds.

    python -m benchmarks.queueing_fit FILE [--write]

FILE comes from ``benchmarks.queueing_design``. Fitted is the logarithm of simulated over
interpolated value (mean, P50, P90, P95, P99, P99.9) by Gaussian-process regression: Matern 5/2,
one length a feature chosen by likelihood at P99, the runs' own intervals as noise, mean 0, so that
far from the points nothing is corrected. Printed is five-fold cross-validation: every fifth point
is predicted from the others. ``--write`` puts points and weights where ``model.routing_fit`` reads
them.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from benchmarks.queueing_design import LEVELS, ROUTINGS, Fleet
from sojourn.facts.replica import OperatingPoint, Routing
from sojourn.facts.sojourn import Latency, Sojourn
from sojourn.model import routing, routing_fit
from sojourn.model.domain import FloatArray
from sojourn.model.exact_model import one_replica

TARGET = Path(routing_fit.__file__).parent / "data" / "routing.npz"

# Points that choose the lengths; all of them carry the weights.
_CHOOSING = 200
_STEPS = 10
_FOLDS = 5


@dataclass(frozen=True, eq=False)
class Data:
    """Points in the domain of the fit.

    Attributes:
        features: float array (n, d), as ``routing_fit.features`` gives them.
        wanted: ln simulated / interpolated, mean first, float array (n, 1 + levels).
        noise: standard errors of the same.
    """

    features: FloatArray
    wanted: FloatArray
    noise: FloatArray


def data(lines: Sequence[str]) -> dict[Routing, Data]:
    """What is to be fitted, by routing."""
    found: dict[Routing, list[tuple[FloatArray, FloatArray, FloatArray]]]
    found = {kind: [] for kind in ROUTINGS}
    for line in lines:
        row = json.loads(line)
        fleet = Fleet(**{name: row[name] for name in Fleet.__dataclass_fields__})
        if not routing_fit.covers(fleet.point(Routing.RANDOM)):
            continue
        levels = (*routing_fit.LEVELS, *routing.mean_levels())
        both = one_replica(fleet.point(Routing.RANDOM), levels)
        for kind in ROUTINGS:
            found[kind].append(_line(fleet.point(kind), both, row[str(kind)]))
    return {
        kind: Data(*(np.array(part) for part in zip(*entries, strict=True)))
        for kind, entries in found.items()
    }


def _line(
    point: OperatingPoint, both: Sojourn, seen: dict[str, Any]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Features, ln simulated / interpolated, and its standard error."""
    asked, cut = both.latency.quantiles_s, len(routing_fit.LEVELS)
    random, grid = (
        replace(both, latency=Latency(both.latency.mean_s, part))
        for part in (asked[:cut], asked[cut:])
    )
    base = routing.interpolated(point, random, grid)
    said = np.array([base.mean_s, *(seconds for _, seconds in base.quantiles_s)])
    seconds, widths = (_chosen(seen[name]) for name in ("seconds", "half_widths"))
    features = routing_fit.features(point, base.shape)
    return features, np.log(seconds / said), widths / seconds / 2


def _chosen(values: Sequence[float]) -> FloatArray:
    """The mean and the quantiles the correction is kept for."""
    places = [0, *(1 + LEVELS.index(level) for level in routing_fit.LEVELS)]
    return np.asarray(values, dtype=float)[places]


@dataclass(frozen=True, eq=False)
class Process:
    """Lengths of the features, variance of the process, and variance of what it leaves out."""

    centre: FloatArray
    lengths: FloatArray
    variance: float
    rest: float

    def points(self, features: FloatArray) -> FloatArray:
        """In units of the lengths."""
        return (features - self.centre) / self.lengths

    def weights(self, known: Data) -> FloatArray:
        """Of the likeness to every point, float array (n, 1 + levels)."""
        at = self.points(known.features)
        likeness = self.variance * routing_fit.kernel(at, at)
        columns = []
        for place in range(known.wanted.shape[1]):
            noise = np.diag(known.noise[:, place] ** 2 + self.rest)
            solved = cho_solve(cho_factor(likeness + noise), known.wanted[:, place])
            columns.append(self.variance * solved)
        return np.array(columns).T


def process(known: Data) -> Process:
    """The most likely lengths at P99."""
    centre, spread = known.features.mean(0), known.features.std(0)
    size = spread.size
    at = (known.features[:_CHOOSING] - centre) / spread
    place = 1 + routing_fit.LEVELS.index(0.99)
    wanted, noise = known.wanted[:_CHOOSING, place], known.noise[:_CHOOSING, place]

    def unlikely(logs: FloatArray) -> float:
        scaled = at / np.exp(logs[:size])
        matrix = np.exp(logs[size]) * routing_fit.kernel(scaled, scaled)
        matrix += np.diag(noise**2 + np.exp(logs[size + 1]))
        factor, low = cho_factor(matrix)
        solved = cho_solve((factor, low), wanted)
        return float(wanted @ solved / 2 + np.log(np.diag(factor)).sum())

    start = np.array([*np.full(size, np.log(4.0)), np.log(0.02), np.log(3e-4)])
    bounds = [(0.0, 4.0)] * size + [(-8.0, 1.0), (-11.0, -5.0)]
    best = minimize(
        unlikely, start, method="L-BFGS-B", bounds=bounds, options={"maxiter": _STEPS}
    ).x
    lengths = spread * np.exp(best[:size])
    return Process(centre, lengths, float(np.exp(best[size])), float(np.exp(best[size + 1])))


def crossed(found: Process, known: Data) -> FloatArray:
    """Relative errors when every fifth point is left out in turn, (n, 1 + levels)."""
    errors = np.zeros_like(known.wanted)
    turn = np.arange(known.wanted.shape[0]) % _FOLDS
    for fold in range(_FOLDS):
        rest, held = turn != fold, turn == fold
        part = Data(known.features[rest], known.wanted[rest], known.noise[rest])
        at, to = found.points(known.features[held]), found.points(part.features)
        errors[held] = routing_fit.kernel(at, to) @ found.weights(part) - known.wanted[held]
    return np.asarray(np.expm1(errors))


def report(kind: Routing, known: Data, errors: FloatArray) -> None:
    """Print before and after, level by level."""
    names = ("mean", *(f"P{100 * level:g}" for level in routing_fit.LEVELS))
    print(f"{kind}: {errors.shape[0]} points; error in % before and by cross-validation after")
    print(
        f"{'':6}{'median':>8}{'P90':>7}{'lowest':>8}   {'median':>8}{'P90':>7}{'lowest':>8}", end=""
    )
    print(f"{'noise':>8}")
    for place, name in enumerate(names):
        print(f"{name:6}", end="")
        for some in (np.expm1(-known.wanted[:, place]), errors[:, place]):
            middle, high = np.quantile(np.abs(some), (0.5, 0.9))
            print(f"{middle:8.1%}{high:7.1%}{some.min():8.1%}   ", end="")
        print(f"{np.median(known.noise[:, place]):5.1%}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, judge, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("design", type=Path)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args(arguments)
    lines = chosen.design.read_text().splitlines()
    stored: dict[str, Any] = {}
    for kind, known in data(lines).items():
        found = process(known)
        report(kind, known, crossed(found, known))
        stored |= {
            f"{kind}_centre": found.centre,
            f"{kind}_lengths": found.lengths,
            f"{kind}_points": found.points(known.features).astype(np.float32),
            f"{kind}_weights": found.weights(known).astype(np.float32),
        }
    if chosen.write:
        np.savez_compressed(TARGET, **stored)


if __name__ == "__main__":
    main()
