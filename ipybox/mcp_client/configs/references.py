"""Other clients' placeholders: each becomes `${NAME}`, or the text that it stands for."""

import os
import re
from pathlib import Path

from ipybox.support.placeholders import variable_name

_REFERENCE = re.compile(
    r"\$\{(?P<place>userHome|workspaceFolder)\}"
    r"|\$\{(?:env:)?(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^{}]*))?\}"
    r"|\$\{input:(?P<input>[^{}]+)\}"
    r"|\$\{|\{file:",
    re.ASCII,
)

_GEMINI = re.compile(r"\$([A-Za-z_]\w*)", re.ASCII)

#: The placeholders of a client in addition to these.
DIALECTS = {
    "gemini": _GEMINI,
    "qwen": _GEMINI,  # a fork
    "opencode": re.compile(r"\{env:([A-Za-z_]\w*)\}", re.ASCII),
}


def expanded(text: str, client: str, workspace: Path) -> str:
    """Returns a text with `${NAME}` for all references to variables, and with the names of directories inserted.

    A default is inserted if the variable is not set. An input, for which VS Code asks, becomes a variable.

    Raises:
        ValueError: For any other placeholder; the message does not contain it, because it may be part of a secret.
    """

    def replacement(match: re.Match[str]) -> str:
        if match["place"] is not None:
            return str(Path.home() if match["place"] == "userHome" else workspace)
        if match["input"] is not None:
            return f"${{{variable_name(match['input'])}}}"
        if (name := match["name"]) is None:
            raise ValueError("it contains a placeholder that ipybox doesn't know")
        is_default = match["default"] is not None and not os.environ.get(name)
        return match["default"] if is_default else f"${{{name}}}"

    if client in DIALECTS:
        text = DIALECTS[client].sub(r"${\1}", text)
    return _REFERENCE.sub(replacement, text)
