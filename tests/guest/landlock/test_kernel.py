"""What kernels that are restricted in their writes open, and what works in them."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from ipybox import CodeExecutor
from tests.conftest import Mode
from tests.guest.landlock.in_child import run

OPEN = """
import os
def attempt(path, flags=os.O_RDWR):
    try:
        os.close(os.open(path, flags))
        return "opened"
    except OSError as error:
        return error.strerror
"""


@pytest.fixture(scope="module")
def root(mode: Mode, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("landlock")
    workspace = root / "work space"
    for directory in (workspace, root / "home/data", root / "home/data/deep", root / "other", root / "closed"):
        directory.mkdir(parents=True)
        os.mkfifo(directory / "fifo")
    run("git", "init", "-q", str(workspace))
    allowed = [".", ".git", "~/data/**", "../other/", "../missing", "~/missing"]
    (root / "settings.json").write_text(json.dumps({"filesystem": {"allowWrite": allowed}}))
    return root


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kernel(mode: Mode, root: Path, shared: None) -> AsyncIterator[CodeExecutor]:
    settings = root / "settings.json" if mode.sandbox else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(root / "home"))
        async with CodeExecutor(
            working_dir=root / "work space", sandbox=mode.sandbox, sandbox_config=settings
        ) as executor:
            await executor.execute(OPEN)
            yield executor


async def opened(kernel: CodeExecutor, path: Path) -> str:
    """Returns what happens when code in a kernel opens a path for writing."""
    result = await kernel.execute(f"print(attempt({str(path)!r}))")
    return (result.text or "").splitlines()[0]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_kernel_in_the_sandbox_opens_no_pipe_outside(kernel: CodeExecutor, root: Path, mode: Mode):
    expected = "Permission denied" if mode.sandbox else "opened"
    assert await opened(kernel, root / "closed" / "fifo") == expected


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("place", ["work space", "home/data", "home/data/deep", "other"])
async def test_a_kernel_opens_pipes_wherever_it_may_write(kernel: CodeExecutor, root: Path, place: str):
    assert await opened(kernel, root / place / "fifo") == "opened"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "code",
    [
        "import tempfile\nwith tempfile.NamedTemporaryFile() as f: f.write(b'x')",
        "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: assert p.map(abs, [-1]) == [1]",
        "import sqlite3\nwith sqlite3.connect('d') as d: d.execute('create table t (x)')\nd.close()",
        "import matplotlib.pyplot as p\np.plot([1, 2])\np.savefig('figure.png')\np.close()",
        "!git -c user.name=n -c user.email=e commit -q --allow-empty -m first\nassert _exit_code == 0",
        "!python -m pip --version > out\nassert 'pip' in open('out').read()",
        "%%bash\nset -e\necho hello > /dev/stderr\nseq 9 | tee /dev/stdout >(cat > copy) > /dev/null",
    ],
    ids=["temporary_file", "pool", "database", "matplotlib", "git", "pip", "bash"],
)
async def test_ordinary_things_work_in_a_kernel(kernel: CodeExecutor, code: str):
    await kernel.execute(code)
