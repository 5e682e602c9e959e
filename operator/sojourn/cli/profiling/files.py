"""Benchmark results as other tools write them, told apart by what they hold.

GuideLLM, vLLM's and SGLang's serving benchmarks, genai-perf and aiperf (JSON), Triton's
perf_analyzer (CSV). Each gives points: requests together, latency, and tokens where known.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from sojourn.cli.exits import UsageError
from sojourn.cli.profiling.points import Point

TOOLS = "GuideLLM, vLLM bench, SGLang bench, genai-perf, aiperf (JSON), perf_analyzer (CSV)"


def read(paths: Iterable[Path]) -> list[Point]:
    """The points of all files, by rising batch; the later file wins where two measure one.

    Raises:
        UsageError: a file that cannot be read, or that no tool we know writes.
    """
    found: dict[float, Point] = {}
    for path in paths:
        for point in _points(path):
            found[point.batch] = point
    return [found[batch] for batch in sorted(found)]


def _points(path: Path) -> list[Point]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"{path} cannot be read: {exc}") from exc
    points = _csv(text) if path.suffix.lower() == ".csv" else _json(text)
    usable = [point for point in points if point.batch >= 1 and point.latency_s > 0]
    if not usable:
        raise UsageError(f"{path} holds no measurement we can read: expected {TOOLS}")
    return usable


def _json(text: str) -> list[Point]:
    """The first reader that finds something, over the one object or each line's."""
    points: list[Point] = []
    for content in _objects(text):
        for reader in READERS:
            found = list(reader(content))
            if found:
                points += found
                break
    return points


def _objects(text: str) -> list[Mapping[str, Any]]:
    try:
        content = json.loads(text)
        return [one for one in _listed(content) if isinstance(one, Mapping)]
    except ValueError:
        pass
    lines = []
    for line in text.splitlines():  # SGLang writes one object a line
        try:
            one = json.loads(line)
        except ValueError:
            continue
        if isinstance(one, Mapping):
            lines.append(one)
    return lines


def _listed(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [content]


def _guidellm(content: Mapping[str, Any]) -> Iterable[Point]:
    for benchmark in content.get("benchmarks") or ():
        metrics = benchmark.get("metrics") or {}

        def mean(name: str, key: str = "mean", found: Mapping[str, Any] = metrics) -> float | None:
            return _number(_path(found, name, "successful", key))

        latency = mean("request_latency")
        streams = next(
            (
                number
                for part in ("config", "args")
                if (number := _number(_path(benchmark, part, "strategy", "streams"))) is not None
            ),
            None,
        )
        together = streams or mean("request_concurrency")
        if latency is None or together is None:
            continue
        yield Point(
            batch=round(together),
            latency_s=latency,
            first_token_s=_seconds(mean("time_to_first_token_ms"), 1e-3),
            output_token_s=_seconds(mean("inter_token_latency_ms", "median"), 1e-3),
            prompt_tokens=mean("prompt_token_count"),
            output_tokens=mean("output_token_count"),
        )


def _step_s(content: Mapping[str, Any]) -> float | None:
    """Seconds between tokens: the median where it is told, else the mean."""
    keys = ("median_itl_ms", "median_tpot_ms", "mean_itl_ms", "mean_tpot_ms")
    told = (value for key in keys if (value := _number(content.get(key))) is not None)
    return _seconds(next(told, None), 1e-3)


def _serving_benchmark(content: Mapping[str, Any]) -> Iterable[Point]:
    """VLLM's and SGLang's: one run an object."""
    together = _number(content.get("max_concurrency"))
    completed = _number(content.get("completed"))
    first = _seconds(_number(content.get("mean_ttft_ms")), 1e-3)
    if together is None or not completed or first is None:
        return
    step = _step_s(content)
    output = _per(content.get("total_output_tokens"), completed)
    latency = _seconds(
        _number(content.get("mean_e2el_ms") or content.get("mean_e2e_latency_ms")), 1e-3
    )
    if latency is None and output is not None and step is not None:
        mean_step = _seconds(_number(content.get("mean_tpot_ms")), 1e-3) or step
        latency = first + (output - 1) * mean_step
    if latency is None:
        return
    yield Point(
        batch=round(together),
        latency_s=latency,
        first_token_s=first,
        output_token_s=step,
        prompt_tokens=_per(content.get("total_input_tokens"), completed),
        output_tokens=output,
        samples=int(completed),
    )


def _genai_perf(content: Mapping[str, Any]) -> Iterable[Point]:
    """Genai-perf and its successor aiperf: one run an object, every metric with its unit."""

    def value(name: str, key: str = "avg") -> float | None:
        metric = content.get(name)
        if not isinstance(metric, Mapping):
            return None
        units = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9, "s": 1.0, "sec": 1.0}
        scale = units.get(str(metric.get("unit")), 1.0)
        return _seconds(_number(metric.get(key)), scale)

    latency = value("request_latency")
    together = _concurrency(content)
    if latency is None or together is None:
        return
    yield Point(
        batch=round(together),
        latency_s=latency,
        first_token_s=value("time_to_first_token"),
        output_token_s=value("inter_token_latency", "p50") or value("inter_token_latency"),
        prompt_tokens=value("input_sequence_length"),
        output_tokens=value("output_sequence_length"),
    )


def _concurrency(content: Mapping[str, Any]) -> float | None:
    config = content.get("input_config") or {}
    places = (
        ("perf_analyzer", "stimulus", "concurrency"),
        ("loadgen", "concurrency"),
        ("concurrency",),
        ("perf_analyzer", "concurrency"),
    )
    for place in places:
        number = _number(_path(config, *place))
        if number is not None:
            return number
    return None


READERS: tuple[Callable[[Mapping[str, Any]], Iterable[Point]], ...] = (
    _guidellm,
    _serving_benchmark,
    _genai_perf,
)


def _csv(text: str) -> list[Point]:
    """Perf_analyzer's ``-f``: microseconds; what the server computed is the time of a batch."""
    points = []
    for row in csv.DictReader(io.StringIO(text)):
        together = _number(row.get("Concurrency"))
        size = _number(row.get("Batch Size")) or 1.0
        microseconds = _batch_us(row)
        if together is not None and microseconds is not None:
            points.append(Point(batch=together * size, latency_s=microseconds * 1e-6))
    return points


def _batch_us(row: Mapping[str, Any]) -> float | None:
    """Microseconds of a batch: what the server computed, else what the client waited."""
    parts = (_number(row.get(f"Server Compute {part}")) for part in ("Input", "Infer", "Output"))
    known = [value for value in parts if value is not None]
    computed = sum(known) if known else _number(row.get("Server Compute"))
    if computed is not None:
        return computed
    return _number(row.get("Avg latency")) or _number(row.get("p50 latency"))


def _path(content: Any, *names: str) -> Any:
    for name in names:
        if not isinstance(content, Mapping):
            return None
        content = content.get(name)
    return content


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _seconds(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def _per(total: Any, count: float) -> float | None:
    number = _number(total)
    return None if number is None else number / count
