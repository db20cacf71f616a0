"""Runs in pip's own process, so that only this file uses pip's private functions.

    python -E -P pip_process.py settings
    python -E -P pip_process.py run METADATA_DIR wheels|host|fetch|build pip's arguments...

Where pip would build a source, the mode decides: `host` builds it, `wheels` refuses to, `fetch` ends and leaves the
source to the owner of the process (`SOURCE_FILE`). A process with mode `build` builds such a source without an index,
and lists the requirements of the build (`REQUIREMENTS_FILE`), so that the owner can provide them.

The process and what it started end with its standard input, which its owner holds open.
Standard library and pip only: it is run as a file, and imports nothing of ipybox.
"""

import json
import os
import runpy
import shutil
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any, cast
from urllib.parse import urlsplit

#: Programs that pip asks about the platform or for a password; all others would be part of a package's build.
HARMLESS = ("keyring", "lsb_release", "rustc", "uname")
#: Programs that fetch sources from repositories.
FETCHING = ("bzr", "git", "hg", "svn")

#: In the working directory: the source that `fetch` could not go on without.
SOURCE_FILE = "source.json"
#: In the working directory: the requirements of a build so far.
REQUIREMENTS_FILE = "requirements.json"
#: In the parent of METADATA_DIR: the wheel and the origin (PEP 610) of each source that was built, by its URL.
BUILT_FILE = "built.json"
#: In the working directory of a build: a copy of the source.
SOURCE_COPY = "source"
#: Settings for what is installed and where. ipybox sets these itself.
OURS = (
    *("config-file", "constraint", "dry-run", "editable", "force-reinstall", "help", "ignore-installed", "isolated"),
    *("log", "no-clean", "no-deps", "prefix", "progress-bar", "python", "quiet", "report", "require-hashes"),
    *("requirement", "requirements", "root", "src", "target", "upgrade", "upgrade-strategy", "user", "verbose"),
    *("version", "abi", "implementation", "platform", "python-version", "dependency-groups", "group"),
)


def settings() -> dict[str, Any]:
    """Returns the user's settings of pip as variables of its environment, and the hosts and paths that pip reads.

    Sandboxes can't read pip's configuration files.
    """
    from pip._internal.configuration import Configuration
    from pip._internal.models.index import PyPI
    from pip._internal.utils.urls import url_to_path

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
    local = [url_to_path(source) if source.startswith("file:") else source for source in sources]
    local += [found[key] for key in ("cert", "client-cert") if key in found]
    paths = [path for path in map(os.path.expanduser, local) if os.path.isabs(path)]
    environment = {f"PIP_{key.replace('-', '_').upper()}": value for key, value in found.items() if key not in OURS}
    return {"environment": environment, "hosts": hosts, "paths": paths}


def run(metadata: str, mode: str, arguments: list[str]) -> None:
    """Runs pip as if the distributions described in the directory `metadata` were installed."""
    threading.Thread(target=end_with_stdin, daemon=True).start()
    sys.path.insert(0, metadata)
    match mode:
        case "wheels":
            refuse_builds()
        case "fetch":
            hand_over_sources(json.loads(Path(metadata).with_name(BUILT_FILE).read_text()))
            refuse_builds(FETCHING)
        case "build":
            note_requirements()
            source, *arguments = arguments
            copy_source(source)
        case _:
            pass
    if mode in ("fetch", "build"):
        # The only way out of the sandbox is the proxy, also to an index on the host's loopback.
        for name in ("NO_PROXY", "no_proxy"):
            os.environ.pop(name, None)
    sys.argv = ["pip", *arguments]
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


def refuse_builds(programs: tuple[str, ...] = ()) -> None:
    """Lets pip start no process that could be a part of a build, only harmless programs and these.

    `--only-binary` alone is not enough: a wheel can depend on a source archive or a repository by its URL.
    """

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("subprocess.Popen", "os.posix_spawn"):
            command = arguments[1]
            program = PurePath(os.fsdecode(command if isinstance(command, str | bytes) else command[0])).name
            if program in (*HARMLESS, *programs) or program.startswith("ld-musl-"):
                return
        elif event not in ("os.system", "os.exec", "os.fork", "os.forkpty", "os.spawn", "pty.spawn"):
            return
        raise PermissionError("packages are not built outside the sandbox")

    sys.addaudithook(hook)


def hand_over_sources(built: dict[str, tuple[str, dict[str, Any]]]) -> None:
    """Makes pip take sources that were built from `built`, and end this process at any other source.

    pip would run the source's build backend to learn the metadata. It looks in its cache of wheels for packages that
    were built from a URL before.
    """
    from pip._internal.cache import CacheEntry, WheelCache
    from pip._internal.distributions.sdist import SourceDistribution
    from pip._internal.models.direct_url import DirectUrl
    from pip._internal.models.link import Link
    from pip._internal.req.req_install import InstallRequirement
    from pip._internal.utils.urls import path_to_url

    def get_cache_entry(self: WheelCache, link: Link, *_: Any, **__: Any) -> CacheEntry | None:
        if link.url not in built:
            return None
        wheel, origin = built[link.url]
        entry = CacheEntry(Link(path_to_url(wheel)), persistent=True)
        entry.origin = DirectUrl.from_dict(origin)
        return entry

    def prepare_distribution_metadata(self: SourceDistribution, *_: Any, **__: Any) -> None:
        source: Any = self.req
        content = {
            "name": str(source.req or source.link),
            "url": source.link.url,
            "directory": source.source_dir,
            "subdirectory": source.link.subdirectory_fragment or "",
            "origin": source.download_info.to_dict(),
        }
        Path(SOURCE_FILE).write_text(json.dumps(content))
        sys.stdout.flush()
        os._exit(1)  # pip would remove the source on its way out

    def set_source_link(self: Any, link: Link) -> None:
        self._source_link = link

    WheelCache.get_cache_entry = get_cache_entry
    SourceDistribution.prepare_distribution_metadata = prepare_distribution_metadata
    # pip 26 rejects its cache entry for a URL without a name: it has set the wheel's own URL before.
    cast(Any, InstallRequirement).set_source_link = set_source_link


def note_requirements() -> None:
    """Makes pip record the requirements that it installs for a build."""
    from pip._internal.build_env import BuildEnvironment

    noted: list[str] = []

    def noting(install_requirements: Any) -> Any:
        def note(*arguments: Any, **options: Any) -> None:
            # Which argument it is differs between versions of pip.
            found: Any = next(filter(lambda argument: isinstance(argument, list | tuple | set), arguments))
            noted.extend(found)
            Path(REQUIREMENTS_FILE).write_text(json.dumps(noted))
            install_requirements(*arguments, **options)

        return note

    # Versions of pip differ in which class has the method, too.
    for kind in (BuildEnvironment, *BuildEnvironment.__subclasses__()):
        if "install_requirements" in vars(kind):
            kind.install_requirements = noting(kind.install_requirements)


def copy_source(source: str) -> None:
    """Copies a source to where a build may write, apart from what this sandbox can't read."""
    shutil.rmtree(SOURCE_COPY, ignore_errors=True)
    with suppress(shutil.Error):
        shutil.copytree(source, SOURCE_COPY, symlinks=True)


def end_with_stdin() -> None:
    """Kills this process and its children when its owner is gone."""
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    # The application may ignore or block these, and builds rely on them.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if sys.argv[1] == "settings":
        print(json.dumps(settings()))
    else:
        run(sys.argv[2], sys.argv[3], sys.argv[4:])
