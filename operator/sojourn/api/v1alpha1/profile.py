"""``ServingProfile``: measured service time of one combination."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sojourn.api.v1alpha1.base import Part, Rule
from sojourn.api.v1alpha1.engine import EngineName
from sojourn.api.v1alpha1.scalars import Batch, Degree, Duration, Pause, Tokens, some_time
from sojourn.units import parse_duration_s


class ProfileGpuSpec(Part):
    """The cards it was measured on."""

    type: Annotated[str, Field(min_length=1, max_length=128)] = Field(
        description="Catalogue name or alias of the card. Required.", examples=["A100-80GB"]
    )
    tensor_parallel: Degree = Field(
        1, description="GPUs that shared each layer. Default 1.", examples=[4]
    )


class PointSpec(Part):
    """One measurement."""

    batch: Batch = Field(description="Requests run together. Required.", examples=[8])
    latency: Duration = Field(
        description="Time the batch took, as a duration. Required.", examples=["54ms"]
    )


class ContinuousSpec(Part):
    """Step time of a continuous-batching engine."""

    iteration_fixed: Pause = Field(
        description="Time of a step with no request in it, as a duration. Required.",
        examples=["12ms"],
    )
    iteration_per_request: Pause = Field(
        description="Time each decoding request adds to a step, as a duration. Required.",
        examples=["250us"],
    )
    prefill_per_token: Pause = Field(
        "0s",
        description="Time one prompt token adds to the step that takes it in, as a duration."
        " Default 0s.",
        examples=["40us"],
    )
    rules = (
        Rule(
            some_time("self.iterationFixed", "self.iterationPerRequest"),
            "iterationFixed and iterationPerRequest are both 0: set at least one of them",
            lambda c: (
                parse_duration_s(c.iteration_fixed) > 0
                or parse_duration_s(c.iteration_per_request) > 0
            ),
        ),
    )


class ServingProfileSpec(Part):
    """Service time of one model, GPU, parallelism, engine and request shape."""

    model: Annotated[str, Field(min_length=1, max_length=253)] = Field(
        description="Catalogue name or alias of the model. Required.",
        examples=["meta-llama/Llama-2-70b-hf"],
    )
    gpu: ProfileGpuSpec = Field(description="The cards it was measured on. Required.")
    engine: EngineName = Field("vllm", description="Engine it was measured with. Default vllm.")
    prompt_tokens: Tokens | None = Field(
        None,
        description="Mean prompt tokens of the measured requests. Default: unknown.",
        examples=[512],
    )
    output_tokens: Tokens | None = Field(
        None,
        description="Mean output tokens of the measured requests. Default: unknown.",
        examples=[128],
    )
    points: Annotated[list[PointSpec], Field(min_length=2, max_length=64)] | None = Field(
        None,
        description="Measured time of batches of different sizes, such as 1, 8 and 32."
        " Excludes fixed and perRequest. Default: none.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["batch"],
        },
    )
    fixed: Pause | None = Field(
        None,
        description="Time a batch takes whatever its size, T_fixed, as a duration."
        " Needs perRequest. Default: fitted to points.",
        examples=["50ms"],
    )
    per_request: Pause | None = Field(
        None,
        description="Time each request of a batch adds, t_req, as a duration. Needs fixed."
        " Default: fitted to points.",
        examples=["500us"],
    )
    continuous: ContinuousSpec | None = Field(
        None, description="Step time of a continuous-batching engine. Default: none."
    )
    rules = (
        Rule(
            "has(self.points) || has(self.fixed) || has(self.continuous)",
            "nothing measured: set points, or fixed and perRequest, or continuous",
            lambda p: p.points or p.fixed is not None or p.continuous is not None,
        ),
        Rule(
            "has(self.fixed) == has(self.perRequest)",
            "fixed and perRequest belong together: set both or neither",
            lambda p: (p.fixed is None) == (p.per_request is None),
        ),
        Rule(
            "!(has(self.points) && has(self.fixed))",
            "points and fixed exclude each other: points are fitted, so keep one",
            lambda p: not p.points or p.fixed is None,
        ),
        Rule(
            f"!has(self.fixed) || !has(self.perRequest)"
            f" || {some_time('self.fixed', 'self.perRequest')}",
            "fixed and perRequest are both 0: a batch takes time, set at least one of them",
            lambda p: (
                p.fixed is None
                or p.per_request is None
                or parse_duration_s(p.fixed) > 0
                or parse_duration_s(p.per_request) > 0
            ),
        ),
    )
