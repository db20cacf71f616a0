"""Prepares a command for the sandbox: writes srt's settings and builds the command line, but starts nothing.

Some rules override the settings, because code could otherwise escape: code can't read the seal key and port tokens, and
can't write programs and configuration that the application runs or trusts, or workspace files that other programs
execute.

srt starts in a directory of ipybox, and the command itself changes to the workspace. In its working directory, srt
would create mount points for the protected names, and remove them while other sandboxes use them (`placeholders`).
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

from ipybox.sandbox import placeholders
from ipybox.sandbox.policy import SandboxPolicy
from ipybox.sandbox.preflight import require_sandbox, srt_programs
from ipybox.sandbox.settings import SandboxSettings
from ipybox.support.errors import SandboxError
from ipybox.support.names import HOME_FILES, OPENABLE, PLACEHOLDERS, STATE_DIR, expand, literal
from ipybox.support.private_file import create_private
from ipybox.support.state import (
    make_directory,
    make_ipybox_dir,
    record_confined_code,
    scratch_root,
    workspace_state_dir,
)
from ipybox.support.tokens import private_directories
from ipybox.support.untrusted_paths import real_path
from ipybox.workspace.scan import ScanResult, is_name_pattern, name_matchers, scan
from ipybox.workspace.writable import PYTHON_DIRECTORIES, WritablePlaces, dropped_directories, host_path, interpreter

_WILDCARD = re.compile(r"[*?[]")

#: Directories that srt makes writable for every command, regardless of the settings.
_WRITABLE_FOR_ALL = ("/tmp/claude", "~/.npm/_logs", "~/.claude/debug")


@dataclass(frozen=True)
class Sandbox:
    """The sandbox of one workspace. Commands run in the workspace, and paths in the settings are relative to it."""

    settings: SandboxSettings
    workspace: Path

    @cached_property
    def path(self) -> str:
        """The PATH for srt and the programs it runs, without directories that code can write."""
        return host_path(WritablePlaces(self.workspace, self.settings))

    @cached_property
    def found(self) -> ScanResult:
        """The workspace files that code must not read or write, found by a scan on first use.

        Raises:
            SandboxError: If the sandbox can't hide or protect all of them.
        """
        patterns = [entry for entry in self.settings.deny_read if is_name_pattern(entry)]
        readable = self._paths([*self.settings.allow_read, *python_directories()])
        return scan(self.workspace, patterns, readable, self._paths(self.settings.allow_write))

    def policy(self, guest_dir: Path) -> SandboxPolicy:
        """Returns the policy for explaining denials in commands started with `kernel_command`."""
        return SandboxPolicy(
            self.settings,
            self.workspace,
            hidden=[*map(str, hidden_directories())],
            readable=[*python_directories(), *_srt_programs(), str(guest_dir)],
            writable=[str(guest_dir)],
            read_only=self._read_only(),
            above=[*map(escape, self.found.above)],
        )

    def writable(self) -> list[Path]:
        """Returns the absolute paths that the settings make writable, ignoring denials below them."""
        entries = (entry.removesuffix("/**") or "/" for entry in self.settings.allow_write)
        return [Path(os.path.normpath(self.workspace / os.path.expanduser(entry))) for entry in entries]

    def kernel_command(
        self, command: Sequence[str], private_dir: Path, guest_dir: Path, *, one_namespace: bool = False
    ) -> list[str]:
        """Returns the command line that runs `command` in the workspace, sandboxed.

        Args:
            private_dir: A scratch directory that the guest can't write, for srt's settings and temporary files.
                Removed when the command exits.
            guest_dir: A directory that the guest can write, in addition to the settings.
            one_namespace: Whether `command` shares a process namespace and /proc with srt's programs in the sandbox.
                srt then permits unix sockets. The command must deny them itself before it runs untrusted code, and
                must protect srt's programs from that code.

        Raises:
            SandboxError: If the settings open a directory that must stay closed, or srt's requirements are missing.
        """
        if _WILDCARD.search(str(self.workspace)):
            raise SandboxError(f"srt would read the path {self.workspace} as a pattern: rename it")
        try:
            make_ipybox_dir(self.workspace)
        except OSError as exc:
            raise SandboxError(
                f"the sandbox can't create {self.workspace / STATE_DIR} in the workspace ({exc.strerror or exc}): make "
                "it writable, or choose another workspace"
            ) from exc
        settings_file = private_dir / "srt.json"
        patterns = [entry for entry in self.settings.deny_read if is_name_pattern(entry)]
        opened = self._paths(self.settings.allow_write)
        absent = {
            name: content
            for name, content in _placeholders(self.workspace).items()
            if name not in OPENABLE or f"{self.workspace}/{name}" not in opened
        }
        write_settings(
            settings_file,
            replace(self.settings, deny_read=tuple(it for it in self.settings.deny_read if it not in patterns)),
            self.workspace,
            # Placeholders don't exist yet, and the user may replace them with secrets.
            deny_read=[*map(literal, sorted(self.found.hidden)), *_named(absent, patterns)],
            allow_read=[*python_directories(), str(srt_temporary(private_dir))],
            allow_write=[str(guest_dir)],
            deny_write=[STATE_DIR, *absent, *sorted(self.found.read_only), *self._read_only()],
            one_namespace=one_namespace,
        )
        for place in (self.workspace, *self.writable()):
            record_confined_code(place)
        state_dir = workspace_state_dir(self.workspace)
        watched = [placeholders.__file__, str(self.workspace), str(state_dir), str(private_dir)]
        taken = [f"{name}/" if content is None else f"{name}={content}" for name, content in absent.items()]
        return [str(interpreter()), "-I", "-S", *watched, *taken, "--", *srt_command(command, settings_file, self.path)]

    def _paths(self, entries: Iterable[str]) -> set[str]:
        return {os.path.normpath(self.workspace / os.path.expanduser(_literal_part(entry))) for entry in entries}

    def _read_only(self) -> list[str]:
        """Returns programs and settings that the application and people use, and that kernels must not change.

        Directories that contain the workspace are omitted: they are read-only unless the user's settings open them.
        """
        found = (*PYTHON_DIRECTORIES, *map(Path, (*os.get_exec_path(), *dropped_directories())))
        paths = {path.resolve() for path in found if path.is_absolute()}
        programs = _existing(sorted(str(path) for path in paths if not self.workspace.is_relative_to(path)))
        return programs if self.settings.file is None else [*programs, str(self.settings.file)]


def free_names(workspace: Path) -> None:
    """Removes placeholders that a killed sandbox left in a workspace, unless another sandbox is running there."""
    names = {name: None if content is None else content.encode() for name, content in _placeholders(workspace).items()}
    placeholders.clean_up(str(workspace), str(workspace_state_dir(workspace)), names)


def _placeholders(workspace: Path) -> dict[str, str | None]:
    return PLACEHOLDERS | (dict.fromkeys(HOME_FILES, "") if workspace == Path.home().resolve() else {})


def srt_temporary(private_dir: Path) -> Path:
    """Returns the TMPDIR for srt's sockets, which the guest can read, but not write.

    It also contains the programs that ipybox provides to kernels.
    """
    directory = private_dir / "srt"
    directory.mkdir(mode=0o700, exist_ok=True)
    return directory


def srt_command(command: Sequence[str], settings_file: Path, path: str) -> list[str]:
    """Returns the command line that runs `command` in the current directory, with settings from a file.

    `path` is the PATH for srt and its programs, without directories that code can write (`host_path`).
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
    one_namespace: bool = False,
) -> None:
    """Writes srt's settings, with these additional entries and the denials that always apply.

    Makes relative paths absolute, so srt can start in any directory.
    """
    hidden = hidden_directories()
    _refuse_opening(settings, hidden, workspace)
    own = [str(directory) for directory in hidden]
    # On Linux, hidden directories are read-only anyway. Parts of the scratch root must be writable.
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
    if sys.platform == "darwin":  # the kernel's channels are unix sockets; Linux blocks these
        network["allowUnixSockets"] = [*allow_write]
    if one_namespace:
        network["allowAllUnixSockets"] = True  # on Linux, this omits the inner namespace
    content = {
        "filesystem": filesystem,
        "network": network,
        "enableWeakerNestedSandbox": settings.weaker_nested_sandbox,
    }
    with create_private(file) as opened:
        json.dump(content, opened, indent=1)


def hidden_directories() -> list[Path]:
    """Returns the directories that no setting opens, and creates missing ones."""
    directories = private_directories()
    for directory in directories:  # srt can't deny a missing directory
        make_directory(directory)
    return directories


def _refuse_opening(settings: SandboxSettings, hidden: list[Path], workspace: Path) -> None:
    """Rejects entries of `allowRead` and `allowWrite` that name a hidden directory, because srt would open it.

    Accepts entries for a parent directory, because srt still applies the more specific `denyRead`. A glob in
    `allowRead` is expanded to all paths that it matches.
    """
    lists = {"allowRead": settings.allow_read, "allowWrite": settings.allow_write}
    for key, entry in ((key, entry) for key, entries in lists.items() for entry in entries):
        path = Path(real_path(workspace / Path(_literal_part(entry)).expanduser()))
        for directory in map(Path.resolve, hidden):
            covers = key == "allowRead" and _WILDCARD.search(entry) and directory.is_relative_to(path)
            if covers or path.is_relative_to(directory):
                raise SandboxError(
                    f"{settings.source}: 'filesystem.{key}' can't include {entry!r}: {directory} contains keys and "
                    "tokens for ipybox and Jupyter. Use other directories, without wildcards"
                )


def python_directories() -> list[str]:
    """Returns the directories that Python must be able to read, even if the settings hide their parents."""
    return sorted(map(str, {Path(sys.prefix), Path(sys.base_prefix), *PYTHON_DIRECTORIES}))


def _srt_programs() -> list[str]:
    """Returns the programs that srt starts in the sandbox, which may be in a hidden home directory."""
    directory = srt_programs()
    return [] if directory is None else _existing([str(directory)])


def _existing(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if Path(path).expanduser().exists()]


def _named(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Returns the names, in the workspace's top directory, that match a pattern."""
    matchers = [matchers for matchers in map(name_matchers, patterns) if len(matchers) == 1]
    return [name for name in names if any(matcher.match(name) for (matcher,) in matchers)]


def _literal_part(entry: str) -> str:
    """Returns the path of an entry; for a glob, the directory before the first wildcard."""
    wildcard = _WILDCARD.search(entry)
    return entry if wildcard is None else os.path.dirname(entry[: wildcard.start()])


def _absolute(entry: str, workspace: Path) -> str:
    return entry if entry.startswith(("/", "~")) else os.path.normpath(workspace / entry)
