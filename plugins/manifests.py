"""Writes what Claude Code reads of the marketplace: three plugins that differ in their mode, and in one version.

    python plugins/manifests.py            writes the files
    python plugins/manifests.py --check    fails if they are not what it would write

The version is that of pyproject.toml. Claude Code installs a plugin anew only when it has changed.
https://code.claude.com/docs/en/plugins-reference
"""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent

AUTHOR = {"name": "ipybox"}

#: What each plugin says of itself.
MODES = {
    "plain": "Act by Python code that calls MCP tools. Code runs without a sandbox",
    "sandbox": "Act by Python code that calls MCP tools. Code runs in a sandbox: it gets no further than the workspace",
    "docker": "Act by Python code that calls MCP tools. Code and tools run in a Docker container",
}

MEMORY_LIMIT = {
    "type": "string",
    "title": "Memory limit",
    "description": "Memory that code may use, such as 4G; 0 for no limit",
    "required": False,
}
RESOURCES = {
    "type": "string",
    "title": "Resources",
    "description": "always to let Claude read long outputs as MCP resources, for which the client offers tools that "
    "cost context; else Claude reads their files",
    "required": False,
}
APPROVE = {
    "type": "string",
    "title": "Approval of tool calls",
    "description": "auto to accept those that code makes, ask to be asked about each, or a file with rules, such as "
    "ipybox.yaml in the workspace: one there can only deny until you trust it with `ipybox trust`",
    "required": False,
}
AUDIT = {
    "type": "string",
    "title": "Audit log",
    "description": "What .ipybox/audit.jsonl has of cells and tool calls: full for code and arguments without secrets, "
    "hash for their hashes, off for nothing",
    "required": False,
}
SANDBOX_OPTIONS = {
    "sandbox_profile": {
        "type": "string",
        "title": "Sandbox profile",
        "description": "default, or workspace to hide the home directory as well; a sandbox-config.json in the "
        "workspace can restrict it, and open more once you trust it with `ipybox trust`",
        "required": False,
    },
    "allowed_domains": {
        "type": "string",
        "title": "Allowed domains",
        "description": "Hosts that code may reach, separated by commas, such as example.org,*.example.com",
        "required": False,
    },
}
DOCKER_OPTIONS = {
    "network": {
        "type": "string",
        "title": "Network",
        "description": "none to keep the container off the network, or the name of another one of Docker's",
        "required": False,
    },
    "image": {
        "type": "string",
        "title": "Image",
        "description": "Name of the image, if it is not ipybox",
        "required": False,
    },
}
SHARED_OPTIONS = {"approve": APPROVE, "audit": AUDIT, "memory_limit": MEMORY_LIMIT, "resources": RESOURCES}
#: Options that people set, by mode, and the option of ipybox that each becomes. One that isn't set is empty.
USER_CONFIG: dict[str, dict[str, dict[str, Any]]] = {
    "plain": SHARED_OPTIONS,
    "sandbox": {**SANDBOX_OPTIONS, **SHARED_OPTIONS},
    "docker": {**DOCKER_OPTIONS, **SHARED_OPTIONS},
}
OPTIONS = {
    "sandbox_profile": "--sandbox-profile",
    "allowed_domains": "--allow-domain",
    "approve": "--approve",
    "audit": "--audit",
    "memory_limit": "--memory-limit",
    "resources": "--resources",
    "network": "--network",
    "image": "--image",
}

LAUNCH = "${CLAUDE_PLUGIN_ROOT}/launch/launch.sh"

#: Seconds that a hook may take.
NOTICE_TIMEOUT = 20


def manifests() -> dict[str, Any]:
    """Returns the content of each file, by its path in the repository."""
    files: dict[str, Any] = {
        ".claude-plugin/marketplace.json": {
            "name": "ipybox",
            "description": "Code actions: act by Python code that calls MCP tools",
            "owner": AUTHOR,
            "plugins": [
                {"name": name(mode), "source": f"./plugins/{name(mode)}", "description": description}
                for mode, description in MODES.items()
            ],
        }
    }
    for mode, description in MODES.items():
        place = f"plugins/{name(mode)}"
        files[f"{place}/.claude-plugin/plugin.json"] = {
            "name": name(mode),
            "version": version(),
            "description": description,
            "author": AUTHOR,
            "license": "Apache-2.0",
            "userConfig": USER_CONFIG[mode],
        }
        options = [f"{OPTIONS[key]}=${{user_config.{key}}}" for key in USER_CONFIG[mode]]
        server = {
            "type": "stdio",
            "command": "sh",
            "args": [LAUNCH, "serve", mode, *options],
            # Else the tools are behind a search, which runs without a person don't wait for.
            "alwaysLoad": True,
        }
        files[f"{place}/.mcp.json"] = {"mcpServers": {"ipybox": server}}
        hook = {"type": "command", "command": f'sh "{LAUNCH}" notice {mode}', "timeout": NOTICE_TIMEOUT}
        matched = {"matcher": "startup|resume|clear", "hooks": [hook]}
        files[f"{place}/hooks/hooks.json"] = {"hooks": {"SessionStart": [matched]}}
    return files


def name(mode: str) -> str:
    """Returns the name of a mode's plugin."""
    return f"codeact-{'default' if mode == 'plain' else mode}"


def version() -> str:
    """Returns the project's version as semver writes it, such as 1.0.0-dev.0."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    number = Version(project["version"])
    before = "" if number.dev is None else f"-dev.{number.dev}"
    if number.pre is not None:
        before = f"-{number.pre[0]}.{number.pre[1]}"
    return f"{number.base_version}{before}"


def main(*, check: bool) -> int:
    """Writes the files, or only compares them, and returns the exit status."""
    differ = 0
    for path, content in manifests().items():
        text = json.dumps(content, indent=2) + "\n"
        place = ROOT / path
        if place.is_file() and place.read_text() == text:
            continue
        differ = 1
        if check:
            print(
                f"{path} is not what plugins/manifests.py makes of pyproject.toml: run `make plugins`", file=sys.stderr
            )
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
    return differ if check else 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
