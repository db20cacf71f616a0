"""Where MCP clients keep their servers, and what placeholders they know.

`ipybox import` reads these files, and `ipybox install` names them.

https://code.claude.com/docs/en/mcp, https://modelcontextprotocol.io/docs/develop/connect-local-servers,
https://cursor.com/docs/context/mcp, https://code.visualstudio.com/docs/copilot/reference/mcp-configuration,
https://developers.openai.com/codex/mcp, https://geminicli.com/docs/tools/mcp-server,
https://opencode.ai/docs/mcp-servers, https://zed.dev/docs/ai/mcp,
https://docs.github.com/en/copilot/how-tos/copilot-cli, https://qwenlm.github.io/qwen-code-docs
"""

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ipybox.support.placeholders import variable_name

#: `local` is the user's own, for one directory.
Scope = Literal["user", "local", "project"]


@dataclass(frozen=True)
class ConfigFile:
    """A file in which a client keeps MCP servers: one of the user's, and one of the workspace's."""

    client: str
    #: `{…}` stands for a directory that `paths` knows.
    user: str
    workspace: str
    #: The key of the servers, or the keys that lead to it, separated by dots.
    key: str = "mcpServers"
    #: The client's command that removes a server from the scope.
    remove: str = ""

    def paths(self, workspace: Path) -> dict[Path, Scope]:
        """Returns the files with their scopes."""
        config = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
        user = self.user.format(
            claude=os.environ.get("CLAUDE_CONFIG_DIR") or "~",
            codex=os.environ.get("CODEX_HOME") or "~/.codex",
            copilot=os.environ.get("COPILOT_HOME") or "~/.copilot",
            config=config,
            applications="~/Library/Application Support" if sys.platform == "darwin" else config,
        )
        found: dict[Path, Scope] = {workspace / self.workspace: "project"} if self.workspace else {}
        found[Path(user).expanduser()] = "user"
        return found


_CLAUDE = "claude mcp remove {name} --scope {scope}"
_GEMINI = "gemini mcp remove {name} --scope {scope}"
_QWEN = "qwen mcp remove {name} --scope {scope}"

FILES = (
    ConfigFile("claude-code", "{claude}/.claude.json", ".mcp.json", remove=_CLAUDE),
    ConfigFile("claude-desktop", "{applications}/Claude/claude_desktop_config.json", ""),
    ConfigFile("cursor", "~/.cursor/mcp.json", ".cursor/mcp.json"),
    ConfigFile("vscode", "{applications}/Code/User/mcp.json", ".vscode/mcp.json", "servers"),
    ConfigFile("vscode", "{applications}/Code/User/settings.json", ".vscode/settings.json", "mcp.servers"),
    ConfigFile("codex", "{codex}/config.toml", ".codex/config.toml", "mcp_servers", "codex mcp remove {name}"),
    ConfigFile("gemini", "~/.gemini/settings.json", ".gemini/settings.json", remove=_GEMINI),
    ConfigFile("opencode", "{config}/opencode/opencode.json", "opencode.json", "mcp"),
    ConfigFile("opencode", "{config}/opencode/opencode.jsonc", "opencode.jsonc", "mcp"),
    ConfigFile("copilot", "{copilot}/mcp-config.json", "", remove="copilot mcp remove {name}"),
    ConfigFile("qwen", "~/.qwen/settings.json", ".qwen/settings.json", remove=_QWEN),
    ConfigFile("zed", "{config}/zed/settings.json", ".zed/settings.json", "context_servers"),
)

CLIENTS = tuple(dict.fromkeys(file.client for file in FILES))

_REFERENCE = re.compile(
    r"\$\{(?P<place>userHome|workspaceFolder)\}"
    r"|\$\{(?:env:)?(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^{}]*))?\}"
    r"|\$\{input:(?P<input>[^{}]+)\}"
    r"|\$\{|\{file:",
    re.ASCII,
)

_DOLLAR = re.compile(r"\$([A-Za-z_]\w*)", re.ASCII)

#: The placeholders of a client in addition to `_REFERENCE`.
DIALECTS = {
    "gemini": _DOLLAR,
    "qwen": _DOLLAR,  # a fork
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
