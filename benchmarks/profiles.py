"""How well a line fits measured service times, and how far off the roofline estimate is.

    python -m benchmarks.profiles --profiles FILE [--json]

Per profile: R^2, maximum relative error and gate verdict of the two fits. Per class: how many pass,
and the error of the estimate made from model and GPU alone. Profiles flagged irregular or suspect
by the data set, and rows where requests queue outside the batch, are left out.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sojourn.catalogue import gpus, models
from sojourn.errors import FitRefused, ModelDomainError, UnknownName
from sojourn.facts.memory import Footprint
from sojourn.model import fit, roofline
from sojourn.model.fit_continuous import fit_continuous

_LEFT_OUT = {"irregular", "suspect"}
_PRECISION = {"fp8": "fp8", "fp4": "nvfp4", "fp16": "fp16", "int4": "int4"}
_GPU = {
    "Nvidia H100": "H100",
    "Nvidia A100": "A100-40GB",
    "A100": "A100-80GB",
    "Nvidia GH200": "GH200-96GB",
    "AMD MI250": "MI250",
    "AMD MI300X": "MI300X",
    "H200 (8 GPUs)": "H200",
    "H100-80GB-PCAP": "H100-PCIe",
    "V100 32GB": "V100-32GB",
    "V100 16GB": "V100-16GB",
    "B200-SXM": "B200",
    "B300-SXM": "B300",
}

Profile = dict[str, Any]


@dataclass(frozen=True)
class Points:
    """Rows of one profile that belong to the batch: sizes and seconds, (n,)."""

    batches: np.ndarray[Any, np.dtype[np.float64]]
    seconds: np.ndarray[Any, np.dtype[np.float64]]
    ttft_s: np.ndarray[Any, np.dtype[np.float64]] | None


def read(path: Path) -> list[Profile]:
    """Profiles of a file in the layout of ``service_profiles.json``."""
    content = json.loads(path.read_text(encoding="utf-8"))
    profiles: list[Profile] = content["profiles"] if isinstance(content, dict) else content
    return profiles


def points(profile: Profile) -> Points:
    """The measured points a fit may use."""
    metric = profile["fit_metric"]
    rows = [row for row in profile["rows"] if not row.get("queued") and row.get(metric)]
    ttft = [row.get("ttft_ms") or 0.0 for row in rows]
    # One source derives negative first-token times; such a profile has none.
    stated = bool(ttft) and min(ttft) > 0
    return Points(
        np.array([row["b"] for row in rows], dtype=float),
        np.array([row[metric] for row in rows], dtype=float) / 1e3,
        np.array(ttft, dtype=float) / 1e3 if stated else None,
    )


def fitted(profile: Profile) -> dict[str, Any]:
    """Both fits of one profile, or why there is none."""
    dense = profile.get("class") == "dense-llm"
    tolerance = fit.DENSE_TOLERANCE if dense else fit.OTHER_TOLERANCE
    measured = points(profile)
    line: dict[str, Any] = {
        "id": profile["id"],
        "class": profile.get("class"),
        "left_out": sorted(_LEFT_OUT & set(profile.get("flags") or ())),
        "n": int(measured.batches.size),
    }
    try:
        best = fit.fit(measured.batches, measured.seconds, tolerance=tolerance)
        squares = fit.fit_least_squares(measured.batches, measured.seconds, tolerance=tolerance)
    except (FitRefused, ModelDomainError) as refused:
        return line | {"verdict": "refused", "why": str(refused)}
    return line | {
        "verdict": "linear" if best.is_linear else "valid" if best.is_valid else "not linear",
        "fixed_ms": 1e3 * best.law.fixed_s,
        "per_request_ms": 1e3 * best.law.per_request_s,
        "r_squared": best.r_squared,
        "max_relative_error": best.max_relative_error,
        "worst_batch": best.worst_batch,
        "least_squares_max_relative_error": squares.max_relative_error,
        "least_squares_r_squared": squares.r_squared,
        "continuous": _continuous(profile, measured, tolerance),
    }


def _continuous(profile: Profile, measured: Points, tolerance: float) -> dict[str, float] | None:
    """Parts of the step time where the profile has what they need."""
    tokens = profile.get("input_tokens"), profile.get("output_tokens")
    if profile["fit_metric"] != "itl_ms" or measured.ttft_s is None or not all(tokens):
        return None
    prompt, output = float(tokens[0] or 0), float(tokens[1] or 0)
    found = fit_continuous(
        measured.batches,
        measured.seconds,
        measured.ttft_s,
        (prompt, output),
        tolerance=tolerance,
    )
    return {
        "iteration_fixed_ms": 1e3 * found.iteration.fixed_s,
        "iteration_per_request_ms": 1e3 * found.iteration.per_request_s,
        "prefill_per_token_ms": 1e3 * found.iteration.per_prompt_token_s,
    }


def roofline_errors(profile: Profile) -> list[float]:
    """Estimated over measured, less 1, for each point; empty when the estimate cannot be made."""
    asked = _footprint(profile)
    if asked is None:
        return []
    prompt, output = profile.get("input_tokens") or 0, profile.get("output_tokens") or 1
    measured = points(profile)
    try:
        step = roofline.estimate(asked, max(1.0, prompt + output / 2)).iteration
    except ModelDomainError:
        return []
    decode = step.fixed_s + step.per_request_s * measured.batches
    prefill = step.per_prompt_token_s * prompt * measured.batches
    whole = profile["fit_metric"] != "itl_ms"
    ours = output * decode + prefill if whole else decode + prefill / output
    return [float(error) for error in ours / measured.seconds - 1]


def _footprint(profile: Profile) -> Footprint | None:
    """What the estimate is asked; None when model, card or parallelism is not known."""
    parallel = profile.get("parallelism") or {}
    if not str(profile.get("class")).endswith("-llm") or parallel.get("attention_dp", 1) != 1:
        return None
    try:
        model = models.find(profile["model"])
        card = gpus.find(_GPU.get(profile["gpu"], profile["gpu"]))
    except UnknownName:
        return None
    precision = _PRECISION.get(str(profile.get("precision")).lower())
    if precision == "nvfp4" and model.precision == "mxfp4":
        precision = None  # the published checkpoint's own four bits
    # TensorRT-LLM keeps an 8-bit cache for 8- and 4-bit checkpoints.
    narrow = profile["engine"] == "trtllm" and precision in ("fp8", "nvfp4")
    return Footprint(
        model,
        card,
        tensor_parallel=parallel.get("tp") or profile.get("gpu_count") or 1,
        precision=precision,
        kv_precision="fp8" if narrow else "auto",
    )


def report(profiles: Sequence[Profile]) -> dict[str, Any]:
    """Every figure, as printed with ``--json``."""
    fits = [fitted(profile) for profile in profiles]
    used = [line for line in fits if not line["left_out"]]
    kept = {line["id"] for line in used}
    errors: dict[str, list[float]] = defaultdict(list)
    for profile in profiles:
        if profile["id"] in kept:
            metric = "inter-token" if profile["fit_metric"] == "itl_ms" else "whole batch"
            errors[f"{profile['class']}, {metric}"].extend(roofline_errors(profile))
    return {
        "profiles": len(profiles),
        "left_out": len(profiles) - len(used),
        "classes": {name: _class(used, name) for name in sorted({str(f["class"]) for f in used})},
        "roofline": {name: _spread(values) for name, values in sorted(errors.items()) if values},
        "fits": fits,
    }


def _class(fits: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    own = [line for line in fits if line["class"] == name]
    judged = [line for line in own if line["verdict"] != "refused"]
    worst = [line["max_relative_error"] for line in judged]
    squares = [line["least_squares_max_relative_error"] for line in judged]
    return {
        "profiles": len(own),
        "refused": len(own) - len(judged),
        "linear": sum(line["verdict"] == "linear" for line in judged),
        "valid": sum(line["verdict"] in ("linear", "valid") for line in judged),
        "median_max_relative_error": float(np.median(worst)) if worst else None,
        "p90_max_relative_error": float(np.quantile(worst, 0.9)) if worst else None,
        "least_squares_median_max_relative_error": float(np.median(squares)) if squares else None,
        "median_r_squared": float(np.median([f["r_squared"] for f in judged])) if judged else None,
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    absolute = np.abs(values)
    return {
        "points": len(values),
        "median": float(np.median(absolute)),
        "p90": float(np.quantile(absolute, 0.9)),
        "median_signed": float(np.median(values)),
    }


def _text(result: dict[str, Any]) -> str:
    lines = [f"{result['profiles']} profiles, {result['left_out']} irregular or suspect (left out)"]
    lines.append(
        "\nclass           n  refused  linear  valid  median err  p90 err  LSQ median  R^2"
    )
    for name, one in result["classes"].items():
        if one["median_max_relative_error"] is None:
            continue
        lines.append(
            f"{name:13} {one['profiles']:3} {one['refused']:8} {one['linear']:7} {one['valid']:6}"
            f" {one['median_max_relative_error']:11.1%} {one['p90_max_relative_error']:8.1%}"
            f" {one['least_squares_median_max_relative_error']:11.1%}"
            f" {one['median_r_squared']:5.3f}"
        )
    lines.append("\nroofline estimate (no profile)      points   median     p90   signed median")
    for name, spread in result["roofline"].items():
        lines.append(
            f"{name:34} {spread['points']:7} {spread['median']:8.1%} {spread['p90']:7.1%}"
            f" {spread['median_signed']:+15.1%}"
        )
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--profiles", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = report(read(options.profiles))
    print(json.dumps(result, indent=1) if options.json else _text(result))


if __name__ == "__main__":
    main()
