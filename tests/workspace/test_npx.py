"""Servers that npx downloads: from the registry that the global npmrc names, with progress, and with npm's reasons."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipybox import CodeExecutor, generate_mcp_sources
from ipybox.errors import MCPServerError
from ipybox.sandbox.settings import PROFILES
from ipybox.workspace.writable import WritablePlaces
from tests import registry as registries
from tests.conftest import Mode
from tests.mcp_server.test_server import client_of, text_of
from tests.registry import PACKAGE, Registry, node_with_global_npmrc
from tests.servers import WAIT

PARAMS = {"command": "npx", "args": ["-y", PACKAGE]}

CALL = f"from mcptools.{PACKAGE.replace('-', '_')} import hello; print(hello.run(hello.Params()))"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with registries.serving(tmp_path / "registry") as running:
        yield running


@pytest.fixture
def npmrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A global npmrc, of the only node on PATH; npm's cache and the user's npmrc are those of an empty home."""
    directory = node_with_global_npmrc(tmp_path / "node", "")
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in [name for name in os.environ if name.lower().startswith("npm_config_")]:
        monkeypatch.delenv(name)
    return directory.parent / "etc" / "npmrc"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest.mark.kernel
@pytest.mark.asyncio
async def test_npx_obeys_the_global_npmrc(registry: Registry, npmrc: Path, workspace: Path, mode: Mode):
    npmrc.write_text(f"registry={registry.url}\ncafile={registry.certificate}\n")
    registry.released.set()
    places = WritablePlaces(workspace, PROFILES["default"] if mode.sandbox else None)
    modules = await generate_mcp_sources(PACKAGE, PARAMS, workspace / "mcptools", places=places)
    assert modules == ["hello"]
    assert modules.server_name == "ipybox_hello"
    assert modules.warnings() == ["'ipybox-hello' is not a Python name: import and call the server as 'ipybox_hello'"]
    async with CodeExecutor(working_dir=workspace, sandbox=mode.sandbox) as executor:
        assert (await executor.execute(CALL)).text == "hello from npx"


@pytest.mark.asyncio
async def test_registration_reports_downloads(registry: Registry, npmrc: Path, workspace: Path):
    npmrc.write_text(f"registry={registry.url}\ncafile={registry.certificate}\n")
    lines: list[str] = []
    registration = asyncio.create_task(
        generate_mcp_sources("hello", PARAMS, workspace / "mcptools", on_progress=lines.append)
    )
    assert await asyncio.to_thread(registry.asked.wait, WAIT)
    registry.released.set()
    await registration

    assert f"looking up {PACKAGE}" in lines
    assert f"downloading {PACKAGE}-1.0.0.tgz" in lines


@pytest.mark.asyncio
async def test_clients_are_told_what_is_downloaded(registry: Registry, npmrc: Path, workspace: Path):
    npmrc.write_text(f"registry={registry.url}\ncafile={registry.certificate}\n")

    async def take(progress: float, total: float | None, message: str | None) -> None:
        if message is not None and message.startswith(("looking up ", "downloading ")):
            registry.released.set()  # the registration ends only if the client was told of it

    arguments = {"server_name": PACKAGE, "server_params": PARAMS}
    async with client_of(workspace, HOME=os.environ["HOME"]) as client, asyncio.timeout(4 * WAIT):
        result = await client.call_tool("register_mcp_server", arguments, progress_callback=take)
    first, *names = text_of(result).splitlines()
    assert first == "'ipybox-hello' is not a Python name: import and call the server as 'ipybox_hello'"
    assert names == ["hello"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("registry=http://127.0.0.1:9\n", "attempt 1 failed with ECONNREFUSED"),
        ("registry={url}\n", "attempt 1 failed with DEPTH_ZERO_SELF_SIGNED_CERT"),
        ("registry={url}/missing\ncafile={certificate}\n", "npm error 404"),
    ],
    ids=["no_registry", "no_certificate", "no_package"],
)
async def test_a_server_that_npx_can_not_get_fails_with_the_reason_of_npm(
    content: str, reason: str, registry: Registry, npmrc: Path, workspace: Path
):
    npmrc.write_text(content.format(url=registry.url, certificate=registry.certificate))
    with pytest.raises(MCPServerError, match="hello") as caught:
        await generate_mcp_sources("hello", PARAMS, workspace / "mcptools", connect_timeout=8)
    assert reason in str(caught.value)
    assert " 200 " not in str(caught.value)
