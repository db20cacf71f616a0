"""What differs in published servers from one process to the next, with no part of ipybox in it."""

import json
import re
from typing import Any

#: Patterns in the JSON of results, by server.
VARYING: dict[str, list[str]] = {
    "clickhouse": [r"(?<=query_id=)[0-9a-f-]+", r"(?<=object at 0x)[0-9a-f]+"],
    "tree_sitter": [r'(?<="last_scan_time": )\d+'],
}

#: Modules of tools whose description, a text for people, is another one in each process, as it lists a Python set.
CHANGED: dict[str, tuple[str, ...]] = {"cli": ("run_command",)}


def without_varying(name: str, value: Any) -> Any:
    """Returns the results of a server with 0 in place of each part that varies."""
    text = json.dumps(value)
    for pattern in VARYING.get(name, []):
        text = re.sub(pattern, "0", text)
    return json.loads(text)
