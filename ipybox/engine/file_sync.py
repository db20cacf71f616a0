"""Keeps files of the workspace and of a node that does not share it equal: the application's end.

`SYNCED` and the uploaded files (`UploadedPaths`) go to the node, as do installed packages: at the start, and before a
cell if they have changed. Files of `FROM_NODE_DIRECTORIES` come back after a cell that has changed some. Only changed
files are sent, found by their hashes. If both ends have changed a file, that of the application's workspace is kept.

The node may be hostile: its messages are validated (`ipybox.node.file_messages`). It can only write and delete files in
those directories, within the bounds, and only those that the rules of transfers allow.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path

from ipybox.engine.file_exchange import ANSWER_TIMEOUT, FileExchange
from ipybox.guest.packages import packages_dir
from ipybox.kernel_mgr.transfer.file_transfer import TAR, Download, TransferReport, mime_type
from ipybox.kernel_mgr.transfer.rules import TransferRules
from ipybox.kernel_mgr.transfer.synced_state import Bounds, FileState, Scan, batches, changed
from ipybox.kernel_mgr.transfer.synced_tree import CHANGED, SyncedTree
from ipybox.kernel_mgr.transfer.uploads import UploadedPaths
from ipybox.node.file_messages import (
    FROM_NODE_DIRECTORIES,
    IMAGES,
    MAX_CHANGES,
    PACKAGE_BOUNDS,
    SYNCED,
    Changes,
    Content,
    Failed,
    FindChanges,
    Get,
    Put,
    Read,
    Remove,
    Tree,
)
from ipybox.node.messages import InvalidMessageError
from ipybox.node.stream import Stream, StreamClosedError
from ipybox.sandbox.settings import SandboxSettings
from ipybox.support.printable import printable
from ipybox.support.sizes import format_bytes
from ipybox.support.tasks import TaskSet

#: Start of notices about files that are not on the node.
NOT_SENT = "Not sent to the node, where code runs"
NOT_WRITTEN = "Not written on the node, where code runs"

#: Notices of one exchange, names in one of them, and characters of a reason.
MAX_NOTICES = 20
MAX_REASON = 500
MAX_NAMES = 5

#: Notices that are kept, so that none comes with each cell.
MAX_TOLD = 1000

#: Questions about changes after one cell: a node with more is not asked again before the next cell.
MAX_QUESTIONS = 20


class FileSync:
    """Keeps the files of one node equal to those of the workspace. One exchange at a time, each runs to its end.

    Args:
        workspace: The workspace of the application.
        open_stream: Opens a stream to the node's end.
        violated: Called with the reason if the node breaks the protocol.
        settings: The settings of the sandbox, if there is one.
        other_platform: Why installed packages are not sent; None if they are.
    """

    def __init__(
        self,
        workspace: Path,
        open_stream: Callable[[], Stream],
        violated: Callable[[str], object],
        *,
        settings: SandboxSettings | None,
        other_platform: str | None,
    ):
        rules = TransferRules(workspace, [workspace], settings)
        self._workspace = workspace
        self._open_stream = open_stream
        self._violated = violated
        self._bounds = Bounds()
        self._tree = SyncedTree(
            workspace,
            lambda names: rules.download_denial(workspace.joinpath(*names)),
            lambda names: rules.upload_denial(workspace.joinpath(*names)),
            self._bounds,
        )
        self._packages = SyncedTree(packages_dir(workspace), _permitted, _never_written, PACKAGE_BOUNDS)
        self._other_platform = other_platform
        self._uploads = UploadedPaths(workspace)
        #: What the node has, as far as it is known, by tree.
        self._there: dict[Tree, dict[str, FileState]] = {"workspace": {}, "packages": {}}
        #: The status of the directory of packages when it was read.
        self._packages_seen: tuple[int, ...] | None = None
        #: Files that the node has reported, and that did not arrive.
        self._again: set[str] = set()
        self._everything = False
        self._told: set[str] = set()
        self._turn = asyncio.Lock()
        self._tasks = TaskSet()

    async def send(self) -> list[str]:
        """Sends what has changed in the workspace, and returns new notices. If cancelled, it goes on to its end."""
        return await self._tasks.finish(self._exchange(self._send))

    async def collect(self) -> list[str]:
        """Brings what has changed on the node to the workspace, and returns new notices; cancelled as `send`."""
        return await self._tasks.finish(self._exchange(self._collect))

    async def read(self, path: str) -> Download:
        """Returns a file of the node's workspace, or a directory as tar.

        Raises:
            OSError: If it can't be read there.
            ValueError: If it is too large.
        """
        try:
            async with FileExchange(self._open_stream) as node:
                match await node.ask(Read(path=path)):
                    case Content(tar=tar, executable=executable, size=size, omitted=omitted):
                        data = await node.content(size)
                        report = TransferReport(Path(path), 0, size, tuple(map(printable, omitted)))
                        return Download(data, TAR if tar else mime_type(path), report, executable)
                    case Failed(kind=kind, reason=reason):
                        errors = {"missing": FileNotFoundError, "denied": PermissionError, "value": ValueError}
                        raise errors.get(kind, OSError)(f"on the node: {printable(reason)}")
                    case _:
                        raise InvalidMessageError("an answer of another kind")
        except InvalidMessageError as exc:
            self._violated(f"the node sent {exc}")
            raise OSError(f"the file can't be read on the node: it sent {exc}") from None
        except (StreamClosedError, TimeoutError) as exc:
            raise OSError("the file can't be read on the node: it does not answer") from exc

    async def _exchange(self, action: Callable[[FileExchange, list[str]], Awaitable[None]]) -> list[str]:
        notices: list[str] = []
        async with self._turn:
            try:
                async with FileExchange(self._open_stream) as node:
                    await action(node, notices)
            except InvalidMessageError as exc:
                self._violated(f"the node sent {exc}")
            except StreamClosedError:
                pass  # the node is lost, which its kernels report
            except TimeoutError:
                self._everything = True
                notices.append(f"Files were not exchanged with the node: it did not answer in {ANSWER_TIMEOUT:g} s.")
            except (OSError, ValueError) as exc:
                self._everything = True
                notices.append(f"Files were not exchanged with the node: {printable(str(exc))}.")
        if len(self._told) > MAX_TOLD:
            self._told.clear()
        new = [notice for notice in dict.fromkeys(notices) if notice not in self._told][:MAX_NOTICES]
        self._told.update(new)
        return new

    async def _send(self, node: FileExchange, notices: list[str]) -> None:
        scan = await asyncio.to_thread(self._scanned)
        await self._send_tree(node, "workspace", self._tree, scan, notices)
        directory = packages_dir(self._workspace)
        if (seen := _seen(directory)) is None or seen == self._packages_seen:
            return
        if self._other_platform is None:
            scan = await asyncio.to_thread(lambda: self._packages.scan(sorted(os.listdir(directory))))
            await self._send_tree(node, "packages", self._packages, scan, notices)
        elif names := await asyncio.to_thread(_distributions, directory):
            notices.append(f"Installed packages are not on the node ({_some(names)}): {self._other_platform}.")
        self._packages_seen = seen

    def _scanned(self) -> Scan:
        uploads = [path for path in self._uploads.read() if path.partition("/")[0] not in SYNCED]
        return self._tree.scan([*SYNCED, *uploads])

    async def _send_tree(
        self, node: FileExchange, tree: Tree, files: SyncedTree, scan: Scan, notices: list[str]
    ) -> None:
        there = self._there[tree]
        notices += _listed(scan.omitted, NOT_SENT)
        gone = [p for p in there if p not in scan.files and scan.covers(p) and not _only_from_node(tree, p)]
        conflicts: list[str] = []
        failed: dict[str, str] = {}
        for start in range(0, len(gone), MAX_CHANGES):
            part = gone[start : start + MAX_CHANGES]
            stored = await node.stored(Remove(tree=tree, paths=part))
            conflicts += stored.conflicts
            failed |= stored.failed
            for path in part:
                there.pop(path, None)
        for batch in batches(changed(there, scan.files)):
            packed = await asyncio.to_thread(files.packed, batch)
            stored = await node.stored(Put(tree=tree, files=batch, size=len(packed)), packed)
            conflicts += stored.conflicts
            failed |= stored.failed
            there |= {path: state for path, state in batch.items() if path not in stored.failed}
        notices += _listed(failed, NOT_WRITTEN)
        notices += _kept(conflicts)

    async def _collect(self, node: FileExchange, notices: list[str]) -> None:
        for _ in range(MAX_QUESTIONS):
            again, self._again = list(self._again)[:MAX_CHANGES], set[str]()
            question = FindChanges(everything=self._everything, again=again)
            answer = await node.ask(question)
            if not isinstance(answer, Changes):
                raise InvalidMessageError("an answer of another kind")
            self._everything = False
            for path in (*answer.files, *answer.removed):
                if path.partition("/")[0] not in FROM_NODE_DIRECTORIES or "/" not in path:
                    raise InvalidMessageError("a file outside of the directories that are synchronized")
            notices += _listed(answer.omitted, "Not copied from the node")
            await self._take(node, answer, notices)
            if not answer.more:
                return

    async def _take(self, node: FileExchange, changes: Changes, notices: list[str]) -> None:
        """Takes over the changes of the node, unless the application's workspace has changed as well."""
        there = self._there["workspace"]
        here = await asyncio.to_thread(self._tree.states, (*changes.files, *changes.removed))
        conflicts: list[str] = []
        failed: dict[str, str] = {}
        await self._take_removed(changes.removed, here, conflicts, failed)
        wanted: dict[str, FileState] = {}
        size = sum(state.size for state in there.values())
        for path, state in changes.files.items():
            if here.get(path) == state:
                there[path] = state
            elif _only_from_node("workspace", path) or here.get(path) == there.get(path):
                size += state.size - (there[path].size if path in there else 0)
                if (reason := self._excess(path, state, size, len(there) + len(wanted))) is not None:
                    failed[path] = reason
                    size -= state.size
                else:
                    wanted[path] = state
            else:
                there[path] = state  # the next `send` replaces it
                conflicts.append(path)
        for batch in batches(wanted):
            await self._get(node, batch, failed)
        notices += _listed(failed, "Not copied from the node")
        notices += _kept(conflicts)

    async def _take_removed(
        self, removed: Iterable[str], here: Mapping[str, FileState], conflicts: list[str], failed: dict[str, str]
    ) -> None:
        there = self._there["workspace"]
        gone: list[str] = []
        for path in removed:
            known = there.pop(path, None)
            if path not in here or known is None:
                continue
            if here[path] == known:
                gone.append(path)
            else:
                conflicts.append(path)
        if gone:
            failed |= (await asyncio.to_thread(self._tree.delete, gone)).failed

    async def _get(self, node: FileExchange, batch: dict[str, FileState], failed: dict[str, str]) -> None:
        answer = await node.ask(Get(paths=list(batch)))
        if not isinstance(answer, Content):
            raise InvalidMessageError("an answer of another kind")
        packed = await node.content(answer.size)
        try:
            written = await asyncio.to_thread(self._tree.write, packed, batch)
        except ValueError as exc:
            raise InvalidMessageError(f"invalid files: {printable(str(exc))}") from None
        self._there["workspace"] |= {path: batch[path] for path in written.done}
        self._again |= written.failed.keys()
        failed |= written.failed

    def _excess(self, path: str, state: FileState, size: int, files: int) -> str | None:
        """Returns why a file is not taken over: a rule or a bound; None if it is.

        Args:
            path: Its path.
            state: The file.
            size: The bytes of all files, with this one.
            files: The number of the others.
        """
        if (reason := self._tree.unwritable(tuple(path.split("/")))) is not None:
            return reason
        if not 0 <= state.size <= self._bounds.one:
            return f"a file may have {format_bytes(self._bounds.one)}"
        if size > self._bounds.total:
            return f"all files together may have {format_bytes(self._bounds.total)}: delete those that are not needed"
        if files >= self._bounds.files:
            return f"only {self._bounds.files:,} files are synchronized: delete those that are not needed"
        return None


def _permitted(_: tuple[str, ...]) -> None:
    """Permits each path: only ipybox writes packages."""


def _never_written(_: tuple[str, ...]) -> str:
    return "packages come from this machine"


def _only_from_node(tree: Tree, path: str) -> bool:
    return tree == "workspace" and path.startswith(f"{IMAGES}/")


def _seen(directory: Path) -> tuple[int, ...] | None:
    """Returns the status of the directory of packages, which each installation replaces; None if it does not exist."""
    try:
        status = directory.lstat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _distributions(directory: Path) -> list[str]:
    return sorted(found.name for found in distributions(path=[str(directory)]))


def _listed(reasons: Mapping[str, str], what: str) -> list[str]:
    """Returns a notice for each reason, with the files that it is about."""
    by_reason: dict[str, list[str]] = {}
    for path, reason in reasons.items():
        if reason != CHANGED:  # the next exchange finds it
            by_reason.setdefault(printable(reason), []).append(path)
    return [f"{what}: {_some(paths)} ({reason[:MAX_REASON]})." for reason, paths in by_reason.items()]


def _kept(conflicts: list[str]) -> list[str]:
    if not conflicts:
        return []
    return [f"Changed here and on the node, where code runs: {_some(conflicts)}. The files from here were kept."]


def _some(names: list[str]) -> str:
    shown = ", ".join(printable(name)[:200] for name in names[:MAX_NAMES])
    return f"{shown} and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else shown
