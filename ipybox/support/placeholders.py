"""`${NAME}` placeholders in MCP server parameters.

They keep secrets out of what people register and generate; the value is filled in on the host, when a server is
started. `$NAME` and `{NAME}` are ordinary text.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from ipybox.support.errors import MissingVariableError

_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def variables(value: Any) -> list[str]:
    """Return the names of all variables that `value` refers to, each once, in order of appearance."""
    return list(dict.fromkeys(_names(value)))


def substitute(value: Any, env: Mapping[str, str]) -> Any:
    """Return a copy of `value` with every `${NAME}` in its strings replaced by `env[NAME]`.

    Lists and the values of dicts are searched recursively; keys and other types are left alone, and what
    was filled in is not searched again.

    Raises:
        MissingVariableError: `env` lacks some of the variables; the message names them all.
    """
    if missing := [name for name in variables(value) if name not in env]:
        names = ", ".join(f"${{{name}}}" for name in missing)
        them = "it" if len(missing) == 1 else "them"
        raise MissingVariableError(
            f"no value for {names}: set {them} in the environment or in the workspace's .env file"
        )
    return _fill(value, env)


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from _PLACEHOLDER.findall(value)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _names(item)
    elif isinstance(value, dict):
        for item in cast("dict[Any, Any]", value).values():
            yield from _names(item)


def _fill(value: Any, env: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda match: env[match[1]], value)
    if isinstance(value, list):
        return [_fill(item, env) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _fill(item, env) for key, item in cast("dict[Any, Any]", value).items()}
    return value
