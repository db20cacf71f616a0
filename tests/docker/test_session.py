"""ipybox in a container as agents use it: through MCP, by the launcher that Claude Code starts."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from ipybox.support.state import workspace_state_dir
from tests.docker.conftest import NETWORK, cell, client_of, launched, readable_copy, until_removed
from tests.mcp_server.test_server import call, output, text_of
from tests.servers import ROOT, SCRIPTED_SERVER

TIME = {"command": "python", "args": ["-m", "mcp_server_time"]}
NOW = "from mcptools.clock import get_current_time as t; now = t.run(t.Params(timezone='UTC')); now.timezone"


#: A server of npm, in the version of the tests.
EVERYTHING = "@modelcontextprotocol/server-everything"


async def test_session_of_an_agent_and_what_the_next_container_has_of_it(tmp_path: Path, image: str):
    package = json.loads((ROOT / "tests" / "package.json").read_text())["dependencies"]
    everything = {"command": "npx", "args": ["-y", f"{EVERYTHING}@{package[EVERYTHING]}"]}
    async with client_of(tmp_path, image) as client:
        result = await call(client, "register_mcp_server", server_name="clock", server_params=TIME)
        assert text_of(result).splitlines() == ["get_current_time", "convert_time"]
        assert await output(client, NOW) == "'UTC'"
        assert await output(client, "import os; os.getcwd()") == "'/app/workspace'"

        plot = await output(client, "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()")
        inside = Path(plot.removeprefix("Images:\n- "))
        assert (tmp_path / inside.relative_to("/app/workspace")).read_bytes().startswith(b"\x89PNG")

        result = await call(client, "install_package", package_name="cowsay==6.1")
        assert text_of(result) == "Installed cowsay-6.1"
        assert "moo" in await output(client, "import cowsay; cowsay.cow('moo')")

        result = await call(client, "register_mcp_server", server_name="everything", server_params=everything)
        assert not result.is_error, text_of(result)
        assert "echo" in text_of(result).splitlines()
        said = await output(
            client, "from mcptools.everything import echo; print(echo.run(echo.Params(message='hello')))"
        )
        assert "Echo: hello" in said

        assert text_of(await call(client, "reset")) == "The kernel was reset."
        assert await output(client, "'now' in globals()") == "False"
        assert await output(client, NOW) == "'UTC'"
    async with client_of(tmp_path, image) as client:
        assert await output(client, NOW) == "'UTC'"
        assert "moo" in await output(client, "import cowsay; cowsay.cow('moo')")
    # The state is nothing to commit.
    assert (tmp_path / ".ipybox" / ".gitignore").read_text() == "*\n"


async def test_variables_come_from_the_workspace_or_by_name_and_files_from_the_workspace(tmp_path: Path, image: str):
    (tmp_path / ".env").write_text("FROM_FILE=1\nKERNEL_ENV_COLOUR=blue\n")
    (tmp_path / "server.py").write_bytes(Path(SCRIPTED_SERVER).read_bytes())
    params = {"command": "python", "args": ["server.py"], "env": {"A": "${FROM_FILE}", "B": "${BY_NAME}"}}
    options, variables = ("-e", "BY_NAME", "--allowed-dir", "."), {"BY_NAME": "s3cret", "OTHER": "x"}
    async with client_of(tmp_path, image, *options, **variables) as client:
        result = await call(client, "register_mcp_server", server_name="scripted", server_params=params)
        assert not result.is_error, text_of(result)
        seen = await output(client, "import os; [os.environ.get(n) for n in ('COLOUR', 'BY_NAME', 'OTHER')]")
        assert seen == "['blue', None, None]"
        # On no command line of this machine, nor in what was generated.
        for process in Path("/proc").glob("[0-9]*"):
            try:
                assert b"s3cret" not in (process / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue

        result = await call(client, "upload_file", path="data/in.txt", content="hello")
        assert not result.is_error, text_of(result)
        assert await output(client, "open('out.txt', 'w').write(open('data/in.txt').read().upper())") == "5"
        assert text_of(await call(client, "download_file", path="/app/workspace/out.txt")) == "HELLO"
        refused = await call(client, "download_file", path="/etc/passwd")
        assert refused.is_error
    assert "s3cret" not in (tmp_path / "mcptools/scripted/__init__.py").read_text()
    assert (tmp_path / "out.txt").read_text() == "HELLO"


async def test_files_belong_to_whom_the_workspace_belongs_to(tmp_path: Path, image: str):
    # An ordinary user's own are theirs; root's containers act for whom the workspace belongs to.
    if os.geteuid() == 0:
        os.chown(tmp_path, 4321, 4322)
    ids = tmp_path.stat().st_uid, tmp_path.stat().st_gid
    assert ids[0] != 0
    async with client_of(tmp_path, image) as client:
        assert await output(client, "import os; os.getuid(), os.getgid()") == str(ids)
        await call(client, "register_mcp_server", server_name="clock", server_params=TIME)
        await output(client, "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()")
        await call(client, "install_package", package_name="cowsay==6.1")
    state = workspace_state_dir(tmp_path) / "docker"
    (state / "ipybox-scratch").rmdir()  # Docker's mount point
    written = {path: path.lstat() for path in (*tmp_path.rglob("*"), *state.rglob("*"))}
    assert {path.name for path in written} >= {"clock", "images", "seal.key", "cowsay"}
    assert not [path for path in tmp_path.rglob("*") if path.name in ("seal.key", "cache", "state")]
    assert {(state.st_uid, state.st_gid) for state in written.values()} == {ids}


async def test_files_belong_to_the_ordinary_user_who_has_started_it(image: str):
    # Whoever may talk to Docker is in the group of its socket.
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    group = os.stat(host.removeprefix("unix://")).st_gid
    ids = (4321, 4322) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    how: dict[str, Any] = {"user": 4321, "group": 4322, "extra_groups": [group]} if os.geteuid() == 0 else {}
    with readable_copy() as (python, place):
        workspace = place / "workspace"
        workspace.mkdir()
        os.chown(workspace, *ids)
        given = [f"--workspace={workspace}", f"--image={image}", f"--network={NETWORK}"]
        home = place / "home"  # for the container's state
        home.mkdir()
        os.chown(home, *ids)
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "DOCKER_HOST": host}
        arguments = (python, "-S", "-m", "ipybox.docker", *given)
        async with launched(workspace, *arguments, cwd=place, env=environment, **how) as running:
            code = "open('new', 'w').close(); import os; print(os.getuid(), os.getgid(), os.getgroups())"
            answer = await running.ask(cell(code))
            assert answer["result"]["content"][0]["text"] == f"{ids[0]} {ids[1]} [{ids[1]}]"
        await until_removed(workspace)
        written = [path.lstat() for path in workspace.rglob("*")]
        assert {(state.st_uid, state.st_gid) for state in written} == {ids}


def test_a_container_without_the_launcher_serves_too(tmp_path: Path, image: str):
    request = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    request += b'"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}\n'
    done = subprocess.run(
        ["docker", "run", "--interactive", "--rm", image], input=request, capture_output=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "ipybox"
