"""Schemas as the files that arguments are checked against, where types don't suffice."""

import json
from typing import Any

from ipybox.mcp_apigen.schema.values import is_object

#: Characters; a larger schema costs each kernel too much, and its server checks arguments anyway.
_MAX_TEXT = 4_000_000


def schema_document(schema: Any) -> str | None:
    """Returns a schema as JSON text, or `None` if it is not an object, too large, or nested too deeply.

    Only the kernel checks whether it is well-formed, because a server could make that take hours.
    """
    if not is_object(schema):
        return None
    try:
        text = json.dumps(schema, allow_nan=False)
    except (RecursionError, ValueError):
        return None
    return f"{text}\n" if len(text) <= _MAX_TEXT else None
