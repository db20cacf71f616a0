"""Describes a value within JSON for error messages: its place, such as `order.items[0]`, and its type."""

from typing import Any, cast

#: Where a value is: the name of the argument or variable, then the keys and indexes within it.
Place = tuple[str | int, ...]

#: What to do with bytes, which JSON can't represent.
SEND_TEXT = "send text, such as value.decode() or base64.b64encode(value).decode()"


def place_text(place: Place) -> str:
    """Returns a place as Python code would write it; it has at least a name."""
    first, *rest = place
    steps = (f".{step}" if isinstance(step, str) and step.isidentifier() else f"[{step!r}]" for step in rest)
    return f"{first}{''.join(steps)}"


def type_name(value: Any) -> str:
    """Returns the name of a value's type, with the module if it is not a built-in type."""
    kind = cast("type[Any]", type(value))
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
