"""Runs `uv pip install` with the user's own uv and pip settings, except those that code in a kernel can write.

uv's working directory is a scratch directory, whose empty `uv.toml` stops it from searching the parent directories.
https://docs.astral.sh/uv/reference/settings/
"""

import asyncio
import configparser
import os
import re
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from pip._internal.models.index import PyPI

from ipybox.kernel_mgr.packages.store import InstallError
from ipybox.mcp_client import process_guard
from ipybox.support.child import end_group
from ipybox.support.inherited import ALL_PROXIES, CERTIFICATES, PACKAGE_INDEXES, SAFE_VARIABLES, inherited
from ipybox.support.tasks import TaskSet
from ipybox.workspace.writable import WritablePlaces, host_path, interpreter

#: Maximum lines and bytes of uv's output that a message reports.
REPORTED_LINES = 25
REPORTED_BYTES = 64 << 10

#: Seconds for the guard of a cancelled uv to end all processes.
GRACE = 5.0

#: Variables that uv on the host inherits; it may authenticate as the user.
VARIABLES = (
    *(*SAFE_VARIABLES, *ALL_PROXIES, *CERTIFICATES, "SSL_CLIENT_CERT", "SSH_AUTH_SOCK", "NETRC"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "UV_CONFIG_FILE", "UV_NO_CONFIG"),
    *("UV_CACHE_DIR", "UV_INDEX_STRATEGY", "UV_KEYRING_PROVIDER"),
)
_PASSWORD = re.compile(r"UV_INDEX_\w+_(USERNAME|PASSWORD)")
_USERINFO = re.compile(r"(?<=://)[^\s\"'@/]*@")
_URL = re.compile(r"https?://[^\s\"'@/,]+")

#: pip's settings, and uv's variables with the same meaning.
_PIP = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
}

#: uv's variables that may name directories.
_PLACES = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")

_NEEDS_BUILD = re.compile(r"Wheels are required for `[^`]+` because|attempted to build `[^`]+`")


class UvError(InstallError):
    """uv failed; the message contains its errors.

    Attributes:
        needs_build: Whether a package has no wheel, and building is not allowed.
    """

    def __init__(self, output: str, code: int):
        lines = [line for line in output.splitlines() if line.strip()]
        start = next((at for at, line in enumerate(lines) if line.startswith("error: ")), 0)
        said = [line.removeprefix("error: ") for line in lines[start:]]
        super().__init__("\n".join(said[-REPORTED_LINES:]) or f"uv exited with code {code}")
        self.needs_build = _NEEDS_BUILD.search(output) is not None


@dataclass(frozen=True)
class UvSettings:
    """Where uv finds packages, and how it connects.

    Attributes:
        file: The settings file that uv uses, if there is one.
    """

    environment: Mapping[str, str]
    options: Sequence[str] = ()
    file: Path | None = None

    @property
    def hosts(self) -> list[str]:
        """The hosts of the indexes, each with its port if that is not the default one."""
        texts = [value for name, value in self.environment.items() if name.startswith("UV_")]
        texts += [] if self.file is None else [self.file.read_text(errors="replace")]
        urls = [match[0] for text in texts for match in _URL.finditer(_USERINFO.sub("", text))]
        return list(dict.fromkeys([PyPI.netloc, PyPI.file_storage_domain, *(urlsplit(url).netloc for url in urls)]))

    @property
    def paths(self) -> list[Path]:
        """The local files and directories from which uv reads indexes and certificates."""
        listed = re.split(r"[\s,]+", " ".join(self.environment.get(name, "") for name in _PLACES))
        if self.file is not None:
            listed += re.findall(r'"((?:file:/)?/[^"]*)"', self.file.read_text(errors="replace"))
        named = [*inherited(CERTIFICATES).values(), *(text.removeprefix("file://") for text in listed)]
        return [path for path in map(Path, dict.fromkeys(named)) if path.is_absolute() and path.exists()]

    def without_passwords(self, directory: Path) -> "UvSettings":
        """Returns the settings for a sandbox, without passwords and tokens; copies the settings file to `directory`."""
        names = {*SAFE_VARIABLES, *ALL_PROXIES, *CERTIFICATES, *PACKAGE_INDEXES, "UV_INDEX_STRATEGY"}
        environment = {name: value for name, value in self.environment.items() if name in names}
        environment |= {name: _USERINFO.sub("", value) for name, value in environment.items() if name[:3] == "UV_"}
        if self.file is None:
            return replace(self, environment={**environment, "UV_NO_CONFIG": "1"})
        copy = directory / "uv.toml"
        copy.write_text(_USERINFO.sub("", self.file.read_text(errors="replace")))
        return replace(self, environment={**environment, "UV_CONFIG_FILE": str(copy)}, file=copy)


def install_command(
    places: WritablePlaces, settings: UvSettings, requirement: str, target: Path, constraints: Path, *options: str
) -> list[str]:
    """Returns the command line that installs a package with its dependencies into a directory.

    Raises:
        InstallError: If uv is missing, or code can write it.
    """
    fixed = ("--quiet", "--no-sources", "--compile-bytecode", f"--python={interpreter()}")
    given = (f"--target={target}", f"--constraints={constraints}")
    return [_program(places), "pip", "install", *fixed, *settings.options, *options, *given, "--", requirement]


def environment_in(directory: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns uv's environment for a scratch directory, where it creates an empty `uv.toml`."""
    (directory / "uv.toml").touch()
    own = {"NO_COLOR": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_LINK_MODE": "copy", "GIT_TERMINAL_PROMPT": "0"}
    return {**environment, **own, "TMPDIR": str(directory)}


def user_settings(places: WritablePlaces) -> UvSettings:
    """Returns the settings with which the user's own uv or pip finds packages, except those that code can write."""
    environment = inherited((*VARIABLES, *(name for name in PACKAGE_INDEXES if name.startswith("UV_"))))
    environment |= {name: value for name, value in os.environ.items() if _PASSWORD.fullmatch(name)}
    environment["PATH"] = host_path(places)
    environment.setdefault("UV_HTTP_RETRIES", "1")
    known = ssl.get_default_verify_paths()
    # As pip does: companies add their proxy's certificate there.
    if (known.cafile or known.capath) and "UV_NATIVE_TLS" not in environment:
        environment.setdefault("UV_SYSTEM_CERTS", "1")
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if places.trusted(environment.get("UV_CACHE_DIR", caches / "uv")) is None:
        environment |= {"UV_NO_CACHE": "1"}
    if "REQUESTS_CA_BUNDLE" in environment:
        environment.setdefault("SSL_CERT_FILE", environment["REQUESTS_CA_BUNDLE"])
    file = _uv_file(places)
    if file is None:
        environment.pop("UV_CONFIG_FILE", None)
        environment["UV_NO_CONFIG"] = "1"
    pip = pip_settings(places)
    if file is not None or not environment.keys().isdisjoint(_PLACES):  # uv's own settings name the indexes
        pip = {key: value for key, value in pip.items() if key in _PIP and not _PIP[key].startswith("UV_")}
    for key, name in _PIP.items():
        if key in pip:
            environment.setdefault(name, pip[key].replace(" ", ",") if key == "find-links" else pip[key])
    options = ["--no-index"] if pip.get("no-index", "0").lower() in ("1", "true", "yes", "on") else []
    return UvSettings(environment, options, file)


def _uv_file(places: WritablePlaces) -> Path | None:
    """Returns the settings file of the user, else of the system, unless code can write it."""
    if os.environ.get("UV_NO_CONFIG"):
        return None
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    named = os.environ.get("UV_CONFIG_FILE")
    files = [Path(named)] if named else [home / "uv/uv.toml", Path("/etc/xdg/uv/uv.toml"), Path("/etc/uv/uv.toml")]
    found = next((file for file in files if file.is_absolute() and file.is_file()), None)
    return found if found is not None and places.trusted(found) is not None else None


def pip_settings(places: WritablePlaces) -> dict[str, str]:
    """Returns pip's settings by their long names, from its files and its variables, which take precedence.

    https://pip.pypa.io/en/stable/topics/configuration/
    """
    home, named = Path.home(), os.environ.get("PIP_CONFIG_FILE", "")
    shared = os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    files = [Path(directory, "pip/pip.conf") for directory in reversed(shared.split(os.pathsep))]
    own = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config", "pip/pip.conf")
    files += [Path("/etc/pip.conf"), home / ".pip/pip.conf", own, Path(sys.prefix, "pip.conf"), Path(named)]
    readable = [] if named == os.devnull else [file for file in files if file.is_file() and places.trusted(file)]
    parser = configparser.RawConfigParser()
    try:
        parser.read(readable)
    except (configparser.Error, UnicodeDecodeError) as exc:
        raise InstallError(f"can't read pip's settings: {exc}") from exc
    sections = [parser[section] for section in ("global", "install") if section in parser]
    found = {key.replace("_", "-"): value for section in sections for key, value in section.items()}
    variables = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    found |= {name.removeprefix("PIP_").lower().replace("_", "-"): value for name, value in variables.items()}
    return {key: " ".join(value.split()) for key, value in found.items() if value.strip()}


def _program(places: WritablePlaces) -> str:
    from uv import find_uv_bin

    try:
        found = places.trusted(find_uv_bin())
    except FileNotFoundError as exc:
        raise InstallError(f"can't install packages because uv is missing: reinstall ipybox: {exc}") from exc
    if found is None:
        raise InstallError("can't install packages because code could overwrite uv: install ipybox elsewhere")
    return found


async def run(command: Iterable[str], env: Mapping[str, str], cwd: Path, memory: int) -> tuple[int, str]:
    """Runs a command until it ends, the caller is cancelled, or this process dies.

    Each of its processes may use this much memory.

    Returns:
        Its exit code, and the end of its output.
    """
    limited = ["/bin/sh", "-c", f'ulimit -d {memory >> 10} 2>/dev/null; exec "$@"', "sh", *command]
    guarded = [str(interpreter()), "-I", "-S", process_guard.__file__, "--", *limited]
    with tempfile.TemporaryFile(dir=cwd.parent) as log:
        start = asyncio.create_subprocess_exec(
            *guarded, env=env, cwd=cwd, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        )
        process = await TaskSet().undo(start, _end, cancel=False)
        try:
            code = await process.wait()
        finally:
            await asyncio.shield(_end(process))
        log.seek(max(0, log.seek(0, os.SEEK_END) - REPORTED_BYTES))
        lines = log.read().decode(errors="replace").split("\n")
    return code, "\n".join(line for line in lines if not line.startswith(process_guard.REPORT))


async def _end(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()  # the guard then ends everything that it has started
    await end_group(process, GRACE)
