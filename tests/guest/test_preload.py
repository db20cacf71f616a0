"""Modules that the template imports, which its kernels then have from their start."""

import asyncio
import multiprocessing.process
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ipybox import CodeExecutor
from ipybox.guest.packages import packages_dir
from ipybox.kernel_mgr import gateway_launch
from tests.conftest import Fifo, Mode
from tests.guest.spares import until_spare
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODULES = {
    "quiet": "import os; imported_by = os.getpid()",
    "threads": "import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
    "descriptors": "import os; opened = os.open('/dev/null', os.O_RDONLY)",
    "fails": "raise OSError('not today')",
    "last": "",
}

FOUND = f"""
import os, sys
print([name for name in {list(MODULES)} if name in sys.modules])
import quiet
print(quiet.imported_by not in (os.getpid(), os.getppid()))
"""


NOTICES = [
    "threads is not preloaded, because importing it starts threads; kernels import it on first use instead.",
    "descriptors is not preloaded, because importing it opens descriptors; kernels import it on first use instead.",
    "fails is not preloaded, because importing it failed; kernels try again on first use.",
    "absent is not preloaded, because importing it failed; kernels try again on first use.",
]


async def test_kernels_have_modules_that_a_fork_does_not_break(tmp_path: Path, mode: Mode):
    for name, code in MODULES.items():
        (tmp_path / f"{name}.py").write_text(code)
    options: dict[str, Any] = {"working_dir": tmp_path, "kernel_env": {"PYTHONPATH": str(tmp_path)}}
    async with (
        CodeExecutor(**options, sandbox=mode.sandbox, preload=[*MODULES, "absent"]) as executor,
        executor.sibling() as sibling,
    ):
        for kernel in (executor, sibling):
            result = await kernel.execute(FOUND)
            assert (result.text, result.notices) == ("['quiet', 'last']\nTrue", NOTICES)
            assert (await kernel.execute("1")).notices == []


#: A gateway whose first kernel does not wait for the template.
IMPATIENT = "from ipybox.guest import gateway, template_client; template_client.IMPORT_TIMEOUT = 0; gateway.main()"


async def test_an_import_that_takes_long_delays_forks_and_does_not_end_them(
    tmp_path: Path, mode: Mode, fifo: Fifo, monkeypatch: pytest.MonkeyPatch
):
    command = gateway_launch.GatewayConfig._command  # pyright: ignore[reportPrivateUsage] - no option is that short

    def impatient(config: gateway_launch.GatewayConfig) -> list[str]:
        python, _, _, _, *arguments = command(config)  # python -P -m MODULE
        return [python, "-P", "-c", IMPATIENT, *arguments]

    monkeypatch.setattr(gateway_launch.GatewayConfig, "_command", impatient)
    (tmp_path / "slow.py").write_text(f"with open({str(fifo.path)!r}) as file: file.readline()")
    options: dict[str, Any] = {"working_dir": tmp_path, "kernel_env": {"PYTHONPATH": str(tmp_path)}}
    found = "import sys; 'slow' in sys.modules"
    notice = "slow is not preloaded, because its import had not finished when this kernel started; this kernel imports "
    async with CodeExecutor(**options, sandbox=mode.sandbox, preload=["slow"]) as executor:
        async with executor.sibling() as sibling:
            for kernel in (executor, sibling):
                result = await kernel.execute(found)
                assert (result.text, result.notices) == ("False", [f"{notice}it on first use."])
        fifo.send("go")
        async with asyncio.timeout(WAIT):
            while (await executor.execute(found)).text != "True":
                await executor.reset()
        assert (await executor.execute("1")).notices == []


@pytest.mark.parametrize(
    ("module", "code"),
    [
        pytest.param("numpy.random", "import numpy.random; print(numpy.random.random(4))", id="numbers_of_numpy"),
        pytest.param(
            "multiprocessing.process",
            "from multiprocessing.process import current_process; print(bytes(current_process().authkey))",
            id="key_of_multiprocessing",
        ),
        pytest.param(
            "multiprocess.process",
            "from multiprocess.process import current_process; print(bytes(current_process().authkey))",
            id="key_of_multiprocess",
        ),
    ],
)
async def test_what_is_random_differs_between_kernels_that_have_it_preloaded(
    module: str, code: str, tmp_path: Path, mode: Mode
):
    """With the key of another session, code could run in a program there that listens for processes."""
    (tmp_path / "multiprocess").mkdir()
    shutil.copy(multiprocessing.process.__file__, tmp_path / "multiprocess")  # as in the package of that name
    draw = f"import sys; print({module!r} in sys.modules)\n{code}"
    options: dict[str, Any] = {"working_dir": tmp_path, "kernel_env": {"PYTHONPATH": str(tmp_path)}}
    async with (
        CodeExecutor(**options, sandbox=mode.sandbox, preload=[module]) as executor,
        executor.sibling() as sibling,
    ):
        drawn = [(await each.execute(draw)).text for each in (executor, sibling)]
        await until_spare(executor, sibling)
        await executor.reset()
        drawn.append((await executor.execute(draw)).text)
    assert len(set(drawn)) == 3
    assert all(each is not None and each.startswith("True\n") for each in drawn), drawn


async def test_pandas_is_preloaded_with_pyarrow(tmp_path: Path, mode: Mode):
    code = """
import sys; print('pandas' in sys.modules, 'pyarrow' in sys.modules)
import os, pandas, pyarrow
print(pyarrow.Table.from_pandas(pandas.DataFrame({"a": [1, 2]})).num_rows, "JE_ARROW_MALLOC_CONF" in os.environ)
"""
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox, preload=["pandas"]) as executor:
        result = await executor.execute(code)
    assert (result.text, result.notices) == ("True True\n2 False", [])


async def test_an_installed_package_is_preloaded_again(tmp_path: Path, mode: Mode):
    """Installations replace the directory as a whole."""
    packages = packages_dir(tmp_path)
    packages.mkdir(parents=True)
    (packages / "wheel.py").write_text("version = 1")
    loaded = "import sys; print('wheel' in sys.modules); import wheel; wheel.version"
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox, preload=["wheel"]) as executor:
        assert (await executor.execute(loaded)).text == "True\n1"
        await executor.execute("kept = 'kept'")
        spare = await until_spare(executor)
        old = packages.with_name("old")
        os.rename(packages, old)
        packages.mkdir()
        (packages / "wheel.py").write_text("version = 22")
        async with executor.sibling() as sibling:
            assert (await sibling.execute(loaded)).text == "True\n22"
            assert sibling.kernel_id != spare
        assert (await executor.execute("kept, wheel.version")).text == "('kept', 1)"
