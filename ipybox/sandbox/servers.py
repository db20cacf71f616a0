"""How MCP servers are started beside a sandbox: outside of it, but in the workspace that its code can write.

Several programs prefer what they find in their working directory to what they were asked for. Code in the sandbox
could leave something for them there, and so run outside.
"""

from pathlib import Path
from typing import Any, cast

from ipybox.state import state_dir

#: Python otherwise imports modules from the working directory (`python -m server`); uv takes its settings from there.
_ENVIRONMENT = {"PYTHONSAFEPATH": "1", "UV_NO_CONFIG": "1"}


def start_beside(server_params: dict[str, Any]) -> dict[str, Any]:
    """Returns the parameters with which a stdio server takes no programs from its working directory.

    What the user has set in `env` stays. Parameters of other servers are returned as they are.
    """
    if "command" not in server_params:
        return server_params
    words = [str(server_params["command"]), *cast(list[str], server_params.get("args") or [])]
    for index, word in enumerate(words):
        if Path(word).name in ("npm", "npx"):
            # They would run programs of `node_modules` and obey the `.npmrc` that are there.
            words.insert(index + 1, f"--prefix={_empty_directory()}")
            break
    environment = _ENVIRONMENT | cast(dict[str, str], server_params.get("env") or {})
    return {**server_params, "command": words[0], "args": words[1:], "env": environment}


def _empty_directory() -> Path:
    """Returns a directory that holds nothing, and that code in the sandbox can neither read nor write."""
    directory = state_dir() / "npx"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory
