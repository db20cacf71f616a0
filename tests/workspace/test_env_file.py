"""The `.env` file of a workspace."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ipybox import CodeExecutionError, CodeExecutor, generate_mcp_sources
from ipybox.audit.audit import AuditLog
from ipybox.support.untrusted_paths import MAX_SETTINGS
from ipybox.workspace.env_file import FollowedFile, read_env_file
from tests import servers
from tests.conftest import Mode


def test_values_are_read_and_the_environment_is_left_alone(tmp_path: Path):
    before = dict(os.environ)
    (tmp_path / ".env").write_text("A=1\nexport B='b b' # said\nC\nXDG_STATE_HOME=./st\n")

    assert read_env_file(tmp_path) == {"A": "1", "B": "b b", "XDG_STATE_HOME": "./st"}
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=1", "1"),
        ("export A=1", "1"),
        ("  A = 1  ", "1"),
        ("'A'=1", "1"),
        ("A=1\r", "1"),
        ("A=", ""),
        ("A= # said", ""),
        ("A=#1", "#1"),
        ("A=x#y # said", "x#y"),
        ("A=x  y", "x  y"),
        ("A=x=y'z\"", "x=y'z\""),
        ("A='x # y'  # said", "x # y"),
        (r"A='it\'s \n'", r"it's \n"),
        (r'A="a\"b\n\t\\ \x"', 'a"b\n\t\\ \\x'),
        ('A="-----BEGIN KEY-----\nx\n-----END KEY-----"', "-----BEGIN KEY-----\nx\n-----END KEY-----"),
        ("A=$B ${B} ${B:-c} ${C:-d} ${C} ${B:c} ${", "$B b b d  ${B:c} ${"),
        ("A='x' y", None),
        ("A='x", None),
        ("A", None),
        ("# A=1", None),
        ("=1", None),
    ],
)
def test_the_syntax_is_that_of_python_dotenv(tmp_path: Path, line: str, value: str | None):
    (tmp_path / ".env").write_text(f"B=b\n{line}\nZ=last\n", newline="")

    read = read_env_file(tmp_path)

    assert read.get("A") == value
    assert read["Z"] == "last" or value is None


def hostile() -> list[str]:
    """Returns texts for which backtracking, or filling in, would take minutes, hours or gigabytes."""
    size = 60_000
    return [
        f"A=x{' ' * size}y",
        f"A='{'${' * (size // 2)}'",
        f"A='{'${:' * (size // 3)}x}}'",
        f"A='{'${' * (size // 2)}:x}}'",
        "\n" * size + "=",
        "export " * (size // 7),
        "A='" + "\\" * size,
        "A='\nB=\"\n" * (size // 8),
        "\n".join([f"A0={'x' * 100}", *(f"A{n}=" + f"${{A{n - 1}}}" * 10 for n in range(1, 9))]),
        "B=${A}\n" * 100 + f"A={'x' * size}\n" + "B=${A}\n" * 100,
    ]


def test_no_text_takes_long_or_much_memory(tmp_path: Path):
    texts = hostile()
    for number, text in enumerate(texts):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / ".env").write_text(text)
    code = (
        "import resource\nfrom pathlib import Path\nfrom ipybox.workspace.env_file import read_env_file\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        f"for number in range({len(texts)}):\n"
        "    print(sum(map(len, read_env_file(Path(str(number))).values())) <= 1 << 16)"
    )

    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=servers.WAIT
    )

    assert done.stdout.split() == ["True"] * len(texts), done.stderr
    assert done.stderr.count(" values are omitted because together they exceed 65536 bytes") == 2


def test_values_that_become_too_large_cost_no_others(tmp_path: Path):
    lines = [f"A0={'x' * 100}", *(f"A{n}=" + f"${{A{n - 1}}}" * 10 for n in range(1, 7)), "LAST=${A0}!"]
    (tmp_path / ".env").write_text("\n".join(lines))

    values = read_env_file(tmp_path)

    sizes = {name: len(value) for name, value in values.items()}
    assert sizes == {**{f"A{n}": 100 * 10**n for n in range(3)}, "A4": 0, "A5": 0, "A6": 0, "LAST": 101}


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path):
    path = tmp_path / ".env"
    env_file = FollowedFile(path, lambda: read_env_file(tmp_path))
    assert env_file.read() == {}

    path.write_text("A=1")
    first = env_file.read()
    assert first == {"A": "1"}
    assert env_file.read() is first

    (tmp_path / "new").write_text("A=2")  # as an editor replaces it
    (tmp_path / "new").replace(path)
    assert env_file.read() == {"A": "2"}
    path.unlink()
    assert env_file.read() == {}


def test_a_value_can_use_another_but_none_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOST_SECRET", "s3cret")
    (tmp_path / ".env").write_text("A=1\nB=${A}2\nC=<${HOST_SECRET}>\nD=${HOST_SECRET:-none}\n")

    assert read_env_file(tmp_path) == {"A": "1", "B": "12", "C": "<>", "D": "none"}


def test_a_workspace_needs_no_file(tmp_path: Path):
    assert read_env_file(tmp_path) == {}
    assert read_env_file(tmp_path / "missing") == {}
    assert list(tmp_path.iterdir()) == []


def test_a_value_that_no_variable_can_have_is_left_out(tmp_path: Path):
    (tmp_path / ".env").write_text("A=a\0b\nB=2\n")

    assert read_env_file(tmp_path) == {"B": "2"}


def _link(file: Path) -> None:
    file.symlink_to("other")


def _large(file: Path) -> None:
    file.write_bytes(b"A=1\n" + b"#" * MAX_SETTINGS)


def test_a_warning_gives_the_reason_of_the_system(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "file").touch()

    with caplog.at_level(logging.WARNING):
        assert read_env_file(tmp_path / "file") == {}

    assert caplog.messages == [f"ignoring {tmp_path / 'file' / '.env'}: Not a directory"]


@pytest.mark.parametrize("make", [_link, os.mkfifo, Path.mkdir, _large], ids=["link", "pipe", "directory", "large"])
def test_what_is_no_ordinary_file_is_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[Path], object]
):
    (tmp_path / "other").write_text("A=1\n")
    make(tmp_path / ".env")

    with caplog.at_level(logging.WARNING):
        assert read_env_file(tmp_path) == {}

    assert len(caplog.messages) == 1
    warning, _, reason = caplog.messages[0].partition(": ")
    assert warning == f"ignoring {tmp_path / '.env'}"
    assert reason not in ("", "None")


def test_bytes_that_are_no_text_harm_nobody(tmp_path: Path):
    (tmp_path / ".env").write_bytes(b"A=\xff\xfe\nB=2\n")

    assert read_env_file(tmp_path)["B"] == "2"


async def test_the_sdk_fills_placeholders_from_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OF_HOST", "host")
    for name in ("OF_FILE", "GIVEN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".env").write_text("OF_HOST=file\nOF_FILE=file\nGIVEN=file\n")
    names = ("OF_HOST", "OF_FILE", "GIVEN")
    params = {**servers.scripted(), "env": {name: f"${{{name}}}" for name in names}}

    await generate_mcp_sources("scripted", params, tmp_path / "mcptools")
    async with CodeExecutor(working_dir=tmp_path, variables={"GIVEN": "given"}) as executor:
        shown = await executor.execute("from mcptools.scripted import CLIENT\nprint(CLIENT.run_sync('env', {}))")

    env = json.loads(shown.text or "")
    assert [env[name] for name in names] == ["host", "file", "given"]


async def test_a_value_that_is_set_in_a_running_session_is_used_by_the_next_call(tmp_path: Path, mode: Mode):
    params = {**servers.scripted(), "env": {"MY_TOKEN": "${MY_TOKEN}"}}
    servers.register(tmp_path, scripted=params)
    call = "import json\nfrom registered import scripted\nprint(json.loads(scripted.run_sync('env', {}))['MY_TOKEN'])"
    audit = AuditLog(tmp_path)
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox, audit=audit) as executor:
        with pytest.raises(
            CodeExecutionError, match=r"no value for \$\{MY_TOKEN\}: set it .* in the workspace's \.env file"
        ):
            await executor.execute(call)
        (tmp_path / ".env").write_text("MY_TOKEN=s3cr3t-one-7f2a\n")
        assert (await executor.execute(call)).text == "s3cr3t-one-7f2a"
        (tmp_path / ".env").write_text("MY_TOKEN=s3cr3t-two-9b1c\n")
        await executor.reset()  # ends the server
        assert (await executor.execute(f"{call}\nassert 's3cr3t-one-7f2a'")).text == "s3cr3t-two-9b1c"

    assert audit.redactor.text("s3cr3t-one-7f2a, s3cr3t-two-9b1c") == "${MY_TOKEN}, ${MY_TOKEN}"
    log = (tmp_path / ".ipybox" / "audit.jsonl").read_text()
    assert "s3cr3t" not in log
    assert "assert '${MY_TOKEN}'" in log
