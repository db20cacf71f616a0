"""Packages for kernels, out of small archives that are made here. Builds of source archives tell what they could do."""

import asyncio
import base64
import hashlib
import io
import json
import os
import socket
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.metadata import distributions, requires
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from packaging.requirements import Requirement

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.packages import InstallError, PackageInstaller, packages_dir
from ipybox.packages.distributions import closure
from ipybox.packages.pip import Pip, PipError, PipSettings
from ipybox.packages.request import parse_request
from ipybox.packages.store import PackageStore
from ipybox.sandbox.settings import SandboxSettings, load_settings
from tests.conftest import Fifo
from tests.servers import WAIT, descendants, until_dead

#: Seconds that an install may take: builds in the sandbox run pip four times on a busy machine.
INSTALL = 6 * WAIT

#: A build backend that tries what it should not, and puts into the package what came of it.
BACKEND = """
import importlib, json, os, pathlib, urllib.request, zipfile

def attempt(action):
    try:
        return str(action())
    except OSError as exc:
        return type(exc).__name__

def request(url, **proxies):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
    return opener.open(url, timeout=5).status

def get_requires_for_build_wheel(config_settings=None):
    return json.loads(pathlib.Path("plan.json").read_text())["dynamic"]

def build_wheel(directory, config_settings=None, metadata_directory=None):
    plan = json.loads(pathlib.Path("plan.json").read_text())
    results = {"written": attempt(lambda: pathlib.Path(plan["marker"]).write_text("built"))}
    results["read"] = attempt(lambda: pathlib.Path(plan["secret"]).read_text())
    results["environment"] = repr(dict(os.environ))
    if plan["url"]:
        proxy = os.environ.get("HTTP_PROXY", "")
        results["direct"] = attempt(lambda: request(plan["url"]))
        results["proxy"] = attempt(lambda: request(plan["url"], http=proxy))
    for module in plan["imports"]:
        results[module] = importlib.import_module(module).VERSION
    if plan["fifo"]:
        pathlib.Path(plan["fifo"]).open("w").write("building\\n")
        open(plan["fifo"] + ".never").read()
    name, version = plan["name"], plan["version"]
    info = f"{name}-{version}.dist-info"
    wheel = f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, wheel), "w") as archive:
        archive.writestr(f"{name}.py", f"RESULTS = {results!r}\\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel
"""


class Index:
    """A directory of archives, as pip finds them with `--find-links`."""

    def __init__(self, directory: Path):
        directory.mkdir()
        self.directory = directory
        #: What builds write if they can.
        self.marker = directory.with_name("marker")

    def wheel(
        self,
        name: str,
        version: str,
        files: Mapping[str, str] | None = None,
        requires: Iterable[str] = (),
        extras: Mapping[str, str] | None = None,
    ) -> Path:
        info = f"{name}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
        for extra, requirement in (extras or {}).items():
            metadata += f'Provides-Extra: {extra}\nRequires-Dist: {requirement}; extra == "{extra}"\n'
        content = {
            **({f"{name}.py": f"VERSION = {version!r}\n"} if files is None else files),
            f"{info}/METADATA": metadata,
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = "".join(f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in content.items())
        content[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
        path = self.directory / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for entry, text in content.items():
                archive.writestr(entry, text)
        return path

    def source(self, name: str, version: str, **plan: Any) -> Path:
        path = self.directory / f"{name}-{version}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for entry, text in self.project(name, version, **plan).items():
                member = tarfile.TarInfo(f"{name}-{version}/{entry}")
                member.size = len(text.encode())
                archive.addfile(member, io.BytesIO(text.encode()))
        return path

    def project(
        self,
        name: str,
        version: str,
        *,
        secret: Path | None = None,
        fifo: Path | None = None,
        url: str | None = None,
        requires: Sequence[str] = (),
        dynamic: Sequence[str] = (),
        imports: Sequence[str] = (),
    ) -> dict[str, str]:
        """Returns the files of a project, whose build has these requirements and does what `BACKEND` says."""
        plan = {"name": name, "version": version, "marker": str(self.marker), "secret": str(secret or "/none")}
        plan |= {"fifo": fifo and str(fifo), "url": url, "dynamic": dynamic, "imports": imports}
        return {
            "pyproject.toml": dedent(f"""\
                [build-system]
                requires = {json.dumps(requires)}
                build-backend = "backend"
                backend-path = ["."]
                [project]
                name = "{name}"
                version = "{version}"
                """),
            "backend.py": BACKEND,
            "plan.json": json.dumps(plan),
            "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        }


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    made = Index(tmp_path / "index")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.directory))
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "cache"))
    return made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A workspace."""
    directory = tmp_path / "work"
    directory.mkdir()
    (directory / ".env").write_text("SECRET=1")
    return directory


@pytest.fixture(params=[None, "default"], ids=["plain", "sandbox"])
def settings(request: pytest.FixtureRequest) -> SandboxSettings | None:
    return None if request.param is None else load_settings(request.param)


async def install(workspace: Path, specifier: str, settings: SandboxSettings | None = None) -> str:
    async with asyncio.timeout(INSTALL):
        return await PackageInstaller(workspace, settings).install(specifier)


async def failure(workspace: Path, specifier: str, settings: SandboxSettings | None = None) -> str:
    before = tree(workspace)
    with pytest.raises(InstallError) as info:
        await install(workspace, specifier, settings)
    assert tree(workspace) == before
    return str(info.value)


def tree(workspace: Path) -> dict[str, int]:
    packages = packages_dir(workspace)
    return {str(path.relative_to(packages)): path.lstat().st_ino for path in packages.rglob("*") if path.is_file()}


def text(workspace: Path, file: str) -> str:
    return (packages_dir(workspace) / file).read_text()


def results(workspace: Path, name: str) -> dict[str, str]:
    namespace: dict[str, dict[str, str]] = {}
    exec(text(workspace, f"{name}.py"), namespace)
    return namespace["RESULTS"]


def environment() -> dict[str, str]:
    return {found.name: found.version for found in distributions()}


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


async def test_what_is_installed_is_said_and_reused(index: Index, place: Path, settings: SandboxSettings | None):
    index.wheel("base", "1.0")
    index.wheel("top", "1.0", requires=["base"], extras={"more": "addon"})
    index.wheel("addon", "3.0")
    assert await install(place, "base", settings) == "Installed base-1.0"
    index.wheel("base", "2.0")
    assert await install(place, "top", settings) == "Installed top-1.0"
    assert await install(place, "top", settings) == "top 1.0 is installed already"
    assert await install(place, "top[more]", settings) == "Installed addon-3.0"
    assert (
        await install(place, "packaging", settings)
        == f"packaging {closure('ipybox')['packaging']} is installed already"
    )
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


@pytest.mark.parametrize(
    ("specifier", "reason"),
    [
        ("ipybox-no-such-package", "No matching distribution found for ipybox-no-such-package"),
        ("ipykernel<6", "(constraint) ipykernel=="),
        ("wants-old-kernel", "wants-old-kernel 1.0 depends on ipykernel<6"),
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
    assert "ResolutionImpossible" not in message


async def test_earlier_packages_keep_what_they_require(index: Index, place: Path):
    index.wheel("base", "1.0")
    index.wheel("base", "2.0")
    index.wheel("top", "1.0", requires=["base>=2"])
    await install(place, "top")
    assert "top 1.0, which is installed, requires base>=2, but not 1.0" in await failure(place, "base<2")


@pytest.mark.parametrize(
    "specifier", ["", "  ", "--help", "-r x", "-e .", "a b", "one\ntwo", "no/such/path", "a==1 --index-url x"]
)
def test_options_and_several_words_are_no_package(tmp_path: Path, specifier: str):
    with pytest.raises(ValueError, match="is not a package"):
        parse_request(specifier, tmp_path)


@pytest.mark.parametrize(
    ("specifier", "kind", "name"),
    [
        ("numpy", "index", "numpy"),
        ("Foo_Bar [x] >= 2", "index", "foo-bar"),
        ("https://host.example/a-1-py3-none-any.whl", "wheel", None),
        ("a @ https://host.example/a-1.tar.gz", "source", "a"),
        ("git+https://host.example/a.git@main", "source", None),
        ("a @ file:///x/a-1-py3-none-any.whl", "source", "a"),
        ("./project[more]", "source", None),
        ("project", "index", "project"),
    ],
)
def test_specifiers_say_where_a_package_is(tmp_path: Path, specifier: str, kind: str, name: str | None):
    (tmp_path / "project").mkdir()
    request = parse_request(specifier, tmp_path)
    assert (request.kind, request.name) == (kind, name)


async def test_no_network_is_reported_soon(index: Index, place: Path, monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
    async with asyncio.timeout(WAIT):
        message = await failure(place, "fresh", load_settings())
    assert "No connection to the index" in message
    assert "refused" in message


async def test_source_is_built_on_the_host_without_a_sandbox(index: Index, place: Path):
    index.source("built", "1.0", secret=place / ".env")
    assert await install(place, "built") == "Installed built-1.0"
    assert index.marker.read_text() == "built"
    assert results(place, "built")["read"] == "SECRET=1"


async def test_source_is_built_in_the_sandbox_away_from_everything(index: Index, place: Path):
    index.source("built", "1.0", secret=place / ".env")
    index.wheel("top", "1.0", requires=["built"])
    assert await install(place, "top", load_settings()) == "Installed top-1.0, built-1.0"
    assert not index.marker.exists()
    found = results(place, "built")
    assert found["written"] in ("OSError", "PermissionError")
    assert "SECRET" not in found["read"]


async def test_build_sees_neither_the_home_nor_any_host_nor_passwords_of_the_index(
    index: Index, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: SandboxSettings | None
):
    home = tmp_path / "home"
    home.mkdir()
    (home / "notes.txt").write_text("PRIVATE")
    monkeypatch.setenv("HOME", str(home))
    async with served(index.directory) as port:
        index.source("built", "1.0", secret=home / "notes.txt", url=f"http://127.0.0.1:{port}/built/")
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://user:passw0rd@127.0.0.1:{port}")
        assert await install(place, "built", settings) == "Installed built-1.0"
    found = results(place, "built")
    plain = settings is None
    assert (found["read"] == "PRIVATE") == plain
    assert (found["direct"] == "200") == plain
    assert plain or found["proxy"] != "200"
    assert ("passw0rd" in found["environment"]) == plain


async def test_build_reaches_the_hosts_that_the_settings_allow(
    index: Index, place: Path, monkeypatch: pytest.MonkeyPatch
):
    async with served(index.directory) as port:
        index.source("built", "1.0", url=f"http://127.0.0.1:{port}/built/")
        assert await install(place, "built", load_settings(None, [f"127.0.0.1:{port}"])) == "Installed built-1.0"
    assert results(place, "built")["proxy"] == "200"


async def test_requirements_of_a_build_are_fetched_and_built_before(
    index: Index, place: Path, settings: SandboxSettings | None
):
    index.wheel("static", "1.0", requires=["deep"])
    index.wheel("deep", "3.0")
    index.wheel("late", "4.0")
    index.wheel("late", "5.0")
    # Both are sources, and have requirements of their own.
    index.wheel("tool", "1.0", {"tool.py": "VERSION = 'wheel'"})
    index.source("tool_source", "2.0", requires=["tool"], imports=["tool"])
    index.source("built", "1.0", requires=["static"], dynamic=["late<5", "tool-source"], imports=["deep", "late"])
    assert await install(place, "built", settings) == "Installed built-1.0"
    found = results(place, "built")
    assert (found["deep"], found["late"]) == ("3.0", "4.0")
    assert [name for name in tree(place) if name.endswith("/METADATA")] == ["built-1.0.dist-info/METADATA"]
    assert index.marker.exists() == (settings is None)


@pytest.mark.parametrize(
    ("requires", "dynamic", "reason"),
    [
        (["absent>=2"], [], "No matching distribution found for absent>=2\nThe build of built requires that."),
        ([], ["absent"], "No matching distribution found for absent\nThe build of built requires that."),
        ([], ["built"], "built can't be built: that requires built itself"),
    ],
)
async def test_build_whose_requirements_are_not_to_be_had_fails_with_the_reason(
    index: Index, place: Path, requires: list[str], dynamic: list[str], reason: str
):
    index.source("built", "1.0", requires=requires, dynamic=dynamic)
    assert reason in await failure(place, "built", load_settings())


async def test_build_can_not_ask_for_more_requirements_without_end(index: Index, place: Path):
    project = place / "project"
    project.mkdir()
    for name, content in index.project("built", "1.0").items():
        (project / name).write_text(content)
    more = """
def get_requires_for_build_wheel(config_settings=None):
    with open("../asked", "a+") as file:
        file.write("x")
        return [f"fresh{file.tell()}"]
"""
    (project / "backend.py").write_text(BACKEND + more)
    for number in range(1, 10):
        index.wheel(f"fresh{number}", "1.0")
    assert "No matching distribution found for fresh4" in await failure(place, "./project", load_settings())


@pytest.mark.parametrize("kind", ["option", "no list", "no text", "deep", "many", "link", "pipe"])
def test_requirements_that_a_build_has_made_up_are_refused(tmp_path: Path, kind: str):
    file = tmp_path / "requirements.json"
    content: dict[str, str] = {
        "option": '["--index-url=https://host.example"]',
        "no list": "7",
        "no text": "[[]]",
        "deep": "[" * 100_000,
        "many": json.dumps([f"fresh{number}" for number in range(1000)]),
    }
    if kind == "link":
        (tmp_path / "secret").write_text('["fresh"]')
        file.symlink_to(tmp_path / "secret")
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.write_text(content[kind])
    with pytest.raises(PipError):
        Pip(tmp_path, tmp_path, PipSettings({}, [], []), "build").build_requirements()


async def test_local_project_shows_its_build_only_itself_and_is_not_changed(index: Index, place: Path):
    project = place / "project"
    project.mkdir()
    (place / "neighbor.txt").write_text("NEIGHBOR")
    for name, content in index.project("built", "1.0", secret=place / "neighbor.txt").items():
        (project / name).write_text(content)
    (project / "backend.py").write_text(f"open('left', 'w').write('x')\n{BACKEND}")
    before = sorted(path.name for path in project.iterdir())
    assert await install(place, "./project", load_settings()) == "Installed built-1.0"
    assert "NEIGHBOR" not in results(place, "built")["read"]
    assert sorted(path.name for path in project.iterdir()) == before


async def test_temporary_directory_in_the_workspace_is_not_used(
    index: Index, place: Path, monkeypatch: pytest.MonkeyPatch, settings: SandboxSettings | None
):
    temporary = place / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = temporary.stat().st_mtime_ns
    index.source("built", "1.0")
    await install(place, "built", settings)
    assert temporary.stat().st_mtime_ns == before, "something was made there"
    assert str(temporary) not in results(place, "built")["environment"]


async def test_sandbox_builds_what_the_index_on_a_loopback_port_has(
    index: Index, place: Path, monkeypatch: pytest.MonkeyPatch
):
    index.source("built", "1.0")
    async with served(index.directory) as port:
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}")
        assert await install(place, "built", load_settings()) == "Installed built-1.0"
    assert not index.marker.exists()


async def test_wheel_that_depends_on_source_by_url_builds_nothing_on_the_host(index: Index, place: Path):
    source = index.source("built", "1.0")
    index.wheel("top", "1.0", requires=[f"built @ {source.as_uri()}"])
    assert await install(place, "top", load_settings()) == "Installed top-1.0, built-1.0"
    assert not index.marker.exists()


async def test_local_project_is_built_with_the_rights_of_the_kernel(
    index: Index, place: Path, settings: SandboxSettings | None
):
    project = place / "project"
    project.mkdir()
    for name, content in index.project("built", "1.0", secret=place / ".env").items():
        (project / name).write_text(content)
    assert await install(place, "./project", settings) == "Installed built-1.0"
    assert index.marker.exists() == (settings is None)
    assert ("SECRET" in results(place, "built")["read"]) == (settings is None)


async def test_repository_is_cloned_and_built(
    index: Index, place: Path, tmp_path: Path, settings: SandboxSettings | None
):
    repository = tmp_path / "repository"
    repository.mkdir()
    for name, content in index.project("built", "1.0").items():
        (repository / name).write_text(content)
    identity = ["-c", "user.name=a", "-c", "user.email=a@host.example"]
    for arguments in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "first"]):
        process = await asyncio.create_subprocess_exec("git", *arguments, cwd=repository)
        assert await process.wait() == 0
    assert await install(place, f"git+{repository.as_uri()}", settings) == "Installed built-1.0"
    assert index.marker.exists() == (settings is None)
    missing = await failure(place, f"git+{repository.as_uri()}-missing", settings)
    assert "does not appear to be a git repository" in missing or "does not exist" in missing


async def test_host_that_builds_must_not_reach_is_reported_with_the_setting(index: Index, place: Path):
    message = await failure(place, "git+https://127.0.0.1:9/project.git", load_settings())
    assert "'network.allowedDomains'" in message


async def test_local_wheel_is_installed(index: Index, place: Path, settings: SandboxSettings | None):
    wheel = index.wheel("fresh", "1.0")
    wheel.rename(place / wheel.name)
    assert await install(place, wheel.name, settings) == "Installed fresh-1.0"


async def test_wheel_executes_nothing(index: Index, place: Path):
    writes = f"open({str(index.marker)!r}, 'w')"
    names = ("sitecustomize.py", "usercustomize.py", "setup.py", "pip.py", "conftest.py", "json.py")
    index.wheel("evil", "1.0", {"evil.pth": f"import sys; {writes}\n", **dict.fromkeys(names, f"{writes}\n")})
    index.wheel("fresh", "1.0")
    assert await install(place, "evil", load_settings()) == "Installed evil-1.0"
    assert await install(place, "fresh", load_settings()) == "Installed fresh-1.0"
    assert not index.marker.exists()


@pytest.mark.parametrize("entry", ["../evil.py", "/../../evil.py", "hostile-1.0.data/data/../../../../../evil.py"])
async def test_wheel_can_not_write_elsewhere(index: Index, place: Path, entry: str):
    index.wheel("hostile", "1.0", {"hostile.py": "", entry: ""})
    before = set(place.parent.rglob("*"))
    await failure(place, "hostile", load_settings())
    after = set(place.parent.rglob("*"))
    assert not [path for path in after - before if "evil" in path.name]


@pytest.mark.parametrize("kind", ["symlink", "hardlink", "fifo", "whole"])
async def test_only_files_and_directories_are_taken_over(tmp_path: Path, place: Path, kind: str):
    secret = tmp_path / "secret"
    secret.write_text("SECRET")
    staged = tmp_path / "staged"
    info = staged / "a-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: a\nVersion: 1\n")
    match kind:
        case "symlink":
            (staged / "a.py").symlink_to(secret)
        case "hardlink":
            (staged / "a.py").hardlink_to(secret)
        case "fifo":
            os.mkfifo(staged / "a.py")
        case _:
            staged = staged.rename(tmp_path / "elsewhere")
            (tmp_path / "link").symlink_to(staged)
            staged = tmp_path / "link"
    async with PackageStore.turn(place) as store:
        with pytest.raises(InstallError):
            store.take_over(staged)
    assert [path.name for path in (place / ".ipybox").iterdir() if "packages" in path.name] == []


async def test_links_in_the_place_of_our_directories_are_not_followed(index: Index, place: Path, tmp_path: Path):
    index.wheel("fresh", "1.0")
    outside = tmp_path / "outside"
    outside.mkdir()
    (place / ".ipybox").symlink_to(outside)
    with pytest.raises(NotADirectoryError):
        await install(place, "fresh")
    (place / ".ipybox").unlink()
    (place / ".ipybox").mkdir()
    packages_dir(place).symlink_to(outside)
    with pytest.raises(InstallError, match="remove it"):
        await install(place, "fresh")
    assert not list(outside.iterdir())


async def test_installs_take_turns(index: Index, place: Path):
    names = ["one", "two", "three"]
    for name in names:
        index.wheel(name, "1.0")
    code = "import asyncio, sys; from ipybox.packages import *; from pathlib import Path; "
    code += "print(asyncio.run(PackageInstaller(Path(sys.argv[1])).install('three')))"
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(place), stdout=asyncio.subprocess.PIPE)
    done = await asyncio.gather(install(place, "one"), install(place, "two"), other.communicate())
    assert done == ["Installed one-1.0", "Installed two-1.0", (b"Installed three-1.0\n", None)]
    assert {f"{name}.py" for name in names} < tree(place).keys()


async def test_cancelled_install_leaves_nothing_behind(index: Index, place: Path, fifo: Fifo):
    index.wheel("fresh", "1.0")
    index.source("slow", "1.0", fifo=fifo.path)
    os.mkfifo(f"{fifo.path}.never")
    await install(place, "fresh")
    before = tree(place)
    work = asyncio.create_task(install(place, "slow"))
    await fifo.until("building")
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert tree(place) == before
    assert await install(place, "fresh") == "fresh 1.0 is installed already"


async def test_cancelled_install_in_the_sandbox_leaves_nothing_behind(
    index: Index, place: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = asyncio.Event()

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()  # until the other side gives up
        writer.close()

    async with await asyncio.start_server(never, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", url)
        work = asyncio.create_task(install(place, f"slow @ {url}/slow-1.0.tar.gz", load_settings()))
        async with asyncio.timeout(WAIT):
            await asked.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    assert not tree(place)


async def test_killed_install_ends_with_its_processes_and_is_done_again(index: Index, place: Path, fifo: Fifo):
    index.source("slow", "1.0", fifo=fifo.path)
    os.mkfifo(f"{fifo.path}.never")
    code = "import asyncio, sys; from ipybox.packages import *; from pathlib import Path; "
    code += "asyncio.run(PackageInstaller(Path(sys.argv[1])).install('slow'))"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(place))
    await fifo.until("building")
    started = descendants(process.pid)
    assert started
    process.kill()
    await process.wait()
    assert not await until_dead(started, WAIT)
    assert not tree(place)
    index.source("slow", "1.0")
    assert await install(place, "slow") == "Installed slow-1.0"


async def test_install_repairs_what_was_killed_between_two_generations(index: Index, place: Path):
    index.wheel("one", "1.0")
    index.wheel("two", "1.0")
    await install(place, "one")
    packages = packages_dir(place)
    packages.rename(packages.with_name("packages.old"))
    packages.with_name("packages.new").mkdir()
    (packages.with_name("packages.new") / "half.py").write_text("")
    assert await install(place, "two") == "Installed two-1.0"
    assert {"one.py", "two.py"} < tree(place).keys()
    assert "half.py" not in tree(place)
    assert sorted(path.name for path in (place / ".ipybox").iterdir()) == [".gitignore", "packages"]


async def test_package_of_the_real_index_is_installed(place: Path, settings: SandboxSettings | None):
    assert await install(place, "cowsay==6.1", settings) == "Installed cowsay-6.1"
    assert "cowsay/__init__.py" in tree(place)


async def test_source_of_the_real_index_is_built_with_setuptools(place: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PIP_NO_BINARY", "cowsay")
    assert await install(place, "cowsay==6.1", load_settings()) == "Installed cowsay-6.1"
    assert "cowsay/__init__.py" in tree(place)


def test_environments_without_pip_get_it():
    assert {"pip", "packaging"} <= {Requirement(text).name for text in requires("ipybox") or []}
    assert {"pip", "packaging", "ipykernel", "ipython", "traitlets"} <= closure("ipybox").keys()


@asynccontextmanager
async def served(directory: Path) -> AsyncGenerator[int]:
    """An index (PEP 503) of the archives in a directory."""

    def page(path: str) -> bytes | None:
        parts = path.strip("/").split("/")
        if parts[0] == "files":
            return (directory / parts[1]).read_bytes()
        names = [file.name for file in directory.iterdir() if file.name.startswith(f"{parts[0]}-")]
        links = "".join(f'<a href="/files/{name}">{name}</a>' for name in names)
        return f"<!DOCTYPE html><html><body>{links}</body></html>".encode() if names else None

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        body = page(request)
        status = HTTPStatus.NOT_FOUND if body is None else HTTPStatus.OK
        body = body or b""
        kind = "application/octet-stream" if request.startswith("/files/") else "text/html"
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
