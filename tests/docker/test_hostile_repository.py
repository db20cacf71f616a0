"""A hostile repository in a container gets nothing of the host; see `tests/security/test_hostile_repository.py`."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.conftest import NETWORK, until_removed
from tests.security.hostile import ways
from tests.security.hostile.contents import DOTENV, KEY, MODULES, PROGRAMS, SECRETS, WORKSPACE_SECRETS
from tests.security.hostile.repository import Repository
from tests.security.hostile.visit import Evidence, opened

#: Marks and secrets that reached their aim in the version before: programs that the launcher looked up on PATH.
BEFORE = ("path-docker", "path-python3")


@pytest.fixture
def repository(tmp_path: Path, image: str) -> Iterator[Repository]:
    repository = Repository(tmp_path)
    with repository.door.open():
        yield repository


def options(image: str) -> list[str]:
    return [f"--image={image}", f"--network={NETWORK}"]


async def test_the_plugin_gives_nothing_of_the_host(repository: Repository, image: str):
    evidence = Evidence(repository)
    places = [str((repository.home / path).resolve()) for path in SECRETS.values()]
    async with opened(ways.plugin(repository, "docker", *options(image)), evidence) as session:
        worked = await session.execute(f"insider.steal({places!r})")
        await session.execute(f"insider.widen({str(repository.home)!r}, 1)")
        await session.execute(f"insider.plant({str(repository.marks)!r}, {repository.path!r}, {MODULES!r})")
        await session.call("reset")
        worked_again = await session.execute("print('up')")
    await until_removed(repository.workspace)

    assert "HOME" in worked.blocks[0]
    assert worked_again.blocks == ["up"]
    keys = [*(f"path-{name}" for name in PROGRAMS), *(f"env-{name}" for name in DOTENV), *SECRETS]
    keys += ["environment", "environment-aws", "home-written", "module-*", "planted-*", "new-path-*", "linked-path-*"]
    assert {key: found for key in keys if (found := evidence.reached(key))} == {}


async def test_a_key_that_the_repository_brings_seals_nothing(repository: Repository, image: str):
    """In a container the state of the host is in the workspace: that is where a repository puts a key of its own.

    Before, the command ran outside of the sandbox in the container, and showed what is hidden in it.
    """
    repository.here = "/app/workspace"
    repository.write_dotenv()
    if os.geteuid() == 0:  # root in a container can't have a sandbox
        for path in (repository.workspace, *repository.workspace.rglob("*")):
            os.chown(path, 4321, 4322, follow_symlinks=False)
    evidence = Evidence(repository)
    command = [str(Path(sys.executable).with_name("ipybox")), "docker", "--sandbox", *options(image)]
    async with opened(ways.Way("ipybox docker --sandbox", command), evidence) as session:
        hidden = await session.execute(f"insider.steal({sorted(WORKSPACE_SECRETS.values())!r})")
        await session.execute(f"insider.forge('cat .env', {KEY.hex()!r})")
    await until_removed(repository.workspace)

    assert "HOME" in hidden.blocks[0]
    assert not evidence.reached("dotenv")
