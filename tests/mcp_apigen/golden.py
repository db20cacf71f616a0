"""The package that `golden_files/` shows: two made-up tools that use most of what a schema can say.

After an intended change of the generator: `python -m tests.mcp_apigen.golden`, then read the difference.
"""

from pathlib import Path
from typing import Any

from ipybox.mcp_apigen.package.files import MANIFEST, ToolSpec, render_package

#: Each file has `.txt` after its name, so that no tool takes it for part of this project.
FILES = Path(__file__).parent / "golden_files"

_TICKET: dict[str, Any] = {
    "type": "object",
    "description": "A ticket as the tracker knows it.",
    "required": ["id", "title"],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "title": {"type": "string"},
        "state": {"enum": ["open", "in-progress", "closed"]},
        "blocked-by": {"type": "array", "items": {"$ref": "#/$defs/Ticket"}},
        "due": {"type": ["string", "null"], "format": "date", "description": "The day by which it must be done."},
    },
}

_SEARCH = ToolSpec(
    "search-tickets",
    "Searches tickets, newest first. Closed ones are left out unless `states` names them.\n\n"
    '- Words in quotes are searched as they are: "out of memory"\n'
    "- A minus excludes a word; long lines like this one are wrapped so that nobody has to scroll sideways to read "
    "them to their end",
    {
        "type": "object",
        "additionalProperties": False,
        "required": ["query", "from", "view", "columns"],
        "properties": {
            "page": {
                "type": "integer",
                "minimum": 1,
                "maximum": 1000,
                "default": 1,
                "description": "Page of the list.",
            },
            "query": {"type": "string", "minLength": 1, "pattern": "\\S", "description": "What to look for."},
            "from": {"type": "string", "format": "date-time", "description": "Oldest change."},
            "sort": {
                "type": "string",
                "enum": ["created-at", "updated-at", "closed-at", "title", "number-of-comments", "priority"],
                "default": "created-at",
            },
            "fields": {
                "type": "array",
                "items": {"enum": ["id", "title", "state", "blocked", "due", "author", "comments", "labels", "format"]},
            },
            "states": {"type": "array", "items": {"enum": ["open", "in-progress", "closed"]}, "maxItems": 3},
            "filter": {
                "description": "All of them must hold.",
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["field", "value"],
                    "properties": {
                        "field": {"type": "string"},
                        "value": {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]},
                        "negate": {"type": "boolean", "default": False},
                    },
                },
            },
            "view": {"enum": ["table", "board"], "default": "table", "description": "How to show them."},
            "columns": {
                "type": "array",
                "items": {"type": "string", "minLength": 1},
                "minItems": 1,
                "default": ["identifier", "title", "state", "number-of-comments", "author", "labels"],
            },
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "priority": {"type": "integer", "enum": [1, 2, 3], "description": "1 is the highest."},
            "schema": {"const": "v2"},
        },
    },
    {
        "type": "object",
        "required": ["tickets"],
        "properties": {"tickets": {"type": "array", "items": {"$ref": "#/$defs/Ticket"}}, "total": {"type": "integer"}},
        "$defs": {"Ticket": _TICKET},
    },
)

_PING = ToolSpec("ping", "Tells whether the tracker is up", {"type": "object", "properties": {}})

TOOLS = [_SEARCH, _PING]


def render() -> dict[str, str]:
    """The files of the package, without the manifest."""
    params = {"command": "npx", "args": ["-y", "tracker-mcp@2"], "env": {"TRACKER_TOKEN": "${TRACKER_TOKEN}"}}
    files = render_package("tracker", params, TOOLS, "0" * 64)
    return {name: text for name, text in files.items() if name != MANIFEST}


if __name__ == "__main__":
    for name, text in render().items():
        (FILES / f"{name}.txt").write_text(text, encoding="utf-8")
