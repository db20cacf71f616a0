"""Base classes of the models in generated tool modules, and the way from a model to its wire form.

This module is imported in the kernel: standard library and pydantic only. A generated model accepts what its
JSON Schema accepts and is sent as the caller wrote it:

- Scalars are strict (`"1"` is no integer, `True` neither), and a format rewrites nothing.
- A field has the name of the schema, or a Python name and that name as alias; callers may use both.
- Optional fields default to `UNSET` and are not sent; `None` is sent, where the schema allows null.
- Nested models may be given as dictionaries, and members of an enum by their value.
"""

from enum import StrEnum
from typing import Annotated, Any, TypeVar, cast, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

#: Default of optional fields. It is typed `Any` so that fields keep the type they have when they are sent.
UNSET: Any = None

T = TypeVar("T")


def _lenient(schema: CoreSchema, kind: str) -> CoreSchema:
    if schema["type"] == kind:  # within a recursion it is a mere reference to the definition
        cast("dict[str, Any]", schema)["strict"] = False
    return schema


class ToolModel(BaseModel):
    """An object in a tool's result; keeps fields that its schema does not know."""

    model_config = ConfigDict(
        extra="allow",
        strict=True,
        populate_by_name=True,
        protected_namespaces=(),
        allow_inf_nan=False,  # JSON has neither
        loc_by_alias=False,  # errors name fields as Python code does
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler, /) -> CoreSchema:
        # Strict models accept instances only; strictness is meant for the scalars within.
        return _lenient(handler(source), "model")


class ToolParams(ToolModel):
    """The arguments of a tool, or an object within them."""

    model_config = ConfigDict(validate_assignment=True)


class Choice(StrEnum):
    """A closed set of strings; its values are accepted as well as its members."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler, /) -> CoreSchema:
        def member_of(value: Any) -> Any:
            return cls._value2member_map_.get(value, value) if isinstance(value, str) else value

        # Within strict unions pydantic before 2.11 takes nothing but members, whatever the enum itself allows.
        return core_schema.no_info_before_validator_function(member_of, _lenient(handler(source), "enum"))


class Among:
    """Accepts exactly the given JSON values, for values that `Literal` can't hold."""

    def __init__(self, *values: Any):
        self._values = values

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler, /) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, value: Any) -> Any:
        if not any(_same(value, other) for other in self._values):
            expected = " or ".join(map(repr, self._values))
            raise PydanticCustomError("among", "Input should be {expected}", {"expected": expected})
        return value


class _ExactLiteral:
    """Keeps pydantic from taking `1` for `Literal[True]` and `True` or `1.0` for `Literal[1]`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler, /) -> CoreSchema:
        return Among(*get_args(source)).__get_pydantic_core_schema__(Any, handler)


#: `Exact[Literal[1, 2]]` accepts these values, and none that are equal in Python only.
Exact = Annotated[T, _ExactLiteral()]


def wire(params: ToolParams) -> dict[str, Any]:
    """The arguments as they are sent: original names, only what was set, enums as their values."""
    return params.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings="none")


def _same(value: Any, other: Any) -> bool:
    """Equality of JSON values: 1 equals 1.0, but True equals neither."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, list) and isinstance(other, list):
        items, others = cast("list[Any]", value), cast("list[Any]", other)
        return len(items) == len(others) and all(map(_same, items, others))
    if isinstance(value, dict) and isinstance(other, dict):
        left, right = cast("dict[Any, Any]", value), cast("dict[Any, Any]", other)
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    return value == other
