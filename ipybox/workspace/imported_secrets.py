"""The secrets of MCP servers that a person imported from another client's configuration.

Their parameters contain `${NAME}` placeholders; the values are in the workspace's state directory, which neither code
nor a repository can write. A value is filled in only for the server's name in this workspace, with exactly the
parameters that it came with: the MAC of their seal names the file. So no other registration can use it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ipybox.support.names import MCPTOOLS
from ipybox.support.private_file import replace_private
from ipybox.support.state import make_directory, state_dir, workspace_state_path
from ipybox.workspace.seal import seal


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
        make_directory(self.directory)
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
