"""The paths that were uploaded to a workspace, for kernels on a machine that does not share it (`ipybox.remote`).

They are lines of JSON in a file of the ipybox directory, so that each session of this workspace, also a later one,
finds them. Files of these paths are sent to a node as generated packages are.
"""

import json
import os
from pathlib import Path

from ipybox.support.names import STATE_DIR
from ipybox.support.safe_directory import open_directory
from ipybox.support.state import make_ipybox_dir

NAME = "uploads.jsonl"

#: Bytes of the file, of which more are not read, and paths.
MAX_BYTES = 1 << 20
MAX_PATHS = 1000


class UploadedPaths:
    """The uploaded paths of one workspace, relative to it."""

    def __init__(self, workspace: Path):
        self._workspace = workspace

    def add(self, path: Path) -> None:
        """Notes an absolute path; one that is not in the workspace goes to no node.

        Raises:
            OSError: If it can't be written.
        """
        if not path.is_relative_to(self._workspace):
            return
        relative = path.relative_to(self._workspace).as_posix()
        if relative in self.read():
            return
        make_ipybox_dir(self._workspace)
        with open_directory(self._workspace / STATE_DIR, untrusted_root=self._workspace) as directory:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            fd = os.open(NAME, flags, 0o600, dir_fd=directory.fd)
            with os.fdopen(fd, "wb") as file:
                file.write(json.dumps(relative).encode() + b"\n")

    def read(self) -> list[str]:
        """Returns the paths, the newest if there are too many; an empty list if the file can't be read."""
        try:
            with open_directory(self._workspace / STATE_DIR, untrusted_root=self._workspace, create=False) as directory:
                lines = directory.read(NAME, MAX_BYTES).splitlines()[-MAX_PATHS:]
        except OSError:
            return []
        paths: dict[str, None] = {}
        for line in lines:
            try:
                path = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(path, str) and path:
                paths[path] = None
        return list(paths)
