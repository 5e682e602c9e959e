"""``spec.engine``: how requests are batched, and where max batch is written."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sojourn.api.v1alpha1.base import Part, Rule
from sojourn.api.v1alpha1.scalars import ENV_PATTERN, Batch, Pause
from sojourn.facts.declaration import Batching, BatchRefMode, KvLayout

DYNAMIC_BY_DEFAULT = ("triton", "custom")
"""Engines that collect a batch when nobody says otherwise; a test compares it with `engines`."""

_IS_DYNAMIC = (
    f"(has(self.batching) ? self.batching == 'Dynamic' : self.name in {list(DYNAMIC_BY_DEFAULT)})"
)

EngineName = Literal["vllm", "sglang", "tgi", "trtllm", "triton", "custom"]
ContainerName = Annotated[
    str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
]


class MaxBatchSize(Part):
    """The interval the operator may choose max batch from; equal ends pin it."""

    min: Batch = Field(1, description="Least max batch, in requests. Default 1.", examples=[1])
    max: Batch | None = Field(
        None,
        description="Most requests run together. Default: the engine's limit, memory and SLO.",
        examples=[256],
    )
    rules = (
        Rule(
            "!has(self.max) || self.min <= self.max",
            "min exceeds max: lower min or raise max; equal values pin max batch",
            lambda b: b.max is None or b.min <= b.max,
            "min",
        ),
    )


class MaxBatchRefSpec(Part):
    """Where the chosen max batch is written in the pod template."""

    mode: Annotated[BatchRefMode, Field(strict=False)] = Field(
        BatchRefMode.ENV,
        description="Env: value of an environment variable that an argument refers to, such as"
        " --max-num-seqs=$(SOJOURN_MAX_BATCH). Args: the argument itself (takes ownership of the"
        " whole list). ConfigFile: a mounted file. Live: the engine's endpoint, without restart."
        " None: nowhere, max batch is only recommended. Default Env.",
        examples=["Env"],
    )
    container: ContainerName | None = Field(
        None,
        description="Container of the pod template. Default: the only one, or the one whose"
        " arguments refer to the variable.",
        examples=["engine"],
    )
    env: Annotated[str, Field(min_length=1, max_length=128, pattern=ENV_PATTERN)] = Field(
        "SOJOURN_MAX_BATCH",
        description="Name of the environment variable. Default SOJOURN_MAX_BATCH.",
        examples=["SOJOURN_MAX_BATCH"],
    )


class EngineSpec(Part):
    """The inference engine."""

    name: EngineName = Field(
        "vllm",
        description="Engine that serves the model; decides metric names and defaults."
        " Default vllm.",
        examples=["vllm"],
    )
    version: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        None,
        description="Version of the engine, as text. Default: read from the image tag, else the"
        " newest known.",
        examples=["0.11"],
    )
    batching: Annotated[Batching, Field(strict=False)] | None = Field(
        None,
        description="Continuous: requests join and leave a running batch at every step. Dynamic:"
        " a batch is collected, run to its end, then the next. Default: Dynamic for triton"
        " and custom, Continuous otherwise.",
        examples=["Continuous"],
    )
    max_batch_size: MaxBatchSize | None = Field(
        None,
        description="Interval the operator may choose max batch from. Default: from 1 to the"
        " largest batch that memory and SLO allow.",
    )
    max_batch_wait: Pause | None = Field(
        None,
        description="Dynamic only: longest the oldest waiting request waits for its batch to fill,"
        " T_max, as a duration. Default: none; Dynamic batching needs it.",
        examples=["5ms"],
    )
    queue_capacity: Annotated[int, Field(ge=1, le=100_000_000)] | None = Field(
        None,
        description="Requests that may wait at one replica; further ones are refused."
        " Default: unbounded.",
        examples=[1000],
    )
    kv_layout: Annotated[KvLayout, Field(strict=False)] = Field(
        KvLayout.PAGED,
        description="Paged: KV memory grows with a request. Contiguous: maxLength is reserved for"
        " each request. Default Paged.",
        examples=["Paged"],
    )
    max_batched_tokens: Annotated[int, Field(ge=1, le=100_000_000)] | None = Field(
        None,
        description="Most tokens of one engine step. Default: the engine's own.",
        examples=[8192],
    )
    max_batch_ref: MaxBatchRefSpec | None = Field(
        None,
        description="Where max batch is written. Default: the environment variable"
        " SOJOURN_MAX_BATCH.",
    )
    rules = (
        Rule(
            "self.kvLayout != 'Contiguous'"
            " || (has(self.maxBatchSize) && has(self.maxBatchSize.max))",
            "kvLayout Contiguous reserves memory for every request of a batch: set"
            " maxBatchSize.max",
            lambda e: e.kv_layout is not KvLayout.CONTIGUOUS or _has_most(e),
            "kvLayout",
        ),
        Rule(
            f"!{_IS_DYNAMIC} || has(self.maxBatchWait)",
            "Dynamic batching (the default of triton and custom) needs maxBatchWait: the longest a"
            ' request waits for its batch to fill, such as "5ms"; "0s" does not wait',
            lambda e: not _is_dynamic(e) or e.max_batch_wait is not None,
        ),
        Rule(
            f"{_IS_DYNAMIC} || !has(self.maxBatchWait)",
            "maxBatchWait has no meaning with Continuous batching: remove it, or set batching:"
            " Dynamic",
            lambda e: _is_dynamic(e) or e.max_batch_wait is None,
            "maxBatchWait",
        ),
    )


def _has_most(engine: EngineSpec) -> bool:
    return engine.max_batch_size is not None and engine.max_batch_size.max is not None


def _is_dynamic(engine: EngineSpec) -> bool:
    if engine.batching is None:
        return engine.name in DYNAMIC_BY_DEFAULT
    return engine.batching is Batching.DYNAMIC
