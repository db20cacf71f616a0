"""Generates files of the marketplace's three plugins, which differ in where code runs.

    python plugins/manifests.py            writes the files
    python plugins/manifests.py --check    fails if any file is out of date

Most of a manifest is written by hand; this fills in versions and settings (from settings.toml). Each plugin also gets
a README (from readme.toml) and copies of the license, the icon and the skill, because `claude plugin validate` doesn't
follow symbolic links. The launcher gets the server's first responses and a list of the packages that it needs.

Codex and Gemini CLI install the same directories by manifests of their own. They expand no path of a plugin and start
it in the project, so they need `ipybox` on PATH instead of the launcher. Agent Plugins 1.0 can't name the project.

The version comes from pyproject.toml. Claude Code reinstalls a plugin only when its version changes.
https://code.claude.com/docs/en/plugins-reference, https://developers.openai.com/codex/plugins/build,
https://geminicli.com/docs/extensions/reference, https://agent-plugins.org/specification
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

from ipybox.cli.option import Option
from ipybox.cli.option_table import OPTIONS

#: The plugins, by the mode in which their launcher starts ipybox.
PLUGINS = {"sandbox": "codeact-sandbox", "plain": "codeact-default", "docker": "codeact-docker"}

#: The manifests of a plugin for Codex and Gemini CLI. Without `hooks`, Codex would find Claude Code's.
OF_OTHERS = (".codex-plugin/plugin.json", "gemini-extension.json")

LAUNCH = "${CLAUDE_PLUGIN_ROOT}/launch/launch.sh"

#: Packages that ipybox's dependencies require but ipybox never uses. ipykernel works without debugpy, whose protocol no
#: client of ipybox speaks. IPython completes without jedi, which needs parso.
UNUSED = {"debugpy", "jedi", "parso"}

#: Markers for ipybox's platforms, with the oldest Python, which needs the most packages.
LINUX = {"python_version": "3.11", "platform_system": "Linux", "sys_platform": "linux"}
MACOS = {"python_version": "3.11", "platform_system": "Darwin", "sys_platform": "darwin"}

REQUIREMENTS_HEAD = (
    "# The packages that the plugins' server needs, without what it never uses: `make plugins` writes them.\n"
)


def server_answers() -> str:
    """Returns the server's first responses, each on a line of its own, as launch.sh reads them."""
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
    initialized["capabilities"]["tools"]["listChanged"] = True  # a container's image may contain another version
    answers = {"protocolVersions": HANDSHAKE_PROTOCOL_VERSIONS, "initialize": initialized, "tools": tools}
    return "{\n" + ",\n".join(f'"{name}": {json.dumps(answer)}' for name, answer in answers.items()) + "\n}\n"


def requirements() -> str:
    """Returns the packages that ipybox needs in pip's format, with the versions in constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {canonicalize_name(line.partition("==")[0]): line for line in lines if "==" in line}
    wanted: dict[str, str] = {}
    seen, pending = set[tuple[str, str]](), [("ipybox", "")]
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
    found = manifests()
    texts = {path: json.dumps(content, indent=2) + "\n" for path, content in found.items()}
    for mode, name in PLUGINS.items():
        texts[f"plugins/{name}/README.md"] = _readme(mode, found[_manifest(name)], packages)
    texts |= {"plugins/launch/server.json": server_answers(), "plugins/launch/requirements.txt": packages}
    return {path: text.encode() for path, text in texts.items()} | _copies()


def manifests() -> dict[str, Any]:
    """Returns each manifest with its generated parts updated, by its path in the repository."""
    registry, marketplace = _read("server.json"), _read(".claude-plugin/marketplace.json")
    registry |= {"description": _project()["description"], "version": version()}
    registry["packages"][0]["version"] = _project()["version"]
    files = {"server.json": registry, ".claude-plugin/marketplace.json": marketplace}
    entries = {entry["name"]: entry for entry in marketplace["plugins"]}
    for mode, name in PLUGINS.items():
        manifest, servers = _read(_manifest(name)), _read(f"plugins/{name}/.mcp.json")
        config = {option.parameter: _user_config(setting) for option, setting in _settings(mode)}
        manifest |= {"name": name, "version": version(), "userConfig": config}
        entries[name]["description"] = manifest["description"]
        options = [f"{option.flag}=${{user_config.{option.parameter}}}" for option, _ in _settings(mode)]
        servers["mcpServers"]["ipybox"]["args"] = [LAUNCH, "serve", mode, *options]
        files |= {_manifest(name): manifest, f"plugins/{name}/.mcp.json": servers}
        description = manifest["description"].replace("Claude writes", "Your agent writes")
        others = [f"plugins/{name}/{file}" for file in OF_OTHERS]
        files |= {path: _read(path) | {"version": version(), "description": description} for path in others}
    return files


def _manifest(name: str) -> str:
    return f"plugins/{name}/.claude-plugin/plugin.json"


def _read(path: str) -> dict[str, Any]:
    return json.loads((ROOT / path).read_text())


def _readme(mode: str, manifest: dict[str, Any], packages: str) -> str:
    """Returns the README of a plugin, from readme.toml."""
    texts = tomllib.loads((ROOT / "plugins/readme.toml").read_text())
    on_linux = [line for line in packages.splitlines() if "==" in line and " ; " not in line]
    known = {"name": manifest["name"], "title": manifest["displayName"], "description": manifest["description"]}
    filled = {key: text.format(**known, count=len(on_linux)) for key, text in {**texts["host"], **texts[mode]}.items()}
    rows = (_row(option.parameter, setting) for option, setting in _settings(mode))
    return texts["template"].format(**known, **filled, settings="\n".join(rows))


def _row(parameter: str, setting: dict[str, Any]) -> str:
    default = json.dumps(setting["default"]).strip('"')
    return f"| `{parameter}` | {f'`{default}`' if default else 'empty'} | {setting['description']} |"


def _copies() -> dict[str, bytes]:
    copied = {"LICENSE": "LICENSE", ".claude-plugin/icon.png": ".claude-plugin/icon.png"}
    copied |= {path: path for path in _files("skills/codeact")}
    return {
        f"plugins/{name}/{to}": (ROOT / origin).read_bytes()
        for name in PLUGINS.values()
        for origin, to in copied.items()
    }


def _files(directory: str) -> list[str]:
    found = (path for path in (ROOT / directory).rglob("*") if path.is_file())
    return sorted(str(path.relative_to(ROOT)) for path in found)


def _settings(mode: str) -> list[tuple[Option, dict[str, Any]]]:
    """Returns the options that this mode's plugin offers as settings, in command-line order."""
    known = tomllib.loads((ROOT / "plugins/settings.toml").read_text())
    shown = ((option, known[option.parameter]) for option in OPTIONS if option.parameter in known)
    return [(option, setting) for option, setting in shown if mode in setting.get("only", PLUGINS)]


def _user_config(setting: dict[str, Any]) -> dict[str, Any]:
    kind = "boolean" if isinstance(setting["default"], bool) else "string"
    return {"type": kind} | {key: setting[key] for key in ("title", "description", "default")}


def version() -> str:
    """Returns the project's version in semver format, such as 1.0.0-dev.0."""
    number = Version(_project()["version"])
    before = "" if number.dev is None else f"-dev.{number.dev}"
    if number.pre is not None:
        before = f"-{number.pre[0]}.{number.pre[1]}"
    return f"{number.base_version}{before}"


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def main(*, check: bool) -> int:
    """Writes the files and removes outdated ones, or only reports differences; returns the exit status."""
    wanted = contents()
    skills = (path for name in PLUGINS.values() for path in _files(f"plugins/{name}/skills"))
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
