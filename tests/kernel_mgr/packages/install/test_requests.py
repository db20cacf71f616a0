"""What can be installed, what is refused, and what the kernel sees of it."""

import asyncio
import socket
from pathlib import Path

import pytest

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.kernel_mgr.packages.request import parse_request
from ipybox.sandbox.settings import SandboxSettings, load_settings
from tests.kernel_mgr.packages.index import Index, environment, failure, install, text, tree
from tests.servers import WAIT

#: Where a sandbox changes nothing: it builds sources, and these are wheels.
in_one_way = pytest.mark.parametrize("settings", [None], ids=["plain"], indirect=True)


async def test_running_kernel_imports_a_new_package_at_once_and_after_reset(index: Index, place: Path):
    index.wheel("fresh", "1.0")
    index.wheel("fresh", "2.0")
    before = environment()
    async with CodeExecutor(working_dir=place, images_dir=place / "images") as executor:
        with pytest.raises(CodeExecutionError, match="No module named 'fresh'"):
            await executor.execute("import fresh")
        assert await install(place, "fresh<2") == "Installed fresh-1.0"
        assert (await executor.execute("import fresh; fresh.VERSION")).text == "'1.0'"
        assert await install(place, "fresh>=2") == "Installed fresh-2.0"
        await executor.reset()
        assert (await executor.execute("import fresh; fresh.VERSION")).text == "'2.0'"
        assert (await executor.execute("import importlib.metadata as m; m.version('fresh')")).text == "'2.0'"
    assert environment() == before


@pytest.mark.kernel
@pytest.mark.sandbox
async def test_sandboxed_kernel_imports_a_new_package_and_can_not_write_it(index: Index, place: Path):
    index.wheel("fresh", "1.0")
    async with CodeExecutor(working_dir=place, images_dir=place / "images", sandbox=True) as executor:
        with pytest.raises(CodeExecutionError, match="No module named 'fresh'"):
            await executor.execute("import fresh")
        await install(place, "fresh", load_settings())
        assert (await executor.execute("import fresh; fresh.VERSION")).text == "'1.0'"
        with pytest.raises(CodeExecutionError, match=r"Read-only file system|not permitted|denied"):
            await executor.execute("open(fresh.__file__, 'w')")


async def test_packages_come_before_the_environment_and_after_the_standard_library(index: Index, place: Path):
    index.wheel("py", "1.0", {"pytest.py": "OURS = True\n", "textwrap.py": "raise ImportError('shadowed')\n"})
    await install(place, "py")
    async with CodeExecutor(working_dir=place, images_dir=place / "images") as executor:
        code = "import sys; sys.modules.pop('textwrap', None); import textwrap, pytest; pytest.OURS"
        assert (await executor.execute(code)).text == "True"


@in_one_way
async def test_what_is_installed_is_said_and_reused(index: Index, place: Path, settings: SandboxSettings | None):
    index.wheel("base", "1.0")
    index.wheel("top", "1.0", requires=["base"], extras={"more": "addon"})
    index.wheel("addon", "3.0")
    assert await install(place, "base", settings) == "Installed base-1.0"
    index.wheel("base", "2.0")
    assert await install(place, "top", settings) == "Installed top-1.0"
    assert await install(place, "top", settings) == "top 1.0 is already installed"
    assert await install(place, "top[more]", settings) == "Installed addon-3.0"
    assert await install(place, "packaging", settings) == f"packaging {environment()['packaging']} is already installed"
    unneeded = "absent is not needed here: its environment marker evaluates to false"
    specifier = 'absent; python_version < "3"'
    assert await install(place, specifier, settings) == unneeded.replace("absent", specifier, 1)
    assert "'1.0'" in text(place, "base.py")
    assert (place / ".ipybox/.gitignore").read_text() == "*\n"


async def test_upgrade_replaces_the_files_of_the_old_version(index: Index, place: Path):
    index.wheel(
        "tool",
        "1.0",
        {"tool/__init__.py": "", "tool/old.py": "", "gone.py": "", "tool-1.0.data/scripts/tool": "#!python\n"},
    )
    index.wheel("tool", "2.0", {"tool/__init__.py": "", "tool/new.py": ""})
    index.wheel("other", "1.0")
    await install(place, "tool==1.0")
    await install(place, "other")
    other = tree(place)["other.py"]
    assert {"tool/old.py", "gone.py", "bin/tool"} < tree(place).keys()
    assert await install(place, "tool==2.0") == "Installed tool-2.0"
    files = tree(place)
    assert {"tool/new.py", "other.py", "tool-2.0.dist-info/METADATA"} < files.keys()
    assert not [
        path for path in files if "old" in path or "gone" in path or ("1.0.dist-info" in path and "tool" in path)
    ]
    assert "bin/tool" not in files
    assert files["other.py"] == other


@in_one_way
@pytest.mark.parametrize(
    ("specifier", "reason"),
    [
        ("ipybox-no-such-package", "ipybox-no-such-package was not found in the provided package locations"),
        ("ipykernel<6", "The constraints are the package versions in ipybox's own environment"),
        ("wants-old-kernel", "wants-old-kernel depend on ipykernel<6 and ipykernel=="),
    ],
)
async def test_what_can_not_be_installed_is_refused_with_the_reason(
    index: Index, place: Path, settings: SandboxSettings | None, specifier: str, reason: str
):
    index.wheel("ipykernel", "5.0")
    index.wheel("wants_old_kernel", "1.0", requires=["ipykernel<6"])
    index.wheel("base", "1.0")
    await install(place, "base", settings)
    message = await failure(place, specifier, settings)
    assert message.startswith(f"can't install {specifier!r}:\n")
    assert reason in message


async def test_earlier_packages_keep_what_they_require(index: Index, place: Path):
    index.wheel("base", "1.0")
    index.wheel("base", "2.0")
    index.wheel("top", "1.0", requires=["base>=2"])
    await install(place, "top")
    assert "the installed top 1.0 requires base>=2, not 1.0" in await failure(place, "base<2")


@pytest.mark.parametrize(
    "specifier", ["", "  ", "--help", "-r x", "-e .", "a b", "one\ntwo", "no/such/path", "a==1 --index-url x"]
)
def test_options_and_several_words_are_no_package(tmp_path: Path, specifier: str):
    with pytest.raises(ValueError, match="is not a package"):
        parse_request(specifier, tmp_path)


def test_the_home_of_nobody_is_no_package(tmp_path: Path):
    with pytest.raises(ValueError, match="'~no-such-user/project' is not a package"):
        parse_request("~no-such-user/project", tmp_path)


@pytest.mark.parametrize(
    ("specifier", "kind", "name"),
    [
        ("numpy", "index", "numpy"),
        ("Foo_Bar [x] >= 2", "index", "foo-bar"),
        ("https://host.example/a-1-py3-none-any.whl", "wheel", None),
        ("a @ https://host.example/a-1.tar.gz", "source", "a"),
        ("git+https://host.example/a.git@main", "source", None),
        ("a @ file:///x/a-1-py3-none-any.whl", "wheel", "a"),
        ("a @ file:///x/a", "local", "a"),
        ("./project[more]", "local", None),
        ("project", "index", "project"),
        ("my project", "local", None),
    ],
)
def test_specifiers_say_where_a_package_is(tmp_path: Path, specifier: str, kind: str, name: str | None):
    (tmp_path / "project").mkdir()
    (tmp_path / "my project").mkdir()
    request = parse_request(specifier, tmp_path)
    assert (request.kind, request.name) == (kind, name)


async def test_no_network_is_reported_soon(index: Index, place: Path, monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
    async with asyncio.timeout(WAIT):
        message = await failure(place, "fresh", load_settings())
    assert "refused" in message
