"""Modules that the template imports, which its kernels then have from their start."""

import os
from pathlib import Path
from typing import Any

import pytest

from ipybox import CodeExecutor
from ipybox.guest.packages import packages_dir
from tests.conftest import Mode

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


async def test_kernels_have_modules_that_a_fork_does_not_break(tmp_path: Path, mode: Mode):
    for name, code in MODULES.items():
        (tmp_path / f"{name}.py").write_text(code)
    options: dict[str, Any] = {"working_dir": tmp_path, "kernel_env": {"PYTHONPATH": str(tmp_path)}}
    async with (
        CodeExecutor(**options, sandbox=mode.sandbox, preload=[*MODULES, "absent"]) as executor,
        executor.sibling() as sibling,
    ):
        for kernel in (executor, sibling):
            assert (await kernel.execute(FOUND)).text == "['quiet', 'last']\nTrue"


async def test_an_installed_package_is_preloaded_again(tmp_path: Path, mode: Mode):
    """Installations replace the directory as a whole."""
    packages = packages_dir(tmp_path)
    packages.mkdir(parents=True)
    (packages / "wheel.py").write_text("version = 1")
    loaded = "import sys; print('wheel' in sys.modules); import wheel; wheel.version"
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox, preload=["wheel"]) as executor:
        assert (await executor.execute(loaded)).text == "True\n1"
        await executor.execute("kept = 'kept'")
        old = packages.with_name("old")
        os.rename(packages, old)
        packages.mkdir()
        (packages / "wheel.py").write_text("version = 22")
        async with executor.sibling() as sibling:
            assert (await sibling.execute(loaded)).text == "True\n22"
        assert (await executor.execute("kept, wheel.version")).text == "('kept', 1)"
