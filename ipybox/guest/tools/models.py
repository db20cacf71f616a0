"""Base classes of the models in generated tool modules, and the conversion from a model to its wire form.

This module is imported in the kernel: standard library and pydantic only. A generated model accepts values that its
JSON Schema accepts, and sends them as the caller wrote them:

- Scalars are strict (`"1"` and `True` are not integers, but `1.0` is one), and formats change no values.
- A field has its name in the schema, or a Python name with the schema's as alias; callers may use either.
- Optional fields default to `UNSET` and are not sent; `None` is sent if the schema allows null. If the schema requires
  a field and has a default, that `Default` is sent.
- Nested models may be given as dictionaries, and members of an enum by their value.
- Values of other types are accepted as the JSON that `arguments` converts them to: a date as text, a set as a list.
"""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError, model_validator
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from ipybox.guest.tools.arguments import ArgumentError, as_json

#: Default of optional fields. Its type is `Any`, so that fields keep the type that they have when they are sent.
UNSET: Any = None

T = TypeVar("T")


def Default(value: Any) -> Any:
    """Returns the default of a field that the schema requires: unlike `UNSET`, it is checked and sent."""
    return Field(default=value, validate_default=True)


#: An integer that JavaScript's numbers hold exactly, as servers in that language require.
SafeInteger = Annotated[int, Field(ge=-(2**53) + 1, le=2**53 - 1)]


def _whole(value: Any, handler: Any) -> Any:
    """Accepts a float as an integer if its value is one."""
    if type(value) is float and value.is_integer():
        handler(int(value))
        return value
    return handler(value)


def _number(value: Any, handler: Any) -> Any:
    """Accepts an integer as a number, even if it is too large for a float."""
    if type(value) is int:
        handler(max(-sys.float_info.max, min(value, sys.float_info.max)))
        return value
    return handler(value)


def _as_written(schema: Any) -> Any:
    """Returns a field's schema that keeps integers and floats as they are written: JSON has only numbers."""
    if isinstance(schema, list):
        return [_as_written(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    parts = cast("dict[str, Any]", schema)
    match parts.get("type"):
        case "model":  # a model has its own serialization
            return parts
        case "int" | "float" as kind:
            check = _whole if kind == "int" else _number
            written = core_schema.simple_ser_schema("any")
            return core_schema.no_info_wrap_validator_function(check, cast(CoreSchema, parts), serialization=written)
        case _:
            return {key: _as_written(part) for key, part in parts.items()}


def _model_within(schema: CoreSchema) -> dict[str, Any]:
    """Returns the schema of a model without the validators around it."""
    parts = cast("dict[str, Any]", schema)
    while str(parts["type"]).startswith("function-"):
        parts = parts["schema"]
    return parts


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
        model = _model_within(schema)
        # Strict models accept instances only; strictness is for the scalars in them.
        model["strict"] = False
        model["schema"] = _as_written(model["schema"])
        return schema

    def wire_form(self) -> dict[str, Any]:
        """Returns the fields that are set, by their names in the schema; not converted to JSON."""
        return self.model_dump(by_alias=True, exclude_unset=True, warnings="none")


class Output(_Model):
    """The result of a tool, or an object within it; keeps fields that its schema does not define."""

    # Python servers send these, as their JSON encoder does.
    model_config = ConfigDict(allow_inf_nan=True)


class Input(_Model):
    """The arguments of a tool, or an object within them."""

    model_config = ConfigDict(validate_assignment=True)

    _sent_defaults: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, /, **values: Any):
        try:
            super().__init__(**values)
        except ValidationError:
            values = _converted(type(self).__name__, values)
        else:
            return
        super().__init__(**values)

    # Tells pydantic to create nested objects without it.
    __init__.__pydantic_base_init__ = True  # pyright: ignore[reportFunctionMemberAccess] - as in pydantic's own models

    @classmethod
    def __pydantic_init_subclass__(cls, **_kwargs: Any) -> None:
        cls._sent_defaults = frozenset(name for name, field in cls.model_fields.items() if field.validate_default)

    def model_post_init(self, context: Any, /) -> None:
        """Counts each `Default` as set, so that it is sent."""
        self.__pydantic_fields_set__.update(self._sent_defaults)


class CheckedInput(Input):
    """The arguments of a tool whose schema has constraints beyond types: the schema itself is also checked.

    The schema is in the file `.<module>.schema.json` next to the module.
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

    `Choice("Sort", "stars forks")` creates one from strings that are names; a dictionary gives names to strings.
    """

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[str]) -> str:
        return name  # unchanged; `StrEnum` would convert it to lower case

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler, /) -> CoreSchema:
        schema = handler(source)
        cast("dict[str, Any]", schema)["strict"] = False
        return schema


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
    """Keeps pydantic from accepting `1` for `Literal[True]`, and `True` or `1.0` for `Literal[1]`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler, /) -> CoreSchema:
        return Among(*get_args(source)).__get_pydantic_core_schema__(Any, handler)


#: `Exact[Literal[1, 2]]` accepts these values, but no values that are equal only in Python.
Exact = Annotated[T, _ExactLiteral()]


def wire(params: Input) -> dict[str, Any]:
    """Returns the arguments to send: by their names in the schema, only what was set, and as JSON only if checked.

    Raises:
        ValidationError: If the schema rejects them for a reason beyond types.
        ArgumentError: If they are checked, and one of them can't be converted to JSON.
        TypeError: If they are not `Params`.
    """
    if not isinstance(params, _Model):  # pyright: ignore[reportUnnecessaryIsInstance] - agents pass dictionaries
        raise TypeError(f"the argument is a {type(params).__name__}: pass Params(...) from the tool's module")
    arguments = params.wire_form()
    if isinstance(params, CheckedInput):
        from ipybox.guest.tools.schema_check import check

        arguments = as_json(arguments)
        check(params, arguments, params.schema_file())
    return arguments


def _converted(model: str, values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of a model as JSON; a ValidationError names the place of one that can't be converted."""
    try:
        return as_json(values)
    except ArgumentError as exc:
        kind = PydanticCustomError("json_type", "{problem}", {"problem": exc.problem})
        details = InitErrorDetails(type=kind, loc=exc.place, input=exc.value)
        raise ValidationError.from_exception_data(model, [details]) from None


def _same(value: Any, other: Any) -> bool:
    """Returns whether JSON values are equal: 1 equals 1.0, but True equals neither."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, list) and isinstance(other, list):
        items, others = cast("list[Any]", value), cast("list[Any]", other)
        return len(items) == len(others) and all(map(_same, items, others))
    if isinstance(value, dict) and isinstance(other, dict):
        left, right = cast("dict[Any, Any]", value), cast("dict[Any, Any]", other)
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    return value == other
