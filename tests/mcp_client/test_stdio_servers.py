"""Stdio MCP servers take no program, module or configuration from what code can write."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ipybox import CodeExecutor, generate_mcp_sources
from ipybox.errors import CodeExecutionError, MCPServerError
from ipybox.mcp_client import stdio_servers
from ipybox.mcp_client.params import StdioParams
from ipybox.mcp_client.stdio_servers import harden_stdio_params, risk
from ipybox.sandbox.settings import load_settings
from ipybox.support.state import had_confined_code, record_confined_code, state_dir
from ipybox.workspace.writable import WritablePlaces
from tests import servers
from tests.servers import WAIT


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with programs on PATH outside of it that do nothing."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("npx", "uvx", "uv", "node", "mcp-server", "srt"):
        shutil.copy("/bin/true", programs / name)
    directory = tmp_path / "workspace"
    directory.mkdir()
    for name in ("server.py", "server.sh", "srt", "data"):
        (directory / name).write_text("")
        (directory / name).chmod(0o755)
    monkeypatch.chdir(directory)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return directory


@pytest.fixture
def places(workspace: Path) -> WritablePlaces:
    return WritablePlaces(workspace, load_settings())


def started(places: WritablePlaces, command: str, *args: str, **options: Any) -> StdioParams:
    return harden_stdio_params(StdioParams(command=command, args=list(args), **options), places)


@pytest.mark.parametrize(
    ("command", "args"),
    [
        (sys.executable, ["-m", "mcp_server_git"]),
        (sys.executable, ["-S", "-u", servers.SCRIPTED_SERVER]),
        ("uvx", ["--from", "package==1.0", "server", "--directory", "."]),
        ("uvx", ["--from=package==1.0", "server", "{workspace}/data"]),
        ("uvx", ["-q", "--with", "other", "server", "data"]),
        ("uv", ["tool", "run", "server"]),
        ("node", ["/opt/server/index.js", "."]),
        ("node", ["/opt/server/index.js", "{workspace}/data"]),
        (sys.executable, ["-c", "import server", "{workspace}/data"]),
        (sys.executable, ["-m", "server", "{workspace}/data"]),
        (sys.executable, ["-EI", "-m", "server"]),
        (sys.executable, ["-E", "-P", "-m", "server"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_known_launchers_start_in_the_working_directory(
    places: WritablePlaces, workspace: Path, command: str, args: list[str]
):
    assert started(places, command, *(arg.format(workspace=workspace) for arg in args)).cwd is None


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("uv", ["run", "server"]),
        ("sh", ["-c", "npx -y server"]),
        ("mcp-server", ["--verbose"]),
        ("mcp-server", ["--database={workspace}/data"]),
        ("uvx", ["--unknown-option", "server"]),
        ("npx", ["-y", "@scope/server", "{workspace}"]),
        ("npx", ["--package=server", "-p", "other", "program"]),
        ("npx", ["-y", "data"]),
        ("npx", ["--package=server", "-p", "other", "data"]),
        ("npx", ["-y", "https://example.org/server.tgz"]),
        ("npx", ["-y", "github:owner/server#v1"]),
        ("npx", ["--package=gitlab:owner/server", "-p", "bitbucket:owner/server", "server"]),
        ("uv", ["run", "x", "server"]),
        ("uv", ["tool", "run", "--unknown-option", "server"]),
        ("uvx", ["--from", "package"]),
        ("uvx", ["--with"]),
        ("mcp-server", ["--set=key=data", "-I/opt/include"]),
        ("node", []),
        ("node", ["{workspace}/missing.js"]),
        ("/missing/node", ["/opt/server/index.js"]),
        ("srt", ["-s", "{workspace}/data"]),
        ("srt", ["-s", "/x.json", "uvx", "server"]),
        ("srt", ["mcp-server", "--verbose"]),
        ("srt", ["-s", "/x.json", "mcp-server", "--verbose"]),
        ("missing-server", []),
        (sys.executable, []),
        (sys.executable, [""]),
        (sys.executable, ["-u"]),
        (sys.executable, ["-", "-m", "server"]),
        (sys.executable, ["--version"]),
        (sys.executable, ["{workspace}/missing.py"]),
        (sys.executable, ["-E", "-m", "mcp_server_git", "--repository", "{workspace}"]),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_anything_else_starts_in_an_empty_directory(
    places: WritablePlaces, workspace: Path, command: str, args: list[str]
):
    server = started(places, command, *(arg.format(workspace=workspace) for arg in args))

    assert server.cwd == str(state_dir() / "empty")
    assert os.listdir(server.cwd) == []


@pytest.mark.parametrize("name", ["uvx", "node"])
@pytest.mark.parametrize("kind", ["script", "link"])
def test_a_program_that_stands_for_others_starts_in_an_empty_directory(
    places: WritablePlaces, workspace: Path, name: str, kind: str
):
    shim = workspace.parent / "programs" / name
    shim.unlink()
    if kind == "script":
        shim.write_text("#!/bin/sh\n")
        shim.chmod(0o755)
    else:
        shim.symlink_to("mcp-server")

    assert started(places, name, "/opt/server").cwd == str(state_dir() / "empty")


def test_a_server_elsewhere_than_in_the_workspace_starts_there(
    places: WritablePlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)

    server = started(places, "mcp-server", ".", "programs")

    assert (server.args, server.cwd) == ([".", "programs"], None)


def test_a_server_starts_in_the_root_if_code_can_write_the_state_directory(
    places: WritablePlaces, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(workspace / "state"))

    assert started(places, "mcp-server").cwd == "/"


@pytest.mark.parametrize(
    ("command", "args", "problem"),
    [
        ("./server.sh", [], "server.sh is writable from the kernel"),
        ("{workspace}/server.sh", [], "server.sh is writable from the kernel"),
        (sys.executable, ["server.py"], "server.py is writable from the kernel"),
        (sys.executable, ["{workspace}/server.py"], "server.py is writable from the kernel"),
        ("uv", ["--directory={workspace}", "run", "x"], "workspace is writable from the kernel"),
        ("sh", ["./server.sh"], "server.sh is writable from the kernel"),
        ("mcp-server", ["."], "'.' is relative to the working directory"),
        ("mcp-server", ["--database=data"], "'data' is relative to the working directory"),
        ("npx", ["-y", "./server"], "'./server' is relative to the working directory"),
        ("npx", ["-y", "server", "."], "'.' is relative to the working directory"),
        ("npx", ["-y", "server@file:{workspace}"], "workspace is writable from the kernel"),
        ("npx", ["--unknown", "x", "file://{workspace}"], "workspace is writable from the kernel"),
        ("uvx", ["--from", "x @ file://{workspace}", "x"], "workspace is writable from the kernel"),
        ("uvx", ["--from", "{workspace}", "x"], "workspace is writable from the kernel"),
        ("srt", ["-s", "/x.json", "uvx", "--from", "{workspace}", "x"], "workspace is writable from the kernel"),
        ("{workspace}/srt", ["-s", "/x.json", "uvx", "server"], "srt is writable from the kernel"),
        ("srt", ["{workspace}/server.sh"], "server.sh is writable from the kernel"),
        ("srt", ["-s", "/x.json", "{workspace}/server.sh"], "server.sh is writable from the kernel"),
        ("srt", ["-s", "/x.json", "node", "{workspace}/server.py"], "server.py is writable from the kernel"),
        ("node", ["./server.py"], "server.py is writable from the kernel"),
        ("/opt/Node.EXE", ["{workspace}/server.py"], "server.py is writable from the kernel"),
        ("/opt/npx.cmd", ["file:{workspace}"], "workspace is writable from the kernel"),
        ("uvx", ["--from", "./server", "x"], "'./server' is relative to the working directory"),
        ("uvx", ["--from", ".", "x"], "'.' is relative to the working directory"),
        ("uvx", [".."], "'..' is relative to the working directory"),
        ("uvx", ["--from=./server", "x"], "'./server' is relative to the working directory"),
        ("npx", ["-y", "server@file:missing/x"], "'missing/x' is relative to the working directory"),
        ("npx", ["-y", "@scope/server/x"], "'@scope/server/x' is relative to the working directory"),
        ("npx", ["server", "github:owner/x"], "'github:owner/x' is relative to the working directory"),
        ("npx", ["owner/server"], "'owner/server' is relative to the working directory"),
        ("uvx", ["github:owner/server"], "'github:owner/server' is relative to the working directory"),
        ("npx", ["server", ".."], "'..' is relative to the working directory"),
        ("npx", ["server", "@scope/server/x"], "'@scope/server/x' is relative to the working directory"),
        ("mcp-server", ["data"], "'data' is relative to the working directory"),
    ],
)
def test_what_would_run_code_of_the_workspace_is_refused(
    places: WritablePlaces, workspace: Path, command: str, args: list[str], problem: str
):
    with pytest.raises(MCPServerError, match=problem):
        started(places, command.format(workspace=workspace), *(arg.format(workspace=workspace) for arg in args))


def test_a_refusal_says_what_to_change(places: WritablePlaces, workspace: Path):
    with pytest.raises(MCPServerError) as own:
        started(places, "./server.sh")
    with pytest.raises(MCPServerError) as relative:
        started(places, "mcp-server", ".")

    assert str(own.value) == (
        f"{workspace}/server.sh is writable from the kernel, but would run with your permissions: move it elsewhere, "
        "or set 'cwd' in server_params if you accept that"
    )
    assert str(relative.value) == (
        "'.' is relative to the working directory, but mcp-server starts in an empty directory: use an "
        "absolute path, or set 'cwd' in server_params (the server can then run programs from there)"
    )


def test_a_registration_that_names_a_cwd_says_otherwise_and_is_warned_of(
    places: WritablePlaces, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir("/")
    server = StdioParams(command="./server.sh", args=["."], cwd=str(workspace))

    assert harden_stdio_params(server, places).command == str(workspace / "server.sh")
    assert harden_stdio_params(server, places).cwd == str(workspace)
    assert risk(server, places) == (
        f"server.sh starts in {workspace}, which cells can write to: programs it runs from there have your "
        "permissions, outside any sandbox"
    )


def test_the_program_that_really_starts_decides_whether_there_is_a_risk(
    places: WritablePlaces, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The one on the PATH of the registration, or on the PATH of the host without the workspace's directories."""
    shims = [workspace / "bin" / "uvx", tmp_path / "shims" / "uvx"]
    for shim in shims:
        shim.parent.mkdir()
        shim.write_text("#!/bin/sh\n")
        shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shims[0].parent}:{os.environ['PATH']}")
    server = StdioParams(command="uvx", args=["server"], cwd=str(workspace))

    assert risk(server, places) is None
    assert risk(replace(server, env={"PATH": str(shims[1].parent)}), places) is not None


@pytest.mark.parametrize(
    ("command", "cwd"), [("uvx", "{workspace}"), ("mcp-server", "/"), ("mcp-server", None)], ids=["known", "/", "none"]
)
def test_nobody_is_warned_of_what_code_can_not_use(
    places: WritablePlaces, workspace: Path, command: str, cwd: str | None
):
    directory = None if cwd is None else cwd.format(workspace=workspace)

    assert risk(StdioParams(command=command, args=["server"], cwd=directory), places) is None


def test_without_a_sandbox_a_script_that_is_named_runs(workspace: Path):
    server = started(WritablePlaces(workspace), sys.executable, "server.py")

    assert (server.args, server.cwd) == (["server.py"], None)


def test_without_a_sandbox_a_program_of_the_workspace_runs_in_an_empty_directory(workspace: Path):
    server = started(WritablePlaces(workspace), "./server.sh")

    assert (server.command, server.cwd) == (str(workspace / "server.sh"), str(state_dir() / "empty"))


@pytest.fixture
def project(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An author's project, the working directory, with the script of a server in it, below and above."""
    for script in ("own.py", "src/own.py", "../own.py"):
        (workspace / script).parent.mkdir(exist_ok=True)
        shutil.copy(servers.SCRIPTED_SERVER, workspace / script)
    return workspace


NAMED = {
    "relative": ["own.py"],
    "absolute": ["{project}/own.py"],
    "below": ["-u", "src/own.py"],
    "outside": ["../own.py"],
    "placeholder": ["${{PLACE}}/own.py"],
    "link": ["link.py"],
    "cwd": ["own.py"],
}


@pytest.mark.parametrize(
    ("case", "ran_in", "allowed"),
    [
        *((case, None, case != "placeholder") for case in NAMED),
        *((case, "{project}", case in ("outside", "cwd")) for case in NAMED),
        ("relative", "{project}/src", True),
        ("below", "{project}/src", False),
        ("link", "{project}/src", False),
        ("absolute", "{project}/..", False),
    ],
)
async def test_the_author_of_a_server_may_run_it_until_code_was_confined_to_its_directory(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, ran_in: str | None, allowed: bool
):
    (project / "link.py").symlink_to("src/own.py")
    monkeypatch.setenv("PLACE", str(project))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    if ran_in is not None:
        record_confined_code(Path(ran_in.format(project=project)))
    params: dict[str, Any] = {"command": sys.executable, "args": [arg.format(project=project) for arg in NAMED[case]]}
    params |= {"cwd": str(project)} if case == "cwd" else {}
    if allowed:
        assert "echo" in await generate_mcp_sources("own", params, project / "mcptools")
    else:
        with pytest.raises(MCPServerError, match="is writable from the kernel"):
            await generate_mcp_sources("own", params, project / "mcptools")


async def test_a_record_that_code_could_remove_does_not_count(project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(project))
    with pytest.raises(MCPServerError, match="is writable from the kernel"):
        await generate_mcp_sources("own", {"command": sys.executable, "args": ["own.py"]}, project / "mcptools")


@pytest.mark.kernel
@pytest.mark.sandbox
async def test_a_sandboxed_session_ends_that_for_all_places_that_it_could_write(tmp_path: Path):
    project, shared, settings = tmp_path / "project", tmp_path / "shared", tmp_path / "settings.json"
    shared.mkdir()
    (project / "src").mkdir(parents=True)
    settings.write_text(json.dumps({"filesystem": {"allowWrite": [".", str(shared)]}}))
    async with CodeExecutor(working_dir=project / "src"):
        assert not had_confined_code(project / "src/own.py")
    async with CodeExecutor(working_dir=project / "src", sandbox=True, sandbox_config=settings):
        pass
    assert had_confined_code(project / "src/own.py")
    assert had_confined_code(shared / "own.py")
    assert not had_confined_code(project / "own.py")


def test_programs_come_from_no_place_that_code_can_write(
    places: WritablePlaces, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    planted = workspace / "node_modules" / ".bin"
    monkeypatch.setenv("PATH", f"{planted}:bin::{os.environ['PATH']}")
    for directory in (planted, workspace / "bin"):
        directory.mkdir(parents=True)
        (directory / "npx").symlink_to("/bin/true")

    server = started(places, "npx", "-y", "server")

    assert server.command == str(workspace.parent / "programs" / "npx")
    assert str(workspace) not in server.env["PATH"]


def test_what_the_user_has_set_stays(places: WritablePlaces):
    server = started(places, sys.executable, "-m", "x", env={"PYTHONSAFEPATH": "", "PATH": "/bin", "A": "b"})

    assert server.env.items() >= {"PYTHONSAFEPATH": "", "PATH": "/bin", "A": "b", "UV_NO_CONFIG": "1"}.items()


def test_a_server_finds_its_way_out_as_its_user_does(
    places: WritablePlaces, tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    certificates = tmp_path / "company.pem"
    certificates.touch()
    passed = {
        "HTTPS_PROXY": "http://proxy.example:3128",
        "no_proxy": "localhost,10.0.0.0/8",
        "SSL_CERT_FILE": str(certificates),
        "NODE_EXTRA_CA_CERTS": str(certificates),
        "PIP_INDEX_URL": "https://index.example/simple",
        "UV_DEFAULT_INDEX": "https://index.example/simple",
        "npm_config_registry": "https://npm.example",
        "NPM_CONFIG_STRICT_SSL": "true",
    }
    for name, value in (passed | {"PIP_REQUIRE_VIRTUALENV": "1", "API_KEY": "x"}).items():
        monkeypatch.setenv(name, value)
    env = started(places, "npx", "-y", "server", env={"no_proxy": "own"}).env

    assert env.items() >= (passed | {"no_proxy": "own"}).items()
    assert not env.keys() & {"PIP_REQUIRE_VIRTUALENV", "API_KEY"}


@pytest.mark.parametrize("name", ["NODE_EXTRA_CA_CERTS", "PIP_CONFIG_FILE", "UV_CONFIG_FILE", "npm_config_userconfig"])
@pytest.mark.parametrize("absolute", [False, True], ids=["relative", "absolute"])
def test_a_server_is_led_to_no_file_that_code_can_write(
    places: WritablePlaces, workspace: Path, monkeypatch: pytest.MonkeyPatch, name: str, absolute: bool
):
    monkeypatch.setenv(name, str(workspace / "data") if absolute else "data")

    assert name not in started(places, "npx", "-y", "server").env


def test_uv_takes_its_index_from_the_user_and_not_from_the_workspace(
    places: WritablePlaces, tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = tmp_path / "home" / ".config" / "uv" / "uv.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('index-url = "http://127.0.0.1:1/user"\n')
    (workspace / "uv.toml").write_text('index-url = "http://127.0.0.1:1/workspace"\n')
    for name in ("XDG_CONFIG_HOME", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    env = started(places, "uvx", "package").env | {"HOME": str(tmp_path / "home"), "UV_HTTP_RETRIES": "0"}
    uvx = [str(Path(sys.executable).with_name("uvx")), "--no-cache", "ipybox-no-such-package"]
    done = subprocess.run(uvx, env=env, cwd=workspace, capture_output=True, text=True, timeout=WAIT, check=False)

    assert "http://127.0.0.1:1/user/ipybox-no-such-package/" in done.stderr
    assert "127.0.0.1:1/workspace" not in done.stderr


@pytest.mark.parametrize(
    ("environment", "files", "file"),
    [
        ({}, ["/etc/uv/uv.toml"], "/etc/uv/uv.toml"),
        ({}, ["/home/me/.config/uv/uv.toml", "/etc/uv/uv.toml"], "/home/me/.config/uv/uv.toml"),
        ({"XDG_CONFIG_HOME": "/xdg"}, ["/xdg/uv/uv.toml", "/home/me/.config/uv/uv.toml"], "/xdg/uv/uv.toml"),
        ({"UV_CONFIG_FILE": "/my.toml"}, ["/my.toml", "/home/me/.config/uv/uv.toml"], "/my.toml"),
        ({"UV_CONFIG_FILE": "/missing.toml"}, ["/home/me/.config/uv/uv.toml"], None),
        ({"XDG_CONFIG_HOME": "{workspace}"}, ["{workspace}/uv/uv.toml", "/etc/uv/uv.toml"], "/etc/uv/uv.toml"),
        ({}, [], None),
    ],
    ids=["system", "home", "xdg", "variable", "missing", "workspace", "none"],
)
def test_uv_reads_the_settings_that_it_would_read_by_itself(
    places: WritablePlaces,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    files: list[str],
    file: str | None,
):
    existing = [name.format(workspace=workspace) for name in files]
    for name in ("XDG_CONFIG_HOME", "UV_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HOME": "/home/me"} | environment).items():
        monkeypatch.setenv(name, value.format(workspace=workspace))
    monkeypatch.setenv("XDG_STATE_HOME", str(workspace.parent / "state"))
    monkeypatch.setattr(os.path, "isfile", existing.__contains__)

    assert started(places, "uvx", "server").env.get("UV_CONFIG_FILE") == file


@pytest.mark.parametrize("hardened", [False, True], ids=["control", "hardened"])
@pytest.mark.parametrize("where", ["", ".."], ids=["workspace", "parent"])
@pytest.mark.parametrize("name", ["sh", "node", "planted", ".npmrc"])
def test_npx_runs_nothing_of_the_workspace(
    tmp_path: Path, hardened: bool, name: str, where: str, monkeypatch: pytest.MonkeyPatch
):
    """Also what npx itself looks for on its PATH, to run a package from elsewhere."""
    package, workspace = tmp_path / "package", tmp_path / "parent" / "workspace"
    package.mkdir()
    workspace.mkdir(parents=True)
    monkeypatch.chdir(workspace)
    # npx makes a package's program executable once for each path, and another run may have had this one.
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    (package / "package.json").write_text('{"name": "good", "version": "1.0.0", "bin": "good.js"}')
    (package / "good.js").write_text("#!/usr/bin/env node\nconsole.log('good')\n")
    planted = workspace / where / "node_modules" / ".bin" / name
    planted.parent.mkdir(parents=True)
    planted.write_text("#!/bin/bash\necho planted\n")
    planted.chmod(0o755)
    if name == ".npmrc":
        (workspace / where / "package.json").write_text("{}")
        (workspace / where / name).write_text(f"script-shell={planted}\n")
    server = StdioParams(command="npx", args=["--no-install", name] if name == "planted" else ["-y", str(package)])
    if hardened:
        server = harden_stdio_params(server, WritablePlaces(workspace, load_settings()))

    said = _output(server).splitlines()

    assert ("planted" in said) is not hardened
    assert ("good" in said) is (hardened and name != "planted")


def test_the_workspace_chooses_no_python(places: WritablePlaces, workspace: Path, monkeypatch: pytest.MonkeyPatch):
    """As it does for pyenv's and others' programs that look for a file there."""
    shim = workspace.parent / "programs" / "python"
    shim.write_text(f'#!/bin/sh\n[ -e .python-version ] && exec ./evil "$@"\nexec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    (workspace / ".python-version").write_text("3.10")

    server = started(places, "python", "-c", "print('good')")

    assert (server.command, server.cwd) == (str(shim), str(state_dir() / "empty"))
    assert _output(server) == "good\n"


def test_a_python_that_is_missing_keeps_its_name(places: WritablePlaces):
    server = started(places, "/missing/python", "-m", "server")

    assert (server.command, server.cwd) == ("/missing/python", str(state_dir() / "empty"))


def test_another_python_starts_in_the_working_directory_if_it_can_keep_modules_of_it_out(
    places: WritablePlaces, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stdio_servers, "interpreter", lambda: Path("/another/python"))
    programs = workspace.parent / "programs"
    shutil.copy("/bin/echo", programs / "python3.10")
    (programs / "python3").symlink_to(os.path.realpath(sys.executable))

    assert started(places, "python3.10", "-m", "server").cwd == str(state_dir() / "empty")
    assert started(places, "python3", "-m", "server").cwd is None


def test_npm_obeys_its_global_configuration_and_not_that_of_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Else a company's registry and certificates would be lost, with no more to see than a server that is silent."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".npmrc").write_text("init-author-name=workspace\ninit-license=workspace\n")
    configuration = tmp_path / "prefix" / "etc" / "npmrc"
    configuration.parent.mkdir(parents=True)
    configuration.write_text("init-author-name=global\n")
    server = StdioParams(command="npm", args=["config", "list"], env={"PREFIX": str(tmp_path / "prefix")})

    said = _output(harden_stdio_params(server, WritablePlaces(tmp_path, load_settings())))

    assert 'init-author-name = "global"' in said
    assert '= "workspace"' not in said


@pytest.mark.parametrize("hardened", [False, True], ids=["control", "hardened"])
@pytest.mark.parametrize("plant", ["core.fsmonitor", "core.hooksPath"])
def test_git_runs_nothing_that_a_repository_names(tmp_path: Path, hardened: bool, plant: str):
    def git(*arguments: str, env: dict[str, str] | None = None) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, env=env, check=True, capture_output=True)

    program = tmp_path / "program" / "post-commit"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/mark\n")
    program.chmod(0o755)
    git("init", "--quiet")
    git("config", plant, str(program if plant == "core.fsmonitor" else program.parent))
    env = {**os.environ}
    if hardened:
        env |= harden_stdio_params(StdioParams(command=sys.executable), WritablePlaces(tmp_path)).env

    git("add", "program", env=env)
    git("commit", "--quiet", "-m", "x", env=env)

    assert (tmp_path / "mark").exists() is not hardened


async def test_generating_starts_a_server_that_imports_nothing_from_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mcp_server_time.py").write_text("open('planted', 'w')\nraise SystemExit(1)\n")

    names = await generate_mcp_sources("clock", servers.time_(), Path("mcptools"))

    assert "get_current_time" in names
    assert not (tmp_path / "planted").exists()


async def test_registering_with_a_cwd_that_code_can_write_says_what_that_means(tmp_path: Path):
    params = {**servers.scripted(), "args": ["-S", "server.py"], "cwd": str(tmp_path)}
    (tmp_path / "server.py").write_text(Path(servers.SCRIPTED_SERVER).read_text())

    modules = await generate_mcp_sources("own", params, tmp_path / "mcptools")

    assert any("which cells can write to" in warning for warning in modules.warnings())


@pytest.mark.parametrize("link", ["mcptools", "mcptools/clock"])
async def test_generating_follows_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str):
    elsewhere, workspace = tmp_path / "elsewhere", tmp_path / "workspace"
    elsewhere.mkdir()
    (workspace / link).parent.mkdir(parents=True)
    (workspace / link).symlink_to(elsewhere)
    monkeypatch.chdir(workspace)

    with pytest.raises((NotADirectoryError, FileExistsError)):
        await generate_mcp_sources("clock", servers.scripted(), Path("mcptools"))

    assert os.listdir(elsewhere) == []


@pytest.mark.kernel
@pytest.mark.sandbox
async def test_a_package_that_was_replaced_calls_its_server_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In the sandbox only, as without one nothing keeps code from starting what it wants."""
    monkeypatch.chdir(tmp_path)
    wide, narrow = tmp_path / "wide", tmp_path / "wide" / "narrow"
    narrow.mkdir(parents=True)
    listing = f"from mcptools.files.list_directory import run, Params\nprint(run(Params(path={str(wide)!r})).content)"
    revoked = "is not registered in this workspace with these parameters"
    await generate_mcp_sources("files", servers.filesystem(wide), Path("mcptools"))
    async with CodeExecutor(sandbox=True) as executor:
        assert "narrow" in ((await executor.execute(listing)).text or "")
        await executor.execute("import shutil; shutil.copytree('mcptools/files', 'kept/mcptools/files')")
        await generate_mcp_sources("files", servers.filesystem(narrow), Path("mcptools"))
        await executor.reset()
        restore = "import sys; sys.path.insert(0, 'kept')\n"
        with pytest.raises(CodeExecutionError, match=revoked):
            await executor.execute(restore + listing)
    async with CodeExecutor(sandbox=True) as executor:
        with pytest.raises(CodeExecutionError, match=revoked):
            await executor.execute(restore + listing)


def _output(server: StdioParams) -> str:
    done = subprocess.run(
        [server.command, *server.args],
        env={**os.environ, **server.env, "npm_config_offline": "true"},
        cwd=server.cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    return done.stdout + done.stderr
