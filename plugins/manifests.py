"""Writes everything in the marketplace that is generated: three plugins that differ in where code runs.

    python plugins/manifests.py            writes the files
    python plugins/manifests.py --check    fails if any file differs from what it would write

Each plugin gets its manifests, a README, and copies of the license, the icon and the skill. They are copies because
`claude plugin validate` follows no symbolic links. The launcher gets the server's first answers and the packages that
the server needs; `server.json` describes ipybox to the MCP registry.

The version is that of pyproject.toml. Claude Code reinstalls a plugin only when its version changes.
https://code.claude.com/docs/en/plugins-reference
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

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from plugins.readme import MODES, Plugin, readme
from plugins.settings import PluginSetting, settings

#: The name in the MCP registry, which compares it with the comment `mcp-name` of the README on the package index.
REGISTRY_NAME = "io.github.gradion-ai/ipybox"
REGISTRY_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
REPOSITORY = "https://github.com/gradion-ai/ipybox"
HOMEPAGE = "https://gradion-ai.github.io/ipybox/claude-code.html"
CONTACT = {"name": "Gradion", "url": f"{REPOSITORY}/issues"}

#: Schemas for editors.
MARKETPLACE_SCHEMA = "https://json.schemastore.org/claude-code-marketplace.json"
PLUGIN_SCHEMA = "https://json.schemastore.org/claude-code-plugin-manifest.json"

KEYWORDS = ["python", "ipython", "mcp", "code-execution", "code-actions", "tool-use", "sandbox"]

#: Defaults that the plugins' settings show; all other settings are empty by default.
DEFAULTS: dict[str, str | bool] = {"approve": "auto", "audit": "full", "resources": False, "sandbox_profile": "default"}

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


def contents() -> dict[str, bytes]:
    """Returns the content of each generated file, by its path in the repository."""
    packages = requirements()
    texts = {
        **{path: json.dumps(content, indent=2) + "\n" for path, content in manifests().items()},
        **{f"{plugin.place}/README.md": _readme(plugin, packages) for plugin in MODES.values()},
        "plugins/launch/server.json": server_answers(),
        "plugins/launch/requirements.txt": packages,
    }
    return {path: text.encode() for path, text in texts.items()} | _copies()


def _readme(plugin: Plugin, packages: str) -> str:
    on_linux = [line for line in packages.splitlines() if "==" in line and " ; " not in line]
    return readme(plugin, DEFAULTS, len(on_linux))


def _copies() -> dict[str, bytes]:
    copied = {"LICENSE": "LICENSE", ".claude-plugin/icon.png": ".claude-plugin/icon.png"}
    copied |= {path: path for path in _files("skills/codeact")}
    return {f"{p.place}/{to}": (ROOT / origin).read_bytes() for p in MODES.values() for origin, to in copied.items()}


def _files(directory: str) -> list[str]:
    found = (path for path in (ROOT / directory).rglob("*") if path.is_file())
    return sorted(str(path.relative_to(ROOT)) for path in found)


def manifests() -> dict[str, Any]:
    """Returns the content of each manifest, by its path in the repository."""
    files: dict[str, Any] = {".claude-plugin/marketplace.json": _marketplace(), "server.json": registry_entry()}
    for plugin in MODES.values():
        files[f"{plugin.place}/.claude-plugin/plugin.json"] = {
            "$schema": PLUGIN_SCHEMA,
            "name": plugin.name,
            "displayName": plugin.title,
            "version": version(),
            "description": plugin.description,
            "author": CONTACT,
            "homepage": HOMEPAGE,
            "repository": REPOSITORY,
            "license": "Apache-2.0",
            "keywords": KEYWORDS,
            "userConfig": {
                option.parameter: _user_config(option.parameter, setting) for option, setting in settings(plugin.mode)
            },
        }
        files[f"{plugin.place}/.mcp.json"] = {"mcpServers": {"ipybox": _server(plugin)}}
        # In exec form: no shell reads the path of the plugin.
        hook = {"type": "command", "command": "sh", "args": [LAUNCH, "notice", plugin.mode], "timeout": NOTICE_TIMEOUT}
        matched = {"matcher": "startup|resume|clear", "hooks": [hook]}
        files[f"{plugin.place}/hooks/hooks.json"] = {"hooks": {"SessionStart": [matched]}}
    return files


def _marketplace() -> dict[str, Any]:
    return {
        "$schema": MARKETPLACE_SCHEMA,
        "name": "ipybox",
        "description": "Claude writes Python that calls MCP tools, and ipybox runs it on your machine",
        "owner": CONTACT,
        "plugins": [
            {
                "name": plugin.name,
                "source": f"./{plugin.place}",
                "description": plugin.description,
                "category": "development",
                "homepage": HOMEPAGE,
                "keywords": KEYWORDS,
            }
            for plugin in MODES.values()
        ],
    }


def _server(plugin: Plugin) -> dict[str, Any]:
    options = [f"{option.flag}=${{user_config.{option.parameter}}}" for option, _ in settings(plugin.mode)]
    return {
        "type": "stdio",
        "command": "sh",
        "args": [LAUNCH, "serve", plugin.mode, *options],
        # Otherwise the tools are deferred behind a search, which headless runs don't wait for.
        "alwaysLoad": True,
        # Shown by `claude plugin validate`. Here rather than in plugin.json, where 2.1.197 refuses it with --strict.
        "network": {"hosts": list(plugin.hosts)},
    }


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


def _user_config(parameter: str, setting: PluginSetting) -> dict[str, Any]:
    default = DEFAULTS.get(parameter, "")
    return {
        "type": "boolean" if isinstance(default, bool) else "string",
        "title": setting.title,
        "description": setting.description,
        "default": default,
    }


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
    """Writes the files and removes those left from earlier, or only reports differences. Returns the exit status."""
    wanted = contents()
    skills = (path for plugin in MODES.values() for path in _files(f"{plugin.place}/skills"))
    outdated = [path for path in skills if path not in wanted]
    outdated += [path for path, content in wanted.items() if not _is(ROOT / path, content)]
    for path in outdated:
        if check:
            print(f"{path} is not what plugins/manifests.py generates: run `make plugins`", file=sys.stderr)
        elif path in wanted:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_bytes(wanted[path])
        else:
            (ROOT / path).unlink()
    return 1 if check and outdated else 0


def _is(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
