"""The command lines: what people give, and what Docker gets."""

import hashlib
import json
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from ipybox.cli.docker import option_arguments
from ipybox.docker.container import MEMORY_BESIDE_CODE, Options, create_command
from ipybox.docker.engine import DockerError, Engine
from ipybox.docker.refusal import refuse, request_id
from ipybox.docker.request import container_options
from ipybox.support.state import workspace_state_dir
from ipybox.workspace.trust import TrustStore
from tests.cli.parsed import parsed

ENGINE = Engine("/usr/bin/docker", 16 << 30)


def values(command: list[str], option: str) -> list[str]:
    """Returns all values that a command has for an option."""
    return [value for name, value in pairwise(command) if name == option]


def container(given: list[str]) -> Options:
    """Returns how the container of this command line runs."""
    return container_options(option_arguments(parsed(["docker", *given])))


@pytest.fixture
def asked(tmp_path: Path) -> Options:
    return Options(workspace=tmp_path, image="ipybox")


def test_options_are_the_same_from_both_command_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOKEN", "s3cret")
    given = [f"--workspace={tmp_path}", "--memory-limit=2G", "--env=TOKEN", "--cpu-seconds=5.0", "--log-level=INFO"]
    given += ["--images=link", "--resources=always"]
    given += ["--instructions=brief", "--audit=hash", "--connect-timeout=5.0", "--register-timeout=9.0"]
    given += ["--allowed-dir=.", "--allowed-dir=data"]
    assert (
        container_options(given)
        == container(given)
        == Options(
            workspace=tmp_path,
            image="ipybox",
            env=["TOKEN"],
            memory_limit=2 << 30,
            passed_on=[
                *("--allowed-dir=.", "--allowed-dir=data", "--cpu-seconds=5.0", "--log-level=INFO", "--images=link"),
                *("--resources=always", "--instructions=brief", "--audit=hash"),
                *("--connect-timeout=5.0", "--register-timeout=9.0"),
            ],
        )
    )


def test_a_program_is_told_which_of_its_options_is_wrong():
    for limit, reason in (("much", "'much' is not an amount of memory"), ("64M", "memory_limit=64 MiB is too low")):
        with pytest.raises(DockerError, match=f"--memory-limit: {reason}"):
            container_options([f"--memory-limit={limit}"])


def test_files_of_the_workspace_are_transferred_unless_other_directories_are_named(tmp_path: Path):
    given = [f"--workspace={tmp_path}"]
    assert "--allowed-dir=." in container(given).passed_on
    assert "allowed-dir" not in str(container([*given, "--allowed-dir="]).passed_on)  # as the plugin does


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], []),
        (["--approve=auto"], []),
        (["--approve", "ask"], ["--approve=ask"]),
        (["--approve", "writes"], ["--approve=writes"]),
        (["--approve=WORKSPACE/ipybox.yaml"], ["--approve=/app/workspace/ipybox.yaml", "--late-checks"]),
    ],
    ids=["nothing", "auto", "ask", "writes", "file"],
)
def test_how_calls_are_approved_is_passed_on(given: list[str], expected: list[str], tmp_path: Path):
    given = ["--workspace", str(tmp_path), *(each.replace("WORKSPACE", str(tmp_path)) for each in given)]
    passed_on = container(given).passed_on
    assert [each for each in passed_on if each.startswith(("--approve", "--late"))] == expected


def test_the_container_is_told_what_is_trusted_on_the_host_and_nothing_else(tmp_path: Path):
    files = {"settings.json": "{}", "ipybox.yaml": "default: allow", "sandbox-config.json": '{"network": {}}'}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    workspace = ["--workspace", str(tmp_path), "--sandbox", f"--approve={tmp_path}/ipybox.yaml"]

    def trusted(*given: str) -> list[str]:
        passed_on = container([*workspace, *given]).passed_on
        return [each for each in passed_on if each.startswith("--trusted")]

    def hash_of(name: str) -> str:
        return f"--trusted={hashlib.sha256(files[name].encode()).hexdigest()}"

    assert trusted(f"--sandbox-config={tmp_path}/settings.json") == []
    store = TrustStore(tmp_path)
    store.trust(tmp_path / "settings.json", files["settings.json"].encode(), "default")
    store.trust(tmp_path / "sandbox-config.json", files["sandbox-config.json"].encode(), "workspace")
    store.trust(tmp_path / "ipybox.yaml", files["ipybox.yaml"].encode())
    assert trusted(f"--sandbox-config={tmp_path}/settings.json") == [hash_of("settings.json"), hash_of("ipybox.yaml")]
    assert trusted("--workspace-config") == [hash_of("ipybox.yaml")]
    assert trusted("--workspace-config", "--sandbox-profile=workspace") == [
        hash_of("sandbox-config.json"),
        hash_of("ipybox.yaml"),
    ]
    (tmp_path / "ipybox.yaml").write_text("default: ask")
    assert trusted() == []


def test_rules_that_the_container_does_not_see_are_refused(tmp_path: Path):
    given = ["--workspace", str(tmp_path), "--approve=/etc/ipybox.yaml"]
    with pytest.raises(DockerError, match=r"the container can't see /etc/ipybox\.yaml: move the approval rules"):
        container(given)


def test_options_may_come_before_the_command(tmp_path: Path):
    given = container_options(option_arguments(parsed(["--workspace", str(tmp_path), "--memory-limit", "0", "docker"])))
    assert (given.workspace, given.memory_limit) == (tmp_path, 0)


@pytest.mark.parametrize("given", ["TOKEN=s3cret", "", "A B", "-x"])
def test_a_value_is_never_on_a_command_line(given: str):
    with pytest.raises(DockerError, match="give only the variable's name") as refused:
        container([f"--env={given}"])
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("limit", "code", "container"),
    [
        pytest.param(None, 8 << 30, 9 << 30, id="half-of-the-machines"),
        pytest.param(2 << 30, 2 << 30, (2 << 30) + MEMORY_BESIDE_CODE, id="given"),
        pytest.param(64 << 30, 64 << 30, 16 << 30, id="more-than-there-is"),
    ],
)
def test_the_container_has_more_memory_than_its_code(limit: int | None, code: int, container: int, asked: Options):
    command = create_command(replace(asked, memory_limit=limit), ENGINE)
    assert f"--memory-limit={code}" in command[command.index("ipybox") :]
    assert values(command, "--memory") == values(command, "--memory-swap") == [str(container)]


def test_no_limit_is_none(asked: Options):
    assert not [argument for argument in create_command(replace(asked, memory_limit=0), ENGINE) if "memory" in argument]


def test_a_container_of_an_ordinary_users_daemon_runs_as_root_which_is_that_user(asked: Options):
    assert values(create_command(asked, replace(ENGINE, rootless=True)), "--user") == ["0:0"]


@pytest.mark.parametrize("root", [None, "/plugins/x"], ids=["command_line", "plugin"])
def test_messages_in_the_container_name_options_of_the_plugin(
    asked: Options, root: str | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("CLAUDE_PLUGIN_ROOT", raising=False)
    if root is not None:
        monkeypatch.setenv("CLAUDE_PLUGIN_ROOT", root)
    assert ("CLAUDE_PLUGIN_ROOT" in values(create_command(asked, ENGINE), "--env")) == (root is not None)


def test_a_container_of_an_ordinary_user_is_theirs(asked: Options, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 501)
    monkeypatch.setattr(os, "getegid", lambda: 20)
    assert values(create_command(asked, ENGINE), "--user") == ["501:20"]


def test_a_sandbox_is_permitted_what_apparmor_forbids_to_containers(asked: Options, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 501)
    asked = replace(asked, sandbox=True)

    assert "apparmor=unconfined" in values(create_command(asked, replace(ENGINE, apparmor=True)), "--security-opt")
    assert "apparmor=unconfined" not in create_command(asked, ENGINE)
    assert "apparmor=unconfined" not in create_command(replace(asked, sandbox=False), replace(ENGINE, apparmor=True))


def test_a_container_whose_state_can_not_be_kept_is_not_made(asked: Options, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/state")
    with pytest.raises(DockerError, match="can't create the directory for the container's state: "):
        create_command(asked, ENGINE)


def test_a_workspace_has_any_name(tmp_path: Path):
    workspace = tmp_path / 'a "b", c=d'
    workspace.mkdir()
    mount, state = values(create_command(Options(workspace=workspace, image="ipybox"), ENGINE), "--mount")
    quoted = str(workspace).replace('"', '""')
    assert mount == f'type=bind,"source={quoted}",target=/app/workspace'
    assert state == f"type=bind,source={workspace_state_dir(workspace)}/docker,target=/app/state"


def test_the_state_of_containers_is_not_in_the_workspace_and_not_that_of_others(tmp_path: Path):
    places: set[str] = set()
    for name in ("one", "two"):
        workspace = tmp_path / name
        workspace.mkdir(mode=0o755)
        os.chown(workspace, *((4321, 4322) if os.geteuid() == 0 else (-1, -1)))
        for sandbox in (True, False):
            options = Options(workspace=workspace, image="ipybox", sandbox=sandbox)
            source = values(create_command(options, ENGINE), "--mount")[1].split(",")[1].removeprefix("source=")
            state = Path(source).stat()
            assert not Path(source).is_relative_to(tmp_path)
            assert (state.st_uid, state.st_mode & 0o777) == (workspace.stat().st_uid, 0o700)
            places.add(source)
    assert len(places) == 4


@pytest.mark.parametrize(
    ("line", "number"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize"}', 1),
        (b'{"jsonrpc":"2.0","id":"a","method":"initialize"}', "a"),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', None),
        (b'{"jsonrpc":"2.0","method":"notifications/initialized"}', None),
        (b"[]", None),
        (b"\xff", None),
    ],
)
def test_requests_are_told_from_all_else(line: bytes, number: int | str | None):
    assert request_id(line) == number


#: What a client sends first.
REQUEST = b'{"jsonrpc":"2.0","id":1,"method":"initialize"}\n'


def refused(requests: bytes, place: Path) -> bytes:
    """Returns what a client reads that has sent this, and waits for no more than the answers."""
    (place / "requests").write_bytes(requests)
    with (place / "requests").open("rb") as stdin, (place / "answers").open("wb") as stdout:
        refuse("no Docker", stdin.fileno(), stdout.fileno())
    return (place / "answers").read_bytes()


def test_each_request_is_refused_with_the_reason(tmp_path: Path):
    answers = [json.loads(line) for line in refused(REQUEST * 2, tmp_path).splitlines()]

    assert answers == [{"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "no Docker"}}] * 2


def test_what_is_too_long_for_a_request_is_not_waited_for(tmp_path: Path):
    assert refused(b" " * (1 << 20) + REQUEST, tmp_path) == b""


def test_a_refusal_ends_when_nobody_listens(tmp_path: Path):
    (tmp_path / "requests").write_bytes(REQUEST)
    reader, writer = os.pipe()
    os.close(reader)
    with (tmp_path / "requests").open("rb") as stdin, os.fdopen(writer, "wb", buffering=0) as stdout:
        refuse("no Docker", stdin.fileno(), stdout.fileno())


def test_people_at_a_terminal_are_not_asked_for_requests(tmp_path: Path):
    ours, theirs = os.openpty()
    with os.fdopen(ours, "wb", buffering=0) as terminal, os.fdopen(theirs, "rb", buffering=0) as stdin:
        terminal.write(REQUEST)
        with (tmp_path / "answers").open("wb") as stdout:
            refuse("no Docker", stdin.fileno(), stdout.fileno())
    assert (tmp_path / "answers").read_bytes() == b""
