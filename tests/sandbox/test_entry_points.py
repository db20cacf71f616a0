"""Without what the sandbox needs, every way in refuses, says what to do, and has run nothing."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import which

import pytest

from ipybox import CodeExecutor
from ipybox.errors import SandboxError
from ipybox.kernel_mgr.server import KernelGateway
from ipybox.sandbox import preflight
from tests import servers
from tests.mcp_server.test_server import call, client_of, output, text_of
from tests.sandbox.transient_failures import (
    LATE_ALWAYS,
    LATE_ONCE,
    put_in_front,
    remove_before_mounting,
    use_late_socat,
)
from tests.servers import NODE_MODULES, WAIT

pytestmark = pytest.mark.sandbox

INSTRUCTION = "srt is not on PATH: install it with `npm install -g @anthropic-ai/sandbox-runtime`"


@pytest.fixture
def path_without_srt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH with all that the sandbox needs, apart from srt."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "bwrap", "node", "rg", "socat", "which"):
        (programs / name).symlink_to(str(which(name)))
    monkeypatch.setenv("PATH", str(programs))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    directory = tmp_path / "workspace"
    directory.mkdir()
    return directory


def executor(workspace: Path) -> CodeExecutor:
    return CodeExecutor(working_dir=workspace, sandbox=True)


def gateway(workspace: Path) -> KernelGateway:
    return KernelGateway(port=None, working_dir=workspace, sandbox=True)


@pytest.mark.usefixtures("path_without_srt")
@pytest.mark.parametrize("component", [executor, gateway], ids=["CodeExecutor", "KernelGateway"])
async def test_components_refuse_without_srt(
    workspace: Path, component: Callable[[Path], CodeExecutor | KernelGateway]
):
    before = servers.descendants()

    with pytest.raises(SandboxError) as refused:
        await component(workspace).start()

    assert str(refused.value) == f"the sandbox can't start, so no code ran:\n  {INSTRUCTION}"
    assert servers.descendants() == before


@pytest.mark.usefixtures("path_without_srt")
@pytest.mark.parametrize(
    "command",
    [
        ("-m", "ipybox", "--sandbox"),
        ("-m", "ipybox.mcp_server", "--sandbox", "--sandbox-profile", "workspace"),
        ("-m", "ipybox", "doctor", "--sandbox"),
    ],
    ids=["ipybox", "mcp_server", "doctor"],
)
async def test_commands_refuse_without_srt(workspace: Path, command: tuple[str, ...]):
    status, output = await run(workspace, *command)

    assert status == 1
    assert INSTRUCTION in output
    assert list(workspace.iterdir()) == []


async def test_with_late_checks_calls_refuse_until_the_sandbox_can_start(
    workspace: Path, tmp_path: Path, path_without_srt: None
):
    programs, srt = tmp_path / "bin", NODE_MODULES / ".bin" / "srt"
    settings = tmp_path / "settings.json"
    settings.write_text('{"filesytem": {}}')
    options = ("--sandbox", "--late-checks", "--sandbox-config", str(settings))

    async with client_of(workspace, *options, PATH=str(programs)) as client:
        code = "open('ran', 'w').close(); print('in the sandbox')"
        refused = await call(client, "execute_ipython_cell", code=code)
        assert refused.is_error
        assert "contain an unknown key 'filesytem'" in text_of(refused)
        refused = await call(client, "install_package", package_name="six")
        assert refused.is_error
        assert "contain an unknown key 'filesytem'" in text_of(refused)

        settings.write_text("{}")
        refused = await call(client, "execute_ipython_cell", code=code)
        assert refused.is_error
        assert text_of(refused) == f"the sandbox can't start, so no code ran:\n  {INSTRUCTION}"
        assert not (workspace / "ran").exists()

        (programs / "srt").symlink_to(srt)
        assert await output(client, code) == "in the sandbox"
        assert (workspace / "ran").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sandbox", "--sandbox-config", "none.json"], "don't exist: pass a file, or one of the profiles"),
        (["--sandbox", "--sandbox-config", "../typo.json"], "contain an unknown key 'filesytem'"),
        (["--sandbox-config", "typo.json"], "has no effect without the sandbox: add --sandbox"),
        (["--sandbox-profile", "workspace"], "has no effect without the sandbox: add --sandbox"),
        (["--allow-domain", "example.org"], "has no effect without the sandbox: add --sandbox"),
        (["--sandbox", "--allow-domain", "a.org,https://b.org"], "the allowed domains (--allow-domain) must be a list"),
        (
            ["--sandbox", "--sandbox-profile", "strict"],
            "--sandbox-profile: 'strict' is not one of 'default', 'workspace'",
        ),
        (["--sandbox", "--workspace-config", "--sandbox-config", "typo.json"], "can't be combined"),
        (["--workspace-config"], "has no effect without the sandbox: add --sandbox"),
    ],
)
async def test_wrong_settings_are_refused_on_the_command_line(workspace: Path, options: list[str], message: str):
    (workspace.parent / "typo.json").write_text('{"filesytem": {}}')  # that of the user

    status, output = await run(workspace, "-m", "ipybox", *options)

    assert status != 0
    assert message in output


async def test_a_sandbox_that_does_not_start_says_why(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    put_in_front("bwrap", "echo 'bwrap: no permission' >&2; exit 1", tmp_path, monkeypatch)

    with pytest.raises(SandboxError) as failed:
        await CodeExecutor(working_dir=workspace, sandbox=True).start()

    assert str(failed.value).startswith("the sandbox did not start, so no code ran\nbwrap is broken")
    assert "bwrap: no permission" in str(failed.value)


async def test_a_sandbox_that_a_busy_machine_starts_too_late_is_started_again(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    use_late_socat(LATE_ONCE, tmp_path, monkeypatch)

    async with executor(workspace) as started:
        assert (await started.execute("print(6 * 7)")).text == "42"

    assert caplog.messages.count("the sandbox did not start (the machine may be busy): retrying") == 1


@pytest.mark.parametrize("hidden", [True, False], ids=["hidden", "protected"])
async def test_a_sandbox_is_started_again_if_a_file_is_removed_before_it_is_mounted(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, hidden: bool
):
    file = (tmp_path if hidden else workspace) / "file"
    file.touch()
    remove_before_mounting(file, tmp_path, monkeypatch)
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"filesystem": {"denyRead" if hidden else "denyWrite": [str(file)]}}))

    async with CodeExecutor(working_dir=workspace, sandbox=True, sandbox_config=settings) as started:
        assert (await started.execute("print(6 * 7)")).text == "42"

    cause = "a file that the sandbox hides or protects may have just been removed"
    assert caplog.messages.count(f"the sandbox did not start ({cause}): retrying") == 1


async def test_a_sandbox_that_always_starts_too_late_is_given_up(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    use_late_socat(LATE_ALWAYS, tmp_path, monkeypatch)
    monkeypatch.setattr(preflight, "SANDBOX_STARTS", 2)

    with pytest.raises(SandboxError, match=r"so no code ran\n(.*\n)*.*Failed to create bridge sockets"):
        await executor(workspace).start()

    assert len([message for message in caplog.messages if "may be busy" in message]) == 1


async def run(workspace: Path, *arguments: str) -> tuple[int | None, str]:
    """Runs a command of ipybox in the workspace, with no input."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=workspace,
        env={**os.environ, "PYTHONPATH": str(servers.ROOT)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(WAIT):
        output, _ = await process.communicate()
    return process.returncode, output.decode()
