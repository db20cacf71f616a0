"""Base classes of the models in generated tool modules, and the way from a model to its wire form.

This module is imported in the kernel: standard library and pydantic only. A generated model accepts what its
JSON Schema accepts and is sent as the caller wrote it:

- Scalars are strict (`"1"` is no integer, `True` neither, but `1.0` is one), and a format rewrites nothing.
- A field has the name of the schema, or a Python name and that name as alias; callers may use both.
- Optional fields default to `UNSET` and are not sent; `None` is sent, where the schema allows null.
- Nested models may be given as dictionaries, and members of an enum by their value.
"""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

#: Default of optional fields. It is typed `Any` so that fields keep the type they have when they are sent.
UNSET: Any = None

T = TypeVar("T")


#: An integer that JavaScript's numbers hold exactly, as servers in that language want it.
SafeInteger = Annotated[int, Field(ge=-(2**53) + 1, le=2**53 - 1)]


def _whole(value: Any, handler: Any) -> Any:
    """Lets a float pass for an integer if it is one."""
    if type(value) is float and value.is_integer():
        handler(int(value))
        return value
    return handler(value)


def _number(value: Any, handler: Any) -> Any:
    """Lets an integer pass for a number, also one that is too large for a float."""
    if type(value) is int:
        handler(max(-sys.float_info.max, min(value, sys.float_info.max)))
        return value
    return handler(value)


def _as_written(schema: Any) -> Any:
    """The same schema of a field, in which integers and floats stay as they are written: JSON knows only numbers."""
    if isinstance(schema, list):
        return [_as_written(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    parts = cast("dict[str, Any]", schema)
    match parts.get("type"):
        case "model":  # it has done so by itself
            return parts
        case "int" | "float" as kind:
            check = _whole if kind == "int" else _number
            written = core_schema.simple_ser_schema("any")
            return core_schema.no_info_wrap_validator_function(check, cast(CoreSchema, parts), serialization=written)
        case _:
            return {key: _as_written(part) for key, part in parts.items()}


def _model_within(schema: CoreSchema) -> dict[str, Any]:
    """The schema of a model, without its validators around; empty within a recursion, where it is a mere reference."""
    parts = cast("dict[str, Any]", schema)
    while str(parts["type"]).startswith("function-"):
        parts = parts["schema"]
    return parts if parts["type"] == "model" else {}


class _Model(BaseModel):
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
        schema = handler(source)
        if model := _model_within(schema):
            # Strict models accept instances only; strictness is meant for the scalars within.
            model["strict"] = False
            model["schema"] = _as_written(model["schema"])
        return schema


class Output(_Model):
    """The result of a tool, or an object within it; keeps fields that its schema does not know."""


class Input(_Model):
    """The arguments of a tool, or an object within them."""

    model_config = ConfigDict(validate_assignment=True)


class CheckedInput(Input):
    """The arguments of a tool whose schema says more than types: the schema itself is checked, too.

    It is in the file `.<module>.schema.json` beside the module.
    """

    @model_validator(mode="after")
    def _check_schema(self) -> Self:
        wire(self)
        return self

    @classmethod
    def schema_file(cls) -> Path:
        """The file of the schema."""
        generated = next(each for each in cls.__mro__ if CheckedInput in each.__bases__)
        module = Path(str(sys.modules[generated.__module__].__file__))
        return module.with_name(f".{module.stem}.schema.json")


class Choice(StrEnum):
    """A closed set of strings; its values are accepted as well as its members.

    `Choice("Sort", "stars forks")` makes one of strings that are names, a dictionary one of names for strings.
    """

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[str]) -> str:
        return name  # as it is, where `StrEnum` would take it in lower case

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler, /) -> CoreSchema:
        def member_of(value: Any) -> Any:
            return cls._value2member_map_.get(value, value) if isinstance(value, str) else value

        schema = handler(source)
        if schema["type"] == "enum":  # within a recursion it is a mere reference
            schema["strict"] = False
        # Within strict unions pydantic before 2.11 takes nothing but members, whatever the enum itself allows.
        return core_schema.no_info_before_validator_function(member_of, schema)


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


def wire(params: Input) -> dict[str, Any]:
    """The arguments as they are sent: original names, only what was set, enums as their values.

    Raises:
        ValidationError: The schema refuses them, where types can't say so; a model within may have been changed since.
    """
    arguments = params.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings="none")
    if isinstance(params, CheckedInput):
        from ipybox.tool_exec.schema_check import check

        check(params, arguments, params.schema_file())
    return arguments


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
