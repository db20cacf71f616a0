"""An index of small archives that are made here, and what was installed from it."""

import asyncio
import base64
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from ipybox.kernel_mgr.packages import InstallError, PackageInstaller, packages_dir
from ipybox.sandbox.settings import SandboxSettings
from tests.servers import WAIT

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


async def install(workspace: Path, specifier: str, settings: SandboxSettings | None = None) -> str:
    """Installs a package, and returns the line that says what was installed."""
    async with asyncio.timeout(INSTALL):
        said = await PackageInstaller(workspace, settings).install(specifier)
    return next((line for line in said.splitlines() if line.startswith("Installed")), said)


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


def environment() -> dict[str, str]:
    return {found.name: found.version for found in distributions()}
