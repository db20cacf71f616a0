"""Code in a sandbox in the container: it has neither what the MCP servers have nor what the container has."""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest

from ipybox.docker.container import Options, create_command
from ipybox.docker.engine import DockerError, Engine, find_engine
from ipybox.docker.seccomp import profile
from ipybox.support.state import workspace_state_dir
from tests import registry
from tests.docker.conftest import NETWORK, client_of
from tests.docker.test_options import container
from tests.docker.test_session import NOW, TIME
from tests.mcp_server.test_server import call, output, text_of
from tests.sandbox.test_git_exclude import git
from tests.servers import WAIT


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace that is not root's."""
    if os.geteuid() == 0:
        os.chown(tmp_path, 4321, 4322)
    return tmp_path


async def test_session_of_an_agent_whose_code_sees_neither_secrets_nor_servers_nor_the_network(
    workspace: Path, image: str
):
    (workspace / ".env").write_text("SECRET=s3cret\n")
    async with client_of(workspace, image, "--sandbox") as client:
        result = await call(client, "register_mcp_server", server_name="clock", server_params=TIME)
        assert not result.is_error, text_of(result)
        assert await output(client, NOW) == "'UTC'"
        assert text_of(await call(client, "install_package", package_name="cowsay==6.1")) == "Installed cowsay-6.1"
        assert "moo" in await output(client, "import cowsay; cowsay.cow('moo')")
        assert "cowsay 6.1 is already installed" in await output(client, "!pip install cowsay")
        plot = await output(client, "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()")
        assert plot.startswith("Images:\n- /app/workspace/images/")

        code = """
import os, pathlib, socket
for path in (".env", "/app/state/ipybox/seal.key", "/proc/1/environ"):
    try:
        print(bool(pathlib.Path(path).read_bytes()))
    except OSError as exc:
        print(type(exc).__name__)
try:
    pathlib.Path(".ipybox/new").touch()
except OSError as exc:
    print(exc.strerror)
print(socket.if_nameindex())
commands = [pathlib.Path("/proc", pid, "cmdline").read_bytes() for pid in os.listdir("/proc") if pid.isdigit()]
print(any(b"--workspace" in command or b"mcp_server_time" in command for command in commands))
"""
        assert (await output(client, code)).splitlines() == [
            *("PermissionError", "FileNotFoundError", "PermissionError"),
            *("Read-only file system", "[(1, 'lo')]", "False"),
        ]
    assert (workspace_state_dir(workspace) / "docker-sandbox/ipybox/seal.key").stat().st_size


async def test_git_sees_nothing_of_the_sandbox(workspace: Path, image: str):
    git(workspace, "init", "-q")
    owner = workspace.stat()
    for directory, directories, files in os.walk(workspace):
        for name in (*directories, *files):
            os.chown(os.path.join(directory, name), owner.st_uid, owner.st_gid)
    async with client_of(workspace, image, "--sandbox") as client:
        assert await output(client, "1 + 1") == "2"
        assert (workspace / ".mcp.json").is_file()
        assert git(workspace, "-c", "safe.directory=*", "status", "--porcelain") == ""
    assert git(workspace, "-c", "safe.directory=*", "status", "--porcelain") == ""


async def test_npx_obeys_the_global_npmrc_of_the_image(
    workspace: Path, image: str, tmp_path_factory: pytest.TempPathFactory
):
    with registry.serving(tmp_path_factory.mktemp("registry") / "made") as running:
        running.released.set()
        (workspace / "ca.pem").write_bytes(running.certificate.read_bytes())
        npmrc = f"registry={running.url}\\ncafile=/app/workspace/ca.pem\\n"
        dockerfile = (
            f'FROM {image}\nUSER root\nRUN f="$(npm config get globalconfig)" && mkdir -p "$(dirname "$f")" '
            f"&& printf '{npmrc}' > \"$f\"\n"
        )
        derived = f"{image}-npmrc"
        build = ["docker", "build", "--network", NETWORK, "--tag", derived, "-"]
        await asyncio.to_thread(subprocess.run, build, input=dockerfile.encode(), check=True, timeout=10 * WAIT)
        params = {"command": "npx", "args": ["-y", registry.PACKAGE]}
        async with client_of(workspace, derived, "--sandbox") as client:
            result = await call(client, "register_mcp_server", server_name=registry.PACKAGE, server_params=params)
            assert not result.is_error, text_of(result)
            code = "from mcptools.ipybox_hello import hello; hello.run(hello.Params())"
            assert await output(client, code) == "'hello from npx'"


async def test_a_repository_does_not_bring_keys(workspace: Path, image: str):
    brought = workspace / ".ipybox" / "state" / "ipybox" / "seal.key"
    brought.parent.mkdir(parents=True)
    brought.write_bytes(b"k" * 32)
    for path in (workspace, *workspace.rglob("*")):
        os.chown(path, workspace.stat().st_uid, workspace.stat().st_gid)
    async with client_of(workspace, image, "--sandbox") as client:
        result = await call(client, "register_mcp_server", server_name="clock", server_params=TIME)
        assert not result.is_error, text_of(result)
    assert (workspace_state_dir(workspace) / "docker-sandbox/ipybox/seal.key").read_bytes() != b"k" * 32


#: Numbers of system calls that no ordinary program needs, by machine.
FORBIDDEN = {
    "x86_64": {"bpf": 321, "keyctl": 250, "perf_event_open": 298, "ptrace": 101, "setns": 308, "userfaultfd": 323},
    "aarch64": {"bpf": 280, "keyctl": 219, "perf_event_open": 241, "ptrace": 117, "setns": 268, "userfaultfd": 282},
}
FORBIDDEN_EVERYWHERE = {"fsopen": 430, "io_uring_setup": 425, "mount_setattr": 442, "move_mount": 429, "open_tree": 428}


def test_the_container_gets_no_more_than_the_sandbox_needs(workspace: Path, image: str):
    calls = FORBIDDEN[os.uname().machine] | FORBIDDEN_EVERYWHERE
    code = f"""
import ctypes, errno, json, socket
libc = ctypes.CDLL(None, use_errno=True)
result = {{}}
for name, number in {calls}.items():
    ctypes.set_errno(0)
    libc.syscall(number, 0, 0, 0, 0, 0)
    result[name] = errno.errorcode.get(ctypes.get_errno())
for family in ("AF_ALG", "AF_VSOCK", "AF_PACKET"):
    try:
        socket.socket(getattr(socket, family), socket.SOCK_RAW)
    except OSError as exc:
        result[family] = errno.errorcode[exc.errno]
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
result["status"] = [status[name].strip() for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")]
print(json.dumps(result))
"""
    options = Options(workspace=workspace, image=image, network=NETWORK, sandbox=True)
    program, _, *arguments = create_command(options, find_engine(image))
    arguments = [*arguments[: arguments.index(image)], "--entrypoint", "python", image, "-c", code]
    done = subprocess.run(
        [program, "run", *arguments], input=profile(), capture_output=True, text=True, timeout=WAIT, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result.pop("status") == ["0000000000000000", "0000000000000000", "1", "2"]
    assert result == dict.fromkeys([*calls, "AF_ALG", "AF_VSOCK", "AF_PACKET"], "EPERM")


def test_settings_of_the_sandbox_are_passed_on(tmp_path: Path):
    given = ["--workspace", str(tmp_path), "--sandbox", "--allow-domain=a.org,b.org", "--allow-domain", "c.org"]
    config = ["--sandbox-config", str(tmp_path / "settings" / "sandbox.json")]
    assert container([*given, *config]).passed_on == [
        "--allowed-dir=.",
        "--sandbox-config=/app/workspace/settings/sandbox.json",
        *("--allow-domain=a.org", "--allow-domain=b.org", "--allow-domain=c.org"),
    ]
    with pytest.raises(DockerError, match=r"the container can't see .*: move the sandbox settings into "):
        container([*given, "--sandbox-config", str(tmp_path.parent / "sandbox.json")])


def test_a_container_that_runs_as_root_can_not_have_one(tmp_path: Path):
    engine = Engine("docker", 1 << 30, rootless=True)
    with pytest.raises(DockerError) as raised:
        create_command(Options(workspace=tmp_path, image="ipybox", sandbox=True), engine)
    assert str(raised.value) == (
        "--sandbox needs a container that does not run as root, but Docker is rootless: remove --sandbox"
    )
