"""The metrics of a simulated engine, under the names and labels of a vLLM server.

One rule for time: what is exported is the wall time of the simulation. A simulation compressed
20 times therefore exports latencies 20 times smaller, and the histogram bounds of vLLM are divided
by 20 as well, so that a quantile read from them is as fine as on a real server.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

TOKEN_BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)
FIRST_TOKEN_BOUNDS_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_GAP_BOUNDS_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
REQUEST_BOUNDS_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0),
    *(240.0, 480.0, 960.0, 1920.0, 7680.0),
)
"""Bucket bounds of vLLM 0.12 and later, in uncompressed seconds."""

FINISHED_REASONS = ("stop", "length", "abort", "error", "repetition")


class Tally:
    """A histogram that counts many equal observations in one call."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count ``value`` as often as ``times`` says."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._total += value * times

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts by upper bound, as the exposition format wants them."""
        rows: list[tuple[str, float]] = []
        cumulative = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            cumulative += count
            rows.append(("+Inf" if bound == float("inf") else repr(bound), cumulative))
        return rows

    @property
    def total(self) -> float:
        """Sum of what was observed."""
        return self._total


@dataclass
class EngineGauges:
    """Live state, read at every scrape."""

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0


@dataclass(frozen=True)
class EngineIdentity:
    """What the labels say about an engine.

    Attributes:
        model_name: label of every metric.
        kv_tokens: size of the KV pool.
        block_tokens: tokens of one KV block.
        max_batch: label of the batch limit in the configuration metric.
    """

    model_name: str
    kv_tokens: float
    block_tokens: int = 16


@dataclass
class EngineCounters:
    """Totals since the engine started; every child exists from the start, so idle is zero."""

    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FINISHED_REASONS, 0))
    rejected: int = 0
    preemptions: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0


class EngineMetrics(Collector):
    """Collects one engine's numbers and renders them as Prometheus text.

    Args:
        identity: labels and KV pool.
        compression: seconds of the engine per second of the wall; divides the time bounds.
    """

    def __init__(self, identity: EngineIdentity, compression: float = 1.0) -> None:
        def wall(bounds_s: Sequence[float]) -> Tally:
            # Nine digits keep 0.3 / 10 from printing as 0.030000000000000002.
            return Tally([float(f"{bound / compression:.9g}") for bound in bounds_s])

        self._identity = identity
        self.gauges = EngineGauges()
        self.counters = EngineCounters()
        self.first_token_s = wall(FIRST_TOKEN_BOUNDS_S)
        self.token_gap_s = wall(TOKEN_GAP_BOUNDS_S)
        self.request_gap_s = wall(TOKEN_GAP_BOUNDS_S)
        self.latency_s = wall(REQUEST_BOUNDS_S)
        self.queue_s = wall(REQUEST_BOUNDS_S)
        self.prompt_tokens = Tally(TOKEN_BOUNDS)
        self.generation_tokens = Tally(TOKEN_BOUNDS)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def render(self) -> str:
        """Render the exposition text of this moment."""
        return generate_latest(self._registry).decode()

    def collect(self) -> Iterator[Metric]:
        """Every family, for the registry."""
        yield from self._gauge_families()
        yield from self._counter_families()
        yield from self._histogram_families()

    def _gauge_families(self) -> Iterator[Metric]:
        gauges = self.gauges
        rows = (
            ("num_requests_running", "Requests in the running batch.", gauges.running),
            ("num_requests_waiting", "Requests in the queue.", gauges.waiting),
            ("kv_cache_usage_perc", "Share of the KV pool in use, 0 to 1.", gauges.kv_usage),
        )
        for name, text, value in rows:
            gauge = GaugeMetricFamily(f"vllm:{name}", text, labels=("model_name", "engine"))
            gauge.add_metric((self._identity.model_name, "0"), value)
            yield gauge
        labels = {
            "block_size": str(self._identity.block_tokens),
            "cache_dtype": "auto",
            "engine": "0",
            "num_gpu_blocks": str(int(self._identity.kv_tokens // self._identity.block_tokens)),
        }
        config = GaugeMetricFamily(
            "vllm:cache_config_info", "KV pool of the engine.", labels=tuple(labels)
        )
        config.add_metric(tuple(labels.values()), 1.0)
        yield config

    def _counter_families(self) -> Iterator[Metric]:
        counters = self.counters
        who = (self._identity.model_name, "0")
        rows = (
            ("num_preemptions", "Requests thrown out of the KV pool.", counters.preemptions),
            ("prompt_tokens", "Prompt tokens computed.", counters.prompt_tokens),
            ("generation_tokens", "Tokens generated.", counters.generated_tokens),
        )
        for name, text, value in rows:
            counter = CounterMetricFamily(f"vllm:{name}", text, labels=("model_name", "engine"))
            counter.add_metric(who, value)
            yield counter
        finished = CounterMetricFamily(
            "vllm:request_success",
            "Requests ended, by reason.",
            labels=("model_name", "engine", "finished_reason"),
        )
        for reason, count in counters.finished.items():
            finished.add_metric((*who, reason), count)
        yield finished
        refused = CounterMetricFamily(
            "vllm:admission_rejections",
            "Requests refused by a limit of the queue.",
            labels=("model_name", "reason"),
        )
        refused.add_metric((self._identity.model_name, "max_num_queued_reqs"), counters.rejected)
        refused.add_metric((self._identity.model_name, "max_num_queued_tokens"), 0)
        yield refused

    def _histogram_families(self) -> Iterator[Metric]:
        rows = (
            ("time_to_first_token_seconds", self.first_token_s),
            ("inter_token_latency_seconds", self.token_gap_s),
            ("request_time_per_output_token_seconds", self.request_gap_s),
            ("e2e_request_latency_seconds", self.latency_s),
            ("request_queue_time_seconds", self.queue_s),
            ("request_prompt_tokens", self.prompt_tokens),
            ("request_generation_tokens", self.generation_tokens),
        )
        for name, tally in rows:
            family = HistogramMetricFamily(
                f"vllm:{name}",
                f"Simulated {name.replace('_', ' ')}, wall time where it is a time.",
                labels=("model_name", "engine"),
            )
            family.add_metric((self._identity.model_name, "0"), tally.buckets(), tally.total)
            yield family
