"""How well the memory model answers published engine starts.

    python -m benchmarks.memory --cases tests/data/memory_cases.json [--json]

Failures caught, missed and called too close by name, false rejections, KV-token error on covered
and other engine versions, bytes per token, with and without the two large series, each large
series left out of a refit and then judged, against two baselines: always fits, and one constant
headroom for every engine and model.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import memory_cases
from benchmarks.memory_cases import Case
from sojourn.facts.architecture import AttentionKind
from sojourn.facts.memory import Fit, Footprint, MemoryAnswer
from sojourn.model import memory, memory_engines
from sojourn.units import GIB

DEFAULT_CASES = Path(__file__).parents[1] / "tests" / "data" / "memory_cases.json"
_LARGE_SERIES = 20  # cases from which a series weighs on a mean
_PRINTED_TO_GIB = 0.005
_SAMPLER_GRID = (8.0, 10.0, 12.0, 14.2, 16.0, 20.0, 26.0, 39.0)
_CONSTANT_GRID_GIB = tuple(x / 10 for x in range(-5, 11))

_ERROR_LABELS = (
    "bytes_per_token",
    "bytes_per_token_unrounded",
    "kv_tokens_covered",
    "kv_tokens_other",
)

Model = Callable[[Footprint], MemoryAnswer]


@dataclass(frozen=True)
class Judged:
    """A case with a model's answer."""

    case: Case
    answer: MemoryAnswer

    @property
    def kv_error(self) -> float | None:
        """Predicted over printed KV tokens, less 1; None when nothing was printed."""
        if not self.case.kv_tokens or not self.case.starts:
            return None
        return self.answer.kv_tokens / self.case.kv_tokens - 1.0

    @property
    def bytes_error_beyond_print(self) -> float | None:
        """The same, as far as it exceeds the two decimals of GiB that engines print."""
        error = self.bytes_error
        if error is None or not self.case.kv_gib:
            return None
        return max(0.0, abs(error) - _PRINTED_TO_GIB / self.case.kv_gib)

    @property
    def bytes_error(self) -> float | None:
        """Predicted over printed bytes per token, less 1, for uniform attention on one stage."""
        case, asked = self.case, self.case.footprint
        if not case.kv_tokens or not case.kv_gib or asked is None or asked.pipeline_parallel > 1:
            return None
        groups = asked.architecture.attention
        if any(group.kind is AttentionKind.RECURRENT for group in groups):
            return None
        printed = case.kv_gib * GIB / case.kv_tokens
        uniform = len(groups) == 1 and groups[0].kind is not AttentionKind.SLIDING
        length = self.answer.max_length_tokens
        asked_bytes = self.answer.kv_bytes_per_token
        ours = asked_bytes if uniform else self.answer.kv_request_bytes / length
        return ours / printed - 1.0


def judge(cases: Sequence[Case], model: Model = memory.answer) -> list[Judged]:
    """Answers of a model on the computable cases, contention left out."""
    return [
        Judged(case, model(case.footprint))
        for case in cases
        if case.footprint is not None and case.starts is not None
    ]


def verdicts(judged: Sequence[Judged]) -> dict[str, Any]:
    """Verdicts against outcomes, failures by name."""
    failed = [one for one in judged if not one.case.starts]
    started = [one for one in judged if one.case.starts]

    def ids(group: Sequence[Judged], fit: Fit) -> list[str]:
        return [one.case.id for one in group if one.answer.fit is fit]

    close = sum(one.answer.fit is Fit.TOO_CLOSE for one in judged)
    right = len(ids(failed, Fit.WONT_START)) + len(ids(started, Fit.FITS))
    return {
        "computable": len(judged),
        "failures": len(failed),
        "caught": ids(failed, Fit.WONT_START),
        "failures_too_close": ids(failed, Fit.TOO_CLOSE),
        "missed": ids(failed, Fit.FITS),
        "false_rejections": ids(started, Fit.WONT_START),
        "starts_too_close": ids(started, Fit.TOO_CLOSE),
        "too_close_share": close / len(judged) if judged else 0.0,
        "right_share_of_decided": right / (len(judged) - close) if len(judged) > close else 0.0,
    }


def errors(values: Sequence[float | None]) -> dict[str, float]:
    """Count, median, mean, 90th percentile and maximum of absolute errors, as fractions."""
    known = np.abs([value for value in values if value is not None])
    if known.size == 0:
        return {"n": 0}
    return {
        "n": int(known.size),
        "median": float(np.median(known)),
        "mean": float(np.mean(known)),
        "p90": float(np.quantile(known, 0.9)),
        "max": float(np.max(known)),
    }


def summary(judged: Sequence[Judged]) -> dict[str, Any]:
    """All figures of one selection of cases."""
    return {
        "verdicts": verdicts(judged),
        "kv_tokens_covered": errors([one.kv_error for one in judged if one.answer.covered]),
        "kv_tokens_other": errors([one.kv_error for one in judged if not one.answer.covered]),
        "bytes_per_token": errors([one.bytes_error_beyond_print for one in judged]),
        "bytes_per_token_unrounded": errors([one.bytes_error for one in judged]),
    }


def always_fits(footprint: Footprint) -> MemoryAnswer:
    """Baseline: whatever is asked, it starts; the pool is the model's own."""
    return replace(memory.answer(footprint), fit=Fit.FITS)


def constant_headroom(headroom_bytes: float) -> Model:
    """Baseline: the budget less weights less one constant, and no band."""

    def answer(footprint: Footprint) -> MemoryAnswer:
        ours = memory.answer(footprint)
        pool = ours.budget_bytes - ours.weights_bytes - headroom_bytes
        tokens = max(0.0, pool) / max(1.0, ours.kv_request_bytes) * ours.max_length_tokens
        fit = Fit.FITS if pool >= ours.kv_request_bytes else Fit.WONT_START
        return replace(ours, fit=fit, kv_pool_bytes=pool, kv_tokens=tokens)

    return answer


def best_constant(cases: Sequence[Case]) -> float:
    """The constant headroom with the least mean KV-token error on covered versions, in bytes."""

    def loss(headroom: float) -> float:
        judged = judge(cases, constant_headroom(headroom * GIB))
        return errors([one.kv_error for one in judged if one.answer.covered]).get("mean", 9.9)

    return float(min(np.arange(0.0, 6.01, 0.1), key=loss)) * GIB


def refitted(cases: Sequence[Case]) -> Model:
    """The model with the sampler's bytes and the constants of the covered rows fitted again."""

    def with_constants(sampler: float, constant_gib: float) -> Model:
        def answer(footprint: Footprint) -> MemoryAnswer:
            row = memory_engines.engine_memory(footprint.engine, footprint.engine_version)
            if not row.covered:
                return memory.answer(footprint)
            constant = constant_gib * GIB
            fitted = replace(
                row,
                sampler_bytes=sampler,
                constant_bytes=constant,
                small_card_constant_bytes=constant,
            )
            return memory.answer(footprint, fitted)

        return answer

    def loss(choice: tuple[float, float]) -> float:
        judged = judge(cases, with_constants(*choice))
        return errors([one.kv_error for one in judged if one.answer.covered]).get("mean", 9.9)

    grid = [(sampler, constant) for sampler in _SAMPLER_GRID for constant in _CONSTANT_GRID_GIB]
    return with_constants(*min(grid, key=loss))


def report(cases: Sequence[Case]) -> dict[str, Any]:
    """Every figure, as printed with ``--json``."""
    sizes = Counter(case.series for case in cases)
    large = sorted(series for series, count in sizes.items() if count >= _LARGE_SERIES)
    without = [case for case in cases if case.series not in large]
    constant = best_constant(cases)
    reasons = Counter(case.why_not for case in cases if case.footprint is None)
    judged = judge(cases)
    return {
        "cases": len(cases),
        "computable": sum(case.footprint is not None for case in cases),
        "contention_left_out": sum(case.starts is None for case in cases),
        "not_computable": dict(reasons.most_common()),
        "large_series": large,
        "all": summary(judged),
        "without_large_series": summary(judge(without)),
        "left_out": {series: _left_out(cases, series) for series in large},
        "baselines": {
            "always_fits": verdicts(judge(cases, always_fits)),
            "constant_headroom_gib": constant / GIB,
            "constant_headroom": summary(judge(cases, constant_headroom(constant))),
        },
        "answers": [_line(one) for one in judged],
    }


def _left_out(cases: Sequence[Case], series: str) -> dict[str, Any]:
    """Constants fitted without a series, judged on it alone; the constant baseline likewise."""
    rest = [case for case in cases if case.series != series]
    held = [case for case in cases if case.series == series]
    baseline = constant_headroom(best_constant(rest))
    return {
        "refitted": summary(judge(held, refitted(rest))),
        "constant_headroom": summary(judge(held, baseline)),
    }


def _line(one: Judged) -> dict[str, Any]:
    return {
        "id": one.case.id,
        "starts": one.case.starts,
        "fit": one.answer.fit.value,
        "margin_gib": round(one.answer.margin_bytes / GIB, 3),
        "band_gib": round(one.answer.band_bytes / GIB, 3),
        "covered": one.answer.covered,
        "kv_tokens": round(one.answer.kv_tokens) if one.answer.kv_tokens < 1e15 else None,
        "kv_tokens_printed": one.case.kv_tokens,
    }


def _text(result: dict[str, Any]) -> str:
    """The tables for people."""
    rows = [
        ("all", result["all"]),
        ("without the large series", result["without_large_series"]),
        *(
            (f"{name}, refitted without it", both["refitted"])
            for name, both in result["left_out"].items()
        ),
        ("baseline constant headroom", result["baselines"]["constant_headroom"]),
        *(
            (f"{name}, constant fitted without it", both["constant_headroom"])
            for name, both in result["left_out"].items()
        ),
    ]
    lines = [
        f"{result['cases']} cases, {result['computable']} computable, "
        f"{result['contention_left_out']} contention (left out)"
    ]
    for name, one in rows:
        lines.append(f"\n{name}\n  {_verdict_text(one['verdicts'])}")
        for label in _ERROR_LABELS:
            lines.append(f"  {label:26} {_error_text(one[label])}")
    always = result["baselines"]["always_fits"]
    lines.append(f"\nbaseline always fits\n  {_verdict_text(always)}")
    for key in ("caught", "failures_too_close", "missed", "false_rejections"):
        lines.append(f"\n{key}: {', '.join(result['all']['verdicts'][key]) or 'none'}")
    return "\n".join(lines)


def _verdict_text(one: dict[str, Any]) -> str:
    return (
        f"{one['computable']} judged, {one['failures']} failures: {len(one['caught'])} caught, "
        f"{len(one['failures_too_close'])} too close, {len(one['missed'])} missed; "
        f"{len(one['false_rejections'])} false rejections; "
        f"too close {one['too_close_share']:.1%}; "
        f"right {one['right_share_of_decided']:.1%} of the rest"
    )


def _error_text(one: dict[str, float]) -> str:
    if not one["n"]:
        return "none"
    return (
        f"n {one['n']}: median {one['median']:.3%}, mean {one['mean']:.3%}, "
        f"p90 {one['p90']:.2%}, max {one['max']:.2%}"
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=Path, default=DEFAULT_CASES)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = report(memory_cases.read(options.cases))
    print(json.dumps(result, indent=1) if options.json else _text(result))


if __name__ == "__main__":
    main()
