"""`${NAME}` placeholders in MCP server parameters.

They keep secrets out of what people register and generate; the value is filled in on the host, when a server is
started. `$NAME` and `{NAME}` are ordinary text.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from ipybox.support.errors import MissingVariableError

_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def variables(value: Any) -> list[str]:
    """Returns the names of all variables that `value` refers to, each once, in order of appearance."""
    names: dict[str, None] = {}
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            names |= dict.fromkeys(_PLACEHOLDER.findall(value))
        elif isinstance(value, list):
            pending += reversed(cast("list[Any]", value))
        elif isinstance(value, dict):
            pending += reversed(cast("dict[Any, Any]", value).values())
    return list(names)


def substitute(value: Any, env: Mapping[str, str]) -> Any:
    """Returns a copy of `value` with every `${NAME}` in its strings, but not in its keys, replaced by `env[NAME]`.

    Raises:
        MissingVariableError: If `env` lacks any of the variables; the message names them all.
    """
    if missing := [name for name in variables(value) if name not in env]:
        names = ", ".join(f"${{{name}}}" for name in missing)
        them = "it" if len(missing) == 1 else "them"
        raise MissingVariableError(
            f"no value for {names}: set {them} in the environment or in the workspace's .env file"
        )
    return _replaced(value, lambda match: env[match[1]])


def fill_in(value: Any, known: Mapping[str, str]) -> Any:
    """Returns a copy of `value` like `substitute`, in which unknown placeholders are left as they are."""
    return _replaced(value, lambda match: known.get(match[1], match[0]))


def variable_name(text: str) -> str:
    """Returns a valid name for a variable, in upper case, that resembles a text."""
    return re.sub(r"[\W_]+|^(?=\d)", "_", text, flags=re.ASCII).rstrip("_").upper() or "_"


def map_literals(text: str, change: Callable[[str], str]) -> str:
    """Returns a text with `change` applied to each part that is not a placeholder."""
    parts = _PLACEHOLDER.split(text)
    return "".join(f"${{{part}}}" if index % 2 else change(part) for index, part in enumerate(parts))


def _replaced(value: Any, replacement: Callable[[re.Match[str]], str]) -> Any:
    if isinstance(value, str):
        return _PLACEHOLDER.sub(replacement, value)
    if isinstance(value, list):
        return [_replaced(item, replacement) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _replaced(item, replacement) for key, item in cast("dict[Any, Any]", value).items()}
    return value
