"""Seals on the launch parameters of MCP servers.

A generated package contains its server's parameters, and code in a kernel can change them. The seal is an HMAC of the
server's name, its parameters and the directory where it was registered, with a key that stays on the host:

    <directory, relative to the current directory at registration>:<HMAC-SHA256, hexadecimal>

The seal is valid until the name is registered again in that directory. Otherwise, code could keep a copy of a package
whose parameters the user has since replaced.

The MAC also names the file with the secrets of a server that a person imported from another client's configuration. The
parameters contain `${NAME}` placeholders; the values are in the workspace's state directory, which neither code nor a
repository can write. So a value is filled in only for the server's name in this workspace, with exactly the parameters
that it came with.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ipybox.guest.tools.protocol import RunRequest
from ipybox.support.names import MCPTOOLS
from ipybox.support.private_file import load_or_create_key, replace_private
from ipybox.support.state import state_dir, workspace_state_path
from ipybox.support.untrusted_paths import real_path
from ipybox.workspace.registrations import PinnedTool, Registration, first_line, record_file, seal_in

#: Maximum number of directories in a seal's place.
MAX_DEPTH = 16


def seal(server_name: str, server_params: dict[str, Any], root_dir: Path) -> str:
    """Returns the seal for a server's name and parameters; placeholders are sealed unresolved.

    The seal is valid for the workspace of `root_dir`, the parent directory of the server's package.
    """
    root = Path(real_path(root_dir))
    here = Path.cwd().resolve()
    place = root.relative_to(here) if root.is_relative_to(here) else root.name
    return f"{place}:{_mac(server_name, server_params, root)}"


def secret_hash(value: dict[str, Any]) -> str:
    """Returns a hash from which code can't guess the value."""
    return _mac("", value, Path())


class SealVerifier:
    """Checks whether tool calls use a server as currently registered in a workspace."""

    def __init__(self, workspace: Path):
        self._workspace = workspace.resolve()
        #: The last valid seals by server name: seal, parameters, the registration's record, and its checked first line.
        self._known: dict[str, tuple[str, dict[str, Any], Path, bytes | None]] = {}
        #: The last records read, by server name.
        self._records: dict[str, Registration] = {}

    def accepts(self, server_name: str, server_params: dict[str, Any], candidate: str | None) -> bool:
        """Returns whether `candidate` is the seal of the server's last registration, with these parameters."""
        candidate = candidate or ""
        known = self._known.get(server_name)
        # There are few servers and many calls, so the HMAC of the last call is reused, and its record's first line.
        if known is None or known[:2] != (candidate, server_params):
            place = self._sealed_place(server_name, server_params, candidate)
            if place is None:
                return False
            known = (candidate, server_params, record_file(place), None)
        if (line := first_line(known[2])) != known[3]:
            if seal_in(line) != candidate.rpartition(":")[2]:
                return False
            self._known[server_name] = (*known[:3], line)
        return True

    def pinned(self, call: RunRequest) -> PinnedTool | None:
        """Returns a call's tool as the last registration of its server pinned it; None unless the seal is accepted."""
        server_name, candidate = call["server_name"], call["seal"]
        if not self.accepts(server_name, call["server_params"], candidate):
            return None
        *_, file, line = self._known[server_name]
        record = self._records.get(server_name)
        if record is None or record.line != line:
            record = self._records[server_name] = Registration.read(file)
        # The server may have been registered again in the meantime.
        return record.tools.get(call["tool_name"]) if record.seal == (candidate or "").rpartition(":")[2] else None

    def _sealed_place(self, server_name: str, server_params: dict[str, Any], candidate: str) -> Path | None:
        """Returns the path of the sealed package; None if the seal is invalid or the package isn't in the workspace."""
        place, _, mac = candidate.rpartition(":")
        parts = PurePosixPath(place).parts
        if PurePosixPath(place).is_absolute() or ".." in parts or len(parts) > MAX_DEPTH:
            return None
        # The server may have been registered from a directory above the workspace.
        for start in range(len(parts) + 1):
            root = self._workspace.joinpath(*parts[start:])
            expected = _mac(server_name, server_params, root)
            if hmac.compare_digest(expected.encode(), mac.encode(errors="replace")):
                return root / server_name
        return None


def _mac(server_name: str, server_params: dict[str, Any], root: Path) -> str:
    canonical = json.dumps([str(root), server_name, server_params], sort_keys=True, separators=(",", ":"))
    return hmac.new(load_or_create_key(state_dir() / "seal.key"), canonical.encode(), hashlib.sha256).hexdigest()


class ImportedSecrets:
    """The imported secrets of one workspace."""

    def __init__(self, workspace: Path):
        self._workspace = workspace.resolve()
        #: The directory with a file for each import; it may not exist.
        self.directory = workspace_state_path(self._workspace) / "imported"

    def values(self) -> dict[str, str]:
        """Returns all values, by the names that replace them in logs."""
        return {
            f"{path.stem.partition('.')[0]}.{name}": value
            for path in self.directory.glob("*.json")
            for name, value in _read(path).items()
        }

    def of(self, server_name: str, server_params: dict[str, Any]) -> dict[str, str] | None:
        """Returns the values for a server's placeholders; None if it was not imported with these parameters."""
        if not server_name.isidentifier() or not self.directory.exists():  # calls of code may name anything
            return None
        path = self._file(server_name, server_params)
        return _read(path) if path.exists() else None

    def store(self, server_name: str, server_params: dict[str, Any], values: Mapping[str, str]) -> None:
        """Stores the values for the placeholders of a server that a person imports.

        Raises:
            PermissionError: If code could read or forge them, because the state directory is in the workspace.
        """
        if state_dir().resolve().is_relative_to(self._workspace):
            raise PermissionError(f"the state directory {state_dir()} is inside the workspace, where code may read it")
        replace_private(self._file(server_name, server_params), json.dumps(values))

    def keep_only(self, server_name: str, server_params: dict[str, Any]) -> None:
        """Removes the values for all other parameters of a server, which was registered with these."""
        for path in self.directory.glob(f"{server_name}.*.json"):
            if path != self._file(server_name, server_params):
                path.unlink(missing_ok=True)

    def _file(self, server_name: str, server_params: dict[str, Any]) -> Path:
        mac = seal(server_name, server_params, self._workspace / MCPTOOLS).rpartition(":")[2]
        return self.directory / f"{server_name}.{mac}.json"


def _read(path: Path) -> dict[str, str]:
    return json.loads(path.read_bytes())
