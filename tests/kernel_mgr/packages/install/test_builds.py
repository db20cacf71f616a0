"""Tests how source distributions and local projects are built."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import pytest

from ipybox.kernel_mgr.packages import PackageInstaller
from ipybox.kernel_mgr.packages.builds import _host_of  # pyright: ignore[reportPrivateUsage]
from ipybox.kernel_mgr.packages.installer import BUILT
from ipybox.kernel_mgr.packages.request import Request
from ipybox.sandbox.settings import SandboxSettings, load_settings
from tests.kernel_mgr.packages.index import Index, failure, install, text, tree
from tests.sandbox.transient_failures import LATE_ONCE, use_late_socat


def results(workspace: Path, name: str) -> dict[str, str]:
    namespace: dict[str, dict[str, str]] = {}
    exec(text(workspace, f"{name}.py"), namespace)
    return namespace["RESULTS"]


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("https://8.8.8.8/a.zip", ["8.8.8.8"]),
        ("https://me:secret@host.example:8443/a.zip", ["host.example:8443"]),
        ("https://127.0.0.1:8000/a.zip", []),
        ("https://169.254.169.254/a.zip", []),
        ("file:///a.zip", []),
    ],
)
def test_build_reaches_the_host_of_its_url_unless_that_is_no_public_address(url: str, hosts: list[str]):
    assert _host_of(Request(url, "source", url=url)) == hosts


async def test_source_is_built_on_the_host_without_a_sandbox(index: Index, place: Path):
    index.source("built", "1.0", secret=place / ".env")
    assert await install(place, "built") == "Installed built-1.0"
    assert index.marker.read_text() == "built"
    assert results(place, "built")["read"] == "SECRET=1"


@pytest.mark.sandbox
async def test_source_that_a_wheel_requires_is_built_in_the_sandbox_away_from_everything(index: Index, place: Path):
    index.source("built", "1.0", secret=place / ".env")
    index.source("built", "2.0")
    index.wheel("addon", "1.0")
    index.wheel("top", "1.0", requires=["built<2"])
    assert (await PackageInstaller(place, load_settings()).install("top")).splitlines() == [
        BUILT,
        "Installed top-1.0, built-1.0",
    ]
    assert not index.marker.exists()
    found = results(place, "built")
    assert found["written"] in ("OSError", "PermissionError")
    assert "SECRET" not in found["read"]


async def test_source_that_a_package_of_the_index_requires_by_url_is_refused(
    index: Index, place: Path, settings: SandboxSettings | None
):
    source = index.source("built", "1.0")
    index.wheel("top", "1.0", requires=[f"built @ {source.as_uri()}"])
    assert "URL dependencies must be expressed as direct requirements" in await failure(place, "top", settings)
    assert not index.marker.exists()


@pytest.mark.sandbox
async def test_a_busy_machine_on_which_srt_starts_too_late_fails_no_install(
    index: Index, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    use_late_socat(LATE_ONCE, tmp_path, monkeypatch)
    index.source("built", "1.0", secret=place / ".env")

    assert await install(place, "built", load_settings()) == "Installed built-1.0"
    assert (tmp_path / "tried").exists()


async def test_build_of_what_an_index_on_a_loopback_port_has_sees_neither_home_nor_hosts_nor_passwords(
    index: Index, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: SandboxSettings | None
):
    home = tmp_path / "home"
    home.mkdir()
    (home / "notes.txt").write_text("PRIVATE")
    monkeypatch.setenv("HOME", str(home))
    async with served(index.directory) as port, served(index.directory) as other:
        index.source("built", "1.0", secret=home / "notes.txt", url=f"http://127.0.0.1:{other}/built/")
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://user:passw0rd@127.0.0.1:{port}")
        assert await install(place, "built", settings) == "Installed built-1.0"
    found = results(place, "built")
    plain = settings is None
    assert (found["read"] == "PRIVATE") == plain
    assert (found["direct"] == "200") == plain
    assert plain or found["proxy"] != "200"
    assert ("passw0rd" in found["environment"]) == plain
    assert index.marker.exists() == plain


@pytest.mark.sandbox
async def test_build_reaches_the_hosts_that_the_settings_allow(
    index: Index, place: Path, monkeypatch: pytest.MonkeyPatch
):
    async with served(index.directory) as port:
        index.source("built", "1.0", url=f"http://127.0.0.1:{port}/built/")
        assert await install(place, "built", load_settings(None, [f"127.0.0.1:{port}"])) == "Installed built-1.0"
    assert results(place, "built")["proxy"] == "200"


@pytest.mark.sandbox
async def test_requirements_of_a_build_are_fetched_and_built_before(index: Index, place: Path):
    index.wheel("static", "1.0", requires=["deep"])
    index.wheel("deep", "3.0")
    index.wheel("late", "4.0")
    index.wheel("late", "5.0")
    # Both are sources, and have requirements of their own.
    index.wheel("tool", "1.0", {"tool.py": "VERSION = 'wheel'"})
    index.source("tool_source", "2.0", requires=["tool"], imports=["tool"])
    index.source("built", "1.0", requires=["static"], dynamic=["late<5", "tool-source"], imports=["deep", "late"])
    assert await install(place, "built", load_settings()) == "Installed built-1.0"
    found = results(place, "built")
    assert (found["deep"], found["late"]) == ("3.0", "4.0")
    assert [name for name in tree(place) if name.endswith("/METADATA")] == ["built-1.0.dist-info/METADATA"]
    assert not index.marker.exists()


@pytest.mark.parametrize(
    ("requires", "dynamic", "reason"),
    [
        (["absent>=2"], [], "absent was not found in the provided package locations"),
        ([], ["absent"], "absent was not found in the provided package locations"),
        ([], ["built"], "Cyclic"),
    ],
)
@pytest.mark.sandbox
async def test_build_whose_requirements_are_not_to_be_had_fails_with_the_reason(
    index: Index, place: Path, requires: list[str], dynamic: list[str], reason: str
):
    index.source("built", "1.0", requires=requires, dynamic=dynamic)
    assert reason in await failure(place, "built", load_settings())


@pytest.mark.sandbox
@pytest.mark.parametrize("specifier", ["./project", "built @ file://PLACE/project"])
async def test_local_project_is_not_built_with_a_sandbox(specifier: str, place: Path):
    (place / "project").mkdir()
    with pytest.raises(ValueError, match="can't be built because it is local"):
        await install(place, specifier.replace("PLACE", str(place)), load_settings())


async def test_temporary_directory_in_the_workspace_is_not_used(
    index: Index, place: Path, monkeypatch: pytest.MonkeyPatch, settings: SandboxSettings | None
):
    temporary = place / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = temporary.stat().st_mtime_ns
    index.source("built", "1.0")
    await install(place, "built", settings)
    assert temporary.stat().st_mtime_ns == before, "something was made there"
    assert str(temporary) not in results(place, "built")["environment"]


async def test_local_project_is_built_on_the_host_without_a_sandbox(index: Index, place: Path):
    project = place / "project"
    project.mkdir()
    for name, content in index.project("built", "1.0", secret=place / ".env").items():
        (project / name).write_text(content)
    assert await install(place, "./project") == "Installed built-1.0"
    assert index.marker.exists()
    assert "SECRET" in results(place, "built")["read"]


async def test_repository_is_cloned_and_built(
    index: Index, place: Path, tmp_path: Path, settings: SandboxSettings | None
):
    repository = tmp_path / "repository"
    repository.mkdir()
    for name, content in index.project("built", "1.0").items():
        (repository / name).write_text(content)
    identity = ["-c", "user.name=a", "-c", "user.email=a@host.example"]
    for arguments in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "first"]):
        process = await asyncio.create_subprocess_exec("git", *arguments, cwd=repository)
        assert await process.wait() == 0
    assert await install(place, f"git+{repository.as_uri()}", settings) == "Installed built-1.0"
    assert index.marker.exists() == (settings is None)
    missing = await failure(place, f"git+{repository.as_uri()}-missing", settings)
    assert "does not appear to be a git repository" in missing or "does not exist" in missing


@pytest.mark.sandbox
async def test_host_that_builds_must_not_reach_is_reported_with_the_setting(index: Index, place: Path):
    message = await failure(place, "git+https://127.0.0.1:9/project.git", load_settings())
    assert "'network.allowedDomains'" in message


@asynccontextmanager
async def served(directory: Path) -> AsyncGenerator[int]:
    """An index (PEP 503) of the archives in a directory."""

    def page(path: str) -> bytes | None:
        parts = path.strip("/").split("/")
        if parts[0] == "files":
            return (directory / parts[1]).read_bytes()
        names = [file.name for file in directory.iterdir() if file.name.startswith(f"{parts[0]}-")]
        links = "".join(f'<a href="/files/{name}">{name}</a>' for name in names)
        return f"<!DOCTYPE html><html><body>{links}</body></html>".encode() if names else None

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        body = page(request)
        status = HTTPStatus.NOT_FOUND if body is None else HTTPStatus.OK
        body = body or b""
        kind = "application/octet-stream" if request.startswith("/files/") else "text/html"
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
