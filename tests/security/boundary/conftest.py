"""A plain and a sandboxed kernel, which the tests of a module share."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.security.boundary.sides import SECRET, Side, side


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, shared: None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        (home / ".npmrc").write_text("offline=true\nupdate-notifier=false\n")
        patch.setenv("HOME", str(home))
        patch.setenv("HOST_SECRET", SECRET)
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandboxed(tmp_path_factory: pytest.TempPathFactory, environment: None) -> AsyncIterator[Side]:
    async with side(tmp_path_factory.mktemp("sandboxed"), sandboxed=True) as made:
        yield made
