"""How a command is run in the sandbox: srt's settings and command line.

To the user's settings comes what holds always: what would let the inside reach the outside can't be opened by any
setting. That is the key of the seals and the tokens of ports (not readable), the programs and configuration that the
host itself runs or believes (not writable), and the files of the workspace that other programs execute.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

from jupyter_core.paths import jupyter_runtime_dir

from ipybox.beneath import open_directory
from ipybox.errors import SandboxError
from ipybox.sandbox import guard
from ipybox.sandbox.policy import Policy
from ipybox.sandbox.preflight import require_sandbox
from ipybox.sandbox.settings import SEARCH_DEPTH, SandboxSettings
from ipybox.tool_exec.seal import key_path

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
            readable=python_directories(),
            writable=[str(guest_dir)],
            read_only=self._read_only(),
        )

    def writable(self, guest_dir: Path) -> list[str]:
        """Returns the absolute paths of all that `kernel_command` opens for writing, apart from what it denies below."""
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
        self._make_state_dir()
        settings_file = private_dir / "srt.json"
        protected = [guard.STATE_DIR, ".env", ".claude"]
        if _is_missing_or_empty(self.workspace / ".git"):
            protected.append(".git")
        write_settings(
            settings_file,
            self.settings,
            self.workspace,
            allow_read=python_directories(),
            allow_write=[str(guest_dir)],
            deny_write=[*protected, *self._read_only()],
        )
        watched = [sys.executable, "-I", "-S", guard.__file__, str(self.workspace), str(private_dir), "--"]
        return watched + srt_command(command, settings_file)

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

    def _make_state_dir(self) -> None:
        """Makes the directory of the workspace that only the host writes."""
        directory = self.workspace / guard.STATE_DIR
        try:
            with open_directory(directory, beneath=self.workspace) as state, suppress(FileExistsError):
                state.write_new(".gitignore", b"*\n")
        except OSError as exc:
            raise SandboxError(f"the sandbox needs a directory {directory}: {exc}") from exc


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
    allow_read: Iterable[str] = (),
    allow_write: Iterable[str] = (),
    deny_write: Iterable[str] = (),
) -> None:
    """Writes settings as srt takes them, with these entries and what is denied always on top.

    Raises:
        SandboxError: If the settings open what stays closed always.
    """
    secrets = _secrets()
    _refuse_reading(settings, secrets, workspace)
    filesystem = {
        "denyRead": [*settings.deny_read, *map(str, secrets)],
        "allowRead": [*settings.allow_read, *allow_read],
        "allowWrite": [*settings.allow_write, *allow_write],
        "denyWrite": [*settings.deny_write, *deny_write, *map(str, secrets), *_existing(_WRITABLE_FOR_ALL)],
    }
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
        "mandatoryDenySearchDepth": SEARCH_DEPTH,
    }
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        json.dump(content, opened, indent=1)


def _secrets() -> list[Path]:
    """What opens the way out of the sandbox: the key of seals, and the tokens of whatever listens on a port."""
    directories = [key_path().parent, Path(jupyter_runtime_dir())]
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


def _existing(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if Path(path).expanduser().exists()]


def _is_missing_or_empty(directory: Path) -> bool:
    return not directory.exists() or (directory.is_dir() and not any(directory.iterdir()))
