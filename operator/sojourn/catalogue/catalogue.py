"""The catalogue as one value: what is built in, asked by name."""

from __future__ import annotations

from sojourn.catalogue import cold_start, gpus, models
from sojourn.errors import ModelDomainError
from sojourn.facts.architecture import Architecture, AttentionGroup, AttentionKind
from sojourn.facts.declaration import Declaration, DeclaredArchitecture
from sojourn.facts.gpu import Gpu


class Catalogue:
    """Models, GPUs and cold starts by name."""

    def model(self, name: str) -> Architecture:
        """The architecture of that name.

        Raises:
            ModelUnknown: with the three nearest names.
        """
        return models.find(name)

    def gpu(self, name: str) -> Gpu:
        """The card of that name.

        Raises:
            GpuUnknown: with the three nearest names.
        """
        return gpus.find(name)

    def gpus(self) -> tuple[Gpu, ...]:
        """Every whole card."""
        return gpus.every()

    def cold_start_s(self, architecture: Architecture) -> tuple[float, str]:
        """Seconds until a new replica serves, and where they come from."""
        return cold_start.cold_start_s(architecture)

    def inline(self, declaration: Declaration) -> Architecture:
        """The architecture described in the declaration itself.

        Raises:
            ModelDomainError: nothing is described, or the shape is impossible.
        """
        described = declaration.model.architecture
        if described is None:
            raise ModelDomainError("spec.model.architecture", None, "a described architecture")
        return _architecture(declaration, described)


def _architecture(declaration: Declaration, described: DeclaredArchitecture) -> Architecture:
    hidden, layers, heads = described.hidden, described.layers, described.attention_heads
    kv_heads = described.kv_heads or heads
    head_dim = described.head_dim or hidden // heads
    vocabulary = described.vocabulary or 0
    embedding = 2.0 * vocabulary * hidden
    parameters = described.parameters or embedding + 12.0 * layers * hidden**2
    attention = AttentionGroup(AttentionKind.FULL, layers, heads, kv_heads, head_dim, head_dim)
    return Architecture(
        name=declaration.model.name,
        layers=layers,
        hidden=hidden,
        vocabulary=vocabulary,
        parameters=parameters,
        active_parameters=parameters,
        embedding_parameters=embedding,
        attention=(attention,),
        precision=declaration.model.precision or "fp16",
        max_length_tokens=declaration.model.max_length_tokens or 4096,
    )
