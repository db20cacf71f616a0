"""pip as code in a kernel runs it: it installs for the workspace, by the host, and never into ipybox's environment."""

import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from importlib.metadata import distribution
from pathlib import Path

import pip
import pytest
import pytest_asyncio
from packaging.version import Version

from ipybox import ApprovalRequest, CodeExecutionResult, CodeExecutor
from ipybox.guest.tools.protocol import HOST_VARIABLE, PORT_VARIABLE, TOKEN_VARIABLE
from tests.conftest import Mode, both_modes
from tests.kernel_mgr.packages.index import Index, environment, tree
from tests.servers import WAIT

#: What pip runs by PIP_PYTHON.
RUNNER = Path(pip.__file__).with_name("__pip-runner__.py")


@pytest_asyncio.fixture
async def running(index: Index, place: Path, mode: Mode) -> AsyncIterator[CodeExecutor]:
    before = environment()
    async with CodeExecutor(working_dir=place, images_dir=place / "images", sandbox=mode.sandbox) as executor:
        yield executor
    assert environment() == before


async def said(executor: CodeExecutor, code: str) -> str:
    return (await executor.execute(code)).text or ""


@pytest.mark.parametrize(
    "line",
    [
        "!pip install fresh",
        "%pip install -q 'fresh>=1' --no-cache-dir",
        "!python -m pip install --user fresh",
        "%%bash\npip install fresh",
        "import subprocess, sys; _ = subprocess.run([sys.executable, '-m', 'pip', 'install', 'fresh'], check=True)",
        "import contextlib, pip\nwith contextlib.suppress(SystemExit): pip.main(['install', 'fresh'])",
    ],
)
async def test_pip_installs_for_the_workspace(line: str, running: CodeExecutor, index: Index, place: Path):
    index.wheel("fresh", "1.0")
    text = await said(running, line)
    assert ("Installed fresh-1.0" in text) == ("-q" not in line), text
    assert "restart the kernel" not in text
    assert await said(running, "import fresh; fresh.VERSION") == "'1.0'"
    assert "fresh.py" in tree(place)


async def test_files_of_requirements_are_installed(running: CodeExecutor, index: Index, place: Path):
    for name in ("one", "two", "three"):
        index.wheel(name, "1.0")
    (place / "sub").mkdir()
    (place / "requirements.txt").write_text(
        "# all\none==1.0  # pinned\n-r sub/more.txt\n\ntwo ; python_version > '3'\n"
    )
    (place / "sub" / "more.txt").write_text("three\n")
    text = await said(running, "!pip install -r requirements.txt")
    assert text.splitlines() == ["Installed one-1.0", "Installed two-1.0", "Installed three-1.0"]


async def test_what_can_not_be_done_fails_with_a_sentence(running: CodeExecutor, index: Index, place: Path):
    index.wheel("fresh", "1.0")
    for arguments, reason in (
        ("install missing-package", "missing-package was not found in the provided package locations"),
        ("install --target here fresh", "unrecognized arguments: --target"),
        ("install -e .", "unrecognized arguments: -e"),
        ("install --index-url http://127.0.0.1:9 fresh", "unrecognized arguments: --index-url"),
        ("install", "name at least one package"),
        ("install -r missing.txt", "missing.txt can't be read"),
        ("uninstall -y fresh", "can't remove 'fresh': it was not installed for this workspace"),
        ("uninstall -y", "name at least one package"),
    ):
        text = await said(running, f"!pip {arguments}; echo status $?")
        assert reason in text
        assert text.endswith("status 1")
        assert tree(place) == {}


async def test_pip_lists_what_the_kernel_can_import(running: CodeExecutor, index: Index):
    index.wheel("fresh", "1.0")
    await running.execute("!pip install fresh")
    assert "fresh==1.0" in (await said(running, "!pip freeze")).splitlines()
    assert "Version: 1.0" in await said(running, "!pip show fresh")
    assert "fresh" in await said(running, "%pip list")
    assert "from" in await said(running, "!pip --version")


async def test_a_package_is_removed_and_an_imported_one_stays_until_a_reset(
    running: CodeExecutor, index: Index, place: Path
):
    for name in ("fresh", "other"):
        index.wheel(name, "1.0")
    await running.execute("!pip install fresh other\nimport fresh")
    assert await said(running, "!pip uninstall -y Fresh") == (
        "Removed fresh-1.0\nA kernel that has imported fresh keeps the old modules until a reset."
    )
    assert [name for name in tree(place) if "fresh" in name] == []
    assert "other.py" in tree(place)
    assert "fresh" not in await said(running, "!pip list")


async def test_an_upgrade_says_what_to_do(running: CodeExecutor, index: Index):
    index.wheel("fresh", "1.0")
    text = await said(running, "!pip install -U fresh")
    assert "request a newer version" in text
    assert "Installed fresh-1.0" in text


@both_modes
async def test_code_in_the_sandbox_gets_packages_of_the_index_only(
    running: CodeExecutor, index: Index, place: Path, mode: Mode
):
    wheel = index.wheel("fresh", "1.0")
    text = await said(running, f"!pip install {wheel}; pip install 'fresh @ file://{wheel}'")
    assert text.count("can only install packages from the index") == (2 if mode.sandbox else 0)
    assert ("fresh.py" in tree(place)) != mode.sandbox


async def test_an_environment_of_its_own_keeps_its_pip(running: CodeExecutor, index: Index, place: Path):
    wheel = index.wheel("fresh", "1.0")
    (place / wheel.name).write_bytes(wheel.read_bytes())
    make = "import subprocess, sys; _ = subprocess.run([sys.executable, '-m', 'venv', 'own'], check=True)"
    await running.execute(make)
    text = await said(running, f"!own/bin/pip install --no-index ./{wheel.name}")
    assert "Successfully installed fresh-1.0" in text
    assert list(place.glob("own/lib/*/site-packages/fresh.py"))
    assert tree(place) == {}


@both_modes
async def test_installs_are_approved_as_calls_of_install_package(index: Index, place: Path, mode: Mode):
    index.wheel("fresh", "1.0")
    asked: list[str] = []
    async with CodeExecutor(working_dir=place, images_dir=place / "images", sandbox=mode.sandbox) as executor:
        for accept in (False, True):
            async for item in executor.stream("!pip install fresh"):
                match item:
                    case ApprovalRequest():
                        asked.append(str(item))
                        await (item.accept() if accept else item.reject("not today"))
                    case CodeExecutionResult():
                        assert item.text is not None
                        assert ("Installed fresh-1.0" if accept else "rejected: not today") in item.text
                    case _:
                        raise AssertionError(item)
    assert asked == ["ipybox.install_package(package_name='fresh')"] * 2


async def test_a_policy_can_deny_installs(index: Index, place: Path):
    index.wheel("fresh", "1.0")
    rules = place.parent / "rules.yaml"
    rules.write_text("rules:\n  - effect: deny\n    server: ipybox\n    tool: install_package\n")
    async with CodeExecutor(working_dir=place, images_dir=place / "images", approval_policy=rules) as executor:
        assert "denied by" in await said(executor, "!pip install fresh")
    assert tree(place) == {}


async def test_what_is_no_package_is_refused(running: CodeExecutor):
    for body in ("[]", "{", "{}", '{"package_name": 1}', '{"package_name": "%s"}' % ("[" * 3000)):
        code = f"""
import http.client, os
connection = http.client.HTTPConnection(os.environ["TOOL_SERVER_HOST"], int(os.environ["TOOL_SERVER_PORT"]))
headers = {{"Authorization": "token " + os.environ["TOOL_SERVER_TOKEN"]}}
connection.request("POST", "/install", {body!r}, headers)
answer = connection.getresponse()
print(answer.status, answer.read().decode())
"""
        assert await said(running, code) == '400 {"error": "not a package name of at most 2000 characters"}'


def test_pip_is_new_enough_to_run_another_program():
    """PIP_PYTHON came with pip 22.3."""
    assert Version(distribution("pip").version) >= Version("22.3")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "help"], capture_output=True, text=True, timeout=WAIT, check=True
    )
    assert "--python" in done.stdout


async def test_without_a_tool_server_pip_says_so(index: Index, place: Path):
    from ipybox.kernel_mgr.client import KernelClient
    from ipybox.kernel_mgr.server import KernelGateway

    async with (
        KernelGateway(port=None, working_dir=place) as gateway,
        KernelClient(endpoint=gateway.endpoint) as client,
    ):
        result = await client.execute("!pip install fresh")
    assert "packages can't be installed from here" in (result.text or "")


@pytest.mark.parametrize(
    ("requirements", "problem"),
    [
        ("-r all.txt\n", "name at least one package"),
        ("--index-url=https://example.org\n", "options are not supported, only packages and -r"),
        ("# nothing\n", "name at least one package"),
        ("a # comment\n", "can't install packages because ipybox can't be reached: "),
    ],
    ids=["itself", "option", "nothing", "nobody"],
)
def test_requirements_that_can_not_be_installed_say_why(requirements: str, problem: str, tmp_path: Path):
    (tmp_path / "all.txt").write_text(requirements)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        host, port = nobody.getsockname()
        done = subprocess.run(
            [sys.executable, "-P", "-m", "ipybox.guest.pip_command", tmp_path, RUNNER, "install", "-r", "all.txt"],
            cwd=tmp_path,
            env={HOST_VARIABLE: host, PORT_VARIABLE: str(port), TOKEN_VARIABLE: "token"},
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
        )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("ERROR: pip install: ")
    assert problem in done.stderr
