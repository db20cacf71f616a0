"""Schemas as the files that arguments are checked against, where types don't suffice."""

import json
from typing import Any

from ipybox.mcp_apigen.values import is_object

#: Characters; a schema beyond this costs each kernel more than it is worth, and its server checks it anyway.
_MAX_TEXT = 4_000_000


def checkable(schema: Any) -> str | None:
    """The text of a schema that names its dialect; nothing, if it is malformed in each, too large or too deep."""
    from ipybox.tool_exec.schema_check import dialect_of  # it takes a while, and most tools don't need it

    if not is_object(schema):
        return None
    try:
        dialect = dialect_of(schema)
        text = json.dumps({**schema, "$schema": dialect}, allow_nan=False)
    except (RecursionError, ValueError):
        return None
    return f"{text}\n" if dialect and len(text) <= _MAX_TEXT else None
