"""The launcher of the plugins, without Claude Code: environments are really made, with what an index really has."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import nullcontext
from pathlib import Path

import pytest

from ipybox.docker.request import container_options
from plugins.launch.environment import REQUIREMENTS
from plugins.launch.launch import Mode, server_options
from plugins.launch.project_settings import LaunchError, refuse_project_options
from tests.claude.cli import NOWHERE, no_process_left
from tests.claude.launcher import Client, FirstStart, Plugin, builds_ended, served
from tests.cli.parsed import parsed
from tests.servers import ROOT, WAIT

PYTHONS = {f"python{version}" for version in ("", "3", "3.11", "3.12", "3.13", "3.14")}

#: What comes after the command of a notice.
AGAIN = "Then call ipybox again. If it is not found then, restart Claude Code, whose PATH is that of its start."

#: What environments need in place of ipybox's own packages where it only matters how they are installed.
NEEDS = [line for line in REQUIREMENTS.read_text().splitlines() if line.startswith(("idna==", "six=="))]

#: An uv that waits until the test opens the other end, and says so.
BLOCKED_UV = 'echo waits > "$HOME/blocked"; read _ < "$HOME/go"; exec "$REAL" "$@"'


@pytest.fixture
def ready(tmp_path: Path, data: Path) -> Plugin:
    """One with the environment of all tests."""
    return Plugin(tmp_path / "ready", data=data)


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


@pytest.fixture
def blocked(plugin: Plugin) -> Plugin:
    """One whose build does not go on."""
    os.mkfifo(plugin.home / "go")
    os.mkfifo(plugin.home / "blocked")
    plugin.replace("uv", BLOCKED_UV)
    return plugin


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Generator[None]:
    plugins = [request.getfixturevalue(name) for name in ("plugin", "ready") if name in request.fixturenames]
    with no_process_left():
        if plugins:
            with builds_ended(plugins[0]):
                yield
        else:
            yield


def wait_until_blocked(plugin: Plugin) -> None:
    """Returns as soon as the build waits in uv."""
    fd = os.open(plugin.home / "blocked", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert select.select([fd], [], [], WAIT)[0], "the build does not begin"
    finally:
        os.close(fd)


def let_go(plugin: Plugin) -> None:
    """Lets the build go on, and further programs as well."""
    script = (plugin.bin / "uv").read_text()
    (plugin.bin / "uv").unlink()
    (plugin.bin / "uv").write_text(script.replace(BLOCKED_UV, 'exec "$REAL" "$@"'))
    (plugin.bin / "uv").chmod(0o755)
    with (plugin.home / "go").open("w") as go:
        go.write("go\n")


def test_a_client_that_does_not_tell_the_project_is_told_what_to_use_instead():
    """Copilot installs the plugin, and starts it with CLAUDE_PLUGIN_ROOT only."""
    env = {name: value for name, value in os.environ.items() if name != "CLAUDE_PROJECT_DIR"}
    command = ["sh", str(ROOT / "plugins" / "launch" / "launch.sh"), "serve", "plain"]

    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)

    assert done.returncode == 1
    assert done.stderr.startswith("ipybox: only Claude Code tells this plugin its project: elsewhere, add ipybox with ")


def test_the_first_start_makes_an_environment_and_later_ones_use_it(built: FirstStart):
    assert built.notice["systemMessage"].startswith("codeact-default is installing its packages. ")
    assert "call WaitForMcpServers" in built.notice["hookSpecificOutput"]["additionalContext"]
    assert built.result == "42"
    assert {params["progressToken"] for params in built.progress} == {3}
    progress = [params["progress"] for params in built.progress]
    assert sorted(set(progress)) == progress, "it has to grow"
    assert built.progress[0]["message"].startswith("installing packages")
    assert not built.elsewhere
    (version,) = built.built

    assert built.second_notice == {}
    assert built.kept == built.built
    (package,) = Path(version).glob("lib/python*/site-packages/ipybox/__init__.py")
    assert built.imported == [str(package), built.workspace]
    status, stdout, stderr = built.tools
    assert (status, stderr) == (0, "")
    assert "No tools in" in stdout


def test_an_environment_has_only_what_ipybox_uses(ready: Plugin):
    (environment,) = ready.environments
    for unused in ("debugpy", "jedi", "parso"):
        assert not [*environment.glob(f"lib/python*/site-packages/{unused}")]
    with served(ready) as client:
        # As a notebook completes: IPython goes without jedi.
        assert client.execute("print(get_ipython().Completer.complete('print.__na')[1])") == "['.__name__']"
        assert "ZeroDivisionError" in client.failure("1 / 0")
        assert client.execute("import pdb, IPython.core.debugger; print('there')") == "there"


def test_without_uv_venv_and_pip_make_the_environment_and_a_build_that_fails_is_tried_again(tmp_path: Path):
    plugin = Plugin(tmp_path, hidden={"uv"}, needs=NEEDS)
    config = plugin.workspace.with_name("pip.conf")
    config.write_text("[global]\nno-index = true\n")

    with served(plugin, PIP_CONFIG_FILE=str(config)) as client:
        said = client.failure()
        assert said.startswith("ipybox can't set up its environment: `python -m pip` exited with status 1: ERROR: ")
        assert said.endswith(".log for details. The next call will try again")

        config.write_text("")
        assert "No module named" in client.failure()
    (environment,) = plugin.environments
    assert installed_in(environment) >= {*NEEDS}


@pytest.mark.parametrize(
    ("program", "hidden", "names", "others"),
    [
        ("uv pip", "", ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS"), {"UV_HTTP_RETRIES": "1", "UV_NO_CACHE": "1"}),
        (
            "python -m pip",
            "uv",
            ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"),
            {"PIP_RETRIES": "1", "PIP_CONFIG_FILE": os.devnull},
        ),
    ],
    ids=["uv", "pip"],
)
def test_an_index_that_can_not_be_reached_is_said_with_the_remedy(
    tmp_path: Path, program: str, hidden: str, names: tuple[str, ...], others: dict[str, str]
):
    plugin = Plugin(tmp_path, hidden=hidden.split(), needs=NEEDS)
    index, *more = names

    with served(plugin, **{index: f"{NOWHERE}/simple", **dict.fromkeys(more, ""), **others}) as client:
        said = client.failure()

    assert f"`{program}" in said
    assert "can't reach the package index (" in said
    assert "Connection refused" in said
    assert "set HTTPS_PROXY before you start Claude Code. " in said


def installed_in(environment: Path) -> set[str]:
    """Returns the packages of an environment, as requirements."""
    found = environment.glob("lib/python*/site-packages/*.dist-info")
    return {path.name.removesuffix(".dist-info").replace("-", "==") for path in found}


def test_a_build_that_is_killed_is_said_and_one_that_goes_on_without_its_client_is_for_all_others(blocked: Plugin):
    with served(blocked) as client:
        call = client.call("1")
        wait_until_blocked(blocked)
        with builds_ended(blocked):
            pass
        text = client.answer(call)["result"]["content"][0]["text"]
        assert text.startswith("ipybox can't set up its environment: the build was killed by signal 9. ")

    with blocked.start() as killed:
        Client(killed).initialize()
        wait_until_blocked(blocked)
        killed.kill()
    with served(blocked) as first, served(blocked) as second:
        calls = [(client, client.call("print(6 * 7)")) for client in (first, second)]
        let_go(blocked)
        assert [client.answer(number)["result"]["content"][0]["text"] for client, number in calls] == ["42", "42"]
    assert len(blocked.environments) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_launcher_that_is_ended_while_it_waits_leaves_only_the_build(blocked: Plugin, number: int):
    with blocked.start() as process:
        Client(process).initialize()
        wait_until_blocked(blocked)
        process.send_signal(number)
        assert process.wait(WAIT) == (-number if number == signal.SIGKILL else 128 + number)
    # That nothing else is left, the fixture sees.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_launcher_that_is_ended_ends_the_server(ready: Plugin, number: int):
    with ready.start() as process:
        client = Client(process)
        client.initialize()
        client.execute("1")
        process.send_signal(number)
        assert process.wait(WAIT) == (-number if number == signal.SIGKILL else 128 + number)


def test_each_version_has_its_environment_and_old_ones_go_when_nobody_runs_them(plugin: Plugin, data: Path):
    plugin.borrow_packages(data)
    with served(plugin) as client:
        client.execute("1")
        (old,) = plugin.environments
        os.utime(old / "ipybox-ready", (0, 0))
        plugin.change("1")
        with served(plugin) as other:
            other.execute("1")
        assert old in plugin.environments
        assert client.execute("import ipybox.mcp_client.client; print('still there')") == "still there"
    recent = plugin.environments - {old}
    assert len(recent) == 1

    os.utime(old / "ipybox-ready", (0, 0))
    plugin.change("2")
    with served(plugin) as other:
        other.execute("1")
    plugin.until_built()
    assert old not in plugin.environments
    assert recent < plugin.environments


def test_a_python_that_is_too_old_is_passed_over(ready: Plugin, tmp_path: Path):
    for name in ("python3.14", "python3.13", "python3.12"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "python3").symlink_to("/bin/false")
    (tmp_path / "python3.11").symlink_to(os.path.realpath(sys.executable))
    environments = ready.environments

    with served(ready, PATH=f"{tmp_path}:{ready.env['PATH']}", XDG_DATA_HOME=str(tmp_path / "none")) as client:
        assert client.request("ping") == {}
    with served(ready, PATH=f"{tmp_path}:{ready.env['PATH']}") as client:
        client.execute("1")
    assert ready.environments == environments


def test_a_python_that_is_too_old_for_ipybox_says_in_each_call_what_to_install(tmp_path: Path):
    plugin = Plugin(tmp_path, hidden={"uv", *PYTHONS})
    # It says that it is old, as it would say of itself.
    python = os.path.realpath(sys.executable)
    (plugin.bin / "python3").write_text(
        f'#!/bin/sh\nwhile [ "$1" != -c ]; do [ $# = 0 ] && exit; shift; done; echo old {python}\n'
    )
    (plugin.bin / "python3").chmod(0o755)

    with served(plugin) as client:
        for _ in range(2):
            said = client.failure()
            assert said.startswith("ipybox can't run code here: there is neither Python 3.11 or later nor uv. Run `/")
            assert said.endswith(f" -m pip install --user uv`, or install Python 3.11 or later. {AGAIN}")


def test_uv_is_found_where_the_command_of_the_notice_puts_it(tmp_path: Path):
    plugin = Plugin(tmp_path, hidden={"uv", *PYTHONS})
    python = os.path.realpath(sys.executable)
    (plugin.bin / "python3").write_text(
        f'#!/bin/sh\nwhile [ "$1" != -c ]; do [ $# = 0 ] && exit; shift; done; echo old {python}\n'
    )
    (plugin.bin / "python3").chmod(0o755)
    user_base = tmp_path / "base"

    with served(plugin, PYTHONUSERBASE=str(user_base)) as client:
        for found, base in ((False, plugin.workspace), (True, user_base), (True, Path(plugin.env["HOME"]) / ".local")):
            scripts = base / "bin"
            scripts.mkdir(parents=True, exist_ok=True)
            (scripts / "uv").write_text('#!/bin/sh\necho "uv: no network" >&2; exit 2\n')
            (scripts / "uv").chmod(0o755)
            if base == plugin.workspace:
                user_base.symlink_to(base)
            said = client.failure()
            command = f"`{os.path.realpath(scripts)}/uv python install 3.13`"
            assert (f"uv could not download one. Run {command}, which says what is wrong" in said) == found, said
            (user_base if base == plugin.workspace else scripts / "uv").unlink()


def test_without_python_each_call_says_what_to_install_until_it_is_there(ready: Plugin, tmp_path: Path):
    plugin = Plugin(tmp_path, hidden={"uv", *PYTHONS})
    (plugin.bin / "apt-get").unlink(missing_ok=True)
    (plugin.bin / "apt-get").write_text("#!/bin/sh\n")
    (plugin.bin / "apt-get").chmod(0o755)
    said = (
        "ipybox can't run code here: there is neither Python 3.11 or later nor uv. "
        "Run `apt-get install python3 python3-venv` as root, or install uv."
    )
    notice = plugin.notice("sandbox")
    assert notice["systemMessage"] == f"{said} {AGAIN.replace('call ipybox', 'ask')}"
    assert notice["hookSpecificOutput"]["additionalContext"] == f"Tell the user: {said} {AGAIN}"

    with served(plugin) as without, served(ready) as client:
        assert without.request("tools/list") == client.request("tools/list")
        assert without.request("ping") == {}
        assert without.answer(without.ask("no/such"))["error"]["code"] == -32601
        assert without.failure('"id":7') == f"{said} {AGAIN}"

    with served(plugin) as client:
        assert client.failure() == f"{said} {AGAIN}"
        plugin.data.parent.mkdir(parents=True, exist_ok=True)
        plugin.data.symlink_to(ready.data)
        (plugin.bin / "python3").symlink_to(os.path.realpath(sys.executable))
        assert client.execute("print(6 * 7)") == "42"
        assert client.execute("print(6 * 8)") == "48"


def test_where_uv_can_not_download_a_python_it_says_so(tmp_path: Path):
    plugin = Plugin(tmp_path, hidden=PYTHONS)
    plugin.replace("uv", 'echo "uv: no network" >&2; exit 2')

    text = "ipybox has no Python 3.11 or later here yet: uv downloads one now, and calls wait for it."
    notice = plugin.notice("plain")
    assert notice["systemMessage"] == text
    assert notice["hookSpecificOutput"]["additionalContext"] == f"Tell the user: {text}"
    with served(plugin) as client:
        assert client.failure() == (
            "ipybox can't run code here: there is no Python 3.11 or later, and uv could not download one. Run "
            f"`uv python install 3.13`, which says what is wrong, or install Python 3.11 or later. {AGAIN}"
        )


@pytest.mark.parametrize("variable", ["HOME", "XDG_DATA_HOME"])
def test_a_home_that_can_not_be_written_is_said_with_the_remedy(plugin: Plugin, variable: str):
    said = "set XDG_DATA_HOME to a directory that you can write"
    env = {variable: "/dev/null/home"}

    with served(plugin, **env) as client:
        assert said in client.failure()


def test_a_state_directory_that_can_not_be_written_is_said_with_the_remedy(ready: Plugin):
    said = "set XDG_STATE_HOME to a directory that you can write"
    env = {"XDG_STATE_HOME": "/dev/null/state"}

    with served(ready, **env) as client:
        assert said in client.failure()


def test_options_that_are_wrong_are_said_by_each_call(ready: Plugin):
    with served(ready, "serve", "plain", "--memory-limit=lots") as client:
        for _ in range(2):
            assert (
                "the plugin's option memory_limit: 'lots' is not an amount of memory: use a value such as 4G"
                in client.failure()
            )


def test_what_the_sandbox_lacks_is_said_by_each_call(ready: Plugin):
    (ready.bin / "srt").unlink()
    with served(ready, "serve", "sandbox") as client:
        for _ in range(2):
            said = client.failure()
            assert "srt is not on PATH: install it with `npm install -g @anthropic-ai/sandbox-runtime`" in said


def test_docker_that_is_missing_is_said_by_each_call(tmp_path: Path):
    plugin = Plugin(tmp_path, hidden={"docker"})
    with served(plugin, "serve", "docker") as client:
        for _ in range(2):
            assert client.failure() == "ipybox: docker is not on PATH: install Docker Engine or Docker Desktop"


@pytest.mark.parametrize(
    ("content", "refused"),
    [
        pytest.param(b'{"pluginConfigs": {"codeact-default@ipybox": {}}}', True, id="options"),
        pytest.param(b'\xef\xbb\xbf{"plugin\\u0043onfigs": {"codeact-sandbox@other": {}}}', True, id="escaped"),
        pytest.param('{"pluginConfigs": {"codeact-docker@x": {}}}'.encode("utf-16"), True, id="utf-16"),
        pytest.param(b'{"\xff": 1, "pluginConfigs": {"codeact-default@x": {}}}', True, id="invalid-utf-8"),
        pytest.param(b'{"a": ' + b"1" * 5000 + b', "pluginConfigs": {"codeact-default@x": {}}}', True, id="number"),
        pytest.param(b'{"a": ' + b"[" * 10**5 + b"]" * 10**5 + b"}", True, id="nested"),
        pytest.param(b" " * (2 << 20), True, id="large"),
        pytest.param(b'{"pluginConfigs": {"other@ipybox": {}}, "enabledPlugins": {"codeact-default@x": true}}', False),
        pytest.param(b'{"pluginConfigs": {"codeact-default@ipybox": {}}', False, id="not-json"),
    ],
)
@pytest.mark.parametrize("name", ["settings.json", "settings.local.json"])
def test_options_that_a_repository_sets_are_refused(tmp_path: Path, name: str, content: bytes, refused: bool):
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / name).write_bytes(content)

    with pytest.raises(LaunchError, match=name) if refused else nullcontext():
        refuse_project_options(tmp_path)


def test_options_behind_a_link_or_in_a_pipe_are_refused(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".claude").symlink_to("elsewhere")
    file = tmp_path / "elsewhere" / "settings.json"
    refuse_project_options(tmp_path)
    file.write_text('{"pluginConfigs": {"codeact-default@ipybox": {}}}')
    with pytest.raises(LaunchError):
        refuse_project_options(tmp_path)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(LaunchError):
        refuse_project_options(tmp_path)


@pytest.mark.parametrize(
    ("mode", "options", "expected"),
    [
        ("plain", ["--approve=", "--memory-limit="], ["--late-checks", "--instructions=brief"]),
        (
            "plain",
            ["--approve=ask", "--memory-limit=4G"],
            ["--late-checks", "--instructions=brief", "--approve=ask", "--memory-limit=4G"],
        ),
        ("plain", ["--approve=writes"], ["--late-checks", "--instructions=brief", "--approve=writes"]),
        (
            "plain",
            ["--approve=ipybox.yaml"],
            ["--late-checks", "--instructions=brief", "--approve=WORKSPACE/ipybox.yaml"],
        ),
        ("plain", ["--resources=true"], ["--late-checks", "--instructions=brief", "--resources=always"]),
        ("plain", ["--resources=false"], ["--late-checks", "--instructions=brief"]),
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
    ids=["nothing-set", "plain", "writes", "rules", "yes", "no", "rules-elsewhere", "docker", "sandbox", "hosts"],
)
def test_options_that_are_set_reach_ipybox(tmp_path: Path, mode: Mode, options: list[str], expected: list[str]):
    # Its content makes no difference to the command line.
    (tmp_path / "sandbox-config.json").write_text("{}")

    made = server_options(mode, tmp_path, options)

    assert made == [f"--workspace={tmp_path}", *(each.replace("WORKSPACE", str(tmp_path)) for each in expected)]
    if mode == "docker":
        container_options(made)
    else:
        parsed(["serve", *made])
