"""A hostile repository gets nothing, in whichever way it is opened: nothing of it runs on the host, no secret is read.

Each way in is gone once, see `hostile.visit`; the probes look at what has come of it. `probes.Probe.before` says which
of them reached their aim in the version before.
"""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from ipybox.mcp_client import MCPClient
from ipybox.support.errors import MCPServerError
from tests.security.conftest import Row
from tests.security.hostile import detours, visit, ways
from tests.security.hostile.contents import GIT_PROGRAMS, MODULES
from tests.security.hostile.probes import PROBES, Probe
from tests.security.hostile.repository import Repository
from tests.security.hostile.visit import LAUNCHES, Evidence
from tests.servers import WAIT

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.kernel]

#: What a way in is, and what is done there.
WAYS: dict[str, Callable[[Repository], Coroutine[object, object, Evidence]]] = {
    "module": lambda repository: visit.whole(ways.module(), repository),
    "plugin": lambda repository: visit.whole(ways.plugin(repository, "sandbox"), repository),
    "script": lambda repository: visit.whole(ways.script(), repository),
    "console": lambda repository: visit.whole(ways.console(), repository),
    "plain": detours.plain,
    "environment": detours.environment_behind_link,
    "http": detours.over_http,
    "commands": detours.commands,
    "links": detours.links,
}

#: Visits at once: most of their time they wait for processes to start.
AT_ONCE = 3


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def visits(tmp_path_factory: pytest.TempPathFactory, shared: None) -> dict[str, Evidence]:
    """What has come of each way in."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def go(name: str) -> Evidence:
        async with turn:
            repository = Repository(tmp_path_factory.mktemp(name))
            with repository.door.open():
                return await WAYS[name](repository)

    return dict(zip(WAYS, await asyncio.gather(*map(go, WAYS)), strict=True))


@pytest.mark.parametrize("probe", PROBES, ids=str)
async def test_the_repository_does_not_get(probe: Probe, visits: dict[str, Evidence], table: list[Row]):
    reached = {way: found for way in probe.ways if (found := visits[way].reached(probe.key))}
    assert not reached, f"it got there by {reached}"
    before = f"before: {', '.join(probe.before)}" if probe.before else "nor before"
    table.append(Row(f"Hostile repository: {probe.area}", probe.name, before, "nothing"))


@pytest.mark.parametrize("way", ["module", "plugin", "script", "console"])
async def test_the_user_can_work_there(way: str, visits: dict[str, Evidence]):
    answers = visits[way].answers
    expected = {"steal": "'HOME'", "git": "git_status", "keeper": "read", "revived": "up", "again": "nothing to see"}
    if way != "script":
        expected["install"] = "Installed harmless-1.0"
    for name, text in expected.items():
        assert text in "".join(answers[name].blocks), f"{name}: {answers[name]}"
    assert answers["git_status of vendored"].blocks[0].startswith("Repository status:")
    assert visits[way].repository.canary("seal") in answers["read"].blocks[0]
    printed = "".join(answers["plant"].blocks)
    assert printed == ("" if way == "script" else "(no output)"), "code could not plant anything"


# --- the traps work


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    repository = Repository(tmp_path)
    with repository.door.open():
        yield repository


def run(repository: Repository, *command: str, directory: str = ".", **variables: str) -> None:
    """Runs a command in the repository as somebody does who trusts it."""
    subprocess.run(
        command,
        cwd=repository.workspace / directory,
        env=repository.environment | variables,
        capture_output=True,
        timeout=2 * WAIT,  # the modules load slowly where nothing has compiled them
        check=False,
    )


def marks(repository: Repository) -> set[str]:
    return {path.name for path in repository.marks.iterdir()}


async def test_programs_leave_marks(repository: Repository):
    for directory in ("bin", "node_modules/.bin"):
        for program in (repository.workspace / directory).iterdir():
            before = marks(repository)
            run(repository, str(program), "--version")
            assert marks(repository) - before, f"{program} is no trap"


async def test_modules_leave_marks_and_work(repository: Repository):
    # One imports others, of which the trap of the first has let the real ones take their place.
    importing = f"for name in {MODULES!r}: sys.modules.pop(name, None); __import__(name)"
    code = f"import sys\nsys.path.insert(0, '')\n{importing}\nopen('worked', 'w')"
    run(repository, sys.executable, "-I", "-c", code)
    assert (repository.workspace / "worked").exists()
    assert {f"module-{name}" for name in MODULES} <= marks(repository)


async def test_servers_that_start_in_the_repository_leave_marks(repository: Repository):
    for params in LAUNCHES.values():
        run(repository, params["command"], *params.get("args", []))
    run(repository, sys.executable, "-m", "mcp_server_git", "--help")
    expected = {probe.key for probe in PROBES if probe.area == "MCP servers"}
    assert expected <= marks(repository)


async def test_git_leaves_marks(repository: Repository):
    for command in (["status"], ["diff"], ["add", "."], ["commit", "-m", "x"], ["checkout", "-b", "other"]):
        for name in ("vendored", "unpacked"):
            run(repository, "git", *command, directory=name)
    run(repository, "git", "checkout", "HEAD~1", "--", "notes.txt", directory="vendored")
    found = marks(repository)
    assert {f"git-{setting}" for setting in GIT_PROGRAMS} <= found
    for hooks in ("hooks-of-vendored", "hooks-of-unpacked"):
        assert {f"git-{hooks}-{hook}" for hook in ("pre-commit", "post-commit", "post-checkout")} <= found


async def test_a_proxy_leaves_a_mark(repository: Repository, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", repository.dotenv["HTTP_PROXY"])
    with pytest.raises(MCPServerError):
        await MCPClient({"url": visit.ELSEWHERE, "headers": {"Authorization": "Bearer x"}}).__aenter__()
    assert marks(repository) == {"trap-http-proxy"}


async def test_marks_and_secrets_count(repository: Repository):
    evidence = Evidence(repository)
    (repository.root / "stderr").write_text(f"password: {repository.canary('ssh')}")
    repository.trap("trap", "planted-yaml")
    run(repository, "./trap", **repository.dotenv)
    evidence.collect()
    assert evidence.reached("ssh")
    assert evidence.reached("planted-*") == ["planted-yaml"]
    assert evidence.reached("env-LD_PRELOAD")
    assert not evidence.reached("aws")
