"""Writes what Claude Code reads of the marketplace: three plugins that differ in their mode, and in one version.

It also writes `server.json`, which describes ipybox to the MCP registry, and which no plugin uses.

    python plugins/manifests.py            writes the files
    python plugins/manifests.py --check    fails if they are not what it would write

The version is that of pyproject.toml. Claude Code installs a plugin again only when it has changed.
https://code.claude.com/docs/en/plugins-reference

For the launcher, it writes what the server answers first, and the packages that the server needs.
"""

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from ipybox.cli.option import Option
from ipybox.cli.option_table import OPTIONS

ROOT = Path(__file__).resolve().parent.parent

AUTHOR = {"name": "ipybox"}

#: What each plugin says of itself.
MODES = {
    "plain": "Act by Python code that calls MCP tools. Code runs without a sandbox",
    "sandbox": "Act by Python code that calls MCP tools. Code runs in a sandbox: it gets no further than the workspace",
    "docker": "Act by Python code that calls MCP tools. Code and tools run in a Docker container",
}

#: The name in the MCP registry, which compares it with the comment `mcp-name` of the README on the package index.
REGISTRY_NAME = "io.github.gradion-ai/ipybox"
REGISTRY_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
REPOSITORY = "https://github.com/gradion-ai/ipybox"

LAUNCH = "${CLAUDE_PLUGIN_ROOT}/launch/launch.sh"

#: Seconds that a hook may take; it ends by itself within one.
NOTICE_TIMEOUT = 5

#: What the packages of ipybox require, and ipybox never uses. ipykernel goes without debugpy if it is not there: no
#: client of ipybox speaks its protocol. IPython completes without jedi, which needs parso.
UNUSED = {"debugpy", "jedi", "parso"}

#: The extra that the plugins bring.
PLUGIN_EXTRA = "parsers"

#: The systems that ipybox runs on, and the oldest Python, which needs the most packages.
LINUX = {"python_version": "3.11", "platform_system": "Linux", "sys_platform": "linux"}
MACOS = {"python_version": "3.11", "platform_system": "Darwin", "sys_platform": "darwin"}

REQUIREMENTS_HEAD = (
    "# The packages that the plugins' server needs, without what it never uses: `make plugins` writes them.\n"
)


def server_answers() -> str:
    """Returns what the server answers first, each on a line of its own, as launch.sh reads them."""
    command = [sys.executable, "-I", "-m", "ipybox", "--late-checks", "--instructions=brief"]
    client = {"name": "claude-code", "version": "1"}
    params = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": client}
    asked = [
        {"id": 1, "method": "initialize", "params": params},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
    ]
    with TemporaryDirectory() as workspace:
        process = subprocess.Popen(
            [*command, f"--workspace={workspace}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with process as server:
            assert server.stdin is not None
            assert server.stdout is not None
            for message in asked:
                print(json.dumps({"jsonrpc": "2.0", **message}), file=server.stdin, flush=True)
            initialized, tools = (json.loads(server.stdout.readline())["result"] for _ in range(2))
            server.stdin.close()
    del initialized["protocolVersion"]
    initialized["capabilities"]["tools"]["listChanged"] = True  # the image of a container may be of another version
    answers = {"protocolVersions": HANDSHAKE_PROTOCOL_VERSIONS, "initialize": initialized, "tools": tools}
    return "{\n" + ",\n".join(f'"{name}": {json.dumps(answer)}' for name, answer in answers.items()) + "\n}\n"


def requirements() -> str:
    """Returns the packages that ipybox needs, by the versions of constraints.txt, as pip reads them."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {canonicalize_name(line.partition("==")[0]): line for line in lines if "==" in line}
    wanted: dict[str, str] = {}
    seen, pending = set[tuple[str, str]](), [("ipybox", ""), ("ipybox", PLUGIN_EXTRA)]
    while pending:
        if (asked := pending.pop()) in seen:
            continue
        seen.add(asked)
        for need in _needs(*asked):
            name = canonicalize_name(need.name)
            if name in UNUSED:
                continue
            if need.marker is None or need.marker.evaluate({"extra": asked[1], **LINUX}):
                wanted[name] = pins[name]
                pending += [(name, extra) for extra in ("", *need.extras)]
            elif need.marker.evaluate({"extra": asked[1], **MACOS}):
                wanted.setdefault(name, f"{need.name}{need.specifier} ; sys_platform == 'darwin'")
    return REQUIREMENTS_HEAD + "".join(f"{wanted[name]}\n" for name in sorted(wanted))


def _needs(name: str, extra: str) -> Iterator[Requirement]:
    for text in distribution(name).requires or ():
        need = Requirement(text)
        if not extra or (need.marker is not None and need.marker.evaluate({"extra": extra})):
            yield need


def texts() -> dict[str, str]:
    """Returns the text of each file, by its path in the repository."""
    return {
        **{path: json.dumps(content, indent=2) + "\n" for path, content in manifests().items()},
        "plugins/launch/server.json": server_answers(),
        "plugins/launch/requirements.txt": requirements(),
    }


def manifests() -> dict[str, Any]:
    """Returns the content of each manifest, by its path in the repository."""
    files: dict[str, Any] = {
        ".claude-plugin/marketplace.json": {
            "name": "ipybox",
            "description": "Code actions: act by Python code that calls MCP tools",
            "owner": AUTHOR,
            "plugins": [
                {"name": name(mode), "source": f"./plugins/{name(mode)}", "description": description}
                for mode, description in MODES.items()
            ],
        },
        "server.json": registry_entry(),
    }
    for mode, description in MODES.items():
        place = f"plugins/{name(mode)}"
        files[f"{place}/.claude-plugin/plugin.json"] = {
            "name": name(mode),
            "version": version(),
            "description": description,
            "author": AUTHOR,
            "license": "Apache-2.0",
            "userConfig": {option.parameter_name: _user_config(option) for option in settings(mode)},
        }
        options = [f"{option.flag}=${{user_config.{option.parameter_name}}}" for option in settings(mode)]
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


def registry_entry() -> dict[str, Any]:
    """Returns what the MCP registry publishes: how a client installs and starts ipybox.

    https://github.com/modelcontextprotocol/registry, docs/reference/server-json
    """
    workspace = {
        "type": "named",
        "name": "--workspace",
        "description": "Directory in which code runs, and which it can change",
        "format": "filepath",
        "isRequired": True,
    }
    package = {
        "registryType": "pypi",
        "identifier": "ipybox",
        "version": _project()["version"],
        "runtimeHint": "uvx",
        "transport": {"type": "stdio"},
        "packageArguments": [workspace],
    }
    return {
        "$schema": REGISTRY_SCHEMA,
        "name": REGISTRY_NAME,
        "title": "ipybox",
        "description": _project()["description"],
        "version": version(),
        "repository": {"url": REPOSITORY, "source": "github"},
        "packages": [package],
    }


def settings(mode: str) -> list[Option]:
    """Returns the options of ipybox that users of a plugin can set. One that they don't set is empty."""
    return [option for option in OPTIONS if option.plugin is not None and mode in option.plugin.modes]


def _user_config(option: Option) -> dict[str, Any]:
    assert option.plugin is not None
    shown = {"title": option.plugin.title, "description": option.plugin.description}
    return {"type": "string", **shown, "required": False}


def name(mode: str) -> str:
    """Returns the name of a mode's plugin."""
    return f"codeact-{'default' if mode == 'plain' else mode}"


def version() -> str:
    """Returns the project's version as semver writes it, such as 1.0.0-dev.0."""
    number = Version(_project()["version"])
    before = "" if number.dev is None else f"-dev.{number.dev}"
    if number.pre is not None:
        before = f"-{number.pre[0]}.{number.pre[1]}"
    return f"{number.base_version}{before}"


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def main(*, check: bool) -> int:
    """Writes the files, or only compares them, and returns the exit status."""
    differ = 0
    for path, text in texts().items():
        place = ROOT / path
        if place.is_file() and place.read_text() == text:
            continue
        differ = 1
        if check:
            print(f"{path} is not what plugins/manifests.py makes of the project: run `make plugins`", file=sys.stderr)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
    return differ if check else 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
