"""The marketplace as a new user gets it: from a repository's URL, in a fresh home, with nothing downloaded yet."""

import json
import re
import shlex
import subprocess
import tarfile
import tomllib
from io import BytesIO
from pathlib import Path

import pytest
from packaging.version import Version

from tests.claude.api import Block, Request, text, tool
from tests.claude.cli import Client, Home
from tests.claude.conftest import (
    DOCKER_CONFIG,
    PLUGINS,
    Installed,
    both_clients,
    each_plugin,
    in_docker,
    in_sandbox,
    local_plugins,
)
from tests.servers import ROOT

MARKETPLACE = ROOT / ".claude-plugin" / "marketplace.json"

#: Tokens that a plugin may cost in each session in which it isn't used.
ALWAYS_ON_TOKENS = 60


@both_clients
@pytest.mark.parametrize("place", [".", *(f"plugins/{plugin}" for plugin in PLUGINS)])
def test_manifests_are_valid(home: Home, client: Client, place: str):
    # Only the newest client knows the checks of the plugin directory; they are for plugins.
    profile = ["--profile", "directory"] if client is Client.NEWEST and place != "." else []
    said = home.claude("plugin", "validate", "--strict", *profile, str(ROOT / place))
    assert "Validation passed" in said
    if profile:
        assert "These checks found nothing to report" in said
        assert "skills: " in said
        assert "github.com (declared)" in said


def test_marketplace_has_the_recommended_plugin_first():
    assert [plugin["name"] for plugin in json.loads(MARKETPLACE.read_text())["plugins"]] == [*PLUGINS]


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for plugin in json.loads(MARKETPLACE.read_text())["plugins"]:
        manifest = json.loads((ROOT / plugin["source"] / ".claude-plugin" / "plugin.json").read_text())
        assert Version(manifest["version"]) == Version(project)
        assert "version" not in plugin, "the one in plugin.json is enough"


@each_plugin
def test_plugin_starts_what_was_installed(installed: Installed):
    assert "Successfully added marketplace: ipybox" in installed.added
    assert f"Successfully installed plugin: {installed.plugin}@ipybox" in installed.installed
    assert f"plugin:{installed.plugin}:ipybox: sh " in installed.listed
    assert status(installed.listed) == "✔ Connected"
    assert "Failed to parse" not in installed.listed, "a placeholder of the sandbox is no configuration"


@local_plugins
def test_plugin_costs_little_when_it_is_not_used(installed: Installed):
    details = installed.home.details(installed.plugin)
    assert re.search(r"Skills \(1\) +codeact\b", details), details
    assert re.search(r"MCP servers \(1\) +ipybox\b", details), details
    tokens = re.search(r"Always-on: +~(\d+) tok", details)
    assert tokens is not None, details
    assert 0 < int(tokens[1]) <= ALWAYS_ON_TOKENS


@in_sandbox
def test_server_is_the_one_of_the_repository(installed: Installed, repository: Path, data: Path):
    (package,) = data.glob("ipybox/environments/*/lib/*/site-packages/ipybox")
    archive = subprocess.run(
        ["git", f"--git-dir={repository}", "archive", "main", "ipybox"], check=True, capture_output=True, timeout=60
    )
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        for member in files:
            if content := files.extractfile(member):
                assert (package.parent / member.name).read_bytes() == content.read(), member.name


def test_commands_of_the_documentation_install_a_plugin(home: Home, workspace: Path):
    readme, commands = (
        re.findall(r"^claude (plugin (?:marketplace add|install) .*)$", (ROOT / name).read_text(), re.MULTILINE)
        for name in ("README.md", "docs/claude-code.md")
    )
    assert len(commands) == 3
    assert readme == commands[:2]

    said = [home.claude(*shlex.split(command), cwd=workspace) for command in commands]

    assert "Successfully added marketplace: ipybox" in said[0]
    assert "Successfully installed plugin: codeact-sandbox@ipybox" in said[1]
    listed = home.mcp_list(workspace)
    assert status(listed) == "✔ Connected"
    assert {"--allow-domain=example.org,*.example.com", "--memory-limit=4G"} <= set(listed.split())


@pytest.mark.usefixtures("engine")
def test_an_image_that_is_missing_is_said_and_how_to_build_it(home: Home, workspace: Path):
    home.marketplace_add()
    home.install("codeact-docker", image="no-such-image")
    script = home.plugin_root("codeact-docker") / "package" / "docker-build.sh"
    problem, remedy = "no Docker image named 'no-such-image'", f"IPYBOX_IMAGE=no-such-image sh {script}"

    def is_told(request: Request) -> list[Block]:
        assert "codeact-docker can't run code here: " in request.text
        assert remedy in request.text
        return [tool("execute_ipython_cell", code="1")]

    def is_told_again(request: Request) -> list[Block]:
        (result,) = request.results
        assert result.is_error
        assert f"{problem}: build it with `{remedy}`" in result.text
        return [text("You lack the image.")]

    allowed = ["mcp__plugin_codeact-docker_ipybox"]
    session = home.session("Hello", [is_told, is_told_again], workspace, allowed=allowed)
    assert session.servers == {"plugin:codeact-docker:ipybox": "connected"}


@in_docker
def test_a_container_has_the_network_and_the_memory_that_a_user_sets(installed: Installed, workspace: Path):
    def is_refused(request: Request) -> list[Block]:
        network, memory = request.results
        assert network.text == "['lo']"
        assert "MemoryError" in memory.text
        return [text("Alone")]

    interfaces = "import socket; print([name for _, name in socket.if_nameindex()])"
    cells = [tool("execute_ipython_cell", code=code) for code in (interfaces, "much = bytearray(2_000_000_000)")]
    config = DOCKER_CONFIG | {"network": "none", "memory_limit": "600M"}
    with installed.home.other_config(installed.plugin, **config):
        installed.home.session("What is there?", [cells, is_refused], workspace, allowed=[installed.tools])


@in_sandbox
def test_values_that_a_user_sets_reach_the_server(installed: Installed, workspace: Path):
    home, plugin = installed.home, installed.plugin

    def is_told(request: Request) -> list[Block]:
        (result,) = request.results
        assert result.is_error
        assert (
            "the plugin's option memory_limit: 'lots' is not an amount of memory: use a value such as 4G" in result.text
        )
        return [text("You mean 4G")]

    with home.other_config(plugin, memory_limit="lots"):
        script = [[tool("execute_ipython_cell", code="1")], is_told]
        home.session("Run", script, workspace, allowed=[installed.tools])

    def is_refused(request: Request) -> list[Block]:
        (result,) = request.results
        assert "MemoryError" in result.text
        return [text("Too much")]

    options = {"memory_limit": "600M", "sandbox_profile": "workspace", "allowed_domains": "example.org"}
    with home.other_config(plugin, **options):
        listed = home.mcp_list(workspace)
        assert status(listed) == "✔ Connected"
        passed_on = listed.partition(" - ")[0].split()
        assert {"--sandbox-profile=workspace", "--allow-domain=example.org", "--memory-limit=600M"} <= set(passed_on)
        script = [[tool("execute_ipython_cell", code="much = bytearray(2_000_000_000)")], is_refused]
        home.session("Take 2 GB", script, workspace, allowed=[installed.tools])


@local_plugins
def test_options_of_a_repository_do_not_apply(installed: Installed, workspace: Path):
    def is_refused(request: Request) -> list[Block]:
        (result,) = request.results
        assert result.is_error
        assert ".claude/settings.json in the workspace sets this plugin's options" in result.text
        return [text("So be it.")]

    (workspace / ".claude").mkdir()
    options = {f"{installed.plugin}@ipybox": {"options": {"memory_limit": "1P"}}}
    (workspace / ".claude" / "settings.json").write_text(json.dumps({"pluginConfigs": options}))
    (workspace / ".git" / "info" / "exclude").write_text("/.claude/\n")

    # The newest client ignores them, which ipybox can't know.
    listed = installed.home.mcp_list(workspace)
    assert ("--memory-limit=1P" in listed) == (installed.home.client is Client.OLDEST)
    script = [[tool("execute_ipython_cell", code="1")], is_refused]
    installed.home.session("Run", script, workspace, allowed=[installed.tools])


def status(listed: str) -> str:
    """Returns what the client says of the only plugin's server."""
    (line,) = (line for line in listed.splitlines() if line.startswith("plugin:"))
    return line.rpartition(" - ")[2]
