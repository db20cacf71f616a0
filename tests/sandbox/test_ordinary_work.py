"""What people do in a notebook works in every mode, in the sandbox with its default settings, too."""

import os
from pathlib import Path

import pytest

from ipybox import CodeExecutor
from ipybox.kernel_mgr import gateway_launch
from tests.conftest import Mode

WORK = {
    "numpy": "import numpy; print(int((numpy.ones((300, 300)) @ numpy.ones((300, 300))).sum()))",
    "pandas": (
        "import pandas; pandas.DataFrame({'a': [1, 2]}).to_csv('a.csv', index=False);"
        "print(pandas.read_csv('a.csv').sum().a)"
    ),
    "matplotlib": (
        "import matplotlib, matplotlib.pyplot as plt, pathlib; plt.plot([1, 2]); plt.savefig('plot.png'); plt.close();"
        "print(pathlib.Path('plot.png').stat().st_size > 1000, pathlib.Path(matplotlib.get_cachedir()).is_dir())"
    ),
    "subprocess": "import subprocess; print(subprocess.run(['ls', '-d', '.'], capture_output=True, text=True).stdout)",
    "shell": "!echo from a shell",
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor;"
        "print(sum(ThreadPoolExecutor(20).map(lambda x: x, range(100))))"
    ),
    "asyncio": "import asyncio; print(await asyncio.gather(*(asyncio.sleep(0.01, i) for i in range(3))))",
    "asyncio_subprocess": (
        "process = await asyncio.create_subprocess_exec('echo', 'child', stdout=asyncio.subprocess.PIPE);"
        "print((await process.communicate())[0])"
    ),
    "multiprocessing": "import multiprocessing; print(multiprocessing.get_context('fork').Pool(2).map(abs, [-1, -2]))",
    "large_file": (
        "block = b'x' * (1 << 20)\nwith open('large', 'wb') as file:\n    for _ in range(300): file.write(block)\n"
        "import os; print(os.path.getsize('large')); os.remove('large')"
    ),
    "temporary_file": "import tempfile; print(tempfile.NamedTemporaryFile().write(b'abc'))",
    "database": "import sqlite3; print(sqlite3.connect('a.db').execute('select 1 + 1').fetchone())",
    # As psutil, dask, joblib and ps do; for root, srt alone has another namespace of processes than its /proc.
    "own_process": "import os; print(os.readlink('/proc/self') == str(os.getpid()))",
    "child_process": (
        # A program has its name there only a moment after `Popen` has returned.
        "import subprocess; child = subprocess.Popen(['cat'], stdin=-1, stdout=-1)\n"
        "child.stdin.write(b'1'); child.stdin.flush(); child.stdout.read(1)\n"
        "print(open(f'/proc/{child.pid}/comm').read(), child.kill(), child.wait())"
    ),
    "process_of_a_shell": (
        "import subprocess; print(subprocess.run(['sh', '-c', 'cat /proc/$$/comm; exit'], capture_output=True).stdout)"
    ),
    "multiprocessing_spawn": (
        "import multiprocessing, operator; print(multiprocessing.get_context('spawn').Pool(2).map(operator.neg, [1]))"
    ),
}

EXPECTED = {
    "numpy": "27000000",
    "pandas": "3",
    "matplotlib": "True True",
    "subprocess": ".\n",
    "shell": "from a shell",
    "threads": "4950",
    "asyncio": "[0, 1, 2]",
    "asyncio_subprocess": "b'child\\n'",
    "multiprocessing": "[1, 2]",
    "large_file": str(300 << 20),
    "temporary_file": "3",
    "database": "(2,)",
    "own_process": "True",
    "child_process": "cat\n None -9",
    "process_of_a_shell": "b'sh\\n'",
    "multiprocessing_spawn": "[-1]",
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of `executor`: nothing but what the work makes."""
    return tmp_path_factory.mktemp("work")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", WORK)
async def test_ordinary_work(name: str, executor: CodeExecutor, mode: Mode):
    await executor.execute("import asyncio")

    result = await executor.execute(WORK[name])

    assert result.text == EXPECTED[name], mode


@pytest.mark.asyncio
async def test_a_start_does_not_run_the_users_bashrc(tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch):
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    home.mkdir()
    workspace.mkdir()
    (home / ".bashrc").write_text("exit 3\n")
    monkeypatch.setenv("HOME", str(home))
    async with CodeExecutor(working_dir=workspace, sandbox=mode.sandbox) as executor:
        assert (await executor.execute("1 + 1")).text == "2"


if os.geteuid() == 0:  # nobody else needs Landlock for a /proc of their own

    @pytest.mark.kernel
    @pytest.mark.sandbox  # only the sandbox has namespaces
    @pytest.mark.asyncio
    @pytest.mark.parametrize("given", [{}, {"JOBLIB_MULTIPROCESSING": "1"}], ids=["default", "given"])
    async def test_without_landlock_joblib_starts_no_processes(
        tmp_path: Path, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(gateway_launch, "is_available", lambda: False)
        async with CodeExecutor(sandbox=True, working_dir=tmp_path, kernel_env=given) as executor:
            result = await executor.execute("import os; print(os.environ['JOBLIB_MULTIPROCESSING'])")
            inside = await executor.execute(WORK["own_process"])

        assert (result.text, inside.text) == (given.get("JOBLIB_MULTIPROCESSING", "0"), "False")
