"""Creates Python identifiers for the names in a schema: deterministic, distinct, and never shadowing a used name."""

import builtins
import keyword
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from hashlib import sha256

from ipybox.guest.tools.models import CheckedInput

#: What annotations and defaults in the body of a generated class may refer to.
_IN_CLASS_BODIES = {
    "Among", "Annotated", "Any", "Default", "Exact", "Field", "Literal", "Params", "Result", "SafeInteger", "UNSET",
    "bool", "dict", "float", "int", "list", "str",
}  # fmt: skip
_IN_MODULES = {"CLIENT", "CheckedInput", "Choice", "Output", "Input", "run", "run_async", "run_many", "run_many_async"}

# Includes the attributes of every generated class.
_RESERVED_FIELDS = frozenset({*dir(CheckedInput), *dir(type(CheckedInput)), *_IN_CLASS_BODIES, "self"})
_RESERVED_CLASSES = frozenset({*dir(builtins), *_IN_CLASS_BODIES, *_IN_MODULES})
# String methods are not reserved: a member called `title` is worth more than the method.
_RESERVED_MEMBERS = frozenset({"mro"})
_RESERVED_FILES = frozenset({"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))})
#: Maximum characters of a name, and bytes of a module's name.
_MAX_NAME = 80
#: Minimum digits of a suffix that tells modules apart.
_SUFFIX = 6


def package_name(server_name: str) -> str:
    """Returns a server's name with an underscore for each hyphen, dot and space, or raises a ValueError."""
    name = re.sub(r"[-. ]", "_", server_name) if re.match(r"\w", server_name) else server_name
    reserved = keyword.iskeyword(name) or name.startswith("__")
    if not name.isidentifier() or reserved or unicodedata.normalize("NFKC", name) != name:
        raise ValueError(f"server name {server_name!r} is not a valid Python package name: use letters, digits and _")
    if len(name) > _MAX_NAME:
        raise ValueError(f"server name {server_name[:40]!r}... is too long: use at most {_MAX_NAME} characters")
    return name


def module_names(tool_names: Collection[str], known: Mapping[str, str]) -> list[str]:
    """Returns module names for distinct tools, in the same order.

    A tool keeps the module that it has or had, according to `known`, so that no import ever gets a different tool. If
    several new tools would get the same name, the tool with exactly that name gets it; the others get a suffix derived
    from their own name. So names depend neither on the order of the tools nor on how many have a suffix.
    """
    bases = dict(zip(tool_names, map(_module_name, tool_names), strict=True))
    rivals = Counter(bases.values())
    taken = {*known}
    named = dict(zip(known.values(), known, strict=True))
    new = sorted(bases.keys() - named.keys())
    for tool in new:
        base = bases[tool]
        if base not in taken and (base == tool or rivals[base] == 1):
            named[tool] = base
            taken.add(base)
    for tool in new:
        if tool not in named:
            named[tool] = _with_suffix(bases[tool], tool, taken)
            taken.add(named[tool])
    return [*map(named.__getitem__, tool_names)]


def _distinct_names(texts: Iterable[str], reserved: frozenset[str], fallback: str, blank: str) -> dict[str, str]:
    names = dict.fromkeys(texts, "")
    taken = dict.fromkeys(names, 1)  # a new name must not be another text
    for text in names:
        names[text] = text
        if not _is_usable(text, reserved):
            name = _identifier(text, fallback if text.strip() else blank)
            names[text] = _claim(name if _is_usable(name, reserved) else f"{name}_", taken, "_")
    return names


#: Returns attribute names for properties, by their wire names; usable names are kept.
field_names = partial(_distinct_names, reserved=_RESERVED_FIELDS, fallback="field", blank="field")
#: Returns names for the members of an enum, by their values.
member_names = partial(_distinct_names, reserved=_RESERVED_MEMBERS, fallback="value", blank="empty")


def class_name(hint: str, taken: dict[str, int], prefix: str = "") -> str:
    """Returns a name for a class that the schema calls `hint`, and adds it to `taken`, with 1 as its last number.

    If the name is taken, the prefix is tried before a number.
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
    """Returns an identifier as Python reads it (NFKC), with its case folded: distinct on every file system."""
    folded = unicodedata.normalize("NFKC", tool_name[: 4 * _MAX_NAME]).casefold()
    name = "".join(each if f"_{each}".isidentifier() else "_" for each in unicodedata.normalize("NFKC", folded))
    if name.startswith("_"):
        name = name.strip("_")
    name = name.encode()[:_MAX_NAME].decode(errors="ignore") or "tool"  # as file systems measure it
    if not name.isidentifier():  # it starts with a digit or a combining mark
        name = f"tool_{name}"
    return f"{name}_" if keyword.iskeyword(name) or name in _RESERVED_FILES else name


def _with_suffix(base: str, tool_name: str, taken: Collection[str]) -> str:
    digest = sha256(tool_name.encode(errors="surrogatepass")).hexdigest()
    names = (f"{base}_{digest[:length]}" for length in range(_SUFFIX, len(digest) + 1))
    return next(name for name in names if name not in taken)


def _is_usable(name: str, reserved: frozenset[str]) -> bool:
    # Python normalizes identifiers, so a name that is not normalized would differ from the one on the wire.
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


def _claim(base: str, taken: dict[str, int], separator: str) -> str:
    """Returns the name, with a number if it is taken. `taken` has the last number of each: a thousand can be alike."""
    name, number = base, taken.get(base, 1)
    while name in taken:
        number += 1
        name = f"{base}{separator}{number}"
    taken[base] = number
    taken[name] = 1
    return name
