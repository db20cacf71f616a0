"""Hostile files and their trust, with real kernels and the command line."""

import json
from pathlib import Path

import pytest

from ipybox import CodeExecutor
from tests.mcp_server.test_server import client_of, output
from tests.workspace.trust.files import HOSTILE, command

SSH = "import os; print(os.listdir(os.path.expanduser('~/.ssh')), open(os.path.expanduser('~/.ssh/id_rsa')).read())"
PROBE = f"""
try:
    {SSH}
except OSError as exc:
    print(type(exc).__name__, exc)
try:
    open(os.path.expanduser('~/.bashrc'), 'a').write('evil')
except OSError as exc:
    print(type(exc).__name__, exc)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    directory = tmp_path / "home"
    (directory / ".ssh").mkdir(parents=True)
    (directory / ".ssh" / "id_rsa").write_text("PRIVATE")
    (directory / ".bashrc").write_text("")
    return directory


@pytest.mark.kernel
@pytest.mark.sandbox
@pytest.mark.slow
async def test_a_hostile_file_opens_nothing_until_a_person_trusts_it_and_again_when_it_changes(
    workspace: Path, file: Path, home: Path
):
    run = ("--sandbox", "--workspace-config")
    apply = f"{file}, and run `"
    ignored = "The workspace's sandbox-config.json is not trusted: ipybox ignores it."

    async with client_of(workspace, *run, HOME=str(home)) as client:
        told = await output(client, PROBE)
        assert "PRIVATE" not in told
        assert told.count(apply) == told.count("Tell the user: To allow it, ") == 2
        assert told.count(ignored) == 1  # the session's notice
        assert ignored not in await output(client, "1")
        assert f"trust --workspace={workspace}` in a terminal" in told
    assert (home / ".bashrc").read_text() == ""

    done = command(workspace, "trust", "--workspace", str(workspace), "--yes", HOME=str(home))
    assert done.returncode == 0, done.stderr
    assert "code may also read: ~/.ssh" in done.stdout
    assert "code may also write: ~/.bashrc" in done.stdout
    assert "evil.test" in done.stdout
    async with client_of(workspace, *run, HOME=str(home)) as client:
        assert "PRIVATE" in await output(client, PROBE)
    assert (home / ".bashrc").read_text() == "evil"

    file.write_text(json.dumps(HOSTILE, indent=2))
    async with client_of(workspace, *run, HOME=str(home)) as client:
        assert ignored in await output(client, PROBE)
    async with client_of(workspace, "--sandbox", "--sandbox-config", str(file), HOME=str(home)) as client:
        assert ignored in await output(client, PROBE)


def test_what_is_trusted_is_listed_and_revoked(workspace: Path, file: Path):
    assert "nothing is trusted in" in command(workspace, "trust", "--list").stdout
    assert command(workspace, "trust", "--yes", file.name).returncode == 0
    assert command(workspace, "trust", "--list").stdout.startswith("sandbox-config.json with the profile 'default': ")
    assert "the file has changed since" not in command(workspace, "trust", "--list").stdout
    file.write_text(f"{file.read_text()} ")
    assert "the file has changed since" in command(workspace, "trust", "--list").stdout
    assert "is no longer trusted" in command(workspace, "trust", "--revoke", file.name).stdout
    assert "nothing is trusted in" in command(workspace, "trust", "--list").stdout


@pytest.mark.kernel
@pytest.mark.sandbox
async def test_an_application_vouches_for_its_file_which_is_read_once(workspace: Path, file: Path):
    executor = CodeExecutor(working_dir=workspace, sandbox=True, sandbox_config=file)
    file.write_text('{"filesystem": {"allowWrite": []}}')

    async with executor:
        assert (await executor.execute("open('written', 'w').close()")).text is None
        await executor.reset()
    assert (workspace / "written").exists()
