"""Schemas as the files that arguments are checked against, where types don't suffice."""

import json
from typing import Any

from ipybox.mcp_apigen.values import is_object

#: Characters; a schema beyond this costs each kernel more than it is worth, and its server checks it anyway.
_MAX_TEXT = 4_000_000


def checkable(schema: Any) -> str | None:
    """Returns a schema as JSON text, or `None` if it is no object, too large, or nested too deeply.

    Whether it is well-formed shows in the kernel, which alone applies it: the server could make that take hours.
    """
    if not is_object(schema):
        return None
    try:
        text = json.dumps(schema, allow_nan=False)
    except (RecursionError, ValueError):
        return None
    return f"{text}\n" if len(text) <= _MAX_TEXT else None
