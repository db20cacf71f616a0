"""The launcher of the plugins, without Claude Code: environments are really made, with what an index really has."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ipybox.cli import parser
from ipybox.docker.options import parser as docker_parser
from plugins.launch.launch import Mode, server_options
from tests.claude.cli import Home, no_process_left
from tests.servers import ROOT, WAIT

#: Seconds that an environment takes at most, by pip and from an index.
BUILD = 120.0


class Plugin:
    """An installed plugin, and the data that Claude Code keeps for it."""

    def __init__(self, directory: Path, cache: Path, *, hidden: Collection[str] = ()):
        directory.mkdir(exist_ok=True)
        self.root = directory / "plugin"
        shutil.copytree(ROOT / "plugins" / "codeact-default", self.root, ignore=shutil.ignore_patterns("__pycache__"))
        self.data = directory / "data"
        self.workspace = directory / "workspace"
        self.workspace.mkdir()
        home = Home(directory, directory, cache)
        for program in hidden:
            (directory / "bin" / program).unlink(missing_ok=True)
        self.env = {
            **home.env,
            "CLAUDE_PLUGIN_ROOT": str(self.root),
            "CLAUDE_PLUGIN_DATA": str(self.data),
            "CLAUDE_PROJECT_DIR": str(self.workspace),
        }

    def start(self, *arguments: str, **env: str) -> "subprocess.Popen[str]":
        """Starts the launcher; by default as `.mcp.json` does in plain mode."""
        return subprocess.Popen(
            ["sh", str(self.root / "launch" / "launch.sh"), *(arguments or ("serve", "plain", "--memory-limit="))],
            cwd=self.workspace,
            env={**self.env, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Runs the launcher to its end, which an MCP server finds when stdin ends."""
        with self.start(*arguments, **env) as process:
            stdout, stderr = process.communicate(timeout=BUILD)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def change(self, what: str) -> None:
        """Makes another version of it."""
        with (self.root / "package" / "ipybox" / "__init__.py").open("a") as module:
            module.write(f"# {what}\n")

    @property
    def environments(self) -> set[Path]:
        return {path for path in (self.data / "envs").iterdir() if path.suffix != ".lock"}


class Client:
    """Speaks MCP with a process, line by line."""

    def __init__(self, process: "subprocess.Popen[str]"):
        self._process = process
        self._id = 0

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        self._id += 1
        self._send(id=self._id, method=method, params=params)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the server has ended: {self._process.communicate()[1]}"
        return json.loads(line)["result"]

    def initialize(self) -> dict[str, Any]:
        client = {"name": "test", "version": "1"}
        result = self.request("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
        self._send(method="notifications/initialized")
        return result

    def execute(self, code: str) -> str:
        result = self.request("tools/call", name="execute_ipython_cell", arguments={"code": code})
        return result["content"][0]["text"]

    def _send(self, **message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()


@contextmanager
def served(plugin: Plugin, **env: str) -> Generator[Client]:
    """Starts the server as the client does, and ends it by the end of its stdin."""
    with plugin.start(**env) as process:
        try:
            client = Client(process)
            client.initialize()
            yield client
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(WAIT) == 0
        except BaseException:
            process.kill()
            raise


def until(process: "subprocess.Popen[str]", words: str) -> str:
    """Reads the process's stderr until a line has these words."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if words in line:
            return said
    raise AssertionError(f"it never said {words!r}, but: {said}")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pip and uv have downloaded already, for all tests but the first."""
    return tmp_path_factory.mktemp("packages")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Plugin:
    return Plugin(tmp_path_factory.mktemp("started"), cache)


@pytest.fixture
def ready(started: Plugin) -> Plugin:
    """One with an environment, which the tests share as it takes so long to make."""
    run = started.run()
    assert run.returncode == 0, run.stderr
    return started


@pytest.fixture
def plugin(tmp_path: Path, cache: Path) -> Plugin:
    return Plugin(tmp_path, cache)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Generator[None]:
    with no_process_left():
        yield


def test_the_first_start_makes_an_environment_and_later_ones_use_it(tmp_path: Path, cache: Path):
    plugin = Plugin(tmp_path, cache)
    # What is in the workspace must not run outside of the kernel.
    for name in ("ipybox.py", "json.py", "fcntl.py", "sitecustomize.py"):
        (plugin.workspace / name).write_text("raise SystemExit('code of the workspace ran on the host')\n")
    (plugin.workspace / "uv.toml").write_text("no = 'such option'\n")
    (plugin.workspace / "pyproject.toml").write_text("[tool.uv]\nno = 'such option'\n")
    other = str(tmp_path / "other")
    variables = dict.fromkeys(("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME", "UV_PROJECT"), other)

    notice = plugin.run("notice", "plain")
    assert notice.stdout.startswith("codeact-default sets up its environment, once for this version, ")
    assert (notice.returncode, notice.stdout.count("\n"), notice.stderr) == (0, 2, "")
    first = plugin.run(**variables)
    assert (first.returncode, first.stdout) == (0, "")
    assert first.stderr.startswith("ipybox sets up its environment, once for this version: ")
    assert first.stderr.endswith("ipybox has set up its environment\n")
    assert not Path(other).exists()
    second = plugin.run(**variables)

    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert plugin.run("notice", "plain").stdout == ""
    (environment,) = plugin.environments
    with served(plugin) as client:
        (plugin.workspace / "ipybox.py").unlink()
        where = client.execute("import ipybox, os; print(ipybox.__file__, os.getcwd())")
    (package,) = environment.glob("lib/python*/site-packages/ipybox/__init__.py")
    assert where.split() == [str(package), str(plugin.workspace)]


def test_without_uv_venv_and_pip_get_one(tmp_path: Path, cache: Path):
    plugin = Plugin(tmp_path, cache, hidden={"uv"})

    run = plugin.run()

    assert run.returncode == 0, run.stderr
    assert "goes on" not in run.stderr
    (environment,) = plugin.environments
    assert (environment / "bin" / "uv").exists()


def test_where_uv_fails_venv_and_pip_make_the_environment(plugin: Plugin, tmp_path: Path):
    run = plugin.run(UV_OFFLINE="1", UV_CACHE_DIR=str(tmp_path / "empty"))

    assert run.returncode == 0, run.stderr
    assert "ipybox goes on with venv and pip: can't set up the environment, `uv pip` exited with " in run.stderr
    assert plugin.run().stderr == ""


def test_starts_that_fail_or_are_ended_half_way_are_made_good_by_two_at_once(plugin: Plugin, tmp_path: Path):
    offline = {"UV_OFFLINE": "1", "UV_CACHE_DIR": str(tmp_path / "empty"), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    failed = plugin.run(**offline)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.splitlines()[-1] == (
        "ipybox: can't set up the environment, `python -m` exited with 1: see above; the next start tries again"
    )

    # As a machine does that runs out of memory, and as Claude Code does that is closed.
    for signals in ([signal.SIGKILL], [signal.SIGINT, signal.SIGTERM]):
        with plugin.start() as process:
            until(process, "Resolved")  # says uv, which has the packages still to install
            for number in signals:
                process.send_signal(number)
        (environment,) = plugin.environments
        assert not (environment / "ipybox-ready").exists()

    with plugin.start() as first, plugin.start() as second:
        outcomes = [process.communicate(timeout=BUILD) for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0]
    said = "".join(stderr for _, stderr in outcomes)
    assert said.count("ipybox has set up its environment") == 1
    assert plugin.environments == {environment}
    with served(plugin) as client:
        assert client.execute("print(6 * 7)") == "42"


def test_another_version_gets_an_environment_of_its_own_and_the_old_one_goes_when_nobody_runs_from_it(ready: Plugin):
    with served(ready) as client:
        (old,) = ready.environments
        ready.change("1")
        assert ready.run().returncode == 0
        assert old in ready.environments
        assert client.execute("import ipybox.mcp_client; print('still there')") == "still there"
    assert len(ready.environments) == 2

    ready.change("2")
    assert ready.run().returncode == 0
    (new,) = ready.environments
    assert new != old


def test_the_python_that_an_earlier_start_has_found_may_be_gone(ready: Plugin):
    (ready.data / "python").unlink()
    (ready.data / "python").symlink_to("/nowhere/python3")

    assert (ready.run().returncode, len(ready.environments)) == (0, 1)


def test_a_python_that_is_too_old_is_passed_over(ready: Plugin, tmp_path: Path):
    (ready.data / "python").unlink()
    for name in ("python3.14", "python3.13", "python3.12"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "python3").symlink_to("/bin/false")
    (tmp_path / "python3.11").symlink_to(os.path.realpath(sys.executable))

    assert (ready.run(PATH=f"{tmp_path}:{ready.env['PATH']}").stderr, len(ready.environments)) == ("", 1)


def test_without_python_and_uv_it_says_what_to_install(tmp_path: Path, cache: Path):
    pythons = {f"python{version}" for version in ("", "3", "3.11", "3.12", "3.13", "3.14")}
    plugin = Plugin(tmp_path, cache, hidden={"uv", *pythons})

    run = plugin.run()
    assert (run.returncode, run.stdout) == (1, "")
    wrong, mend = run.stderr.splitlines()
    assert wrong == "ipybox can't run code here: there is neither uv nor a Python from 3.11 on."
    assert mend.startswith("Tell the user to install uv (from their system's packages) or Python 3.11, ")
    notice = plugin.run("notice", "sandbox")
    assert (notice.returncode, notice.stdout, notice.stderr) == (0, run.stderr, "")


@pytest.mark.parametrize(
    ("mode", "options", "expected"),
    [
        ("plain", ["--approve=", "--memory-limit="], ["--late-checks", "--instructions=brief"]),
        (
            "plain",
            ["--approve=ask", "--memory-limit=4G"],
            ["--late-checks", "--instructions=brief", "--approve=ask", "--memory-limit=4G"],
        ),
        (
            "plain",
            ["--approve=ipybox.yaml"],
            ["--late-checks", "--instructions=brief", "--approve=WORKSPACE/ipybox.yaml"],
        ),
        ("plain", ["--approve=/etc/x.yaml"], ["--late-checks", "--instructions=brief", "--approve=/etc/x.yaml"]),
        ("docker", ["--network=none", "--image=", "--memory-limit="], ["--instructions=brief", "--network=none"]),
        (
            "sandbox",
            ["--sandbox-profile=workspace", "--allow-domain="],
            ["--sandbox", "--workspace-config", "--late-checks", "--instructions=brief", "--sandbox-profile=workspace"],
        ),
        (
            "sandbox",
            ["--sandbox-profile=", "--allow-domain=a.b,c.d"],
            ["--sandbox", "--workspace-config", "--late-checks", "--instructions=brief", "--allow-domain=a.b,c.d"],
        ),
    ],
    ids=["nothing-set", "plain", "rules", "rules-elsewhere", "docker", "sandbox", "hosts"],
)
def test_options_that_are_set_reach_ipybox(tmp_path: Path, mode: Mode, options: list[str], expected: list[str]):
    # Its content makes no difference to the command line.
    (tmp_path / "sandbox-config.json").write_text("{}")

    made = server_options(mode, tmp_path, options)

    assert made == [f"--workspace={tmp_path}", *(each.replace("WORKSPACE", str(tmp_path)) for each in expected)]
    parser().parse_args(made) if mode != "docker" else docker_parser().parse_args(made)


def test_a_session_is_told_of_files_that_are_not_trusted(tmp_path: Path, cache: Path):
    plugin = Plugin(tmp_path, cache)
    (plugin.workspace / "ipybox.yaml").write_text("default: allow")
    (plugin.workspace / "sandbox-config.json").write_text('{"filesystem": {"allowRead": ["~/.ssh"]}}')

    told = plugin.run("notice", "sandbox", CLAUDE_PLUGIN_OPTION_APPROVE="ipybox.yaml").stdout
    assert "sandbox-config.json of the workspace is not trusted" in told
    assert "ipybox.yaml of the workspace is not trusted" in told
    assert f"{plugin.data}/envs/" in told
    told = plugin.run("notice", "docker", CLAUDE_PLUGIN_OPTION_APPROVE="ipybox.yaml").stdout
    assert "sandbox-config.json" not in told
    assert f"uvx --from {plugin.root}/package ipybox trust" in told
