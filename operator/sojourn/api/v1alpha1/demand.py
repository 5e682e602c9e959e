"""``spec.slo``, ``spec.traffic``, ``spec.serviceTime`` and ``spec.metrics``: promise and load."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sojourn.api.v1alpha1.base import Part, Rule
from sojourn.api.v1alpha1.scalars import (
    Duration,
    ObjectName,
    Pause,
    Percentile,
    Rate,
    Scv,
    Tokens,
    reads_as_duration,
    reads_as_rate,
    some_time,
)
from sojourn.units import parse_duration_s, parse_quantity


def _part_of(part: str, whole: str) -> str:
    """CEL: one duration is not longer than another, where both are there and can be read."""
    return (
        f"!has({whole}) || !has({part})"
        f" || !{reads_as_duration(whole)} || !{reads_as_duration(part)}"
        f" || duration({part}) <= duration({whole})"
    )


class SloSpec(Part):
    """The service level objective: a percentile of at least one of three latencies."""

    latency: Duration | None = Field(
        None,
        description="End-to-end latency (sojourn time: waiting and service), as a duration."
        " Default: not asked.",
        examples=["2s"],
    )
    time_to_first_token: Duration | None = Field(
        None,
        description="Time to first token, as a duration. Default: not asked.",
        examples=["500ms"],
    )
    inter_token_latency: Duration | None = Field(
        None,
        description="Mean time between the output tokens of a request, as a duration."
        " Default: not asked.",
        examples=["50ms"],
    )
    percentile: Percentile = Field(
        "99",
        description='Percentile of requests that keep it, 50 to 99.9, such as 99 or "99.9".'
        ' Default "99".',
        examples=["99"],
    )
    rules = (
        Rule(
            "has(self.latency) || has(self.timeToFirstToken) || has(self.interTokenLatency)",
            "set at least one of latency, timeToFirstToken and interTokenLatency, such as"
            ' latency: "2s"',
            lambda s: s.latency or s.time_to_first_token or s.inter_token_latency,
        ),
        Rule(
            _part_of("self.timeToFirstToken", "self.latency"),
            "timeToFirstToken exceeds latency, which contains it: lower it or raise latency",
            lambda s: _not_longer(s.time_to_first_token, s.latency),
            "timeToFirstToken",
        ),
        Rule(
            _part_of("self.interTokenLatency", "self.latency"),
            "interTokenLatency exceeds latency, which contains it: lower it or raise latency",
            lambda s: _not_longer(s.inter_token_latency, s.latency),
            "interTokenLatency",
        ),
    )


def _not_longer(part: str | None, whole: str | None) -> bool:
    return part is None or whole is None or parse_duration_s(part) <= parse_duration_s(whole)


class TokensSpec(Part):
    """Tokens of a request."""

    mean: Tokens = Field(description="Mean tokens of a request. Required.", examples=[1200])
    p99: Tokens | None = Field(
        None,
        description="Tokens that 99 percent of requests stay below. Default: estimated from the"
        " mean.",
        examples=[3500],
    )
    rules = (
        Rule(
            "!has(self.p99) || self.mean <= self.p99",
            "p99 is below mean: raise p99 or lower mean",
            lambda t: t.p99 is None or t.mean <= t.p99,
            "p99",
        ),
    )


class TrafficSpec(Part):
    """The load that is expected; what is observed replaces it when known."""

    rate: Rate | None = Field(
        None,
        description="Requests per second expected, as an integer or quantity."
        " Default: what is observed.",
        examples=[40, "12500m"],
    )
    peak_rate: Rate | None = Field(
        None,
        description="Requests per second to survive; admission judges stability with it, at"
        " maxReplicas. Default: rate, else what is observed.",
        examples=[120],
    )
    prompt_tokens: TokensSpec | None = Field(
        None, description="Prompt tokens of a request. Default: observed, else assumed."
    )
    output_tokens: TokensSpec | None = Field(
        None, description="Output tokens of a request. Default: observed, else assumed."
    )
    routing: Literal["Random", "RoundRobin", "LeastLoaded"] = Field(
        "Random",
        description="How requests spread over the replicas. Random is also right for a plain"
        " Kubernetes Service. Default Random.",
        examples=["Random"],
    )
    rules = (
        Rule(
            "!has(self.rate) || !has(self.peakRate)"
            f" || !{reads_as_rate('self.rate')} || !{reads_as_rate('self.peakRate')}"
            " || quantity(string(self.rate)).compareTo(quantity(string(self.peakRate))) <= 0",
            "peakRate is below rate: raise peakRate or lower rate",
            lambda t: _not_more(t.rate, t.peak_rate),
            "peakRate",
        ),
    )


def _not_more(rate: int | str | None, peak: int | str | None) -> bool:
    return rate is None or peak is None or parse_quantity(rate) <= parse_quantity(peak)


class ServiceTimeSpec(Part):
    """Time of a batch of B requests: fixed + perRequest x B."""

    fixed: Pause = Field(
        description="Time a batch takes whatever its size, T_fixed, as a duration. Required.",
        examples=["50ms"],
    )
    per_request: Pause = Field(
        description="Time each request of a batch adds, t_req, as a duration. Required.",
        examples=["500us"],
    )
    scv: Scv = Field(
        "0",
        description="Squared coefficient of variation of a batch's time, as a quantity;"
        ' 0 is deterministic. Default "0".',
        examples=["0.1"],
    )
    rules = (
        Rule(
            some_time("self.fixed", "self.perRequest"),
            "fixed and perRequest are both 0: a batch takes time, set at least one of them",
            lambda s: parse_duration_s(s.fixed) > 0 or parse_duration_s(s.per_request) > 0,
        ),
    )


class ProfileRefSpec(Part):
    """A ServingProfile in the same namespace."""

    name: ObjectName = Field(
        description="Name of the ServingProfile. Required.", examples=["llama2-70b-a100x4"]
    )


class MetricsSpec(Part):
    """Where the live signals of this service are found, when the usual labels do not fit."""

    selector: dict[Annotated[str, Field(max_length=128)], Annotated[str, Field(max_length=253)]] = (
        Field(
            {},
            description="Labels that the series of this service carry, with their values, besides"
            " the namespace and the pods of its target; asked for in every query of it. For pods"
            " whose series are there under several labels: two scrape jobs, or several models in"
            " one pod. Default: none.",
            examples=[{"service": "chat"}],
            max_length=16,
        )
    )
    arrival_rate_query: Annotated[str, Field(max_length=2048)] | None = Field(
        None,
        description="PromQL that gives the offered requests per second of this service as one"
        " series; overrides the engine's metrics and may wake a service from 0 replicas. The"
        " operator's settings may forbid it. Default: the engine's metrics.",
        examples=['sum(rate(gateway_requests_total{service="chat"}[1m]))'],
    )
    rules = (
        Rule(
            "!has(self.selector) || self.selector.all(name,"
            " name.matches('^[a-zA-Z_][a-zA-Z0-9_]*$') && !name.startsWith('__'))",
            "selector has a name that is no Prometheus label: use letters, digits and _, such as"
            " service; what begins with __ is Prometheus' own",
            lambda m: all(
                name.isascii() and name.isidentifier() and not name.startswith("__")
                for name in m.selector
            ),
            "selector",
        ),
    )
