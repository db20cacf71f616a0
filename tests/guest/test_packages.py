"""Python programs that a kernel starts find the packages of the workspace, as the kernel does."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ipybox import CodeExecutor
from ipybox.guest.packages import packages_dir
from tests.code_exec.cells import text
from tests.conftest import Mode

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Prints where two modules come from: one of a package, and one of the standard library that a package replaces.
SCRIPT = "import installed, quopri; print(installed.NAME, 'packages' in quopri.__file__)"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(tmp_path_factory: pytest.TempPathFactory, mode: Mode, shared: None) -> AsyncIterator[CodeExecutor]:
    workspace = tmp_path_factory.mktemp("workspace")
    packages = packages_dir(workspace)
    packages.mkdir(parents=True)
    for module in ("installed", "quopri"):
        (packages / f"{module}.py").write_text("NAME = 'a package'\n")
    (workspace / "script.py").write_text(SCRIPT)
    async with CodeExecutor(working_dir=workspace, sandbox=mode.sandbox) as executor:
        yield executor


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(SCRIPT, id="kernel"),
        pytest.param("!python script.py", id="shell"),
        pytest.param("%%bash\npython3 -P script.py", id="bash"),
        pytest.param("import subprocess, sys; subprocess.run([sys.executable, 'script.py']);", id="subprocess"),
        pytest.param("import os, sys; os.system(f'{sys.executable} -m script');", id="system"),
    ],
)
async def test_a_python_program_imports_packages_after_the_standard_library(executor: CodeExecutor, code: str):
    assert await text(executor, code) == "a package False"


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("run([*python, f'{prints}; os._exit(0)']);", id="no_flush_at_exit"),
        pytest.param("run([*python, f'{prints}; os.kill(os.getpid(), 9)'], stdout=sys.stdout);", id="killed"),
        pytest.param("import os; os.system(f'{sys.executable} -c \"{prints}; os._exit(0)\"');", id="system"),
        pytest.param(
            "worker = Popen([*python, f'{prints}; os.close(2); input()'], stdin=PIPE, stderr=PIPE)\n"
            "print(worker.stderr.read(), end='')",
            id="still_running",
        ),
    ],
)
async def test_lines_that_a_program_printed_arrive_however_it_ends(executor: CodeExecutor, code: str):
    setup = """
import functools, subprocess, sys
from subprocess import PIPE
run, Popen = (functools.partial(call, text=True) for call in (subprocess.run, subprocess.Popen))
python, prints = [sys.executable, "-c"], "import os; print('printed')"
"""
    assert (await text(executor, setup + code) or "").strip() == "printed"


@pytest.mark.parametrize(
    ("command", "by_line"),
    [
        pytest.param("!{command}", True, id="terminal"),
        pytest.param("%%bash\n{command}", False, id="captured"),
        pytest.param("%%bash\n{command} | cat", False, id="pipeline"),
        pytest.param("!{command} | cat", False, id="pipeline_of_a_terminal"),
        pytest.param("import os; os.system('{command}');", True, id="kernel"),
    ],
)
async def test_only_output_of_the_kernel_itself_goes_line_by_line(executor: CodeExecutor, command: str, by_line: bool):
    """Else a program before `| head` would report a broken pipe that it does not see in a shell."""
    program = 'python -c "import sys; print(sys.stdout.line_buffering)"'

    assert await text(executor, command.format(command=program)) == str(by_line)


@pytest.mark.parametrize(
    "run",
    [
        pytest.param("'other/bin/python', 'script.py'], ", id="another_environment"),
        pytest.param("sys.executable, 'script.py'], env=os.environ | {'IPYBOX_PACKAGES': ''}, ", id="no_variable"),
    ],
)
async def test_another_environment_does_not_have_them(executor: CodeExecutor, run: str):
    code = f"""
import os, subprocess, sys, venv
venv.create("other", with_pip=False, symlinks=True)
print(subprocess.run([{run}capture_output=True, text=True).stderr.splitlines()[-1])
"""
    assert await text(executor, code) == "ModuleNotFoundError: No module named 'installed'"


async def test_the_environment_keeps_its_own_start(executor: CodeExecutor):
    code = """
import os, subprocess, sys
os.makedirs("own", exist_ok=True)
open("own/sitecustomize.py", "w").write("print('own')")
environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], "own"])}
subprocess.run([sys.executable, "script.py"], env=environment);
"""
    assert await text(executor, code) == "own\na package False"
