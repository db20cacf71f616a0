"""Runs in pip's own process, so that what is private to pip is used in this file only.

    python -E -P pip_process.py settings
    python -E -P pip_process.py run METADATA_DIR wheels|host|sandbox pip's arguments...

The process and what it started end with its standard input, which its owner holds open.
Standard library and pip only: it is run as a file, and imports nothing of ipybox.
"""

import json
import os
import runpy
import signal
import sys
import threading
from pathlib import PurePath
from typing import Any, cast
from urllib.parse import urlsplit

#: Programs that pip asks about the platform or for a password; all others would be part of a package's build.
HARMLESS = ("keyring", "lsb_release", "rustc", "uname")
#: Settings that say what is installed or where to. That is ours to say.
OURS = (
    *("config-file", "constraint", "dry-run", "editable", "force-reinstall", "help", "ignore-installed", "isolated"),
    *("log", "no-clean", "no-deps", "prefix", "progress-bar", "python", "quiet", "report", "require-hashes"),
    *("requirement", "requirements", "root", "src", "target", "upgrade", "upgrade-strategy", "user", "verbose"),
    *("version", "abi", "implementation", "platform", "python-version", "dependency-groups", "group"),
)


def settings() -> dict[str, Any]:
    """Returns the user's settings of pip as variables of its environment, and where its packages come from.

    Sandboxes can't read the files that they are from.
    """
    from pip._internal.configuration import Configuration
    from pip._internal.models.index import PyPI

    configuration = Configuration(isolated=False)
    configuration.load()
    entries: dict[str, Any] = {}
    for key, value in configuration.items():
        # Newer versions of pip have a dictionary for each file.
        entries |= cast(dict[str, Any], value) if isinstance(value, dict) else {key: value}
    found: dict[str, str] = {}
    for section in ("global", "install", ":env:"):  # in the order in which they override each other
        for key, value in entries.items():
            if key.startswith(f"{section}."):
                found[key.removeprefix(f"{section}.").replace("_", "-")] = " ".join(str(value).split())
    index = found.get("index-url", PyPI.simple_url)
    sources = [index, *found.get("extra-index-url", "").split()]
    if found.get("no-index", "0").lower() in ("1", "true", "yes", "on", "y", "t"):
        sources = []
    sources += found.get("find-links", "").split()
    hosts = [parts.netloc.rpartition("@")[2] for parts in map(urlsplit, sources) if parts.scheme in ("http", "https")]
    if PyPI.netloc in hosts:
        hosts.append(PyPI.file_storage_domain)
    environment = {f"PIP_{key.replace('-', '_').upper()}": value for key, value in found.items() if key not in OURS}
    return {"environment": environment, "hosts": hosts}


def run(metadata: str, mode: str, arguments: list[str]) -> None:
    """Runs pip as if the distributions described in the directory `metadata` were installed."""
    threading.Thread(target=end_with_stdin, daemon=True).start()
    sys.path.insert(0, metadata)
    if mode == "wheels":
        sys.addaudithook(refuse_builds)
    if mode == "sandbox":
        # The only way out is the proxy, also to an index on the host's loopback.
        for name in ("NO_PROXY", "no_proxy"):
            os.environ.pop(name, None)
    sys.argv = ["pip", *arguments]
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


def refuse_builds(event: str, arguments: tuple[Any, ...]) -> None:
    """Lets pip start no process that could be a part of a build (an audit hook).

    `--only-binary` alone does not do: a wheel can depend on a source archive or a repository by its URL.
    """
    if event in ("subprocess.Popen", "os.posix_spawn"):
        command = arguments[1]
        program = PurePath(os.fsdecode(command if isinstance(command, str | bytes) else command[0])).name
        if program in HARMLESS or program.startswith("ld-musl-"):
            return
    elif event not in ("os.system", "os.exec", "os.fork", "os.forkpty", "os.spawn", "pty.spawn"):
        return
    raise PermissionError("a package that has to be built is not built outside the sandbox")


def end_with_stdin() -> None:
    """Kills this process and its children when nobody wants their result any more."""
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    if sys.argv[1] == "settings":
        print(json.dumps(settings()))
    else:
        run(sys.argv[2], sys.argv[3], sys.argv[4:])
