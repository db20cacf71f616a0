"""Installs that meet others, are cancelled or killed."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from ipybox.kernel_mgr.packages import InstallError, packages_dir
from ipybox.sandbox.settings import load_settings
from tests.conftest import Fifo
from tests.kernel_mgr.packages.index import Index, install, tree
from tests.servers import WAIT, descendants, until_dead


async def test_concurrent_installs_lose_nothing(index: Index, place: Path):
    names = ["one", "two", "three"]
    for name in names:
        index.wheel(name, "1.0")
    code = "import asyncio, sys; from ipybox.kernel_mgr.packages import *; from pathlib import Path; "
    code += "print(asyncio.run(PackageInstaller(Path(sys.argv[1])).install('three')))"
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(place), stdout=asyncio.subprocess.PIPE)
    done = await asyncio.gather(install(place, "one"), install(place, "two"), other.communicate())
    assert done == ["Installed one-1.0", "Installed two-1.0", (b"Installed three-1.0\n", None)]
    assert {f"{name}.py" for name in names} < tree(place).keys()


async def test_an_install_that_does_not_end_keeps_no_other_waiting(index: Index, place: Path, fifo: Fifo):
    index.wheel("fresh", "1.0")
    index.source("slow", "1.0", fifo=fifo.path)
    os.mkfifo(f"{fifo.path}.never")
    work = asyncio.create_task(install(place, "slow"))
    await fifo.until("building")
    assert await install(place, "fresh") == "Installed fresh-1.0"
    assert not work.done()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


async def test_cancelled_install_leaves_nothing_behind(index: Index, place: Path, fifo: Fifo):
    index.wheel("fresh", "1.0")
    index.source("slow", "1.0", fifo=fifo.path)
    os.mkfifo(f"{fifo.path}.never")
    await install(place, "fresh")
    before = tree(place)
    work = asyncio.create_task(install(place, "slow"))
    await fifo.until("building")
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert tree(place) == before
    assert await install(place, "fresh") == "fresh 1.0 is already installed"


async def test_an_application_that_gets_no_exit_status_installs_nothing(index: Index, place: Path):
    index.wheel("fresh", "1.0")
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(InstallError, match="uv exited with code 255"):
            await install(place, "fresh")
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert not tree(place)


@pytest.mark.sandbox
async def test_cancelled_install_in_the_sandbox_leaves_nothing_behind(
    index: Index, place: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = asyncio.Event()

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()  # until the other side gives up
        writer.close()

    async with await asyncio.start_server(never, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", url)
        work = asyncio.create_task(install(place, f"slow @ {url}/slow-1.0.tar.gz", load_settings()))
        async with asyncio.timeout(WAIT):
            await asked.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    assert not tree(place)


async def test_killed_install_ends_with_its_processes_and_is_done_again(index: Index, place: Path, fifo: Fifo):
    index.source("slow", "1.0", fifo=fifo.path)
    os.mkfifo(f"{fifo.path}.never")
    code = "import asyncio, sys; from ipybox.kernel_mgr.packages import *; from pathlib import Path; "
    code += "asyncio.run(PackageInstaller(Path(sys.argv[1])).install('slow'))"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(place))
    await fifo.until("building")
    started = descendants(process.pid)
    assert started
    process.kill()
    await process.wait()
    assert not await until_dead(started, WAIT)
    assert not tree(place)
    index.source("slow", "1.0")
    assert await install(place, "slow") == "Installed slow-1.0"


async def test_install_repairs_what_was_killed_between_two_generations(index: Index, place: Path):
    index.wheel("one", "1.0")
    index.wheel("two", "1.0")
    await install(place, "one")
    packages = packages_dir(place)
    packages.rename(packages.with_name("packages.old"))
    packages.with_name("packages.new").mkdir()
    (packages.with_name("packages.new") / "half.py").write_text("")
    assert await install(place, "two") == "Installed two-1.0"
    assert {"one.py", "two.py"} < tree(place).keys()
    assert "half.py" not in tree(place)
    assert sorted(path.name for path in (place / ".ipybox").iterdir()) == [".gitignore", "packages"]
