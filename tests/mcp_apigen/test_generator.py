"""Packages on disk: nothing is replaced by half, and nothing that was not generated."""

import asyncio
import errno
import os
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import pytest

from ipybox.errors import MCPConnectionLost, MCPServerError, MissingVariableError
from ipybox.mcp_apigen import generate_mcp_sources
from ipybox.mcp_apigen.package.files import render_package
from ipybox.mcp_apigen.package.manifest import MANIFEST
from ipybox.mcp_apigen.package.swap import STALE_AFTER
from ipybox.mcp_client import client
from ipybox.mcp_client.answers import ToolList
from ipybox.workspace.registrations import UNDECLARED, ToolSpec
from tests.mcp_apigen.test_naming import BAD_PACKAGE_NAMES
from tests.written_packages import write_package

PARAMS = {"command": "server", "env": {"TOKEN": "${TOKEN}"}}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}


class FakeClient:
    """Stands for `MCPClient`: a server with two tools, or one that fails."""

    connected: list[tuple[dict[str, Any], float]]
    failure: Exception | None = None
    meanwhile: Sequence[Callable[[], object]] = ()

    def __init__(self, server_params: dict[str, Any], connect_timeout: float = 10, **_: object):
        self.connected.append((server_params, connect_timeout))

    async def __aenter__(self) -> Self:
        if self.failure:
            raise self.failure
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        pass

    async def list_tools(self) -> ToolList:
        for act in self.meanwhile:
            act()
        tools = ToolList()
        tools.append(ToolSpec("get-a", "Gets A.", SCHEMA, SCHEMA, UNDECLARED))
        tools.append(ToolSpec("Run", None, SCHEMA, None, UNDECLARED))
        return tools


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[FakeClient]:
    class Fake(FakeClient):
        connected: list[tuple[dict[str, Any], float]] = []  # noqa: RUF012 - one per test

    monkeypatch.setattr(client, "MCPClient", Fake)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Fake


def files(text: str, tools: int = 1) -> dict[str, str]:
    """The files of a package in which this text is everywhere."""
    return render_package("srv", {"command": text}, [ToolSpec(f"tool_{n}", text, SCHEMA) for n in range(tools)], "")


def tree(root: Path) -> dict[str, str]:
    """All that is below a directory, with the text of the files."""
    return {str(p.relative_to(root)): p.read_text() if p.is_file() else "" for p in sorted(root.rglob("*"))}


async def test_package_is_written_and_its_modules_are_named(fake: type[FakeClient], tmp_path: Path) -> None:
    root = tmp_path / "deep" / "mcptools"
    assert await generate_mcp_sources("srv", PARAMS, root) == ["get_a", "run"]
    assert tree(root).keys() == {"srv", *(f"srv/{name}" for name in ("__init__.py", "get_a.py", "run.py", MANIFEST))}
    assert '"TOKEN": "${TOKEN}"' in (root / "srv" / "__init__.py").read_text()
    assert "-> Result:" in (root / "srv" / "get_a.py").read_text()
    assert "-> str:" in (root / "srv" / "run.py").read_text()
    assert fake.connected == [(PARAMS, 120)]


async def test_other_connect_timeout_is_passed_on(fake: type[FakeClient], tmp_path: Path) -> None:
    await generate_mcp_sources("srv", PARAMS, tmp_path, connect_timeout=3)
    assert fake.connected == [(PARAMS, 3)]


async def test_generating_again_replaces_the_package(fake: type[FakeClient], tmp_path: Path) -> None:
    root = tmp_path / "mcptools"
    await generate_mcp_sources("srv", PARAMS, root)
    before = tree(root)
    write_package(root / "srv", files("other"))
    assert tree(root).keys() != before.keys()
    await generate_mcp_sources("srv", PARAMS, root)
    assert tree(root) == before


@pytest.mark.parametrize("name", BAD_PACKAGE_NAMES, ids=ascii)
async def test_bad_name_changes_nothing(name: str, fake: type[FakeClient], tmp_path: Path) -> None:
    root = tmp_path / "mcptools"
    root.mkdir()
    (tmp_path / "precious").touch()
    before = tree(tmp_path)
    with pytest.raises(ValueError, match="server name"):
        await generate_mcp_sources(name, PARAMS, root)
    assert tree(tmp_path) == before
    assert fake.connected == []


async def test_bad_parameters_change_nothing(fake: type[FakeClient], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="command"):
        await generate_mcp_sources("srv", {}, tmp_path / "mcptools")
    assert fake.connected == []
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    "kind", ["directory", "empty directory", "file", "link", "link to a package's text", "dangling link"]
)
async def test_what_was_not_generated_is_refused(kind: str, fake: type[FakeClient], tmp_path: Path) -> None:
    root = tmp_path / "mcptools"
    await generate_mcp_sources("real", PARAMS, root)
    fake.connected.clear()
    match kind:
        case "directory":
            (root / "srv").mkdir()
            (root / "srv" / "__init__.py").touch()
        case "empty directory":
            (root / "srv").mkdir()
        case "file":
            (root / "srv").touch()
        case "link":
            (root / "srv").symlink_to(root / "real")
        case "link to a package's text":
            (root / "text").write_text("CLIENT = ToolRunner(")
            (root / "srv").mkdir()
            (root / "srv" / "__init__.py").symlink_to(root / "text")
        case _:
            (root / "srv").symlink_to(root / "nowhere")
    before = tree(root)
    with pytest.raises(FileExistsError, match="srv, which ipybox did not generate"):
        await generate_mcp_sources("srv", PARAMS, root)
    assert tree(root) == before
    assert fake.connected == []


async def test_package_of_an_earlier_ipybox_is_refused_with_what_to_do(fake: type[FakeClient], tmp_path: Path) -> None:
    package = tmp_path / "mcptools" / "srv"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from mcpygen.tool_exec.client import ToolRunner\n\nCLIENT = ToolRunner(\n    server_name='srv',\n)\n"
    )
    (package / "ping.py").touch()
    before = tree(package)

    with pytest.raises(
        FileExistsError, match=r"srv, which ipybox did not generate, or only a version before 1\.0: move it"
    ):
        await generate_mcp_sources("srv", PARAMS, package.parent)

    assert tree(package) == before
    assert fake.connected == []


async def test_directory_that_appears_meanwhile_is_refused(fake: type[FakeClient], tmp_path: Path) -> None:
    root = tmp_path / "mcptools"
    fake.meanwhile = [lambda: (root / "srv").mkdir(parents=True)]
    with pytest.raises(FileExistsError):
        await generate_mcp_sources("srv", PARAMS, root)
    assert tree(root) == {"srv": ""}


@pytest.mark.parametrize("kind", [MCPServerError, MCPConnectionLost, MissingVariableError])
async def test_failing_server_is_named_and_the_package_kept(
    kind: type[Exception], fake: type[FakeClient], tmp_path: Path
) -> None:
    root = tmp_path / "mcptools"
    await generate_mcp_sources("srv", PARAMS, root)
    before = tree(root)
    fake.failure = kind("it is down")
    with pytest.raises(kind) as caught:
        await generate_mcp_sources("srv", PARAMS, root)
    assert str(caught.value) == "MCP server 'srv': it is down"
    assert tree(root) == before


def test_failing_write_keeps_the_package_and_leaves_nothing(tmp_path: Path) -> None:
    write_package(tmp_path / "srv", files("old"))
    before = tree(tmp_path)
    with pytest.raises(OSError, match="File name too long"):
        write_package(tmp_path / "srv", {**files("new"), f"{'x' * 300}.py": ""})
    assert tree(tmp_path) == before


def test_failing_rename_puts_the_old_package_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_package(tmp_path / "srv", files("old"))
    before = tree(tmp_path)
    rename = os.rename

    def failing(source: str, target: str, **directories: int) -> None:
        if source == "new":
            raise PermissionError(errno.EACCES, "no")
        rename(source, target, **directories)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(PermissionError, match=re.escape(str(tmp_path / "srv"))):
        write_package(tmp_path / "srv", files("new"))
    assert tree(tmp_path) == before


def test_abandoned_directories_are_removed_and_fresh_ones_kept(tmp_path: Path) -> None:
    abandoned, fresh, foreign = (tmp_path / name for name in (".srv.1.tmp", ".srv.2.tmp", ".other.1.tmp"))
    for directory in (abandoned, fresh, foreign):
        directory.mkdir()
        (directory / "new").mkdir()
    past = fresh.stat().st_mtime - STALE_AFTER - 10
    for directory in (abandoned, foreign):
        os.utime(directory, (past, past))
    write_package(tmp_path / "srv", files("new"))
    assert not abandoned.exists()
    assert fresh.exists()
    assert foreign.exists()


async def test_concurrent_generations_of_the_same_package_succeed(fake: type[FakeClient], tmp_path: Path) -> None:
    root = tmp_path / "mcptools"
    results = await asyncio.gather(*(generate_mcp_sources("srv", PARAMS, root) for _ in range(8)))
    assert results == [["get_a", "run"]] * 8
    assert len(tree(root)) == 5


def test_threads_that_keep_replacing_a_package_all_succeed(tmp_path: Path) -> None:
    def replace(version: int) -> None:
        for number in range(50):
            write_package(tmp_path / "srv", files(f"{version}.{number}"))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(replace, range(8)))
    assert [path.name for path in tmp_path.iterdir()] == ["srv"]
    assert {path.name for path in (tmp_path / "srv").iterdir()} == files("").keys()


def test_nobody_sees_half_a_package(tmp_path: Path) -> None:
    place = tmp_path / "srv"
    names = files("", 10).keys()
    done = threading.Event()
    errors: list[object] = []

    def write(version: str) -> None:
        try:
            for number in range(40):
                write_package(place, files(f"{version}{number}", 10))
        except OSError as exc:
            errors.append(exc)

    def read() -> None:
        while not done.is_set():
            try:
                directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                continue
            try:
                listed = os.listdir(directory)
                in_place = os.fstat(directory).st_ino == place.stat().st_ino
            except FileNotFoundError:
                continue
            finally:
                os.close(directory)
            if in_place and len(listed) != len(names):
                errors.append(listed)

    writers = [threading.Thread(target=write, args=(version,)) for version in "abc"]
    reader = threading.Thread(target=read)
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join(60)
    done.set()
    reader.join(60)
    assert errors == []
    assert {path.name: path.read_text() for path in place.iterdir()} in [files(f"{each}39", 10) for each in "abc"]
    assert os.listdir(tmp_path) == ["srv"]


async def test_a_server_can_not_have_the_name_that_policies_give_ipybox(tmp_path: Path):
    with pytest.raises(ValueError, match="server name 'ipybox' is reserved: approval policies use it"):
        await generate_mcp_sources("ipybox", {"command": "python"}, tmp_path)
