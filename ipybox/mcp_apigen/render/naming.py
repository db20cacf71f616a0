"""Creates Python identifiers for the names in a schema: deterministic, distinct, and never shadowing a used name."""

import builtins
import keyword
import re
import unicodedata
from collections.abc import Iterable

from ipybox.guest.tools.models import CheckedInput

#: What annotations and defaults in the body of a generated class may refer to.
_IN_CLASS_BODIES = {
    "Among", "Annotated", "Any", "Default", "Exact", "Field", "Literal", "Params", "Result", "SafeInteger", "UNSET",
    "bool", "dict", "float", "int", "list", "str",
}  # fmt: skip
_IN_MODULES = {"CLIENT", "CheckedInput", "Choice", "Output", "Input", "run", "run_async"}

# Also the names that its class has by itself.
_RESERVED_FIELDS = frozenset({*dir(CheckedInput), *dir(type(CheckedInput)), *_IN_CLASS_BODIES, "self"})
_RESERVED_CLASSES = frozenset({*dir(builtins), *_IN_CLASS_BODIES, *_IN_MODULES})
# Methods of strings are not among them: a member that is called `title` is worth more than they are.
_RESERVED_MEMBERS = frozenset({"mro"})
_RESERVED_FILES = frozenset({"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))})
_MAX_NAME = 80


def package_name(server_name: str) -> str:
    """Returns the name of a server's package: its own, with an underscore for each hyphen, dot and space.

    Raises:
        ValueError: If that is not an identifier, or is reserved.
    """
    name = re.sub(r"[-. ]", "_", server_name) if re.match(r"\w", server_name) else server_name
    reserved = keyword.iskeyword(name) or name.startswith("__")
    if not name.isidentifier() or reserved or unicodedata.normalize("NFKC", name) != name:
        raise ValueError(f"server name {server_name!r} is not a valid Python package name: use letters, digits and _")
    if len(name) > _MAX_NAME:
        raise ValueError(f"server name {server_name[:40]!r}... is too long: use at most {_MAX_NAME} characters")
    return name


def module_names(tool_names: list[str]) -> list[str]:
    """Module names for tools, in the same order.

    They are lower-case ASCII, and so distinct on every file system. They don't depend on the order of the tools:
    among those that would get the same name, the tool that has it already keeps it.
    """
    bases = [_module_name(name) for name in tool_names]
    order = sorted(range(len(tool_names)), key=lambda i: (bases[i] != tool_names[i], tool_names[i]))
    taken: set[str] = set()
    named: dict[int, str] = {}
    late: list[int] = []
    for index in order:
        if bases[index] in taken:
            late.append(index)
        else:
            named[index] = _claim(bases[index], taken, "_")
    for index in late:
        named[index] = _claim(bases[index], taken, "_")
    return [named[index] for index in range(len(tool_names))]


def field_names(wire_names: Iterable[str]) -> dict[str, str]:
    """Attribute names for properties; a name that is fine remains as it is."""
    wire_names = list(wire_names)
    # A renamed field must not take a name that another property has on the wire.
    taken = set(wire_names)
    return {name: name if _is_usable(name, _RESERVED_FIELDS) else _renamed(name, taken) for name in wire_names}


def _renamed(wire_name: str, taken: set[str]) -> str:
    base = _identifier(wire_name, "field")
    return _claim(base if _is_usable(base, _RESERVED_FIELDS) else f"{base}_", taken, "_")


def member_names(values: Iterable[str]) -> dict[str, str]:
    """Names for the members of an enum, by their values."""
    values = list(values)
    names = {value: value for value in values if _is_usable(value, _RESERVED_MEMBERS)}
    taken = set(names)
    for value in values:
        if value not in names:
            base = _identifier(value, "value") if value.strip() else "empty"
            base = base if _is_usable(base, _RESERVED_MEMBERS) else f"{base}_"
            names[value] = _claim(base, taken, "_")
    return {value: names[value] for value in values}


def class_name(hint: str, taken: set[str], prefix: str = "") -> str:
    """A name for a class that the schema calls `hint`; claims it among those that are `taken`.

    Where the name is taken, it is tried with the prefix before it gets a number.
    """
    words = re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", hint))
    name = "".join(word[0].upper() + word[1:] for word in words)[:_MAX_NAME]
    if not name.isidentifier():
        name = "Model" + re.sub(r"[^A-Za-z0-9]", "", name)
    if name in _RESERVED_CLASSES or keyword.iskeyword(name):
        name += "_"
    if name in taken and prefix:
        name = prefix + name
    return _claim(name, taken, "")


def _module_name(tool_name: str) -> str:
    plain = unicodedata.normalize("NFKD", tool_name.casefold()).encode("ascii", "ignore").decode()
    name = re.sub(r"[^a-z0-9_]", "_", plain)
    if name.startswith("_"):
        name = name.strip("_")
    name = name[:_MAX_NAME] or "tool"
    if name[0].isdigit():
        name = f"tool_{name}"
    return f"{name}_" if keyword.iskeyword(name) or name in _RESERVED_FILES else name


def _is_usable(name: str, reserved: frozenset[str]) -> bool:
    # Python normalizes identifiers, so a name that is not normal would not be the one on the wire.
    normal = name.isidentifier() and unicodedata.normalize("NFKC", name) == name
    fine = not keyword.iskeyword(name) and not name.startswith("_") and name not in reserved
    return normal and fine and len(name) <= _MAX_NAME


def _identifier(text: str, fallback: str) -> str:
    name = re.sub(r"\W+", "_", unicodedata.normalize("NFKC", text[: 2 * _MAX_NAME])).strip("_")[:_MAX_NAME]
    if name[:1].isdigit():
        name = f"{fallback}_{name}"
    if not name.isidentifier():
        name = re.sub(r"[^A-Za-z0-9_]", "", name).strip("_")
    return name if name.isidentifier() else fallback


def _claim(base: str, taken: set[str], separator: str) -> str:
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}{separator}{number}"
    taken.add(name)
    return name
