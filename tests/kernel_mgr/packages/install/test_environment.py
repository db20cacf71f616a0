"""What is installed must fit what kernels import already, and the disk."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from ipybox.kernel_mgr.packages import InstallError, PackageInstaller
from tests.kernel_mgr.packages.index import Index, failure, install, tree
from tests.servers import WAIT

#: Runs in a mount namespace of its own, where the workspace is a full file system.
FULL = """
import asyncio, subprocess, sys
from pathlib import Path
from ipybox.kernel_mgr.packages import InstallError, PackageInstaller
place = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", place], check=True)
try:
    asyncio.run(PackageInstaller(place).install("large"))
except InstallError as exc:
    print(exc, sorted(path.name for path in (place / ".ipybox").iterdir()))
"""


async def test_a_version_that_breaks_a_package_of_the_environment_is_refused(index: Index, place: Path):
    index.wheel("numpy", "1.0")
    message = await failure(place, "numpy<2")
    assert f"the installed pandas {version('pandas')} requires numpy" in message
    assert message.endswith("not 1.0")


async def test_a_replaced_package_is_named_with_the_reset(index: Index, place: Path):
    for number in ("1.0", "2.0"):
        index.wheel("fresh", number)
    installer = PackageInstaller(place)
    assert await installer.install("fresh<2") == "Installed fresh-1.0"
    assert (await installer.install("fresh>=2")).splitlines() == [
        "Installed fresh-2.0",
        "A kernel that has imported fresh keeps the old modules until a reset.",
    ]


async def test_only_packages_of_the_workspace_are_removed(index: Index, place: Path):
    index.wheel("fresh", "1.0")
    await install(place, "fresh")
    before = tree(place)
    with pytest.raises(InstallError, match="can't remove 'pandas': it was not installed for this workspace"):
        await PackageInstaller(place).uninstall("pandas")
    assert tree(place) == before


def test_a_full_disk_is_said_so_and_nothing_is_left(index: Index, place: Path):
    index.wheel("large", "1.0", {"large.py": "x = 1\n" * 50_000})
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", FULL, str(place)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False)
    assert f"the disk is full: free up space for {place / '.ipybox' / 'packages'}" in done.stdout, done.stderr
    assert "['.gitignore']" in done.stdout
