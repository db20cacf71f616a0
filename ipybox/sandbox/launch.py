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
from fnmatch import fnmatch
from pathlib import Path
from shutil import which
from typing import Any

from jupyter_core.paths import jupyter_runtime_dir

from ipybox.errors import SandboxError
from ipybox.private_file import create_private
from ipybox.sandbox import guard
from ipybox.sandbox.policy import OPENABLE, Policy
from ipybox.sandbox.preflight import require_sandbox, srt_programs
from ipybox.sandbox.scan import search
from ipybox.sandbox.settings import SandboxSettings
from ipybox.state import make_state_dir_in, state_dir, workspace_state_dir

PACKAGE_DIR = Path(__file__).parents[1]

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

    def policy(self, guest_dir: Path) -> Policy:
        """Returns what explains refusals to code that runs by `kernel_command`."""
        return Policy(
            self.settings,
            self.workspace,
            hidden=map(str, _secrets()),
            readable=[*python_directories(), *_srt_programs()],
            writable=[str(guest_dir)],
            read_only=self._read_only(),
        )

    def writable(self, guest_dir: Path) -> list[str]:
        """Returns the absolute paths that `kernel_command` opens for writing, apart from what it denies below."""
        entries = (entry.removesuffix("/**") or "/" for entry in (*self.settings.allow_write, str(guest_dir)))
        return [os.path.normpath(self.workspace / os.path.expanduser(entry)) for entry in entries]

    def kernel_command(self, command: Sequence[str], private_dir: Path, guest_dir: Path) -> list[str]:
        """Returns the command line that runs `command` in the workspace, inside the sandbox.

        Args:
            command: The command; its standard streams are those of the returned one.
            private_dir: A directory that the inside can't write, for srt's settings. It is removed in the end.
            guest_dir: A directory that it can write, besides what the settings allow.

        Raises:
            SandboxError: If the settings open what stays closed always, or what srt needs is missing.
        """
        if _WILDCARD.search(str(self.workspace)):
            raise SandboxError(f"the sandbox can't name {self.workspace}, as srt takes it for a pattern: rename it")
        try:
            make_state_dir_in(self.workspace)
        except OSError as exc:
            directory = self.workspace / guard.STATE_DIR
            raise SandboxError(f"the sandbox needs a directory {directory}: {exc}") from exc
        settings_file = private_dir / "srt.json"
        patterns = [entry for entry in self.settings.deny_read if _is_name_pattern(entry)]
        names = (*guard.PROTECTED_FILES, *guard.PROTECTED_DIRS)
        found = search(
            self.workspace,
            root_patterns=[pattern for pattern in patterns if not pattern.startswith("**/")],
            patterns=[pattern.removeprefix("**/") for pattern in patterns if pattern.startswith("**/")],
            protected=[name for name in names if name not in self._opened()],
        )
        # Placeholders are made later, and may be filled by the user.
        hidden = [name for name in names if any(fnmatch(name, pattern.removeprefix("**/")) for pattern in patterns)]
        write_settings(
            settings_file,
            replace(self.settings, deny_read=tuple(it for it in self.settings.deny_read if it not in patterns)),
            self.workspace,
            deny_read=[*found.matching, *hidden],
            allow_read=python_directories(),
            allow_write=[str(guest_dir)],
            deny_write=[*self._protected(), *found.protected, *self._read_only()],
        )
        state_dir = workspace_state_dir(self.workspace)
        watched = [guard.__file__, str(self.workspace), str(state_dir), str(private_dir)]
        return [sys.executable, "-I", "-S", *watched, "--", *srt_command(command, settings_file)]

    def _opened(self) -> list[str]:
        """Returns which protected directories the settings open by their name."""
        return [name for name in OPENABLE if name in self.settings.allow_write]

    def _protected(self) -> list[str]:
        """Returns what of the workspace's own directory is never writable."""
        names = (guard.STATE_DIR, *guard.PROTECTED_FILES, *guard.PROTECTED_DIRS)
        protected = [name for name in names if name not in self._opened()]
        return protected + [part for name in self._opened() for part in _existing_in(self.workspace, OPENABLE[name])]

    def _read_only(self) -> list[str]:
        """What the host itself runs and believes. Below the workspace, a kernel could otherwise change it.

        What the workspace is part of is not writable anyway, unless the user's settings say so.
        """
        found = {Path(sys.prefix), Path(sys.base_prefix), PACKAGE_DIR, *map(Path, os.get_exec_path())}
        srt = which("srt")
        if srt is not None:
            found.add(Path(srt).resolve().parents[1])
        paths = {path.resolve() for path in found if path.is_absolute()}
        programs = _existing(sorted(str(path) for path in paths if not self.workspace.is_relative_to(path)))
        return programs if self.settings.file is None else [*programs, str(self.settings.file)]


def srt_command(command: Sequence[str], settings_file: Path) -> list[str]:
    """Returns the command line that runs `command` in the current directory, under the settings of a file.

    Raises:
        SandboxError: If what srt needs is missing; the message says what, and what to do.
    """
    return [str(require_sandbox()), "--settings", str(settings_file), "--", *command]


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
    secrets = _secrets()
    _refuse_reading(settings, secrets, workspace)
    own = [str(secret) for secret in secrets]
    lists = {
        "denyRead": [*settings.deny_read, *deny_read, *own],
        "allowRead": [*settings.allow_read, *allow_read, *_srt_programs()],
        "allowWrite": [*settings.allow_write, *allow_write],
        "denyWrite": [*settings.deny_write, *deny_write, *own, *_existing(_WRITABLE_FOR_ALL)],
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


def _secrets() -> list[Path]:
    """What opens the way out of the sandbox: the key of seals, and the tokens of whatever listens on a port."""
    directories = [state_dir(), Path(jupyter_runtime_dir())]
    for directory in directories:  # what is not there can't be denied
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directories


def _refuse_reading(settings: SandboxSettings, secrets: list[Path], workspace: Path) -> None:
    """Makes sure that no entry of `allowRead` names a secret, as it would win over a `denyRead` of the same name.

    A broader directory does not: srt keeps the more specific `denyRead`. A glob stands for all that it matches.
    """
    for entry in settings.allow_read:
        wildcard = _WILDCARD.search(entry)
        literal = entry if wildcard is None else os.path.dirname(entry[: wildcard.start()])
        path = (workspace / Path(literal).expanduser()).resolve()
        for secret in map(Path.resolve, secrets):
            if path.is_relative_to(secret) or (wildcard and secret.is_relative_to(path)):
                raise SandboxError(
                    f"{settings.source}: 'filesystem.allowRead' can't open {entry!r}: {secret} holds keys and tokens "
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


def _existing_in(directory: Path, names: Iterable[str]) -> list[str]:
    return [name for name in names if (directory / name).exists()]


def _is_name_pattern(entry: str) -> bool:
    """Tells whether an entry is a pattern of names: in the workspace itself, or with `**/` anywhere in it."""
    return "/" not in entry.removeprefix("**/") and _WILDCARD.search(entry) is not None


def _absolute(entry: str, workspace: Path) -> str:
    return entry if entry.startswith(("/", "~")) else os.path.normpath(workspace / entry)
