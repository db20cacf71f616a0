"""The trust store, which records the contents of workspace files that a person has agreed to.

Each agreement is a separate file in the state directory. Its name is a hash of everything that the person agreed to, so
a changed file isn't trusted, and concurrent writers need no lock. Standard library only: the plugins' launcher and
`ipybox docker` check trust before anything is installed.
"""

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import which
from typing import Final

from ipybox.support.printable import printable
from ipybox.support.private_file import replace_private
from ipybox.support.safe_directory import names_below, open_directory
from ipybox.support.state import data_dir, state_dir
from ipybox.support.untrusted_paths import MAX_SETTINGS
from ipybox.support.way_in import restart

#: A workspace's file of sandbox settings. Code in the sandbox can't change an existing file, but can create a missing
#: one.
SANDBOX_CONFIG: Final = "sandbox-config.json"


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """A person's agreement to a workspace file."""

    workspace: str
    file: str
    #: The sandbox profile that the file was compared with; empty if the file isn't about the sandbox.
    profile: str
    #: The hash of the content.
    sha256: str


class TrustStore:
    """Remembers which files of one workspace a person trusts, and trusts content with hashes in `vouched`."""

    def __init__(self, workspace: Path, vouched: Collection[str] = ()):
        self.workspace = workspace.resolve()
        self._vouched = vouched
        directory = state_dir() / "trust"
        #: The directory of agreements; None if it is in the workspace, where code could forge them.
        self._directory = None if directory.resolve().is_relative_to(self.workspace) else directory

    @property
    def can_remember(self) -> bool:
        """Whether agreements can be added."""
        return self._directory is not None

    def trusts(self, file: Path, data: bytes, profile: str = "") -> bool:
        """Returns whether a person has agreed to this content of a file."""
        agreement = self._agreement(file, data, profile)
        return agreement.sha256 in self._vouched or (
            self._directory is not None and (self._directory / _name(agreement)).is_file()
        )

    def trust(self, file: Path, data: bytes, profile: str = "") -> None:
        """Remembers that a person has agreed to this content of a file."""
        if self._directory is None:
            raise PermissionError(
                f"the state directory {state_dir()} is inside the workspace, where code may change it"
            )
        agreement = self._agreement(file, data, profile)
        replace_private(self._directory / _name(agreement), json.dumps(asdict(agreement), indent=1))

    def agreements(self) -> list[Agreement]:
        """Returns all agreements for the workspace."""
        return [agreement for _, agreement in self._stored()]

    def is_current(self, agreement: Agreement) -> bool:
        """Returns whether a file still has the content that a person has agreed to."""
        with suppress(OSError):
            data = read_untrusted(self.workspace / agreement.file, self.workspace)
            return hashlib.sha256(data).hexdigest() == agreement.sha256
        return False

    def revoke(self, files: Collection[Path] = ()) -> list[Agreement]:
        """Forgets the agreements on these files, or on all files, and returns them."""
        names = {self._relative(file) for file in files}
        revoked = [(path, each) for path, each in self._stored() if not files or each.file in names]
        for path, _ in revoked:
            path.unlink(missing_ok=True)
        return [agreement for _, agreement in revoked]

    def command(self, profile: str = "", file: Path | None = None, program: Sequence[str] = ()) -> str:
        """Returns the command that a person runs to trust workspace files, for a sandbox profile.

        `file` names a file that `ipybox trust` doesn't look for by default. `program` is the program and its first
        arguments; by default, those that run this ipybox.
        """
        words = [*(program or own_program()), "trust", f"--workspace={self.workspace}"]
        if not self.can_remember:  # a container, which doesn't know the workspace's path on the host
            words, file = ["ipybox", "trust"], file and Path(file.name)
        words += [f"--sandbox-profile={profile}"] if profile not in ("", "default") else []
        return printable(shlex.join([*words, *([str(file)] if file else [])]))

    def _stored(self) -> list[tuple[Path, Agreement]]:
        found: list[tuple[Path, Agreement]] = []
        for path in () if self._directory is None else self._directory.glob("*.json"):
            with suppress(OSError, ValueError, TypeError):
                agreement = Agreement(**json.loads(path.read_bytes()))
                if agreement.workspace == str(self.workspace):
                    found.append((path, agreement))
        return sorted(found, key=lambda each: (each[1].file, each[1].profile))

    def _agreement(self, file: Path, data: bytes, profile: str) -> Agreement:
        content = hashlib.sha256(data).hexdigest()
        return Agreement(workspace=str(self.workspace), file=self._relative(file), profile=profile, sha256=content)

    def _relative(self, file: Path) -> str:
        path = Path(os.path.abspath(file))
        names = names_below(path, self.workspace)
        return str(path) if names is None else "/".join(names)


def read_untrusted(file: Path, workspace: Path) -> bytes:
    """Reads a file that code may have written, once, without following links in the workspace.

    Raises an OSError if the file isn't regular, or is larger than `MAX_SETTINGS`.
    """
    with open_directory(file.parent, untrusted_root=workspace, create=False) as directory:
        return directory.read(file.name, MAX_SETTINGS)


def policy_notice(file: Path, store: TrustStore, program: Sequence[str] = ()) -> str:
    """Returns a notice about an untrusted policy in the workspace."""
    return (
        f"The workspace's {file.name} is not trusted: it can only deny tool calls, and ipybox asks about all others. "
        f"To review and apply all its rules, run `{store.command(program=program)}` in a terminal, then {restart()}."
    )


def own_program() -> list[str]:
    """Returns the command that starts this ipybox, as short as it can be."""
    installed, own = which("ipybox"), Path(sys.executable).with_name("ipybox")
    if installed is not None and os.path.realpath(installed) == os.path.realpath(own):
        return ["ipybox"]
    of_plugin = data_dir() / "environments" / "ipybox"
    if own.is_relative_to(of_plugin.parent) and of_plugin.exists():
        return [str(of_plugin)]
    return [str(own)] if own.exists() else [sys.executable, "-I", "-m", "ipybox"]


def _name(agreement: Agreement) -> str:
    return hashlib.sha256(json.dumps(asdict(agreement), sort_keys=True).encode()).hexdigest() + ".json"
