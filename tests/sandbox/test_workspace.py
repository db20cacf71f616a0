"""What the sandbox of a kernel makes of the workspace that it finds, beyond the probes of `tests/security`."""

import os
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ipybox import CodeExecutor
from ipybox.kernel_mgr.client import KernelClient
from ipybox.kernel_mgr.server import KernelGateway
from ipybox.sandbox.launch import Sandbox
from ipybox.sandbox.settings import PROFILES
from tests.servers import WAIT

pytestmark = [pytest.mark.asyncio, pytest.mark.kernel, pytest.mark.sandbox]

ATTEMPT = """
import os
def attempt(path):
    outcomes = []
    for mode in ("r", "a"):
        try:
            if mode == "a":
                os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with open(path, mode) as file:
                outcomes.append(file.read() if mode == "r" else file.write("planted") and "written")
        except OSError as exc:
            outcomes.append(type(exc).__name__)
    return outcomes
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    directory = tmp_path / "workspace"
    directory.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=directory, check=True, timeout=WAIT)
    return directory


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("secret")


@asynccontextmanager
async def gateway_and_client(
    workspace: Path, config: Path | None = None
) -> AsyncGenerator[tuple[KernelGateway, KernelClient]]:
    async with (
        KernelGateway(port=None, sandbox=True, sandbox_config=config, working_dir=workspace) as gateway,
        KernelClient(endpoint=gateway.endpoint) as client,
    ):
        yield gateway, client


async def test_1001_secrets_do_not_keep_the_sandbox_from_starting(workspace: Path):
    make(workspace, *(f".env{number}" for number in range(1001)))

    async with CodeExecutor(working_dir=workspace, sandbox=True) as executor:
        result = await executor.execute(
            f"{ATTEMPT}\nimport glob\nattempts = [attempt(path) for path in glob.glob('.env*')]\n"
            "print(len(attempts), {outcome for outcomes in attempts for outcome in outcomes})"
        )

    assert result.text is not None
    assert result.text.startswith("1002 {'PermissionError'}")


async def test_git_works_in_a_repository_without_credentials(workspace: Path):
    (workspace / "file").touch()

    async with gateway_and_client(workspace) as (gateway, client):
        result = await client.execute("print(open('.git/config').read()[:6])\n!git status --short file")

    assert result.text == "[core]\n?? file"
    assert gateway.notices == []


async def test_credentials_of_a_repository_are_hidden_and_the_session_is_told(workspace: Path):
    with (workspace / ".git/config").open("a") as config:
        config.write('[remote "origin"]\n\turl = https://me:secret@example.org/x.git\n')

    async with gateway_and_client(workspace) as (gateway, client):
        result = await client.execute(f"{ATTEMPT}\nprint(attempt('.git/config'))")

    assert result.text is not None
    assert "secret" not in result.text
    assert result.text.startswith("['PermissionError', ")
    assert [notice.split(" because")[0] for notice in gateway.notices] == [f"The sandbox hides {workspace}/.git/config"]


async def test_the_policy_answers_as_srt_refuses(workspace: Path):
    hidden = [".ENV", ".npmrc", "sub/.mcp.json", "sub/.claude/settings.local.json", "node_modules/x/.env", "[id]/.env"]
    hidden += ["../.env.local", "../.claude/settings.local.json"]  # of the repository around that of the workspace
    make(workspace.parent, ".git/HEAD")
    read_only = ["CLAUDE.md", "sub/AGENTS.md", ".cursor/rules", ".github/copilot-instructions.md", ".git/config"]
    open_ = ["file", "sub/file", "node_modules/x/CLAUDE.md", "settings.local.json", "environment", "npmrc"]
    make(workspace, *hidden, *read_only, *open_)
    policy = Sandbox(PROFILES["default"], workspace).policy(workspace.parent / "guest")

    async with CodeExecutor(working_dir=workspace, sandbox=True) as executor:
        result = await executor.execute(f"{ATTEMPT}\nfor path in {[*hidden, *read_only, *open_]}: print(attempt(path))")

    lines = (result.text or "").splitlines()
    refused = [tuple("Error" in outcome for outcome in line.strip("[]").split(", ")) for line in lines[:19]]
    expected = [(True, True)] * len(hidden) + [(False, True)] * len(read_only) + [(False, False)] * len(open_)
    assert refused == expected
    for path, (unreadable, _) in zip([*hidden, *read_only, *open_], refused, strict=True):
        assert (policy.read_denial(path) is not None) == unreadable, path
    for path in read_only:
        assert policy.write_denial(path) is not None, path
    for path in set(open_) - {"node_modules/x/CLAUDE.md"}:  # by its name; the policy does not know packages
        assert policy.write_denial(path) is None, path


async def test_instructions_can_be_opened_by_their_path(workspace: Path):
    make(workspace, "CLAUDE.md", "sub/CLAUDE.md", "sub/AGENTS.md")
    config = workspace.parent / "settings.json"
    config.write_text('{"filesystem": {"allowWrite": [".", "CLAUDE.md", "sub/AGENTS.md"]}}')

    async with gateway_and_client(workspace, config) as (_, client):
        result = await client.execute(
            f"{ATTEMPT}\nfor path in ('CLAUDE.md', 'sub/AGENTS.md', 'sub/CLAUDE.md'): print(attempt(path)[1])"
        )

    assert result.text == "written\nwritten\nOSError"


async def test_what_the_documentation_says_can_be_made_can_be_made(workspace: Path):
    """Nothing can forbid these names; who promises that they can't be made has to change this test."""
    made = ["CLAUDE.md", "sub/.mcp.json", "sub/.claude/settings.json", "sub/.vscode/tasks.json", "sub/.git/config"]

    async with CodeExecutor(working_dir=workspace, sandbox=True) as executor:
        result = await executor.execute(f"{ATTEMPT}\nfor path in {made}: print(attempt(path)[1])")

    assert result.text == "\n".join(["written"] * len(made))
    assert all((workspace / name).read_text() == "planted" for name in made)


async def test_parents_of_what_the_host_runs_and_believes_can_not_be_renamed(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    make(workspace, "tools/bin/program", "module/.git/config", "conf/deep/settings.json", "sub/deep/.env")
    config = workspace / "conf/deep/settings.json"
    config.write_text("{}")
    monkeypatch.setenv("PATH", f"{workspace}/tools/bin{os.pathsep}{os.environ['PATH']}")
    parents = ["tools", "tools/bin", "module", "conf", "conf/deep", "sub", "sub/deep"]

    async with gateway_and_client(workspace, config) as (_, client):
        result = await client.execute(
            "import os\n"
            f"for path in {parents}:\n"
            "    try: os.rename(path, path + '-moved')\n"
            "    except OSError as exc: print(os.strerror(exc.errno))"
        )

    assert result.text == "\n".join(["Device or resource busy"] * len(parents))
    assert all((workspace / path).is_dir() for path in parents)
