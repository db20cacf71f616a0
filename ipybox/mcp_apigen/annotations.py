"""Types of the intermediate representation as annotations, and fields with them."""

from dataclasses import dataclass

from ipybox.mcp_apigen.ir import (
    NULL,
    AnyType,
    ConstantType,
    DictType,
    EnumType,
    Limits,
    ListType,
    LiteralType,
    LooseType,
    Model,
    ModelField,
    Scalar,
    Type,
    UnionType,
)
from ipybox.mcp_apigen.limits import is_safe, without_safe_bounds
from ipybox.mcp_apigen.text import LINE_LENGTH, literal, quote

#: What gets a class of its own.
Definition = Model | EnumType

_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


@dataclass(slots=True)
class _Parts:
    """An annotation, what belongs around it in `Annotated`, and what it needs."""

    text: str
    limits: Limits = ()
    checks: str = ""
    #: Names to import.
    uses: frozenset[str] = frozenset()
    #: Whether it names a class that is not defined yet.
    forward: bool = False

    def joined(self) -> "_Parts":
        """The annotation with everything around it, as part of another."""
        arguments = [self.text, *([self.checks] if self.checks else [])]
        uses = self.uses
        if self.limits:
            arguments.append(_field_call(self.limits))
            uses |= {"Field"}
        if len(arguments) == 1:
            return self
        return _Parts(f"Annotated[{', '.join(arguments)}]", uses=uses | {"Annotated"}, forward=self.forward)

    def or_any(self) -> "_Parts":
        """The annotation of the same values, and of all others."""
        return _Parts(f"{self.text} | Any", uses=self.uses | {"Any"}, forward=self.forward)


@dataclass(slots=True)
class Annotator:
    """Writes the fields of one side: of what is sent, or of what is received."""

    tool_name: str
    classes: dict[Definition, str]
    sent: bool
    #: The classes that stand before the one that is being written.
    defined: set[Definition]
    #: Grows by the names that the fields written so far need.
    uses: set[str]

    def field_lines(self, item: ModelField, name: str) -> list[str]:
        """The lines that declare a field, in the body of a class."""
        parts = self._parts(item.type)
        if not self.sent and not item.required and not _admits_null(item.type):
            parts.text += " | None"
        if parts.forward:
            parts = _deferred(parts)
        default = "" if item.required else "UNSET" if self.sent else "None"
        self.uses |= {"UNSET"} if default == "UNSET" else set()
        if name != item.wire_name:
            parts.limits = (("alias", item.wire_name), *parts.limits)
        elif parts.limits and not parts.checks:
            line = f"    {name}: {parts.text} = {_field_call(parts.limits, default)}"
            if len(line) <= LINE_LENGTH:
                self.uses |= parts.uses | {"Field"}
                return [line]
        # An alias beside the default would be the name of the argument to type checkers.
        default = default and f" = {default}"
        self.uses |= parts.joined().uses
        line = f"    {name}: {parts.joined().text}{default}"
        if len(line) <= LINE_LENGTH or not (parts.checks or parts.limits):
            return [line]
        arguments = [parts.text, parts.checks, _field_call(parts.limits) if parts.limits else ""]
        return [f"    {name}: Annotated[", *(f"        {each}," for each in arguments if each), f"    ]{default}"]

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
            case LooseType(meant):
                return self._parts(meant).joined().or_any()
            case EnumType() | Model():
                return _Parts(self.classes[kind], forward=kind not in self.defined)

    def _scalar(self, scalar: Scalar) -> _Parts:
        limits = self._checked(scalar.limits)
        if scalar.kind == "integer" and is_safe(limits):
            return _Parts("SafeInteger", without_safe_bounds(limits), uses=frozenset({"SafeInteger"}))
        return _Parts(_SCALARS[scalar.kind], limits)

    def _checked(self, limits: Limits) -> Limits:
        # What a server returns is not refused for a detail.
        return limits if self.sent else ()


def _field_call(arguments: Limits, default: str = "") -> str:
    named = (f"{name}={literal(value)}" for name, value in arguments)
    return f"Field({', '.join([f'default={default}', *named] if default else named)})"


def _deferred(parts: _Parts) -> _Parts:
    """The same annotation as a string, in which type checkers want no escapes."""
    if "\\" in parts.text or ("'" in parts.text and '"' in parts.text):
        return _Parts("Any", uses=frozenset({"Any"}))
    return _Parts(quote(parts.text), parts.limits, parts.checks, parts.uses)


def _admits_null(kind: Type) -> bool:
    match kind:
        case AnyType() | ConstantType() | LooseType():
            return True
        case LiteralType(values):
            return None in values
        case UnionType(options):
            return NULL in options or any(_admits_null(option) for option in options)
        case _:
            return kind == NULL
