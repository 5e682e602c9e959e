"""The error tree: what cannot go on, with its numbers.

A spec that cannot work is a Finding, not an exception; exceptions are for work that cannot go on.

    SojournError
    ├── UnitError             a duration, quantity or rate that cannot be read
    ├── ModelDomainError      a number outside the domain of a formula
    │   ├── NoStableBatch     no batch is large enough for the rate
    │   └── FitRefused        measurements no service-time law can be drawn through
    ├── UnknownName           a name no catalogue has
    │   ├── ModelUnknown
    │   └── GpuUnknown
    ├── InvalidModelConfig    a config.json or catalogue addition that cannot be read
    ├── InvalidObject         a custom resource that cannot be read
    ├── MetricsUnavailable    Prometheus gave no usable answer
    ├── ClusterUnavailable    the Kubernetes API gave no usable answer
    └── EngineUnavailable     an engine's own interface did not take what it was given
"""

from __future__ import annotations

from collections.abc import Sequence


class SojournError(Exception):
    """Root of every error Sojourn raises on purpose."""


class UnitError(SojournError, ValueError):
    """A text that is not a duration, quantity or rate."""

    def __init__(self, text: object, expected: str) -> None:
        self.text = text
        super().__init__(f"cannot read {text!r}: expected {expected}")


class ModelDomainError(SojournError, ValueError):
    """A number outside the domain of a formula."""

    def __init__(self, name: str, value: object, expected: str) -> None:
        self.name = name
        self.value = value
        super().__init__(f"{name} is {value!r}: expected {expected}")


class NoStableBatch(ModelDomainError):
    """lambda t_req >= rho: the marginal work alone exceeds the target, whatever the batch."""

    def __init__(self, marginal: float, target_utilisation: float) -> None:
        self.marginal = marginal
        self.target_utilisation = target_utilisation
        super().__init__(
            "rate x time per request",
            round(marginal, 4),
            f"below the target utilisation {target_utilisation}: no batch is large enough, "
            "add replicas",
        )


class FitRefused(ModelDomainError):
    """Measurements no service-time law can be drawn through."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__("measured batches", why, "times that rise with two or more batch sizes")


class Indivisible(ModelDomainError):
    """Attention heads or vocabulary that the tensor-parallel size does not divide."""

    def __init__(self, field: str, count: int, tensor_parallel: int) -> None:
        self.field = field
        self.count = count
        self.tensor_parallel = tensor_parallel
        super().__init__(field, count, f"a multiple of tensorParallel {tensor_parallel}")


class InvalidModelConfig(SojournError, ValueError):
    """A description of a model or GPU that cannot be read, with the field that is wrong."""

    def __init__(self, field: str, why: str) -> None:
        self.field = field
        self.why = why
        super().__init__(f"{field}: {why}")


class UnknownName(SojournError, LookupError):
    """A name no catalogue has, with the names closest to it."""

    kind = "name"
    remedy = "check the spelling"

    def __init__(self, name: str, nearest: Sequence[str]) -> None:
        self.name = name
        self.nearest = tuple(nearest)
        close = f" Nearest: {', '.join(self.nearest)}." if self.nearest else ""
        super().__init__(f"{self.kind} {name!r} is not in the catalogue.{close} Or {self.remedy}.")


class ModelUnknown(UnknownName):
    """A model that is neither in the catalogue nor described inline."""

    kind = "model"
    remedy = "describe it in spec.model.architecture"


class GpuUnknown(UnknownName):
    """A GPU type that is neither in the catalogue nor given a memory size."""

    kind = "GPU type"
    remedy = "give its size in spec.gpu.memory"


class InvalidObject(SojournError, ValueError):
    """A custom resource that cannot be read: one line for each field that is wrong."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{field}: {text}" for field, text in self.problems))


class MetricsUnavailable(SojournError):
    """Prometheus gave no usable answer; the text never holds a credential."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(why)


class ClusterUnavailable(SojournError):
    """The Kubernetes API gave no usable answer."""

    def __init__(self, what: str, why: str, status: int | None = None) -> None:
        self.what = what
        self.why = why
        self.status = status
        super().__init__(f"{what}: {why}")


class EngineUnavailable(SojournError):
    """An engine's own interface did not take what it was given."""

    def __init__(self, what: str, why: str) -> None:
        self.what = what
        self.why = why
        super().__init__(f"{what}: {why}")
