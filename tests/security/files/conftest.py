"""Kernels that the tests of a module share, with a home that has secrets."""

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from jupyter_core.paths import jupyter_runtime_dir

from ipybox.workspace import seal
from tests.security import kernels
from tests.security.files.probing import HOST_KEY, Kernels
from tests.security.kernels import Place, make_place, running


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
