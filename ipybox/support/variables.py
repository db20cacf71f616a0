"""The wire format of variables between the application and a kernel: JSON values, and tables (`ipybox.support.tables`).

Both sides use this module, and neither unpickles anything. These values arrive unchanged: None, bool, int, float
(including NaN and infinities), str (including lone surrogates), and lists and dicts of these, with str as keys. A tuple
arrives as a list, a numpy scalar as a Python one, and an instance of a subclass, such as OrderedDict, as its base
class.
"""

import json
import keyword
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from ipybox.support.bounded_json import MAX_VALUES, exceeds_value_limit, loads
from ipybox.support.errors import VariableError
from ipybox.support.sizes import format_bytes

#: Maximum bytes of the variables that one request or reply carries, all together.
MAX_BYTES = 64 << 20

#: How deeply lists and dicts can be nested.
MAX_DEPTH = 100

#: Python parses no longer int from text. https://docs.python.org/3/library/stdtypes.html#int-max-str-digits
MAX_INT_DIGITS = sys.int_info.default_max_str_digits

#: Where a value is: the name of the argument or variable, then the keys and indexes within it.
Place = tuple[str | int, ...]

#: What to do with bytes, which JSON can't represent.
SEND_TEXT = "send text, such as value.decode() or base64.b64encode(value).decode()"

JSON = "json"

_PLAIN = frozenset({type(None), bool, float, str})
# Maximum steps of a place that are shown.
_MAX_STEPS = 20
_INT_LIMIT = 10**MAX_INT_DIGITS


@dataclass(frozen=True)
class EncodedVariable:
    """A variable in transit."""

    name: str
    #: `JSON`, or the kind of table, see `ipybox.support.tables.KINDS`.
    encoding: str
    data: bytes


class _UnfitError(Exception):
    """A value can't be sent; `place` grows as the error propagates."""

    def __init__(self, problem: str):
        self.problem = problem
        self.place: list[str | int] = []


def place_text(place: Place) -> str:
    """Returns a place as Python code would write it; it has at least a name."""
    first, *rest = place
    steps = (f".{step}" if isinstance(step, str) and step.isidentifier() else f"[{step!r}]" for step in rest)
    return f"{first}{''.join(steps)}"


def type_name(value: Any) -> str:
    """Returns the name of a value's type, with the module if it is not a built-in type."""
    kind = cast("type[Any]", type(value))
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def check_name(name: str) -> None:
    """Raises a ValueError if the name is not valid for a Python variable, or has two underscores at both ends."""
    if not isinstance(cast(object, name), str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"{name!r} can't name a variable: use letters, digits and underscores, but not a keyword")
    if name.startswith("__") and name.endswith("__"):
        raise ValueError(f"{name!r} can't name a variable: Python reserves names with two underscores at both ends")
    if (normal := unicodedata.normalize("NFKC", name)) != name:
        raise ValueError(f"{name!r} can't name a variable: Python reads it as {normal!r}, so use that")


def check_size(variables: Sequence[EncodedVariable]) -> None:
    """Raises a VariableError if the size of all variables together exceeds `MAX_BYTES`."""
    size = sum(len(variable.data) for variable in variables)
    if size > MAX_BYTES:
        names = ", ".join(variable.name for variable in variables)
        raise VariableError(
            f"{names}: too large: {format_bytes(size)}; the limit is {format_bytes(MAX_BYTES)}: send a file instead"
        )


def encode(name: str, value: Any) -> EncodedVariable:
    """Returns a variable that can be sent; a VariableError names the place in the value that can't."""
    if (kind := _table_kind(value)) is not None:
        from ipybox.support.tables import encode_table

        variable = EncodedVariable(name, kind, encode_table(name, kind, value))
    else:
        variable = EncodedVariable(name, JSON, _encode_json(name, value))
    check_size([variable])
    return variable


def decode(variable: EncodedVariable) -> Any:
    """Returns the value of a variable from the other side, which is not trusted.

    JSON is limited in bytes, values and depth; for tables, see `ipybox.support.tables.decode_table`.

    Raises:
        VariableError: If its data is not valid, or a library for tables is missing.
    """
    check_size([variable])
    if variable.encoding != JSON:
        from ipybox.support.tables import decode_table

        return decode_table(variable.name, variable.encoding, variable.data)
    _check_count(variable.name, variable.data)
    try:
        return loads(variable.data.decode(errors="surrogatepass"))
    except (ValueError, RecursionError) as exc:
        raise VariableError(f"{variable.name} was not sent as valid JSON: {exc}") from None


def _encode_json(name: str, value: Any) -> bytes:
    try:
        _check(value, MAX_DEPTH)
    except _UnfitError as unfit:
        place = (name, *reversed(unfit.place))
        more = "…" if len(place) > _MAX_STEPS else ""
        raise VariableError(f"{place_text(place[:_MAX_STEPS])}{more} {unfit.problem}") from None
    # The check has found no cycle.
    encoder = json.JSONEncoder(ensure_ascii=False, check_circular=False, default=_numpy_scalar, separators=(",", ":"))
    data = encoder.encode(value).encode(errors="surrogatepass")
    _check_count(name, data)
    return data


def _check_count(name: str, data: bytes) -> None:
    if exceeds_value_limit(data):
        raise VariableError(f"{name} has too many values; the limit is {MAX_VALUES:,}: send a DataFrame instead")


def _check(value: Any, depth: int) -> None:
    """Checks that JSON, as `_encode_json` writes it, represents exactly this value."""
    match value:
        case None | bool() | float() | str():
            return
        case int():
            if abs(value) >= _INT_LIMIT:
                raise _UnfitError(f"is an int with more than {MAX_INT_DIGITS:,} digits, too many for Python to parse")
        case list() | tuple():
            _check_items(enumerate(cast("list[Any]", value)), depth)
        case dict():
            items = cast("dict[Any, Any]", value)
            for key in items:
                if not isinstance(key, str):
                    raise _UnfitError(f"has a key of type {type_name(key)}: keys must be str")
            _check_items(items.items(), depth)
        case _:
            if _numpy_scalar(value) is None:
                raise _UnfitError(_problem(value))


def _check_items(items: Any, depth: int) -> None:
    if depth == 0:
        raise _UnfitError(f"is nested too deeply, or contains itself; the limit is {MAX_DEPTH} levels")
    for step, item in items:
        if type(item) not in _PLAIN and not (type(item) is int and -_INT_LIMIT < item < _INT_LIMIT):
            try:
                _check(item, depth - 1)
            except _UnfitError as unfit:
                unfit.place.append(step)
                raise


def _numpy_scalar(value: Any) -> bool | int | float | None:
    """Returns a numpy scalar as a Python one, or None for anything else."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.generic):
        return None
    scalar: object = value.item()
    return scalar if isinstance(scalar, bool | int | float) and scalar.__class__.__module__ == "builtins" else None


def _problem(value: Any) -> str:
    if (kind := _table_kind(value)) is not None:
        return f"is a table ({kind}): send it as a separate variable"
    problem = f"is of type {type_name(value)}, which can't be sent"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{problem}: {SEND_TEXT}"
    if isinstance(value, set | frozenset):
        return f"{problem}: send a list, such as sorted(value)"
    if not isinstance(value, type) and hasattr(value, "to_frame"):
        return f"{problem}: send value.to_frame() or value.tolist()"
    if not isinstance(value, type) and hasattr(value, "tolist"):
        return f"{problem}: send value.tolist()"
    return f"{problem}: send JSON values, or a DataFrame"


def _table_kind(value: Any) -> str | None:
    """Returns the library of a table, or None; a library that was never imported has no tables."""
    for kind, name in (("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "Table")):
        table: Any = getattr(sys.modules.get(kind), name, None)
        if isinstance(table, type) and isinstance(value, table):
            return kind
    return None
