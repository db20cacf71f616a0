"""How a command is run in the sandbox: srt's settings and command line.

To the user's settings comes what holds always: what would let the inside reach the outside can't be opened by any
setting. That is the key of the seals and the tokens of ports (not readable), the programs and configuration that the
host itself runs or believes (not writable), and the files of the workspace that other programs execute.

srt is started in a directory of ipybox's, and the command goes to the workspace by itself: in its working directory,
srt would make mount points for what it protects, and remove them under the feet of other sandboxes (`guard`).
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from glob import escape
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_runtime_dir

from ipybox.errors import SandboxError
from ipybox.private_file import create_private
from ipybox.sandbox import guard
from ipybox.sandbox.policy import Policy
from ipybox.sandbox.preflight import require_sandbox, srt_programs
from ipybox.sandbox.settings import SandboxSettings
from ipybox.state import make_directory, make_state_dir_in, scratch_root, state_dir, workspace_state_dir
from ipybox.workspace.names import HOME_FILES, OPENABLE, PLACEHOLDERS, STATE_DIR, expand, literal
from ipybox.workspace.programs import dropped_directories, host_path, interpreter
from ipybox.workspace.scan import Found, is_name_pattern, name_matchers, scan
from ipybox.workspace.writable import PACKAGE_DIR, PYTHON_DIRECTORIES, WritablePlaces

_WILDCARD = re.compile(r"[*?[]")

#: Where srt lets every command write, whatever the settings say.
_WRITABLE_FOR_ALL = ("/tmp/claude", "~/.npm/_logs", "~/.claude/debug")


@dataclass(frozen=True)
class Sandbox:
    """The sandbox of one workspace.

    Attributes:
        settings: What the user allows.
        workspace: The directory that relative paths of the settings mean, and in which commands run.
    """

    settings: SandboxSettings
    workspace: Path

    @cached_property
    def path(self) -> str:
        """The PATH on which srt and all that it runs are found: nothing that code can write."""
        return host_path(WritablePlaces(self.workspace, self.settings))

    @cached_property
    def found(self) -> Found:
        """What the workspace holds that code must not read or write, when this is first asked for.

        Raises:
            SandboxError: If the sandbox can't hide or protect all of that.
        """
        patterns = [entry for entry in self.settings.deny_read if is_name_pattern(entry)]
        readable = self._paths([*self.settings.allow_read, *python_directories()])
        return scan(self.workspace, patterns, readable, self._paths(self.settings.allow_write))

    def policy(self, guest_dir: Path) -> Policy:
        """Returns what explains refusals to code that runs by `kernel_command`."""
        found = self.found
        return Policy(
            self.settings,
            self.workspace,
            hidden=map(str, hidden_directories()),
            readable=[*python_directories(), *_srt_programs(), str(guest_dir)],
            writable=[str(guest_dir)],
            read_only=self._read_only(),
            secret=map(escape, found.replaced & found.hidden),
            closed=map(escape, found.replaced & found.read_only),
        )

    def writable(self) -> list[Path]:
        """Returns the absolute paths that the settings open for writing, apart from what is denied below."""
        entries = (entry.removesuffix("/**") or "/" for entry in self.settings.allow_write)
        return [Path(os.path.normpath(self.workspace / os.path.expanduser(entry))) for entry in entries]

    def kernel_command(self, command: Sequence[str], private_dir: Path, guest_dir: Path) -> list[str]:
        """Returns the command line that runs `command` in the workspace, inside the sandbox.

        Args:
            command: The command; its standard streams are those of the returned one.
            private_dir: A scratch directory that the inside can't write, for srt's settings and temporary files. It is
                removed in the end.
            guest_dir: A directory that it can write, besides what the settings allow.

        Raises:
            SandboxError: If the settings open what stays closed always, or what srt needs is missing.
        """
        if _WILDCARD.search(str(self.workspace)):
            raise SandboxError(f"the sandbox can't name {self.workspace}, as srt takes it for a pattern: rename it")
        try:
            make_state_dir_in(self.workspace)
        except OSError as exc:
            directory = self.workspace / STATE_DIR
            raise SandboxError(f"the sandbox needs a directory {directory}: {exc}") from exc
        settings_file = private_dir / "srt.json"
        patterns = [entry for entry in self.settings.deny_read if is_name_pattern(entry)]
        placeholders = {name: content for name, content in PLACEHOLDERS.items() if name not in self._opened()}
        if self.workspace == Path.home().resolve():
            placeholders |= dict.fromkeys(HOME_FILES, "")
        write_settings(
            settings_file,
            replace(self.settings, deny_read=tuple(it for it in self.settings.deny_read if it not in patterns)),
            self.workspace,
            # Placeholders are made later, and may be filled by the user.
            deny_read=[*map(literal, sorted(self.found.hidden)), *_named(placeholders, patterns)],
            allow_read=[*python_directories(), str(srt_temporary(private_dir))],
            allow_write=[str(guest_dir)],
            deny_write=[STATE_DIR, *placeholders, *sorted(self.found.read_only), *self._read_only()],
        )
        state_dir = workspace_state_dir(self.workspace)
        watched = [guard.__file__, str(self.workspace), str(state_dir), str(private_dir)]
        taken = [f"{name}/" if content is None else f"{name}={content}" for name, content in placeholders.items()]
        return [str(interpreter()), "-I", "-S", *watched, *taken, "--", *srt_command(command, settings_file, self.path)]

    def _opened(self) -> set[str]:
        """Returns which protected names of the workspace's own directory the settings open."""
        opened = self._paths(self.settings.allow_write)
        return {name for name in OPENABLE if f"{self.workspace}/{name}" in opened}

    def _paths(self, entries: Iterable[str]) -> set[str]:
        """Returns the absolute paths of entries; of a glob, that of the directory in which it begins."""
        paths: set[str] = set()
        for entry in entries:
            wildcard = _WILDCARD.search(entry)
            path = entry if wildcard is None else os.path.dirname(entry[: wildcard.start()])
            paths.add(os.path.normpath(self.workspace / os.path.expanduser(path)))
        return paths

    def _read_only(self) -> list[str]:
        """What the host itself and people run and believe. Below the workspace, a kernel could otherwise change it.

        What the workspace is part of is not writable anyway, unless the user's settings say so.
        """
        found = {
            *PYTHON_DIRECTORIES,
            *map(Path, (*os.get_exec_path(), *dropped_directories())),
        }
        paths = {path.resolve() for path in found if path.is_absolute()}
        programs = _existing(sorted(str(path) for path in paths if not self.workspace.is_relative_to(path)))
        return programs if self.settings.file is None else [*programs, str(self.settings.file)]


def srt_temporary(private_dir: Path) -> Path:
    """Returns what TMPDIR of srt itself must be: a directory for its sockets, which the inside can read, not write."""
    directory = private_dir / "srt"
    directory.mkdir(mode=0o700, exist_ok=True)
    return directory


def srt_command(command: Sequence[str], settings_file: Path, path: str) -> list[str]:
    """Returns the command line that runs `command` in the current directory, under the settings of a file.

    Args:
        command: The command.
        settings_file: The settings of srt.
        path: The PATH on which srt and its programs are, which code can't write (`host_path`).

    Raises:
        SandboxError: If what srt needs is missing; the message says what, and what to do.
    """
    return [str(require_sandbox(path)), "--settings", str(settings_file), "--", *command]


def write_settings(
    file: Path,
    settings: SandboxSettings,
    workspace: Path,
    *,
    deny_read: Iterable[str] = (),
    allow_read: Iterable[str] = (),
    allow_write: Iterable[str] = (),
    deny_write: Iterable[str] = (),
) -> None:
    """Writes settings as srt takes them, with these entries and what is denied always on top.

    Relative paths are made absolute, so that srt may be started anywhere.

    Raises:
        SandboxError: If the settings open what stays closed always.
    """
    hidden = hidden_directories()
    _refuse_opening(settings, hidden, workspace)
    own = [str(directory) for directory in hidden]
    # What is hidden is not writable on Linux. Scratch directories have parts that are.
    read_only = [directory for directory in own if directory != str(scratch_root())]
    lists = {
        "denyRead": [*(path for entry in settings.deny_read for path in expand(entry)), *deny_read, *own],
        "allowRead": [*settings.allow_read, *allow_read, *_srt_programs()],
        "allowWrite": [*settings.allow_write, *allow_write],
        "denyWrite": [*settings.deny_write, *deny_write, *read_only, *_existing(_WRITABLE_FOR_ALL)],
    }
    filesystem = {key: [_absolute(entry, workspace) for entry in entries] for key, entries in lists.items()}
    network: dict[str, Any] = {
        "allowedDomains": [*settings.allowed_domains],
        "deniedDomains": [*settings.denied_domains],
        "allowLocalBinding": settings.allow_local_binding,
    }
    if sys.platform == "darwin":  # where the kernel's own channels are files; Linux blocks all AF_UNIX sockets
        network["allowUnixSockets"] = [*allow_write]
    content = {
        "filesystem": filesystem,
        "network": network,
        "enableWeakerNestedSandbox": settings.weaker_nested_sandbox,
    }
    with create_private(file) as opened:
        json.dump(content, opened, indent=1)


def hidden_directories() -> list[Path]:
    """Returns what no setting opens: ipybox's keys, the tokens of ports, and what the host keeps for a while."""
    directories = [state_dir(), Path(jupyter_runtime_dir()), scratch_root()]
    for directory in directories:  # what is not there can't be denied
        make_directory(directory)
    return directories


def _refuse_opening(settings: SandboxSettings, hidden: list[Path], workspace: Path) -> None:
    """Refuses entries of `allowRead` and `allowWrite` that name a hidden directory, as srt would open it.

    For a broader directory it does not: srt keeps the more specific `denyRead`. A glob of `allowRead` stands for all
    that it matches.
    """
    entries = [("allowRead", entry) for entry in settings.allow_read]
    entries += [("allowWrite", entry) for entry in settings.allow_write]
    for key, entry in entries:
        wildcard = _WILDCARD.search(entry)
        literal = entry if wildcard is None else os.path.dirname(entry[: wildcard.start()])
        path = (workspace / Path(literal).expanduser()).resolve()
        for directory in map(Path.resolve, hidden):
            covers = wildcard is not None and key == "allowRead" and directory.is_relative_to(path)
            if covers or path.is_relative_to(directory):
                raise SandboxError(
                    f"{settings.source}: 'filesystem.{key}' can't open {entry!r}: {directory} holds keys and tokens "
                    "of ipybox and Jupyter. Name other directories, without wildcards"
                )


def python_directories() -> list[str]:
    """Returns what Python has to read, also where the settings hide what is around it."""
    directories = (Path(sys.prefix), Path(sys.base_prefix), PACKAGE_DIR)
    return sorted({str(path) for directory in directories for path in (directory, directory.resolve())})


def _srt_programs() -> list[str]:
    """Returns what srt itself starts inside, which npm may have put into a home that is hidden."""
    directory = srt_programs()
    return [] if directory is None else _existing([str(directory)])


def _existing(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if Path(path).expanduser().exists()]


def _named(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Returns those names of the workspace's own directory that a pattern covers."""
    matchers = [matchers for matchers in map(name_matchers, patterns) if len(matchers) == 1]
    return [name for name in names if any(matcher.match(name) for (matcher,) in matchers)]


def _absolute(entry: str, workspace: Path) -> str:
    return entry if entry.startswith(("/", "~")) else os.path.normpath(workspace / entry)
