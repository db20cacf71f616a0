"""Renders types of the intermediate representation as annotations, and fields with them."""

from dataclasses import dataclass

from ipybox.mcp_apigen.render.text import LINE_LENGTH, block, literal, quote
from ipybox.mcp_apigen.schema.constraints import is_safe, without_safe_bounds
from ipybox.mcp_apigen.schema.ir import (
    NULL,
    AnyType,
    ConstantType,
    Constraints,
    DictType,
    EnumType,
    ListType,
    LiteralType,
    Model,
    ModelField,
    Scalar,
    Type,
    UnenforcedType,
    UnionType,
)

#: Types that get their own class.
Definition = Model | EnumType

_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


@dataclass(slots=True)
class _Parts:
    """An annotation, its metadata in `Annotated`, and the names that it needs."""

    text: str
    limits: Constraints = ()
    checks: str = ""
    #: Names to import.
    uses: frozenset[str] = frozenset()
    #: Whether it refers to a class that is not defined yet.
    forward: bool = False

    def joined(self) -> "_Parts":
        """Returns the annotation with its metadata, as part of another."""
        arguments = [self.text, *([self.checks] if self.checks else [])]
        uses = self.uses
        if self.limits:
            arguments.append(_field_call(self.limits))
            uses |= {"Field"}
        if len(arguments) == 1:
            return self
        return _Parts(f"Annotated[{', '.join(arguments)}]", uses=uses | {"Annotated"}, forward=self.forward)

    def or_any(self) -> "_Parts":
        """Returns the annotation of the same values, and of all others."""
        return _Parts(f"{self.text} | Any", uses=self.uses | {"Any"}, forward=self.forward)


@dataclass(slots=True)
class Annotator:
    """Renders the fields of one side: of arguments, or of results."""

    tool_name: str
    classes: dict[Definition, str]
    sent: bool
    #: The classes before the current one.
    defined: set[Definition]
    #: The names that the fields so far need.
    uses: set[str]

    def field_lines(self, item: ModelField, name: str) -> list[str]:
        """Returns the lines that declare a field, in the body of a class."""
        parts = self._parts(item.type)
        if not self.sent and not item.required and not _admits_null(item.type):
            parts.text += " | None"
        if parts.forward:
            parts = _deferred(parts)
        default = self._default(item)
        if name != item.wire_name:
            parts.limits = (("alias", item.wire_name), *parts.limits)
        elif parts.limits and not parts.checks and default in ("", "UNSET"):
            line = f"    {name}: {parts.text} = {_field_call(parts.limits, default)}"
            if len(line) <= LINE_LENGTH:
                self.uses |= parts.uses | {"Field"}
                return [line]
        # Next to a default, an alias would be the name of the argument for type checkers.
        self.uses |= parts.joined().uses
        head = f"    {name}: {parts.joined().text}"
        lines = _assigned(head, default, item)
        if max(map(len, lines)) <= LINE_LENGTH or not (parts.checks or parts.limits):
            return lines
        arguments = [parts.text, parts.checks, _field_call(parts.limits) if parts.limits else ""]
        arguments = [f"        {each}," for each in arguments if each]
        return [f"    {name}: Annotated[", *arguments, *_assigned("    ]", default, item)]

    def _default(self, item: ModelField) -> str:
        """Returns the source of a field's default; empty if it must be given."""
        if item.required and not (self.sent and item.default):
            return ""
        if not self.sent:
            return "None"
        self.uses.add("Default" if item.default else "UNSET")
        return f"Default({literal(item.default.value)})" if item.default else "UNSET"

    def _parts(self, kind: Type) -> _Parts:
        match kind:
            case AnyType():
                return _Parts("Any", uses=frozenset({"Any"}))
            case Scalar():
                return self._scalar(kind)
            case LiteralType(values):
                text = f"Literal[{', '.join(map(literal, values))}]"
                if any(isinstance(value, int) for value in values):
                    return _Parts(f"Exact[{text}]", uses=frozenset({"Exact", "Literal"}))
                return _Parts(text, uses=frozenset({"Literal"}))
            case ConstantType(values):
                checks = f"Among({', '.join(map(literal, values))})"
                return _Parts("Any", checks=checks, uses=frozenset({"Any", "Among"}))
            case ListType():
                item = self._parts(kind.item).joined()
                return _Parts(f"list[{item.text}]", self._checked(kind.limits), "", item.uses, item.forward)
            case DictType():
                value = self._parts(kind.value).joined()
                return _Parts(f"dict[str, {value.text}]", self._checked(kind.limits), "", value.uses, value.forward)
            case UnionType():
                options = [self._parts(option).joined() for option in kind.options]
                return _Parts(
                    " | ".join(option.text for option in options),
                    uses=frozenset[str]().union(*(option.uses for option in options)),
                    forward=any(option.forward for option in options),
                )
            case UnenforcedType(meant):
                return self._parts(meant).joined().or_any()
            case EnumType() | Model():
                return _Parts(self.classes[kind], forward=kind not in self.defined)

    def _scalar(self, scalar: Scalar) -> _Parts:
        limits = self._checked(scalar.limits)
        if scalar.kind == "integer" and is_safe(limits):
            return _Parts("SafeInteger", without_safe_bounds(limits), uses=frozenset({"SafeInteger"}))
        return _Parts(_SCALARS[scalar.kind], limits)

    def _checked(self, limits: Constraints) -> Constraints:
        # Results of a server are not rejected for a detail.
        return limits if self.sent else ()


def _field_call(arguments: Constraints, default: str = "") -> str:
    named = (f"{name}={literal(value)}" for name, value in arguments)
    return f"Field({', '.join([f'default={default}', *named] if default else named)})"


def _assigned(head: str, default: str, item: ModelField) -> list[str]:
    """Returns the lines of a field with its default: one, if they fit."""
    line = f"{head} = {default}" if default else head
    if len(line) <= LINE_LENGTH or not item.default:
        return [line]
    return [f"{head} = Default(", *block(item.default.value, "", "", 8), "    )"]


def _deferred(parts: _Parts) -> _Parts:
    """Returns the same annotation as a string, in which type checkers expect no escapes."""
    if "\\" in parts.text or ("'" in parts.text and '"' in parts.text):
        return _Parts("Any", uses=frozenset({"Any"}))
    return _Parts(quote(parts.text), parts.limits, parts.checks, parts.uses)


def _admits_null(kind: Type) -> bool:
    match kind:
        case AnyType() | ConstantType() | UnenforcedType():
            return True
        case LiteralType(values):
            return None in values
        case UnionType(options):
            return NULL in options or any(_admits_null(option) for option in options)
        case _:
            return kind == NULL
