"""The catalogue as one value: what is built in and what a user added, asked by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sojourn.catalogue import cold_start, gpus, inline, models
from sojourn.catalogue import names as spelling
from sojourn.errors import GpuUnknown, ModelDomainError, ModelUnknown
from sojourn.facts.architecture import Architecture
from sojourn.facts.declaration import Declaration
from sojourn.facts.gpu import Gpu


@dataclass(frozen=True)
class Catalogue:
    """Models, GPUs and cold starts by name; a user's own come first.

    Attributes:
        added_models: a user's models, by name and alias in lower case.
        added_gpus: a user's cards, by name, alias and label (``names.gpu_key``).
    """

    added_models: Mapping[str, Architecture] = field(default_factory=dict)
    added_gpus: Mapping[str, Gpu] = field(default_factory=dict)

    def model(self, name: str) -> Architecture:
        """The architecture of that name.

        Raises:
            ModelUnknown: with the three nearest names.
        """
        found = self.added_models.get(name.strip().lower())
        if found is not None:
            return found
        try:
            return models.find(name)
        except ModelUnknown:
            if not self.added_models:
                raise
            known = (*self.added_models, *models.names())
            raise ModelUnknown(name, spelling.nearest(name, known)) from None

    def gpu(self, name: str) -> Gpu:
        """The card of that name.

        Raises:
            GpuUnknown: with the three nearest names.
        """
        found = self.added_gpus.get(spelling.gpu_key(name))
        if found is not None:
            return found
        try:
            return gpus.find(name)
        except GpuUnknown:
            if not self.added_gpus:
                raise
            known = (*(card.name for card in self.gpus()),)
            raise GpuUnknown(name, spelling.nearest(name, known)) from None

    def gpus(self) -> tuple[Gpu, ...]:
        """Every whole card: what a remedy may choose from."""
        return (*dict.fromkeys(self.added_gpus.values()), *gpus.every())

    def cold_start_s(self, architecture: Architecture) -> tuple[float, str]:
        """Seconds until a new replica serves, and where they come from."""
        return cold_start.cold_start_s(architecture)

    def inline(self, declaration: Declaration) -> Architecture:
        """The architecture described in the declaration itself.

        Raises:
            ModelDomainError: nothing is described, or a count is impossible, named by its field.
        """
        model = declaration.model
        if model.architecture is None:
            raise ModelDomainError("spec.model.architecture", None, "a described architecture")
        return inline.architecture_from(
            model.architecture, model.name, model.precision, model.max_length_tokens
        )
