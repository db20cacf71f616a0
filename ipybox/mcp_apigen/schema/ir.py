"""The intermediate representation of a JSON Schema, as far as Python's types can express it.

The parser builds the tree, the renderer reads it. Names are unchanged: only `naming` turns them into identifiers, and
only `text` into literals.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

#: Constraints as keyword arguments of pydantic's `Field`.
Constraints = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class AnyType:
    """Any JSON value; what the schema says beyond that is left to the server."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A string, integer, number, boolean or null."""

    kind: Literal["string", "integer", "number", "boolean", "null"]
    limits: Constraints = ()


@dataclass(frozen=True, slots=True)
class EnumType:
    """One of several strings."""

    hint: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LiteralType:
    """One of several JSON values."""

    values: tuple[Any, ...]

    @property
    def is_typed(self) -> bool:
        """Whether `typing.Literal` can hold all of them."""
        return all(isinstance(value, str | int | None) for value in self.values)


@dataclass(frozen=True, slots=True)
class ListType:
    """An array."""

    item: "Type"
    limits: Constraints = ()


@dataclass(frozen=True, slots=True)
class DictType:
    """An object without named properties."""

    value: "Type"
    limits: Constraints = ()


@dataclass(frozen=True, slots=True)
class UnionType:
    """One of several types, at least two."""

    options: tuple["Type", ...]


@dataclass(frozen=True, slots=True)
class UnenforcedType:
    """A constraint meant for one type, in keywords that don't restrict values of other types."""

    meant: "Type"


@dataclass(eq=False, slots=True)
class Model:
    """An object with named properties; it may contain itself, so it is compared by identity."""

    hint: str
    description: str = ""
    fields: "list[ModelField]" = field(default_factory=list["ModelField"])
    forbid_extra: bool = False
    #: Whether values are also checked against the schema, because it demands more than the types.
    checked: bool = False


Type = AnyType | Scalar | EnumType | LiteralType | ListType | DictType | UnionType | UnenforcedType | Model


@dataclass(frozen=True, slots=True)
class DefaultValue:
    """A JSON value, which may be null."""

    value: Any


@dataclass(frozen=True, slots=True)
class ModelField:
    """A property of an object."""

    wire_name: str
    type: Type
    required: bool
    description: str = ""
    #: What is sent for a required property that is not given.
    default: DefaultValue | None = None


ANY = AnyType()
NULL = Scalar("null")
