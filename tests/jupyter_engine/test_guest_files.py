"""What is sent to kernels of other servers."""

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ipybox.errors import ExecutionError
from ipybox.guest import protocol
from ipybox.guest.comm import bridge
from ipybox.jupyter_engine import guest_files
from ipybox.jupyter_engine.guest_files import GuestFiles

ROOT = Path(__file__).parents[2]


def test_the_runtime_is_complete_without_an_installed_ipybox(tmp_path: Path) -> None:
    zipfile.ZipFile(io.BytesIO(GuestFiles(tmp_path / "mcptools").archive().data)).extractall(tmp_path / "sent")
    code = """
import importlib, pkgutil, sys, types
comm = sys.modules["ipybox_comm"] = types.ModuleType("ipybox_comm")
sys.path.insert(0, sys.argv[1])
import ipybox
for module in pkgutil.walk_packages(ipybox.__path__, "ipybox."):
    importlib.import_module(module.name)
print([name for name, module in sys.modules.items()
       if name.startswith("ipybox.") and not module.__file__.startswith(sys.argv[1])])
"""
    run = subprocess.run(
        [sys.executable, "-I", "-c", code, str(tmp_path / "sent")], capture_output=True, text=True, check=False
    )

    assert (run.stdout, run.stderr) == ("[]\n", "")


def test_files_are_read_again_only_when_one_has_changed(tmp_path: Path) -> None:
    package = tmp_path / "mcptools" / "clock"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / ".now.schema.json").write_text("{}")
    (package / "secret.env").write_text("not sent")
    os.symlink("/etc/passwd", package / "link.py")
    files = GuestFiles(tmp_path / "mcptools")
    first = files.archive()

    assert files.archive() is first
    names = zipfile.ZipFile(io.BytesIO(first.data)).namelist()
    assert [name for name in names if name.startswith("mcptools")] == [
        "mcptools/clock/.now.schema.json",
        "mcptools/clock/__init__.py",
    ]
    (package / "now.py").write_text("")
    assert files.archive().sha256 != first.sha256


def test_too_much_is_an_error_that_names_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_files, "MAX_BYTES", 10)
    (tmp_path / "large.py").write_text("#" * 11)

    with pytest.raises(ExecutionError, match=f"generated packages in {tmp_path} can't be sent"):
        GuestFiles(tmp_path).archive()


def test_the_bridge_has_the_fields_of_the_protocol() -> None:
    assert (bridge.INPUTS, bridge.READ) == (protocol.INPUTS, protocol.READ)
    assert protocol.VARIABLE_ERROR in bridge.failure(ValueError("x"))
