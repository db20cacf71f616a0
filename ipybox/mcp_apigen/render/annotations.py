"""Renders types of the intermediate representation as annotations, and fields with them."""

from dataclasses import dataclass

from ipybox.mcp_apigen.render.text import LINE_LENGTH, block, literal, quote
from ipybox.mcp_apigen.schema.constraints import beyond_safe
from ipybox.mcp_apigen.schema.ir import (
    NULL,
    AnyType,
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
class Annotator:
    """Renders the fields of one side: of arguments, or of results."""

    tool_name: str
    classes: dict[Definition, str]
    sent: bool
    #: The classes before the current one.
    defined: set[Definition]
    #: The names that the fields so far need to import.
    uses: set[str]
    #: Whether the current field refers to a class that is not defined yet.
    _forward: bool = False

    def field_lines(self, item: ModelField, name: str) -> list[str]:
        """Returns the lines that declare a field, in the body of a class."""
        before, self._forward = frozenset(self.uses), False
        text, limits, check = self._parts(item.type)
        if not self.sent and not item.required and not _admits_null(item.type):
            text += " | None"
        if self._forward:
            # Forward references are strings, in which type checkers expect no escapes.
            if "\\" in text or ("'" in text and '"' in text):
                self.uses &= before
                self.uses.add("Any")
                text, limits, check = "Any", (), ""
            else:
                text = quote(text)
        default = self._default(item)
        if name != item.wire_name:
            limits = (("alias", item.wire_name), *limits)
        elif limits and not check and default in ("", "UNSET"):
            line = f"    {name}: {text} = {_field_call(limits, default)}"
            if len(line) <= LINE_LENGTH:
                self.uses.add("Field")
                return [line]
        # Type checkers would take an alias next to a default for the argument's name.
        lines = _assigned(f"    {name}: {self._annotated(text, limits, check)}", default, item)
        if max(map(len, lines)) <= LINE_LENGTH or not (check or limits):
            return lines
        arguments = [text, check, _field_call(limits) if limits else ""]
        arguments = [f"        {each}," for each in arguments if each]
        return [f"    {name}: Annotated[", *arguments, *_assigned("    ]", default, item)]

    def _default(self, item: ModelField) -> str:
        """Returns the source of a field's default; empty if callers must give a value."""
        if item.required and not (self.sent and item.default):
            return ""
        if not self.sent:
            return "None"
        self.uses.add("Default" if item.default else "UNSET")
        return f"Default({literal(item.default.value)})" if item.default else "UNSET"

    def _annotated(self, text: str, limits: Constraints, check: str) -> str:
        if not limits and not check:
            return text
        self.uses |= {"Annotated", "Field"} if limits else {"Annotated"}
        metadata = [*([check] if check else []), *([_field_call(limits)] if limits else [])]
        return f"Annotated[{', '.join([text, *metadata])}]"

    def _type(self, kind: Type) -> str:
        return self._annotated(*self._parts(kind))

    def _parts(self, kind: Type) -> tuple[str, Constraints, str]:
        """Returns an annotation, and its metadata: limits of its values, and a check."""
        # A server's results are not rejected over a detail.
        limits = kind.limits if self.sent and isinstance(kind, Scalar | ListType | DictType) else ()
        match kind:
            case AnyType():
                self.uses.add("Any")
                return "Any", (), ""
            case Scalar("integer") if (others := beyond_safe(limits)) is not None:
                self.uses.add("SafeInteger")
                return "SafeInteger", others, ""
            case Scalar(name):
                return _SCALARS[name], limits, ""
            case LiteralType(values) if kind.is_typed:
                text = f"Literal[{', '.join(map(literal, values))}]"
                exact = any(isinstance(value, int) for value in values)
                self.uses |= {"Exact", "Literal"} if exact else {"Literal"}
                return f"Exact[{text}]" if exact else text, (), ""
            case LiteralType(values):
                self.uses |= {"Any", "Among"}
                return "Any", (), f"Among({', '.join(map(literal, values))})"
            case ListType(item):
                return f"list[{self._type(item)}]", limits, ""
            case DictType(value):
                return f"dict[str, {self._type(value)}]", limits, ""
            case UnionType(options):
                return " | ".join(map(self._type, options)), (), ""
            case UnenforcedType(meant):
                self.uses.add("Any")
                return f"{self._type(meant)} | Any", (), ""
            case _:
                self._forward = self._forward or kind not in self.defined
                return self.classes[kind], (), ""


def _field_call(arguments: Constraints, default: str = "") -> str:
    named = (f"{name}={literal(value)}" for name, value in arguments)
    return f"Field({', '.join([f'default={default}', *named] if default else named)})"


def _assigned(head: str, default: str, item: ModelField) -> list[str]:
    """Returns the lines of a field with its default: one line if it fits."""
    line = f"{head} = {default}" if default else head
    if len(line) <= LINE_LENGTH or not item.default:
        return [line]
    return [f"{head} = Default(", *block(item.default.value, "", "", 8), "    )"]


def _admits_null(kind: Type) -> bool:
    match kind:
        case AnyType() | UnenforcedType():
            return True
        case LiteralType(values):
            return None in values or not kind.is_typed
        case UnionType(options):
            return NULL in options or any(_admits_null(option) for option in options)
        case _:
            return kind == NULL
