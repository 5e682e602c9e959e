"""Durations, quantities and names as fields: text in the object, checked by schema and by us.

Patterns are stricter than Go's and Kubernetes' parsers in length only, so that every accepted
text also parses there without overflow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from sojourn.errors import UnitError
from sojourn.units import parse_duration_s, parse_quantity

BAD_VALUE = "bad_value"
"""Error type whose message is ready to be shown."""

DURATION_PATTERN = r"^([0-9]{1,9}(\.[0-9]{1,9})?(ns|us|µs|ms|s|m|h)){1,4}$"
_NUMBER = r"[0-9]{1,15}(\.[0-9]{1,9})?"
_RATE = rf"^{_NUMBER}(m|k)?$"
_FRACTION = rf"^{_NUMBER}m?$"
_COUNT = rf"^{_NUMBER}(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi|[eE][0-9]{{1,2}})?$"
_NAME_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
NAME_PATTERN = rf"^{_NAME_PART}(\.{_NAME_PART})*$"
"""A DNS subdomain, as Kubernetes names objects."""

NAME_LENGTH = 253
ENV_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
_DURATION_LENGTH = 40
_QUANTITY_LENGTH = 30


def _matches(text: str, pattern: str) -> str:
    """CEL: the text has the form, asked before it is parsed.

    The API server evaluates rules although the schema's pattern has failed, and its parsers are
    no place for any text: ``quantity('1e999999999')`` keeps a core busy for half a minute.
    """
    return f"{text}.matches(r'{pattern}')"


def reads_as_duration(field: str) -> str:
    """CEL: a field holds a duration, so that it may be parsed."""
    return _matches(field, DURATION_PATTERN)


def reads_as_rate(field: str) -> str:
    """CEL: a field holds a rate, so that it may be parsed."""
    return _matches(f"string({field})", _RATE)


def some_time(first: str, second: str) -> str:
    """CEL: at least one of two durations is above zero, where both can be read."""
    return (
        f"!{reads_as_duration(first)} || !{reads_as_duration(second)}"
        f" || duration({first}) > duration('0s') || duration({second}) > duration('0s')"
    )


@dataclass(frozen=True)
class _Scalar:
    """Validator and schema of one scalar type.

    Attributes:
        expected: what a right value is, with an example.
    """

    expected: str

    def accepts(self, value: Any) -> bool:
        """Whether ``value`` is one of this type."""
        raise NotImplementedError

    def schema(self) -> JsonSchemaValue:
        """The OpenAPI schema that accepts the same values."""
        raise NotImplementedError

    def _checked(self, value: Any) -> Any:
        if self.accepts(value):
            return value
        raise PydanticCustomError(BAD_VALUE, "{text}", {"text": f"expected {self.expected}"})

    def __get_pydantic_core_schema__(
        self, _source: Any, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._checked)

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return self.schema()


@dataclass(frozen=True)
class _DurationType(_Scalar):
    may_be_zero: bool

    def accepts(self, value: Any) -> bool:
        if not isinstance(value, str) or len(value) > _DURATION_LENGTH:
            return False
        if not re.fullmatch(DURATION_PATTERN, value, re.ASCII):
            return False
        seconds = parse_duration_s(value)
        return (seconds > 0 or (self.may_be_zero and seconds == 0)) and seconds <= 86_400

    def schema(self) -> JsonSchemaValue:
        comparison = ">=" if self.may_be_zero else ">"
        rule = (
            f"{reads_as_duration('self')} && duration(self) {comparison} duration('0s')"
            " && duration(self) <= duration('24h')"
        )
        return {
            "type": "string",
            "maxLength": _DURATION_LENGTH,
            "pattern": DURATION_PATTERN,
            "x-kubernetes-validations": [{"rule": rule, "message": f"expected {self.expected}"}],
        }


@dataclass(frozen=True)
class _QuantityType(_Scalar):
    """An integer or a quantity string between two quantities."""

    pattern: str
    low: str
    high: str

    def accepts(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | str):
            return False
        if isinstance(value, str) and not self._reads(value):
            return False
        if isinstance(value, int) and abs(value) > 2**63 - 1:
            return False
        try:
            number = parse_quantity(value)
        except (UnitError, OverflowError):
            return False
        return parse_quantity(self.low) <= number <= parse_quantity(self.high)

    def _reads(self, text: str) -> bool:
        return len(text) <= _QUANTITY_LENGTH and bool(re.fullmatch(self.pattern, text, re.ASCII))

    def schema(self) -> JsonSchemaValue:
        rule = (
            f"{_matches('string(self)', self.pattern)}"
            f" && quantity(string(self)).compareTo(quantity('{self.low}')) >= 0"
            f" && quantity(string(self)).compareTo(quantity('{self.high}')) <= 0"
        )
        return {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": _QUANTITY_LENGTH,
            "pattern": self.pattern,
            "x-kubernetes-validations": [{"rule": rule, "message": f"expected {self.expected}"}],
        }


Duration = Annotated[
    str,
    _DurationType(
        'a duration with its unit, above 0 and at most 24h, such as "1.5s"', may_be_zero=False
    ),
]
"""A Go duration above zero."""

Pause = Annotated[
    str,
    _DurationType('a duration with its unit, from 0s to 24h, such as "5ms"', may_be_zero=True),
]
"""A Go duration that may be zero."""

Rate = Annotated[
    int | str,
    _QuantityType(
        "requests per second above 0 and at most 1000000: an integer or a quantity, "
        'such as 40 or "12500m"',
        _RATE,
        "1m",
        "1000000",
    ),
]
"""Requests per second."""

Percentile = Annotated[
    int | str,
    _QuantityType('a percentile from 50 to 99.9, such as 99 or "99.9"', _FRACTION, "50", "99.9"),
]
"""A percentile, 50 to 99.9."""

Scv = Annotated[
    int | str,
    _QuantityType(
        'a squared coefficient of variation from 0 (none) to 100, such as "0.1"',
        _FRACTION,
        "0",
        "100",
    ),
]
"""A squared coefficient of variation."""

Tolerance = Annotated[
    int | str,
    _QuantityType('a tolerance from 0 to 1, such as "0.1" for 10 percent', _FRACTION, "0", "1"),
]
"""A fraction, as the HPA's tolerance."""

ParameterCount = Annotated[
    int | str,
    _QuantityType('a number of parameters of at least 1k, such as "8.03G"', _COUNT, "1k", "1P"),
]
"""Parameters of a model."""

Memory = Annotated[
    int | str,
    _QuantityType('a memory size from 1Gi to 16Ti, such as "80Gi"', _COUNT, "1Gi", "16Ti"),
]
"""A memory size in bytes."""

ObjectName = Annotated[str, Field(min_length=1, max_length=NAME_LENGTH, pattern=NAME_PATTERN)]
"""Name of a Kubernetes object."""

Tokens = Annotated[int, Field(ge=1, le=100_000_000)]
"""A number of tokens."""

Batch = Annotated[int, Field(ge=1, le=65_536)]
"""A number of requests run together."""

Degree = Annotated[int, Field(ge=1, le=1024)]
"""A degree of parallelism."""
