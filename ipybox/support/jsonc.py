"""JSON with comments and trailing commas, as editors write it."""

import json
import re
from typing import Any

from ipybox.support.bounded_json import MAX_VALUES, exceeds_value_limit

# Strings come first, because they may contain the rest. Quantifiers are possessive, so both take linear time.
_STRING = r'"(?:\\.|[^"\\])*+"?+'
_COMMENT = re.compile(rf"({_STRING})|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?+", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"({_STRING})|,(?=\s*+[\]}}])", re.DOTALL)


def parse_jsonc(data: bytes) -> Any:
    """Returns the value of JSON, with or without comments and trailing commas; raises a ValueError if it is neither."""
    if exceeds_value_limit(data):
        raise ValueError(f"more than {MAX_VALUES:,} values")
    text = data.decode("utf-8-sig")
    try:
        try:
            return json.loads(text)
        except ValueError:
            for pattern in (_COMMENT, _TRAILING_COMMA):
                text = pattern.sub(lambda match: match[1] or " ", text)
            return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
