"""``spec.model`` and ``spec.gpu``: what runs, and on which cards."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sojourn.api.v1alpha1.base import Part, Rule
from sojourn.api.v1alpha1.scalars import Degree, Memory, ParameterCount, Tokens

Precision = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4", "mxfp4"]
KvPrecision = Literal["auto", "fp16", "bf16", "fp8", "int8"]
Count = Annotated[int, Field(ge=1, le=10_000_000)]


class SlidingWindow(Part):
    """Layers that keep only the last tokens of a request."""

    tokens: Tokens = Field(
        description="Tokens a sliding-window layer keeps. Required.", examples=[4096]
    )
    every_nth_layer_full: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None,
        description="Every n-th layer keeps the whole request. Default: none does.",
        examples=[6],
    )


class LatentAttention(Part):
    """Compressed KV cache (multi-head latent attention); not divided by tensorParallel."""

    kv_lora_rank: Count = Field(
        description="Values of the compressed KV vector of one token and layer. Required.",
        examples=[512],
    )
    rope_head_dim: Count = Field(
        description="Values of the position part kept beside it. Required.", examples=[64]
    )


class ArchitectureSpec(Part):
    """The shape of a model; wins over the catalogue."""

    layers: Annotated[int, Field(ge=1, le=10_000)] = Field(
        description="Number of transformer layers. Required.", examples=[80]
    )
    hidden_size: Count = Field(description="Model dimension d. Required.", examples=[8192])
    attention_heads: Annotated[int, Field(ge=1, le=100_000)] = Field(
        description="Query heads of a layer. Required.", examples=[64]
    )
    key_value_heads: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None,
        description="Key-value heads of a layer. Default: attentionHeads (multi-head attention).",
        examples=[8],
    )
    head_dim: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None,
        description="Dimension of one head. Default: hiddenSize / attentionHeads.",
        examples=[128],
    )
    parameters: ParameterCount | None = Field(
        None,
        description="Stored parameters, as a quantity. Default: estimated from the shape.",
        examples=["68.98G"],
    )
    vocabulary: Count | None = Field(
        None,
        description="Tokens of the vocabulary; sizes the sampler's memory. Default: unknown.",
        examples=[32000],
    )
    sliding_window: SlidingWindow | None = Field(
        None,
        description="Layers that keep only the last tokens. Default: every layer keeps all.",
    )
    latent_attention: LatentAttention | None = Field(
        None, description="Compressed KV cache. Default: keys and values of every key-value head."
    )
    recurrent_layers: Annotated[int, Field(ge=0, le=10_000)] = Field(
        0,
        description="Layers with a fixed state and no KV cache (state-space layers). Default 0.",
        examples=[0],
    )
    rules = (
        Rule(
            "!has(self.keyValueHeads) || self.keyValueHeads <= self.attentionHeads",
            "keyValueHeads must not exceed attentionHeads: query heads share key-value heads",
            lambda a: a.key_value_heads is None or a.key_value_heads <= a.attention_heads,
            "keyValueHeads",
        ),
        Rule(
            "has(self.headDim) || self.hiddenSize % self.attentionHeads == 0",
            "hiddenSize is not a multiple of attentionHeads: give headDim",
            lambda a: a.head_dim is not None or a.hidden_size % a.attention_heads == 0,
        ),
        Rule(
            "self.recurrentLayers <= self.layers",
            "recurrentLayers must not exceed layers: layers counts all of them",
            lambda a: a.recurrent_layers <= a.layers,
            "recurrentLayers",
        ),
        Rule(
            "!(has(self.slidingWindow) && has(self.latentAttention))",
            "slidingWindow and latentAttention exclude each other: keep one",
            lambda a: a.sliding_window is None or a.latent_attention is None,
        ),
    )


class ModelSpec(Part):
    """The model that is served."""

    name: Annotated[str, Field(min_length=1, max_length=253)] = Field(
        description="Catalogue name or alias of the model; with architecture, any name. Required.",
        examples=["meta-llama/Llama-3.1-8B-Instruct"],
    )
    architecture: ArchitectureSpec | None = Field(
        None,
        description="Shape of a model the catalogue does not have; wins over the catalogue."
        " Default: from the catalogue.",
    )
    precision: Precision | None = Field(
        None,
        description="Precision of the weights as loaded. Default: the model's own.",
        examples=["fp16"],
    )
    kv_cache_precision: KvPrecision = Field(
        "auto",
        description="Precision of the KV cache; auto follows the activations. Default auto.",
        examples=["fp8"],
    )
    max_length: Tokens | None = Field(
        None,
        description="Most tokens of one request, prompt and output together."
        " Default: the model's maximum.",
        examples=[4096],
    )


class GpuSpec(Part):
    """The cards of one replica."""

    type: Annotated[str, Field(min_length=1, max_length=128)] = Field(
        description="Catalogue name or alias of the card, or the value of its node label"
        " nvidia.com/gpu.product. Required.",
        examples=["A100-80GB"],
    )
    memory: Memory | None = Field(
        None,
        description="Memory of one card in bytes, as a quantity, for a card the catalogue does not"
        " have. Default: from the catalogue.",
        examples=["80Gi"],
    )
    tensor_parallel: Degree = Field(
        1, description="GPUs that share each layer. Default 1.", examples=[4]
    )
    pipeline_parallel: Degree = Field(
        1, description="Groups of GPUs that share the layers in sequence. Default 1.", examples=[1]
    )
    data_parallel: Degree = Field(
        1,
        description="Copies of the model inside one replica, each with its own KV cache."
        " A replica takes tensorParallel x pipelineParallel x dataParallel GPUs. Default 1.",
        examples=[1],
    )
    memory_utilization: Annotated[int, Field(ge=1, le=100)] | None = Field(
        None,
        description="Percent of the GPU memory the engine may take. Default: by engine version.",
        examples=[90],
    )
    rules = (
        Rule(
            "self.tensorParallel * self.pipelineParallel * self.dataParallel <= 4096",
            "a replica of more than 4096 GPUs: tensorParallel x pipelineParallel x dataParallel"
            " must not exceed 4096",
            lambda g: g.tensor_parallel * g.pipeline_parallel * g.data_parallel <= 4096,
        ),
    )
