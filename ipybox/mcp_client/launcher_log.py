"""Interprets the output of npx and uvx while they download a server."""

import re

#: Variables that make npm report each of its requests. Otherwise it reports a failed one only after its last attempt,
#: later than any client waits.
NPM_VARIABLES = {"npm_config_loglevel": "http"}

_FETCHED = re.compile(r"npm http (?:fetch|cache) (?:GET |POST )?(?:[23]\d\d )?(?:\S+@)?(?P<url>\w+://\S+) .*\d+ms\b.*")
_UV = re.compile(r"(?:Downloading|Downloaded|Building|Built|Installed|Prepared|Resolved|Updating|Updated) \S.*")


def is_progress(line: str) -> bool:
    """Returns whether a line reports successful work, and so explains no failure."""
    return _FETCHED.fullmatch(line) is not None or _UV.fullmatch(line.strip()) is not None


def plain(line: str) -> str:
    """Returns a line of progress as a person should see it; other lines are returned unchanged."""
    if (match := _FETCHED.fullmatch(line)) is None:
        return line
    name = match["url"].partition("://")[2].partition("/")[2] or match["url"]
    return f"downloading {name.rpartition('/')[2]}" if name.endswith(".tgz") else f"looking up {name}"
