"""The real `claude` in a home of its own: what a new user gets from a repository of this checkout, offline.

`publish` makes a bare repository of the working tree as it is, with whatever isn't committed yet. A `Home` knows it by
the URL that a user would type. Its environment has nothing of ours but the way to packages.
"""

import ast
import ctypes
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

from tests.claude.api import Request, Turn, serve
from tests.servers import NODE_MODULES, ROOT, children, descendants, is_alive

#: What a user types, and where it would be without `Home`.
REPOSITORY = "gradion-ai/ipybox"
URL = f"https://github.com/{REPOSITORY}.git"

#: Where nothing answers: else the client waits for a network that isn't there.
NOWHERE = "http://127.0.0.1:1"

#: Seconds that a command of the client may take, and a session of it.
COMMAND_TIMEOUT = 60.0
SESSION_TIMEOUT = 120.0

#: Seconds that processes have to be gone after the client has ended.
GRACE = 5.0

#: What builds a plugin's environment, and the seconds that it has.
BUILDER = "/launch/launch.py build "
BUILD_TIMEOUT = 300.0

#: Where programs of the system are.
SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")

#: Variables that lead pip and uv to their packages.
PASSED = re.compile(r"(PIP|UV)_.+|SSL_CERT_.+|REQUESTS_CA_BUNDLE|(HTTPS?|ALL|NO)_PROXY", re.IGNORECASE)

#: The variable of uv for each option of pip that says where packages are.
UV_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}

PR_SET_CHILD_SUBREAPER = 36


class Client(StrEnum):
    """A version of Claude Code: the oldest that is supported (`tests/package.json`), or the newest one that was tried
    (`tests/claude/package.json`)."""

    OLDEST = "oldest"
    NEWEST = "newest"

    @property
    def program(self) -> Path:
        """Its command."""
        modules = NODE_MODULES if self is Client.OLDEST else NODE_MODULES.parent / "newest" / "node_modules"
        program = modules / ".bin" / "claude"
        assert program.exists(), f"{program} is missing, tests/install-npm.sh installs it"
        return program


@dataclass(frozen=True)
class Session:
    """What happened in a run of the client without a person."""

    events: list[dict[str, Any]]
    requests: list[Request]

    @property
    def servers(self) -> dict[str, str]:
        """The status of each MCP server at the start, by name."""
        (start,) = (event for event in self.events if event.get("subtype") == "init")
        return {server["name"]: server["status"] for server in start["mcp_servers"]}

    @property
    def answer(self) -> str:
        """What the model said last."""
        (result,) = (event for event in self.events if event["type"] == "result")
        return result["result"]


class Home:
    """A user who has installed nothing in Claude Code yet.

    Args:
        directory: An empty one. The home is in it, and the programs that are on PATH.
        repository: What `publish` has made.
        client: The version of Claude Code.
        data: Its `XDG_DATA_HOME`, with the environments of plugins; by default it is in the home.
        compiles: Whether pip and uv may compile the packages that they install. Without it, the environment of a
            plugin takes much less processor time to build, but each kernel in a sandbox starts more slowly.
    """

    def __init__(
        self,
        directory: Path,
        repository: Path,
        *,
        client: Client = Client.OLDEST,
        data: Path | None = None,
        compiles: bool = True,
    ):
        self.client = client
        self.path = directory / "home"
        self.path.mkdir()
        self._log = directory / "client.log"
        _link_programs(directory / "bin", hidden=())
        if not compiles:
            _keep_from_compiling(directory / "bin" / "uv", directory / "uv")
        addresses = (URL, URL.removesuffix(".git"), f"git@github.com:{REPOSITORY}.git")
        config = f'[url "file://{repository}"]\n' + "".join(f"\tinsteadOf = {each}\n" for each in addresses)
        (self.path / ".gitconfig").write_text(config)
        self.env = {
            **_package_settings(),
            "NO_PROXY": ",".join(["localhost", "127.0.0.1", *filter(None, [os.environ.get("NO_PROXY")])]),
            # What the set-up of the tests has downloaded, as a user has a machine's caches.
            **{variable: str(cache) for variable, cache in package_caches().items()},
            **({} if data is None else {"XDG_DATA_HOME": str(data)}),
            "HOME": str(self.path),
            "CLAUDE_CONFIG_DIR": str(self.path / ".claude"),
            "PATH": str(directory / "bin"),
            "SHELL": "/bin/bash",
            "LANG": "C.UTF-8",
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_BASE_URL": NOWHERE,
            "DISABLE_AUTOUPDATER": "1",
            **({} if compiles else {"PIP_NO_COMPILE": "1"}),
            **({"DOCKER_HOST": os.environ["DOCKER_HOST"]} if "DOCKER_HOST" in os.environ else {}),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        pip = Path(os.environ.get("XDG_CONFIG_HOME", Path.home() / ".config"), "pip", "pip.conf")
        if pip.is_file():
            (self.path / ".config" / "pip").mkdir(parents=True)
            shutil.copy(pip, self.path / ".config" / "pip")

    def without(self, *programs: str) -> Self:
        """Returns this home as it is where these programs are not installed."""
        other = copy(self)
        place = self.path.with_name(f"bin-without-{'-'.join(programs)}")
        _link_programs(place, programs)
        other.env = {**self.env, "PATH": str(place)}
        return other

    @property
    def log(self) -> str:
        """What the client has logged in its latest run, with what servers wrote to stderr."""
        return self._log.read_text()

    def marketplace_add(self) -> str:
        return self.claude("plugin", "marketplace", "add", REPOSITORY)

    def install(self, plugin: str, **config: str) -> str:
        """Installs one of the marketplace's plugins, with values for its options."""
        options = [part for key, value in config.items() for part in ("--config", f"{key}={value}")]
        return self.claude("plugin", "install", f"{plugin}@ipybox", *options)

    @contextmanager
    def other_config(self, plugin: str, **config: str) -> Generator[None]:
        """Has other values for a plugin's options within; the client knows no way to take one back."""
        settings = self.path / ".claude" / "settings.json"
        before = settings.read_text()
        self.install(plugin, **config)
        try:
            yield
        finally:
            settings.write_text(before)

    def uninstall(self, plugin: str) -> str:
        return self.claude("plugin", "uninstall", f"{plugin}@ipybox")

    def publish_next(self, repository: Path, plugin: str, directory: Path) -> str:
        """Has the URL lead to a copy of a repository in which a plugin has the next version, and returns that."""
        changed = directory / "next"
        identity = ["-c", "user.name=test", "-c", "user.email=test"]
        run = partial(subprocess.run, check=True, timeout=COMMAND_TIMEOUT)
        run(["git", "clone", "--quiet", str(repository), str(changed)])
        manifest = changed / "plugins" / plugin / ".claude-plugin" / "plugin.json"
        content = json.loads(manifest.read_text())
        content["version"] = "99.0.0"
        manifest.write_text(json.dumps(content))
        run(["git", "-C", str(changed), *identity, "commit", "--quiet", "--all", "--message", "Next version"])
        config = self.path / ".gitconfig"
        config.write_text(config.read_text().replace(f"file://{repository}", f"file://{changed}"))
        return content["version"]

    def details(self, plugin: str) -> str:
        return self.claude("plugin", "details", f"{plugin}@ipybox")

    def mcp_list(self, workspace: Path) -> str:
        """Starts each server in a workspace, and returns how that went, one line each."""
        return self.claude("mcp", "list", cwd=workspace)

    def plugin_root(self, plugin: str) -> Path:
        """Returns where an installed plugin is."""
        (path,) = (self.path / ".claude" / "plugins" / "cache" / "ipybox" / plugin).iterdir()
        return path

    def slow_down(self, seconds: float) -> None:
        """Has the first installation by uv take that much longer."""
        uv, slowed = Path(self.env["PATH"]) / "uv", self.path / "slowed"
        real = os.path.realpath(uv)
        uv.unlink()
        wait = f'case $1 in pip) [ -e "{slowed}" ] || {{ touch "{slowed}"; sleep {seconds:g}; }} ;; esac'
        uv.write_text(f'#!/bin/sh\n{wait}\nexec "{real}" "$@"\n')
        uv.chmod(0o755)

    def session(
        self,
        prompt: str,
        script: Sequence[Turn],
        workspace: Path,
        *,
        allowed: Sequence[str] = (),
        timeout: float = SESSION_TIMEOUT,
    ) -> Session:
        """Runs the client without a person until the script is over, whose failures are raised here."""
        with serve(script) as api:
            options = ("--output-format", "stream-json", "--verbose", "--allowedTools", ",".join(allowed))
            said = self.claude(*("-p", prompt, *options), cwd=workspace, timeout=timeout, ANTHROPIC_BASE_URL=api.url)
        return Session([json.loads(line) for line in said.splitlines()], api.requests)

    def claude(self, *arguments: str, cwd: Path | None = None, timeout: float = COMMAND_TIMEOUT, **env: str) -> str:
        """Runs the client, which has to succeed and to leave no process behind, and returns its stdout.

        A build of a plugin's environment goes on after the client, and is waited for.
        """
        self._log.unlink(missing_ok=True)
        command = [str(self.client.program), "--debug-file", str(self._log), *arguments]
        with (
            no_process_left(),
            subprocess.Popen(
                command,
                cwd=cwd or self.path,
                env={**self.env, **env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                start_new_session=True,
            ) as process,
        ):
            try:
                stdout, stderr = process.communicate(timeout=timeout)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        assert process.returncode == 0, f"claude {' '.join(arguments)}: {stderr or stdout}"
        return stdout


def publish(directory: Path) -> Path:
    """Makes a bare repository of the working tree in a directory, and returns its path."""
    repository = directory / "ipybox.git"
    identity = {f"GIT_{who}_{what}": "test" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

    def git(*arguments: str) -> str:
        command = ["git", f"--git-dir={repository}", f"--work-tree={ROOT}", *arguments]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **identity},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=COMMAND_TIMEOUT,
        )
        return done.stdout.strip()

    git("init", "--quiet", "--initial-branch=main")
    git("add", "--all")
    git("update-ref", "refs/heads/main", git("commit-tree", "-m", "What is in the working tree", git("write-tree")))
    (repository / "index").unlink()
    return repository


@contextmanager
def no_process_left() -> Generator[None]:
    """Fails if what runs within leaves processes, also such as have lost their parents. They are killed."""
    before = children()
    _adopt_orphans(True)
    try:
        yield
        _wait_for_builds(before)
        left = _left(before)
    finally:
        # The children of one that is killed are ours then.
        while orphans := children() - before:
            for pid in orphans:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        _adopt_orphans(False)
    assert not left, f"processes were left: {left}"


def _wait_for_builds(before: set[int]) -> None:
    """Waits for the processes that build a plugin's environment: they survive the client, and end by themselves."""
    for pid in children() - before:
        if BUILDER in _command(pid):
            _ends(pid, BUILD_TIMEOUT)


def _left(before: set[int]) -> list[str]:
    """Returns the command lines of children that don't end within the grace time, and of what they have started."""
    deadline = time.monotonic() + GRACE
    while running := {pid for pid in children() - before if is_alive(pid)}:
        for pid in running:
            if not _ends(pid, deadline - time.monotonic()):
                return [_command(process) for process in sorted(running.union(*map(descendants, running)))]
    return []


def _ends(pid: int, timeout: float) -> bool:
    """Waits until a child has ended, and tells whether it has."""
    fd = os.pidfd_open(pid)  # a child has its id until it is waited for
    try:
        return bool(select.select([fd], [], [], max(timeout, 0))[0])
    finally:
        os.close(fd)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return ""


def _adopt_orphans(adopt: bool) -> None:
    """Makes this process the parent of descendants whose own has ended."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _link_programs(directory: Path, hidden: Collection[str]) -> None:
    """Puts links to the programs of the system, to srt, uv and this Python in a directory."""
    directory.mkdir()
    for needed in (NODE_MODULES / ".bin" / "srt", Path(sys.executable).parent / "uv"):
        assert needed.exists(), f"{needed} is missing, `make test` installs it"
    chosen = {
        "srt": NODE_MODULES / ".bin" / "srt",
        "uv": Path(sys.executable).parent / "uv",
        "uvx": Path(sys.executable).parent / "uvx",
        "python3": Path(sys.executable).resolve(),
    }
    system = {program.name: program for place in reversed(SYSTEM_PATH) for program in Path(place).iterdir()}
    for name, program in {**system, **chosen}.items():
        if name not in hidden:
            (directory / name).symlink_to(program)


def _keep_from_compiling(uv: Path, script: Path) -> None:
    """Puts a script in the place of a link to uv, which passes on all arguments but one."""
    option = 'for each do shift; [ "$each" = --compile-bytecode ] || set -- "$@" "$each"; done'
    script.write_text(f'#!/bin/sh\n{option}\nexec "{uv.resolve()}" "$@"\n')
    script.chmod(0o755)
    uv.unlink()
    uv.symlink_to(script)


@cache
def package_caches() -> Mapping[str, Path]:
    """Returns where pip and uv keep what they have downloaded, by their variables."""
    caches = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return {
        variable: Path(os.environ.get(variable, caches / name))
        for variable, name in (("UV_CACHE_DIR", "uv"), ("PIP_CACHE_DIR", "pip"))
    }


@cache
def _package_settings() -> Mapping[str, str]:
    """Returns the variables that lead pip and uv to where pip finds packages here; what is said to uv wins."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    settings: dict[str, str] = {}
    found = re.findall(r"^(global|install|:env:)\.([\w-]+)=(.*)$", listed, re.MULTILINE)
    for _, option, value in sorted(found, key=lambda setting: setting[0] == ":env:"):
        if variable := UV_VARIABLES.get(option):
            separator = "," if variable == "UV_FIND_LINKS" else " "
            settings[variable] = separator.join(ast.literal_eval(value).split())
    if "UV_INDEX" in settings:
        settings["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # as pip takes what is best of all
    return settings | {name: value for name, value in os.environ.items() if PASSED.fullmatch(name)}
