"""What all parts of a custom resource share: strictness, and rules over several fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

RULES_BROKEN = "rules_broken"
"""Error type whose context holds the broken rules as ``problems``."""


@dataclass(frozen=True)
class Rule:
    """A condition over several fields of one object, held by the API server and by us.

    Attributes:
        expression: in CEL, over ``self`` (and ``oldSelf`` for a transition).
        message: what is wrong and what to do.
        holds: the same condition over the pydantic model; None for a transition, which needs the
            old object.
        field: the field to show, below the object; empty for the object itself.
    """

    expression: str
    message: str
    holds: Callable[[Any], bool] | None
    field: str = ""

    @property
    def as_cel(self) -> dict[str, str]:
        """The entry of ``x-kubernetes-validations``."""
        entry = {"rule": self.expression, "message": self.message}
        return entry | ({"fieldPath": f".{self.field}"} if self.field else {})


class Part(BaseModel):
    """A part of a custom resource: unknown fields and wrong types are refused."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        alias_generator=to_camel,
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _keep_rules(self) -> Self:
        broken = [
            (rule.field, rule.message)
            for rule in self.rules
            if rule.holds is not None and not rule.holds(self)
        ]
        if broken:
            raise PydanticCustomError(RULES_BROKEN, "rules broken", {"problems": broken})
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The schema with the rules as ``x-kubernetes-validations``."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        if cls.rules:
            schema["x-kubernetes-validations"] = [rule.as_cel for rule in cls.rules]
        return schema
