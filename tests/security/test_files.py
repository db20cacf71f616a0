"""Files: what is hidden can't be read, and what is not the workspace's can't be written, however it is tried."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from jupyter_core.paths import jupyter_runtime_dir

import ipybox
from ipybox import CodeExecutionError
from ipybox.tool_exec import seal
from ipybox.workspace.names import CREDENTIALS
from tests import servers
from tests.security import file_attacks, kernels
from tests.security.conftest import Row
from tests.security.kernels import Kernel, Place, Probe, held, make_place, named, running, state

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.kernel]


@dataclass(frozen=True)
class Kernels:
    """The kernels of this module; `configured` and `bare` are in the sandbox, with a home in common."""

    plain: Kernel
    configured: Kernel
    configured_place: Place
    bare: Kernel
    bare_place: Place


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The place of the sandboxes of this module, whose home is that of this process meanwhile."""
    place = make_place(tmp_path_factory.mktemp("sandboxed"))
    for name in ("cat", "sh"):
        shutil.copy(shutil.which(name) or f"/bin/{name}", place.home / ".ssh" / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(place.home))
        for variable, name in kernels.VARIABLES.items():
            directory = variable.endswith(("HOME", "DIR")) or variable == "DOCKER_CONFIG"
            patch.setenv(variable, str(place.root / "elsewhere" / (name.split("/")[0] if directory else name)))
        # A directory of the PATH in the workspace, which is read-only.
        patch.setenv("PATH", f"{place.workspace}/tools/bin{os.pathsep}{os.environ['PATH']}")
        yield place


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def all_kernels(
    home: Place, tmp_path_factory: pytest.TempPathFactory, shared: None, secret_files: None
) -> AsyncIterator[Kernels]:
    bare_place = make_place(home.root, bare=True, secret=home.secret)
    async with AsyncExitStack() as stack:
        plain_place = make_place(tmp_path_factory.mktemp("plain"), bare=True)
        plain = await stack.enter_async_context(running(plain_place, sandbox=False))
        configured = await stack.enter_async_context(running(home))
        bare = await stack.enter_async_context(running(bare_place))
        yield Kernels(plain, configured, home, bare, bare_place)


@pytest.fixture(scope="module")
def secret_files(home: Place) -> Iterator[None]:
    """Makes the key, and a token as a gateway with a port has one."""
    seal.seal("any", {}, home.workspace)
    directory = Path(jupyter_runtime_dir())
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "ipybox-probe.json").write_text(f'{{"token": "{home.secret}"}}')
    if not kernels.ROOT:
        yield
        return
    HOST_KEY.parent.mkdir(exist_ok=True)
    HOST_KEY.write_text((directory / "ipybox-probe.json").read_text())
    HOST_KEY.chmod(0o600)
    yield
    HOST_KEY.unlink()


@pytest.fixture
def plain_place(tmp_path: Path) -> Place:
    """A place for one control, which may break it."""
    place = make_place(tmp_path)
    shutil.copy(shutil.which("cat") or "/bin/cat", place.home / ".ssh" / "cat")
    return place


# --- reading

TRICKS = (
    ("with another spelling", file_attacks.read_by_another_spelling, ()),
    ("through a link", file_attacks.read_through_a_link, ("{scratch}",)),
    ("through a link to its directory", file_attacks.read_through_a_link_to_the_directory, ("{scratch}",)),
    ("through a hard link", file_attacks.read_through_a_hard_link, ("{scratch}",)),
    ("through a hard link to a descriptor", file_attacks.read_through_a_hard_link_to_a_descriptor, ("{scratch}",)),
    ("by opening a descriptor again", file_attacks.read_by_reopening_a_descriptor, ()),
    ("relative to its directory", file_attacks.read_relative_to_a_directory, ()),
    ("through /proc/*/root", file_attacks.read_through_the_roots_of_processes, ()),
    ("through /proc/*/cwd", file_attacks.read_through_the_directories_of_processes, ()),
    ("through /proc/*/fd", file_attacks.read_through_the_descriptors_of_processes, ()),
    ("with a program that ld-linux runs", file_attacks.read_with_a_program_run_by_the_loader, ()),
    ("after moving it away", file_attacks.read_after_moving_it, ()),
    ("after taking its mask off", file_attacks.read_after_unmounting, ()),
    ("through a bind mount of its directory", file_attacks.read_through_a_bind_mount, ("{scratch}",)),
    ("in the namespaces of other processes", file_attacks.read_in_the_namespaces_of_processes, ()),
)

READING = [
    *(Probe(f"reading {name}", file_attacks.read, (f"{{workspace}}/{name}",)) for name in kernels.ENV_FILES),
    *(Probe(f"reading ~/{name}", file_attacks.read, (f"{{home}}/{name}",)) for name in kernels.CREDENTIALS),
    *(
        Probe(f"reading what ${variable} names", file_attacks.read, (f"{{root}}/elsewhere/{name}",))
        for variable, name in kernels.VARIABLES.items()
    ),
    Probe("reading a token of Jupyter", file_attacks.read, ("{tokens}/ipybox-probe.json",)),
    *(
        Probe(f"reading {name} {how}", attack, (path, *more))
        for how, attack, more in TRICKS
        for name, path in ((".env", "{workspace}/.env"), ("~/.ssh", "{home}/.ssh/id_ed25519"))
    ),
    Probe(
        "reading a nested .env after moving its directory",
        file_attacks.read_after_moving_what_holds_it,
        ("{workspace}/service/.env", "{workspace}/service"),
    ),
    Probe(
        "reading ~/.ssh after moving it",
        file_attacks.read_after_moving_what_holds_it,
        ("{home}/.ssh/id_ed25519", "{home}/.ssh"),
    ),
    Probe("running a program of ~/.ssh", file_attacks.run, ("{home}/.ssh/program", "")),
    Probe(
        "running a program of ~/.ssh with ld-linux",
        file_attacks.run_by_the_loader,
        ("{home}/.ssh/cat", "{home}/.ssh/id_ed25519"),
    ),
    Probe("archiving the home", file_attacks.archive, ("{home}",)),
    Probe("searching the home", file_attacks.search, ("{home}",)),
    Probe("archiving the workspace", file_attacks.archive, ("{workspace}",)),
]

#: Like that of this machine's SSH server.
HOST_KEY = Path("/etc/ssh/ssh_host_ipybox-probe_key")

READING_AS_ROOT = [
    Probe("reading a host key of SSH", file_attacks.read, (str(HOST_KEY),)),
    Probe(
        "reading ~/.ssh through an overlay",
        file_attacks.read_through_an_overlay,
        ("{home}/.ssh/id_ed25519", "{scratch}"),
    ),
    Probe("reading ~/.ssh after chroot", file_attacks.read_in_another_root, ("{home}/.ssh/id_ed25519",)),
    Probe("reading .env by a file handle", file_attacks.read_by_handle, ("{workspace}/.env",)),
]


@named(READING + (READING_AS_ROOT if kernels.ROOT else []))
async def test_secrets_stay_hidden(probe: Probe, all_kernels: Kernels, plain_place: Place, table: list[Row]):
    token = Path(jupyter_runtime_dir()) / "ipybox-probe.json"
    outside = await probe.run(all_kernels.plain, plain_place)
    secrets = (plain_place.secret, token.read_text())
    assert outside.got is not None, f"the attack does not work where nothing stops it: {outside}"
    assert any(secret in outside.got for secret in secrets), f"the attack did not get the secret: {outside}"

    within = await probe.run(all_kernels.configured, all_kernels.configured_place)

    assert all_kernels.configured_place.secret not in (within.got or ""), f"the secret was read: {within}"
    held(table, "Reading", probe, "read", "an empty file" if within.got == "" else within)


async def test_the_key_of_seals_stays_hidden(all_kernels: Kernels, plain_place: Place, table: list[Row]):
    probe = Probe("reading the key of seals", file_attacks.read_bytes_in_hexadecimal, ("{key}",))
    outside = await probe.run(all_kernels.plain, plain_place)
    assert outside.got == seal.key_path().read_bytes().hex()

    within = await probe.run(all_kernels.configured, all_kernels.configured_place)

    assert within.got is None
    held(table, "Reading", probe, "read", within)


async def test_there_is_a_credential_for_each_entry_of_the_settings():
    for entry in CREDENTIALS:
        if entry.startswith("~/") and not entry.startswith("~/Library"):
            pattern = entry.removeprefix("~/")
            parents = {str(parent) for name in kernels.CREDENTIALS for parent in (Path(name), *Path(name).parents)}
            assert any(fnmatch(name, pattern) for name in parents), f"nothing stands for {entry}"


# --- writing

#: Where something is, how it is changed, and what of the place shows it.
WRITING: list[tuple[Probe, str]] = [
    *(
        (Probe(f"overwriting ~/{name}", file_attacks.append, (f"{{home}}/{name}",)), f"home/{name}")
        for name in kernels.HOME_FILES
    ),
    *(
        (Probe(f"making ~/{name}", file_attacks.write, (f"{{home}}/{name}",)), f"home/{name}")
        for name in (
            *("new", ".zshenv", ".ssh/authorized_keys", ".ssh/rc", ".local/bin/git", ".config/systemd/user/x.service"),
            *(".config/git/config", ".ipython/profile_default/startup/x.py", ".jupyter/jupyter_config.py"),
            *(".local/lib/python3.11/site-packages/x.pth", ".claude/settings.json", ".local/state/ipybox/seal.key"),
        )
    ),
    *(
        (Probe(f"{how} a file outside", attack, ("{outside}/file", *more)), "outside")
        for how, attack, more in (
            ("overwriting", file_attacks.write, ()),
            ("appending to", file_attacks.append, ()),
            ("truncating", file_attacks.truncate, ()),
            ("removing", file_attacks.remove, ()),
            ("changing the mode of", file_attacks.change_mode, ()),
            ("mapping", file_attacks.map_and_write, ()),
            ("replacing", file_attacks.replace_by_a_link, ("{scratch}",)),
            ("exchanging", file_attacks.exchange, ("{scratch}",)),
            ("writing through a link to", file_attacks.write_through_a_link, ("{scratch}",)),
            (
                "writing through a link to the directory of",
                file_attacks.write_through_a_link_to_the_directory,
                ("{scratch}",),
            ),
            ("writing through a hard link to", file_attacks.write_through_a_hard_link, ("{scratch}",)),
            ("opening a descriptor again of", file_attacks.write_by_reopening_a_descriptor, ()),
            ("opening a path descriptor again of", file_attacks.write_by_reopening_a_path_descriptor, ()),
            ("going through /proc/*/root to", file_attacks.write_through_the_roots_of_processes, ()),
            ("letting ld-linux run cp on", file_attacks.write_with_a_program_run_by_the_loader, ()),
            ("mounting anew what holds", file_attacks.write_after_remounting, ()),
            ("joining other namespaces to write", file_attacks.write_in_the_namespaces_of_processes, ()),
            ("racing a link against writes to", file_attacks.race_a_link_against_writes, ("{scratch}",)),
        )
    ),
    (Probe("making a file outside", file_attacks.write, ("{outside}/new",)), "outside"),
    (Probe("making a directory beside the workspace", file_attacks.write, ("{root}/new/file",)), "new"),
    (Probe("making a file in the workspace's parent", file_attacks.write, ("{root}/file",)), "file"),
    (Probe("removing a directory outside", file_attacks.remove, ("{outside}/directory",)), "outside"),
]

PROTECTED = [
    *(
        (Probe(f"overwriting {name}", file_attacks.append, (f"{{workspace}}/{name}",)), name)
        for name in kernels.CONFIGURATION
    ),
    *(
        (Probe(f"making {name}", file_attacks.write, (f"{{workspace}}/{name}",)), name)
        for name in (
            *("[id]/.git/config",),
            *(".git/hooks/post-merge", "module/.git/hooks/post-merge", "hookless/.git/hooks/post-merge"),
            *(".claude/settings.local.json", ".claude/agents/x.md", ".vscode/settings.json", ".ipybox/new"),
        )
    ),
    *(
        (Probe(f"{how} {name}", attack, (f"{{workspace}}/{name}", *more)), name)
        for how, attack, more in (
            ("removing", file_attacks.remove, ()),
            ("replacing", file_attacks.replace_by_a_link, ("{scratch}",)),
            ("exchanging", file_attacks.exchange, ("{scratch}",)),
        )
        for name in (
            *(".env", ".git/config", ".mcp.json", ".bashrc", ".gitmodules", "module/.git/config"),
            *("sandbox-config.json", "ipybox.yaml"),
        )
    ),
    *(
        (Probe(f"exchanging {name}", file_attacks.exchange, (f"{{workspace}}/{name}", "{scratch}")), name)
        for name in (".git", ".git/hooks", ".claude", ".vscode", ".ipybox", "module", "module/.git", "service")
    ),
    *(
        (Probe(f"removing {name}", file_attacks.remove, (f"{{workspace}}/{name}",)), name)
        for name in (".git/hooks", ".claude", ".vscode")
    ),
    *(
        (
            Probe(
                f"moving {moved} and making {made} again",
                file_attacks.move_and_make_again,
                (f"{{workspace}}/{moved}", f"{{workspace}}/{made}"),
            ),
            moved,
        )
        for moved, made in (
            (".git", ".git/hooks/pre-commit"),
            (".git/hooks", ".git/hooks/pre-commit"),
            (".claude", ".claude/settings.json"),
            (".vscode", ".vscode/tasks.json"),
            (".env", ".env"),
            (".mcp.json", ".mcp.json"),
            (".ipybox", ".ipybox/new"),
            ("module", "module/.git/hooks/pre-commit"),
            ("module/.git", "module/.git/hooks/pre-commit"),
            ("services", "services/web/.env"),
            ("tools", "tools/bin/git"),
            (".venv", ".venv/lib/python3.11/site-packages/x/.env"),
            ("app", "app/[slug]/a*b?/.env"),
            ("CLAUDE.md", "CLAUDE.md"),
        )
    ),
    *(
        (Probe(f"{how} .mcp.json", attack, ("{workspace}/.mcp.json", *more)), ".mcp.json")
        for how, attack, more in (
            ("truncating", file_attacks.truncate, ()),
            ("changing the mode of", file_attacks.change_mode, ()),
            ("mapping", file_attacks.map_and_write, ()),
            ("writing through a link to", file_attacks.write_through_a_link, ("{scratch}",)),
            ("writing through a hard link to", file_attacks.write_through_a_hard_link, ("{scratch}",)),
            ("opening a descriptor again of", file_attacks.write_by_reopening_a_descriptor, ()),
            ("opening a path descriptor again of", file_attacks.write_by_reopening_a_path_descriptor, ()),
            ("going through /proc/*/root to", file_attacks.write_through_the_roots_of_processes, ()),
            ("mounting anew what holds", file_attacks.write_after_remounting, ()),
            ("joining other namespaces to write", file_attacks.write_in_the_namespaces_of_processes, ()),
        )
    ),
]

#: Names that mean something to programs of the host, where they are not there yet.
ABSENT = (
    *(
        ".git/config",
        ".git/hooks/pre-commit",
        ".git/HEAD",
        ".mcp.json",
        ".claude/settings.json",
        ".claude/commands/x.md",
    ),
    *(".vscode/tasks.json", ".idea/workspace.xml", ".env", ".gitmodules", ".gitconfig", ".ripgreprc"),
    *(
        ".bashrc",
        ".bash_profile",
        ".profile",
        ".zshrc",
        ".zprofile",
        ".ipybox/new",
        "sandbox-config.json",
        "ipybox.yaml",
        ".devcontainer.json",
    ),
    *(".devcontainer/devcontainer.json", ".cursor/rules/x.mdc", ".gemini/settings.json", ".codex/config.toml"),
    ".husky/pre-commit",
)

MAKING = [
    *((Probe(f"making {name}", file_attacks.write, (f"{{workspace}}/{name}",)), name) for name in ABSENT),
    *(
        (Probe(f"{how} {name}", attack, (f"{{workspace}}/{name}", "{scratch}")), name)
        for how, attack in (
            ("putting a link in place of", file_attacks.make_a_link),
            ("putting a hard link in place of", file_attacks.write_through_a_hard_link_made_in_its_place),
            ("renaming a link to", file_attacks.replace_by_a_link),
        )
        for name in (
            ".git",
            ".mcp.json",
            ".claude",
            ".env",
            ".bashrc",
            ".gitmodules",
            "sandbox-config.json",
            "ipybox.yaml",
        )
    ),
    (Probe("making .git a file that leads elsewhere", file_attacks.write, ("{workspace}/.git",)), ".git"),
]


async def try_to_write(
    probe: Probe, target: str, plain: tuple[Kernel, Place], sandboxed: tuple[Kernel, Place], table: list[Row]
) -> None:
    """Tries it in both; `target` is what shows it, relative to the workspace or, if it is there, to the place."""
    before = [state(place.root / target) for _, place in (plain, sandboxed)]

    outside = await probe.run(*plain)
    assert state(plain[1].root / target) != before[0], f"the attack does not work where nothing stops it: {outside}"
    within = await probe.run(*sandboxed)

    assert state(sandboxed[1].root / target) == before[1], f"{target} was changed: {within}"
    held(table, "Writing", probe, "written", within)


def named_targets(probes: list[tuple[Probe, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("probe", "target"), probes, ids=[probe.name for probe, _ in probes])


@named_targets(WRITING)
async def test_what_is_not_the_workspace_stays(
    probe: Probe, target: str, all_kernels: Kernels, plain_place: Place, table: list[Row]
):
    sandboxed = all_kernels.configured, all_kernels.configured_place
    await try_to_write(probe, target, (all_kernels.plain, plain_place), sandboxed, table)


@named_targets(PROTECTED)
async def test_configuration_of_the_workspace_stays(
    probe: Probe, target: str, all_kernels: Kernels, plain_place: Place, table: list[Row]
):
    (plain_place.workspace / ".ipybox").mkdir()
    sandboxed = all_kernels.configured, all_kernels.configured_place
    await try_to_write(probe, f"workspace/{target}", (all_kernels.plain, plain_place), sandboxed, table)


@named_targets(MAKING)
async def test_configuration_that_is_not_there_is_not_made(
    probe: Probe, target: str, all_kernels: Kernels, tmp_path: Path, table: list[Row]
):
    plain = all_kernels.plain, make_place(tmp_path, bare=True)
    named_anew = Probe(f"{probe.name} where it was not", probe.attack, probe.arguments)
    await try_to_write(named_anew, f"bare/{target}", plain, (all_kernels.bare, all_kernels.bare_place), table)


@pytest.mark.parametrize(
    ("what", "directory"),
    [
        ("site-packages", Path(pytest.__file__).parents[1]),
        ("the package ipybox", Path(ipybox.__file__).parent),
        ("the programs of the Python environment", Path(sys.executable).parent),
        ("srt", Path(shutil.which("srt") or "/missing").resolve().parent),
        ("/tmp", Path("/tmp")),
        ("/tmp/claude", Path("/tmp/claude")),
        ("/var/tmp", Path("/var/tmp")),
    ],
    ids=str,
)
async def test_programs_and_shared_directories_stay(
    what: str, directory: Path, all_kernels: Kernels, plain_place: Place, table: list[Row]
):
    probe = Probe(f"making a file in {what}", file_attacks.write, (f"{directory}/ipybox-probe-{plain_place.secret}",))
    file = Path(probe.arguments[0])
    made = not directory.exists()
    try:
        outside = await probe.run(all_kernels.plain, plain_place)
        assert file.exists(), f"the attack does not work where nothing stops it: {outside}"
        file.unlink()
        within = await probe.run(all_kernels.configured, all_kernels.configured_place)
        assert not file.exists(), f"{file} was made"
    finally:
        file.unlink(missing_ok=True)
        if made:
            directory.rmdir()
    held(table, "Writing", probe, "written", within)


@pytest.mark.parametrize("name", ["workspace", "bare"])
async def test_the_workspace_itself_can_not_be_replaced(
    name: str, all_kernels: Kernels, tmp_path: Path, table: list[Row]
):
    probe = Probe(
        f"replacing the {name} directory itself", file_attacks.move_and_make_again, ("{workspace}", "{workspace}/new")
    )
    plain = make_place(tmp_path, bare=name == "bare")
    kernel = all_kernels.bare if name == "bare" else all_kernels.configured
    place = all_kernels.bare_place if name == "bare" else all_kernels.configured_place
    outside = await probe.run(all_kernels.plain, plain)
    assert (plain.workspace / "new").exists(), f"the attack does not work where nothing stops it: {outside}"

    within = await probe.run(kernel, place)

    assert not (place.workspace / "new").exists()
    assert not Path(f"{place.workspace}-moved").exists()
    held(table, "Writing", probe, "replaced", within)


# --- disks


async def test_programs_that_read_a_named_pipe_are_not_reached(
    all_kernels: Kernels, plain_place: Place, table: list[Row]
):
    probe = Probe("writing to a named pipe outside", file_attacks.write_to_a_pipe, ("{outside}/pipe",))
    received: list[bytes | None] = []
    outcomes: list[kernels.Outcome] = []
    for kernel, place in (
        (all_kernels.plain, plain_place),
        (all_kernels.configured, all_kernels.configured_place),
    ):
        path = place.outside / "pipe"
        os.mkfifo(path)
        pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        try:
            outcomes.append(await probe.run(kernel, place))
            received.append(os.read(pipe, 64))
        except BlockingIOError:
            received.append(None)
        finally:
            os.close(pipe)
            path.unlink()

    assert received[0] == file_attacks.MARK.encode(), f"the attack does not work where nothing stops it: {outcomes[0]}"
    assert received[1] is None
    held(table, "Writing", probe, "received", outcomes[1])


async def test_disks_stay_closed(all_kernels: Kernels, plain_place: Place, table: list[Row]):
    probe = Probe("opening a disk", file_attacks.open_a_disk, ("{outside}", "{scratch}"))
    outside = await probe.run(all_kernels.plain, plain_place)
    assert outside.got or not kernels.ROOT, f"the attack does not work where nothing stops it: {outside}"

    within = await probe.run(all_kernels.configured, all_kernels.configured_place)

    assert within.got is None
    held(table, "Disks", probe, outside, within)


# --- git, as it is run on the host

GIT = [
    Probe("a hook that git runs on the host", file_attacks.git_hook),
    Probe("settings that make git run a program", file_attacks.git_config),
    Probe("a common directory that does", file_attacks.git_common_directory),
    Probe("settings of a worktree that do", file_attacks.git_worktree_configuration),
    Probe("a submodule that does", file_attacks.git_submodule),
    Probe("another repository in its place", file_attacks.git_moved_away),
]


def run_git(*arguments: str, cwd: Path) -> None:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments]
    subprocess.run(command, cwd=cwd, check=True, capture_output=True, timeout=kernels.TIMEOUT)


def with_repository(root: Path) -> Place:
    place = Place(root, root / "workspace", "")
    place.workspace.mkdir(parents=True)
    run_git("init", "-q", cwd=place.workspace)
    (place.workspace / "file").write_text("content")
    run_git("add", "file", cwd=place.workspace)
    run_git("commit", "-q", "-m", "first", cwd=place.workspace)
    return place


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def repository(
    all_kernels: Kernels, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Kernel, Place]]:
    """A kernel in the sandbox whose workspace is a real repository."""
    place = with_repository(tmp_path_factory.mktemp("repository"))
    async with running(place) as kernel:
        yield kernel, place


async def plant_in_git(kernel: Kernel, place: Place, probe: Probe) -> tuple[kernels.Outcome, bool]:
    """Returns whether git on the host ran what an attack has left in the repository."""
    mark = place.root / f"ran because of {probe}"
    outcome = await kernel.run(probe.attack, str(place.workspace), f"#!/bin/sh\ntouch '{mark}'\n")
    (place.workspace / "file").touch()
    status = partial(subprocess.run, ["git", "status"], cwd=place.workspace, check=False, capture_output=True)
    await asyncio.to_thread(status, timeout=kernels.TIMEOUT)
    return outcome, mark.exists()


@named(GIT)
async def test_git_on_the_host_runs_nothing_of_theirs(
    probe: Probe, repository: tuple[Kernel, Place], all_kernels: Kernels, tmp_path: Path, table: list[Row]
):
    outside, ran = await plant_in_git(all_kernels.plain, with_repository(tmp_path), probe)
    assert ran, f"the attack does not work where nothing stops it: {outside}"

    within, ran = await plant_in_git(*repository, probe)

    assert not ran, f"git ran a program from within: {within}"
    held(table, "Git", probe, "git ran it", within)


# --- MCP servers, which start in the workspace if that is the working directory of this process

PLANTS = [
    Probe("a module with the name of an MCP server", file_attacks.plant_a_module),
    Probe("a package with the name of an MCP server", file_attacks.plant_a_package),
    Probe("a module of Python's own that MCP servers import", file_attacks.plant_a_standard_module),
]


async def plant(probe: Probe, root: Path, *, sandbox: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[bool, str]:
    """Returns whether an MCP server on the host ran what an attack has left in the workspace, and what it answered."""
    place = Place(root, root / "workspace", "")
    place.workspace.mkdir(parents=True)
    # The control has Python import from its working directory, which ipybox keeps it from doing in each mode.
    env = {} if sandbox else {"PYTHONSAFEPATH": ""}
    servers.register(place.workspace, clock={**servers.time_(), "env": env})
    monkeypatch.chdir(place.workspace)  # as `ipybox --workspace` does
    mark = root / "ran"
    async with running(place, sandbox=sandbox) as kernel:
        await kernel.run(probe.attack, str(place.workspace), "mcp_server_time", str(mark))
        try:
            called = await kernel.executor.execute(
                "import registered; print(registered.clock.run_sync('get_current_time', {'timezone': 'UTC'}))"
            )
        except CodeExecutionError as exc:
            return mark.exists(), str(exc)
        return mark.exists(), called.text or ""


@named(PLANTS)
async def test_servers_on_the_host_run_nothing_of_theirs(
    probe: Probe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: list[Row], shared: None
):
    ran, outside = await plant(probe, tmp_path / "plain", sandbox=False, monkeypatch=monkeypatch)
    assert ran, f"the attack does not work where nothing stops it: {outside}"

    ran, within = await plant(probe, tmp_path / "sandboxed", sandbox=True, monkeypatch=monkeypatch)

    assert not ran, f"the server ran it: {within}"
    assert "UTC" in within, f"the server did not start: {within}"
    held(table, "MCP servers", probe, "the server ran it", within)


# --- several sandboxes of one workspace


async def test_names_stay_closed_when_another_sandbox_of_the_workspace_ends(
    all_kernels: Kernels, tmp_path: Path, table: list[Row]
):
    async with running(all_kernels.bare_place):
        pass

    for probe, target in MAKING[: len(ABSENT)]:
        plain = all_kernels.plain, make_place(_directory(tmp_path, probe.name), bare=True)
        again = Probe(f"{probe.name} after another sandbox", probe.attack, probe.arguments)
        await try_to_write(again, f"bare/{target}", plain, (all_kernels.bare, all_kernels.bare_place), table)


async def test_the_locks_of_other_sandboxes_can_not_be_taken(all_kernels: Kernels, tmp_path: Path, table: list[Row]):
    probe = Probe("taking the locks that sandboxes wait for", file_attacks.take_the_locks, ("{workspace}/.ipybox",))
    plain = make_place(tmp_path, bare=True)
    (plain.workspace / ".ipybox").mkdir()
    (plain.workspace / ".ipybox" / "x.lock").touch()
    outside = await probe.run(all_kernels.plain, plain)
    assert outside.got, f"the attack does not work where nothing stops it: {outside}"

    within = await probe.run(all_kernels.bare, all_kernels.bare_place)

    assert within.got is None
    held(table, "Writing", probe, "taken", within)


# --- the profile that hides the home


async def test_the_profile_workspace_hides_the_home(
    home: Place, all_kernels: Kernels, plain_place: Place, tmp_path: Path, table: list[Row], shared: None
):
    inside = Place(home.root, home.home / "project", home.secret)
    inside.workspace.mkdir()
    (inside.workspace / "file").write_text("of the workspace")
    names = [*kernels.CREDENTIALS, *kernels.HOME_FILES]
    async with running(inside, config="workspace") as kernel:
        for name in names:
            probe = Probe(f"reading ~/{name} in profile workspace", file_attacks.read, (f"{{home}}/{name}",))
            outside = await probe.run(all_kernels.plain, plain_place)
            assert outside.got, f"the attack does not work where nothing stops it: {outside}"
            within = await probe.run(kernel, inside)
            assert not within.got, f"~/{name} was read"
            held(table, "Profile workspace", probe, "read", within)
        whole = await kernel.run(file_attacks.search, str(home.home))
        own = await kernel.run(file_attacks.read, str(inside.workspace / "file"))

    assert home.secret not in (whole.got or "")
    assert own.got == "of the workspace"


def _directory(parent: Path, name: str) -> Path:
    directory = parent / name.replace("/", "-")
    directory.mkdir()
    return directory
