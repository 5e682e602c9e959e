"""Plans as data for programs and as tables; every key carries its unit."""

from __future__ import annotations

from typing import Any

from sojourn.cli import text
from sojourn.cli.outlook import MEDIAN, Outlook, Span
from sojourn.cli.table import Column, Table
from sojourn.facts.sojourn import Latency


def data(look: Outlook, name: str) -> dict[str, Any]:
    """One plan for programs."""
    service, one = look.serving.service, look.sojourn
    return {
        "service": name,
        "model": service.architecture.name,
        "gpu": service.gpu.name,
        "gpus_per_replica": service.declaration.gpu.per_replica,
        "rate_per_s": look.rate_per_s,
        "works": look.works,
        **_sizing(look),
        "utilisation": one.utilisation if one else None,
        "regime": look.regime,
        **_latencies(look),
        "memory": _memory(look),
        "cost": {
            "gpus": look.cost.gpus,
            "per_hour_usd": look.cost.per_hour_usd,
            "per_million_output_tokens_usd": look.cost.per_million_output_usd,
            "per_million_tokens_usd": look.cost.per_million_tokens_usd,
        },
        "queue_model": one.model if one else None,
        "warnings": list(one.warnings) if one else [],
        "effective": {
            e.name: {"value": e.value, "source": str(e.source)} for e in service.effective
        },
        "findings": [
            {
                "verdict": str(f.verdict),
                "reason": str(f.reason),
                "field": f.field,
                "message": f.message,
            }
            for f in look.findings
        ],
    }


def _sizing(look: Outlook) -> dict[str, Any]:
    sized = look.sized
    if sized is None:
        return {"replicas": None, "max_batch": None}
    return {
        "replicas": sized.replicas,
        "rate_per_replica_per_s": sized.rate_per_replica_per_s,
        "binding": sized.binding,
        "slo_reachable": sized.reachable,
        "max_batch": sized.batch,
        "smallest_batch": sized.smallest_batch,
        "largest_batch": sized.largest_batch,
        "bound_below": sized.bound_below,
        "bound_above": sized.bound_above,
    }


def _latencies(look: Outlook) -> dict[str, Any]:
    one = look.sojourn
    if one is None:
        return {"latency": None}
    parts = {
        "waiting_s": one.queue_wait_s,
        "batching_s": one.batch_wait_s,
        "service_s": one.service_s,
    }
    return {
        "latency": {**(_latency_data(one.latency) or {}), **parts},
        "first_token": _latency_data(one.time_to_first_token),
        "output_token": _latency_data(one.time_per_output_token),
    }


def _memory(look: Outlook) -> dict[str, Any]:
    service = look.serving.service
    answer = service.memory
    return {
        "fit": str(answer.fit),
        "budget_bytes": answer.budget_bytes,
        "weights_bytes": answer.weights_bytes,
        "activation_bytes": answer.activation_bytes,
        "non_torch_bytes": answer.non_torch_bytes,
        "graphs_bytes": answer.graphs_bytes,
        "kv_pool_bytes": answer.kv_pool_bytes,
        "kv_tokens": answer.kv_tokens,
        "kv_requests": service.bounds.kv_limit,
    }


def _latency_data(latency: Latency | None) -> dict[str, float] | None:
    if latency is None:
        return None
    quantiles = {
        f"{text.percentile(level).lower()}_s": seconds for level, seconds in latency.quantiles_s
    }
    return {"mean_s": latency.mean_s, **quantiles}


def flat(look: Outlook, name: str) -> Table:
    """One plan as a table of one row, for CSV and Markdown."""
    latency = look.sojourn.latency if look.sojourn else None
    columns = (
        Column("service", "service", left=True),
        Column("gpu", "GPU", left=True),
        Column("gpus_per_replica", "GPUs a replica"),
        Column("rate_per_s", "rate", text.rate),
        *_SPAN_COLUMNS[2:],
    )
    row = {
        "service": name,
        "gpu": look.serving.service.gpu.name,
        "gpus_per_replica": look.serving.service.declaration.gpu.per_replica,
        "rate_per_s": look.rate_per_s,
        "replicas": look.sized.replicas if look.sized else None,
        "max_batch": look.sized.batch if look.sized else None,
        "utilisation": look.sojourn.utilisation if look.sojourn else None,
        "p50_s": latency.quantile_s(MEDIAN) if latency else None,
        "p99_s": latency.quantile_s(0.99) if latency else None,
        "per_hour_usd": look.cost.per_hour_usd,
        "per_million_output_tokens_usd": look.cost.per_million_output_usd,
    }
    return Table(columns, (row,))


_SPAN_COLUMNS = (
    Column("from_per_s", "from", text.rate),
    Column("to_per_s", "up to", text.rate),
    Column("replicas", "replicas"),
    Column("max_batch", "max batch"),
    Column("utilisation", "utilisation", text.share, rank=1),
    Column("p50_s", "P50", text.seconds, rank=2),
    Column("p99_s", "P99", text.seconds),
    Column("per_hour_usd", "cost/h", text.usd),
    Column("per_million_output_tokens_usd", "cost/M out", text.usd, rank=1),
)


def spans_table(spans: tuple[Span, ...]) -> Table:
    """The breakpoints of a range as rows."""
    return Table(_SPAN_COLUMNS, tuple(_span_row(span) for span in spans))


def _span_row(span: Span) -> dict[str, Any]:
    latency = span.sojourn.latency if span.sojourn else None
    return {
        "from_per_s": span.from_per_s,
        "to_per_s": span.to_per_s,
        "replicas": span.sized.replicas,
        "max_batch": span.sized.batch,
        "utilisation": span.sojourn.utilisation if span.sojourn else None,
        "p50_s": latency.quantile_s(MEDIAN) if latency else None,
        "p99_s": latency.quantile_s(0.99) if latency else None,
        "per_hour_usd": span.cost.per_hour_usd,
        "per_million_output_tokens_usd": span.cost.per_million_output_usd,
    }
