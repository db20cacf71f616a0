"""A Python environment and an srt below what the settings hide, as those of a Claude Code plugin and of npm are."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.servers import NODE_MODULES, ROOT, WAIT

pytestmark = pytest.mark.sandbox

CODE = """
import errno, os, sys
import beside_ipybox

home = os.path.expanduser("~")
print(sys.prefix.endswith("claude/plugins/data/codeact/envs/1"), beside_ipybox.ANSWER)
for name in (".claude.json", ".claude/.credentials.json", ".claude/plugins/data/codeact/notes"):
    try:
        print(open(f"{home}/{name}").read())
    except OSError as error:
        print(name, errno.errorcode[error.errno])
for directory in (sys.prefix, os.path.dirname(beside_ipybox.__file__)):
    try:
        open(f"{directory}/x", "w")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""

APPLICATION = """
import asyncio, sys
from pathlib import Path
from ipybox import CodeExecutor

async def main(code, profile):
    async with CodeExecutor(sandbox=True, sandbox_config=profile) as executor:
        print((await executor.execute(code, timeout=30)).text)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(params=["directory", "link"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A home with what Claude Code keeps there, whose directory may be a link to where somebody keeps such files."""
    home = tmp_path / "home"
    if request.param == "link":
        (home / "dotfiles" / "claude").mkdir(parents=True)
        (home / ".claude").symlink_to("dotfiles/claude")
    plugin = home / ".claude" / "plugins" / "data" / "codeact"
    plugin.mkdir(parents=True)
    (home / "project").mkdir()
    for secret in (home / ".claude.json", home / ".claude" / ".credentials.json", plugin / "notes"):
        secret.write_text("secret")
    return home


@pytest.fixture
def python(home: Path) -> Path:
    """The interpreter of an environment in that home, which has the packages of the one that runs the tests."""
    environment = home / ".claude" / "plugins" / "data" / "codeact" / "envs" / "1"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=WAIT)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "packages.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    (packages / "beside_ipybox.py").write_text("ANSWER = 42\n")
    return environment / "bin" / "python"


def run(python: Path | str, home: Path, code: str, profile: str, path: str = os.environ["PATH"]) -> list[str]:
    """Returns what code prints in a sandboxed kernel of an application that runs by this interpreter, in this home."""
    done = subprocess.run(
        [python, "-c", APPLICATION, code, profile],
        cwd=home / "project",
        env={**os.environ, "HOME": str(home), "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=4 * WAIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("profile", ["default", "workspace"])
def test_a_kernel_runs_from_it_and_what_is_around_it_stays_hidden(home: Path, python: Path, profile: str):
    environment, *secrets, prefix, package = run(python, home, CODE, profile)

    assert environment == "True 42"
    assert [line.rpartition(" ")[2] in ("ENOENT", "EACCES") for line in secrets] == [True] * 3, secrets
    assert {prefix, package} <= {"EROFS", "EACCES"}


def test_an_srt_that_npm_has_put_into_a_hidden_home_works(tmp_path: Path):
    home = tmp_path / "home"
    modules = home / ".npm-global" / "lib" / "node_modules"
    package = modules / "@anthropic-ai" / "sandbox-runtime"
    shutil.copytree(NODE_MODULES / "@anthropic-ai" / "sandbox-runtime", package, symlinks=True)
    for dependency in NODE_MODULES.iterdir():
        if dependency.name not in (".bin", "@anthropic-ai"):
            (modules / dependency.name).symlink_to(dependency)
    programs = home / ".npm-global" / "bin"
    programs.mkdir()
    (programs / "srt").symlink_to(package / "dist" / "cli.js")
    (home / "project").mkdir()
    code = "import os; print(os.listdir(os.path.expanduser('~/.npm-global/lib/node_modules')))"

    path = f"{programs}{os.pathsep}{os.environ['PATH']}"

    assert run(sys.executable, home, code, "workspace", path) == ["['@anthropic-ai']"]
