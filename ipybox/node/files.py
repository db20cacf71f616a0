"""The node's end of files: a workspace of its own, if the node does not share that of the application.

The workspace is a private directory of this link, which is removed at its end. The application puts files there, asks
which have changed, and gets them (`ipybox.node.file_messages`). Code in the kernels writes the same directories.
"""

import asyncio
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ipybox.guest.packages import packages_dir
from ipybox.kernel_mgr.transfer.file_transfer import TAR, FileTransfer
from ipybox.kernel_mgr.transfer.rules import TransferRules
from ipybox.kernel_mgr.transfer.synced_state import FileState, changed
from ipybox.kernel_mgr.transfer.synced_tree import SyncedTree, Written
from ipybox.node.file_messages import (
    FROM_NODE_DIRECTORIES,
    MAX_CHANGES,
    MAX_OMITTED,
    PACKAGE_BOUNDS,
    TO_NODE,
    Changes,
    Content,
    Failed,
    FileStream,
    FindChanges,
    FromNode,
    Get,
    Put,
    Read,
    Remove,
    Stored,
    ToNode,
    Tree,
)
from ipybox.node.stream import Stream, StreamClosedError
from ipybox.sandbox.settings import SandboxSettings
from ipybox.support.safe_directory import open_directory
from ipybox.support.scratch import create_locked, remove_tree, remove_unused
from ipybox.support.state import make_ipybox_dir


class NodeWorkspace:
    """A new private directory, with the files that the application puts there, until `remove`.

    It is in the directory for temporary files (`TMPDIR`). Those of killed nodes of the same user are removed, if they
    can be found: another user may have taken the name of the directory for them.

    Attributes:
        path: The directory.

    Raises:
        OSError: If it can't be created.
    """

    def __init__(self) -> None:
        root = Path(tempfile.gettempdir(), f"ipybox-nodes-{os.getuid()}").absolute()
        with suppress(FileExistsError):
            root.mkdir(mode=0o700)
        self._own_root: Path | None = None
        if _is_private(root):
            remove_unused(root)
        else:
            root = self._own_root = Path(tempfile.mkdtemp(prefix="ipybox-node-"))
        self.path = root.resolve() / os.urandom(4).hex()
        self._lock = create_locked(self.path)
        make_ipybox_dir(self.path)

    def remove(self) -> None:
        """Removes the directory with its content."""
        remove_tree(self.path)
        if self._own_root is not None:
            remove_tree(self._own_root)
        os.close(self._lock)


class NodeFiles:
    """Answers the application's messages about the files of a workspace.

    Args:
        workspace: The workspace.
        settings: The settings of the sandbox, if there is one.
    """

    def __init__(self, workspace: Path, settings: SandboxSettings | None):
        rules = TransferRules(workspace, [workspace], settings)
        self._workspace = workspace
        self._settings = settings

        def secret(names: tuple[str, ...]) -> str | None:
            return rules.download_denial(workspace.joinpath(*names))

        # The application may put files that code must not write, such as instructions of agents.
        self._tree = SyncedTree(workspace, secret, secret)
        self._packages = SyncedTree(packages_dir(workspace), lambda _: None, lambda _: None, PACKAGE_BOUNDS)
        #: What the application knows of the files of the workspace.
        self._reported: dict[str, FileState] = {}
        self._turn = asyncio.Lock()

    async def serve(self, stream: Stream) -> None:
        """Answers the messages of one stream, until it ends.

        Raises:
            InvalidMessageError: If the application sends something else.
        """
        files = FileStream(stream, TO_NODE)
        try:
            while True:
                message = await files.receive()
                packed = await files.content(message.size) if isinstance(message, Put) else b""
                async with self._turn:
                    answer, content = await asyncio.to_thread(self._answer, message, packed)
                await files.send(answer, content)
        except StreamClosedError:
            pass
        finally:
            stream.reset()

    def _answer(self, message: ToNode, packed: bytes) -> tuple[FromNode, bytes]:
        match message:
            case Put():
                return self._put(message, packed), b""
            case Remove():
                return self._remove(message), b""
            case FindChanges():
                return self._changes(message), b""
            case Get(paths=paths):
                content = self._tree.packed(paths)
                return Content(tar=True, size=len(content)), content
            case Read(path=path):
                return self._read(path)

    def _put(self, message: Put, packed: bytes) -> Stored:
        conflicts = self._conflicts(message.tree, message.files)
        written = _reported(lambda: self._opened(message.tree).write(packed, message.files), message.files)
        if message.tree == "workspace":
            self._reported |= {path: message.files[path] for path in written.done}
        return Stored(conflicts=conflicts, failed=written.failed)

    def _remove(self, message: Remove) -> Stored:
        conflicts = self._conflicts(message.tree, dict.fromkeys(message.paths))
        deleted = _reported(lambda: self._opened(message.tree).delete(message.paths), message.paths)
        for path in deleted.done if message.tree == "workspace" else ():
            self._reported.pop(path, None)
        return Stored(conflicts=conflicts, failed=deleted.failed)

    def _conflicts(self, tree: Tree, wanted: Mapping[str, FileState | None]) -> list[str]:
        """Returns the files that code has changed since the application knew them, and that are not as it wants."""
        if tree == "packages":
            return []
        now = self._tree.states(wanted)
        return [path for path, state in now.items() if state not in (self._reported.get(path), wanted[path])]

    def _changes(self, message: FindChanges) -> Changes:
        for path in tuple(self._reported) if message.everything else message.again:
            self._reported.pop(path, None)
        scan = self._tree.scan(FROM_NODE_DIRECTORIES)
        files = changed(self._reported, scan.files)
        removed = [
            path
            for path in self._reported
            if path.partition("/")[0] in FROM_NODE_DIRECTORIES and path not in scan.files and scan.covers(path)
        ]
        more = len(files) > MAX_CHANGES or len(removed) > MAX_CHANGES
        files = dict(list(files.items())[:MAX_CHANGES])
        removed = removed[:MAX_CHANGES]
        self._reported |= files
        for path in removed:
            del self._reported[path]
        omitted = {path: why for path, why in scan.omitted.items() if "\0" not in path and _encodable(path)}
        return Changes(files=files, removed=removed, omitted=dict(list(omitted.items())[:MAX_OMITTED]), more=more)

    def _read(self, path: str) -> tuple[FromNode, bytes]:
        settings = self._settings
        transfer = FileTransfer(self._workspace, settings=None if settings is None else lambda: settings)
        try:
            download = transfer.download(path)
        except (OSError, ValueError) as exc:
            return Failed(kind=_kind(exc), reason=str(exc)[:4000]), b""
        omitted = [each[:4000] for each in download.transferred.omitted]
        content = Content(
            tar=download.mime_type == TAR,
            executable=download.executable,
            size=len(download.data),
            omitted=omitted,
        )
        return content, download.data

    def _opened(self, tree: Tree) -> SyncedTree:
        if tree == "workspace":
            return self._tree
        with open_directory(packages_dir(self._workspace), untrusted_root=self._workspace):
            return self._packages


def _reported(action: Callable[[], Written], paths: Any) -> Written:
    """Returns what an action has done; if it fails as a whole, the reason for each path."""
    try:
        return action()
    except (OSError, ValueError) as exc:
        return Written(failed=dict.fromkeys(paths, str(exc)[:4000]))


def _kind(exc: OSError | ValueError) -> Any:
    if isinstance(exc, FileNotFoundError):
        return "missing"
    if isinstance(exc, PermissionError):
        return "denied"
    return "value" if isinstance(exc, ValueError) else "other"


def _is_private(directory: Path) -> bool:
    """Returns whether a directory belongs to this user, and is closed to others."""
    status = directory.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _encodable(path: str) -> bool:
    try:
        return bool(path.encode())
    except UnicodeEncodeError:
        return False
