"""The distributions of a release: what they contain, and that the wheel works where only its dependencies are."""

import email
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.conftest import Mode
from tests.servers import ROOT

#: Seconds to build both, which downloads the build backend.
BUILD_TIMEOUT = 300

#: Seconds to install without dependencies, and to run a cell.
TIMEOUT = 60

VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

CELL = """
import sys
from ipybox import Executor
import ipybox

assert ipybox.__file__.startswith(sys.prefix), ipybox.__file__
with Executor(sandbox={sandbox}) as executor:
    print(executor.run("import ipybox.guest; ipybox.guest.__file__").text.strip("'"))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the sdist, and of the wheel that was built from it."""
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "uv", "build", "--quiet", "--out-dir", str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=BUILD_TIMEOUT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def sources() -> set[str]:
    """Returns the files of the package in this checkout, without those that git ignores."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "ipybox"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {path for path in listed.split("\0") if path and (ROOT / path).exists()}


def test_wheel_contains_the_package_and_nothing_else(built: Path):
    with zipfile.ZipFile(built / f"ipybox-{VERSION}-py3-none-any.whl") as wheel:
        names = set(wheel.namelist())
        about = {name for name in names if name.startswith(f"ipybox-{VERSION}.dist-info/")}
        metadata = email.message_from_bytes(wheel.read(f"ipybox-{VERSION}.dist-info/METADATA"))
        license_text = wheel.read(f"ipybox-{VERSION}.dist-info/licenses/LICENSE")

    assert names - about == sources()
    assert "ipybox/py.typed" in names
    assert license_text == (ROOT / "LICENSE").read_bytes()
    assert (metadata["Version"], metadata["License-Expression"]) == (VERSION, "Apache-2.0")
    assert metadata.get_payload(decode=True) == (ROOT / "README.md").read_bytes()


def test_sdist_contains_what_the_wheel_is_made_of(built: Path):
    with tarfile.open(built / f"ipybox-{VERSION}.tar.gz") as sdist:
        names = {member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile()}

    about = {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", ".gitignore", "pyproject.toml"}
    assert names == sources() | about


def test_wheel_works_in_an_environment_that_has_only_its_dependencies(built: Path, tmp_path: Path, mode: Mode):
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    wheel = built / f"ipybox-{VERSION}-py3-none-any.whl"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True, timeout=TIMEOUT)
    # Python reads no .pth files there, so this checkout is not on the path.
    (packages,) = (environment / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))

    workspace = tmp_path / "workspace"
    workspace.mkdir()

    script = CELL.format(sandbox=mode.sandbox)
    run = subprocess.run([python, "-c", script], cwd=workspace, capture_output=True, text=True, timeout=TIMEOUT)
    program = [environment / "bin" / "ipybox", "--version"]
    version = subprocess.run(program, cwd=workspace, capture_output=True, text=True, timeout=TIMEOUT)

    assert run.returncode == 0, run.stderr
    assert Path(run.stdout.strip()).is_relative_to(packages)
    assert version.stdout == f"{VERSION}\n"
