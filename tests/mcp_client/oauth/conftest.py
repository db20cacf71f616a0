import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx2
import pytest

from tests.mcp_client.oauth.guarded import Guarded, guarded

#: Follows the redirects of a URL, to the end.
BROWSER = f"{sys.executable} -S {Path(__file__).parent / 'browser.py'} %s"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's state directory: of this test alone, as servers get the same ports again."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "ipybox"


@pytest.fixture
async def server() -> AsyncIterator[Guarded]:
    async with guarded() as running:
        yield running


async def browse(url: str) -> httpx2.Response:
    """What a browser does with the page to sign in at, up to the page that it ends with."""
    async with httpx2.AsyncClient(follow_redirects=True) as client:
        return await client.get(url)


async def sign_in(url: str) -> None:
    """A person who signs in at once."""
    assert (await browse(url)).status_code == 200


def unwanted(url: str) -> Awaitable[None]:
    raise AssertionError("nobody may be asked")


SignIn = Callable[[str], Awaitable[None]]
