"""Files of a workspace that a node does not share: both ends, over HTTP/2 in pipes, without kernels.

`tests/engine/test_files.py` has the rest, with a node of its own.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ipybox.engine import file_sync
from ipybox.engine.file_sync import FileSync
from ipybox.kernel_mgr.transfer import synced_tree
from ipybox.kernel_mgr.transfer.synced_state import Bounds, FileState
from ipybox.kernel_mgr.transfer.uploads import UploadedPaths
from ipybox.node.connection import Connection
from ipybox.node.file_messages import (
    TO_NODE,
    Changes,
    Content,
    FileStream,
    FindChanges,
    FromNode,
    Get,
    Put,
    Remove,
    Stored,
    ToNode,
)
from ipybox.node.files import NodeFiles, NodeWorkspace
from ipybox.node.stream import Stream, StreamClosedError
from ipybox.sandbox.settings import SandboxSettings, load_settings

#: Seconds that a test waits for what must happen.
WAIT = 20.0

Files = dict[str, str]


class Ends:
    """An application and a node, each with a workspace."""

    def __init__(self, here: Path, there: Path):
        self.here = here
        self.there = there
        self.violations: list[str] = []
        self._client = Connection(client=True)
        self._node = NodeFiles(there, None)
        self._serve: Callable[[Stream], Coroutine[Any, Any, None]] = self._node.serve
        self._server = Connection(client=False, on_request=self._take)
        self._serving: set[asyncio.Task[None]] = set()
        self.sync = self.new_sync()

    def new_sync(self, other_platform: str | None = None, settings: SandboxSettings | None = None) -> FileSync:
        return FileSync(
            self.here,
            lambda: self._client.request("/files", large=True),
            self.violations.append,
            settings=settings,
            other_platform=other_platform,
        )

    def be_hostile(self, answer: "Callable[[ToNode], tuple[FromNode, bytes]]") -> None:
        """Replaces the node by one that answers like this."""

        async def serve(stream: Stream) -> None:
            files = FileStream(stream, TO_NODE)
            with suppress(StreamClosedError):
                while True:
                    message = await files.receive()
                    await files.send(*answer(message))

        self._serve = serve

    def _take(self, stream: Stream) -> None:
        stream.accept()
        task = asyncio.create_task(self._serve(stream))
        self._serving.add(task)

    async def open(self) -> None:
        (read_here, write_there), (read_there, write_here) = os.pipe(), os.pipe()
        await self._client.open(read_here, write_here)
        await self._server.open(read_there, write_there)
        self._client.start()
        self._server.start()

    async def close(self) -> None:
        self._client.close()
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)


@pytest.fixture
async def ends(tmp_path: Path) -> AsyncIterator[Ends]:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    ends = Ends(tmp_path / "here", tmp_path / "there")
    await ends.open()
    async with asyncio.timeout(WAIT):
        yield ends
    await ends.close()


def put(root: Path, files: Files) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def found(root: Path) -> Files:
    """Returns the files of a workspace, without those of ipybox."""
    files = [path for path in root.rglob("*") if path.is_file() or path.is_symlink()]
    return {
        path.relative_to(root).as_posix(): "link" if path.is_symlink() else path.read_text()
        for path in files
        if not path.is_relative_to(root / ".ipybox")
    }


async def test_files_go_to_the_node_and_later_changes_and_deletions_too(ends: Ends):
    given = {"mcptools/github/issue.py": "a", "mcpparse/x.py": "b", "gentools/a/b/api.py": "c", "toolfiles/f-001": "d"}
    put(ends.here, {**given, "images/old.png": "host only", "private/data": "host only"})
    assert await ends.sync.send() == []
    assert found(ends.there) == given
    put(ends.here, {"mcpparse/x.py": "b2", "gentools/new/one/api.py": "e"})
    (ends.here / "gentools/a/b/api.py").unlink()
    assert await ends.sync.send() == []
    assert found(ends.there) == {
        "mcptools/github/issue.py": "a",
        "mcpparse/x.py": "b2",
        "toolfiles/f-001": "d",
        "gentools/new/one/api.py": "e",
    }
    assert not (ends.there / "gentools/a").exists()


async def test_files_of_the_node_come_back_and_later_changes_and_deletions_too(ends: Ends):
    given = {
        "gentools/a/b/api.py": "c",
        "images/plot.png": "p",
        "toolfiles/f-001": "d",
        "mcptools/s/t.py": "run_parsed",
    }
    put(ends.there, {**given, "data.csv": "node only", "gentools/__pycache__/x.pyc": "node only"})
    assert await ends.sync.collect() == []
    assert found(ends.here) == given
    put(ends.there, {"images/plot.png": "p2"})
    (ends.there / "gentools/a/b/api.py").unlink()
    assert await ends.sync.collect() == []
    assert found(ends.here) == {"images/plot.png": "p2", "toolfiles/f-001": "d", "mcptools/s/t.py": "run_parsed"}


async def test_only_what_has_changed_is_sent(ends: Ends, monkeypatch: pytest.MonkeyPatch):
    put(ends.here, {f"mcptools/s/tool_{n}.py": "x" * n for n in range(50)})
    await ends.sync.send()
    sent: list[list[str]] = []
    packed = synced_tree.SyncedTree.packed
    monkeypatch.setattr(
        synced_tree.SyncedTree,
        "packed",
        lambda self, paths: sent.append(list(paths)) or packed(self, paths),  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    )
    put(ends.here, {"mcptools/s/tool_7.py": "changed"})
    await ends.sync.send()
    assert sent == [["mcptools/s/tool_7.py"]]
    await ends.sync.collect()
    assert sent == [["mcptools/s/tool_7.py"]]


async def test_executable_files_stay_executable(ends: Ends):
    put(ends.here, {"gentools/run.sh": "x"})
    (ends.here / "gentools/run.sh").chmod(0o755)
    await ends.sync.send()
    assert os.access(ends.there / "gentools/run.sh", os.X_OK)
    (ends.there / "gentools/run.sh").chmod(0o644)
    await ends.sync.collect()
    assert not (ends.here / "gentools/run.sh").stat().st_mode & 0o100


async def test_file_that_both_have_changed_is_that_of_the_workspace_and_a_notice_says_so(ends: Ends):
    put(ends.here, {"gentools/a.py": "old", "gentools/b.py": "old", "gentools/c.py": "old"})
    await ends.sync.send()
    put(ends.here, {"gentools/a.py": "of the application", "gentools/b.py": "of the application"})
    (ends.here / "gentools/c.py").unlink()
    put(ends.there, {"gentools/a.py": "of the node", "gentools/c.py": "of the node"})
    (ends.there / "gentools/b.py").unlink()
    (notice,) = await ends.sync.collect()
    for name in ("gentools/a.py", "gentools/b.py", "gentools/c.py"):
        assert name in notice
    assert notice.endswith("The files from here were kept.")
    assert await ends.sync.send() == []
    kept = {"gentools/a.py": "of the application", "gentools/b.py": "of the application"}
    assert (found(ends.here), found(ends.there)) == (kept, kept)


async def test_file_that_code_changes_while_a_new_one_comes_is_replaced_with_a_notice(ends: Ends):
    put(ends.here, {"gentools/a.py": "old"})
    await ends.sync.send()
    put(ends.here, {"gentools/a.py": "of the application"})
    put(ends.there, {"gentools/a.py": "of the node"})
    (notice,) = await ends.sync.send()
    assert notice.startswith("Changed here and on the node, where code runs: gentools/a.py.")
    assert found(ends.there) == {"gentools/a.py": "of the application"}


async def test_equal_changes_are_no_conflict(ends: Ends):
    for root in (ends.here, ends.there):
        put(root, {"gentools/a.py": "same"})
    assert await ends.sync.collect() == []
    assert await ends.sync.send() == []


async def test_protected_files_and_links_stay_where_they_are(ends: Ends):
    names = ("gentools/.env", "gentools/.git/config", "gentools/CLAUDE.md", "toolfiles/.mcp.json", "mcptools/.claude/x")
    for root in (ends.here, ends.there):
        put(root, dict.fromkeys(names, "x"))
        (root / "gentools/passwd").symlink_to("/etc/passwd")
        (root / "mcpparse").symlink_to("/etc")
    before = found(ends.here)
    notices = "\n".join(await ends.sync.send())
    for name in names:
        (ends.there / name).write_text("of code")
    notices += "\n".join(await ends.sync.collect())
    assert found(ends.here) == before
    assert "it may hold secrets" in notices
    assert "it is protected, because programs of the host trust or execute it" in notices
    assert "mcpparse" in notices


async def test_settings_of_the_sandbox_hold_for_files_in_both_directions(ends: Ends):
    config = ends.here / "settings.json"
    config.write_text('{"filesystem": {"denyRead": ["gentools/hidden.py"], "denyWrite": ["mcptools"]}}')
    ends.sync = ends.new_sync(settings=load_settings(config))
    given = {"mcptools/tool.py": "a", "gentools/CLAUDE.md": "b"}
    put(ends.here, {**given, "gentools/hidden.py": "secret"})
    await ends.sync.send()
    assert found(ends.there) == given
    put(ends.there, {"mcptools/tool.py": "of code", "gentools/CLAUDE.md": "of code", "gentools/hidden.py": "of code"})
    notices = "\n".join(await ends.sync.collect())
    assert notices.count("it is protected, because programs of the host trust or execute it") == 1
    assert "mcptools/tool.py, gentools/CLAUDE.md" in notices
    assert (ends.here / "gentools/hidden.py").read_text() == "secret"
    assert (ends.here / "mcptools/tool.py").read_text() == "a"


async def test_link_that_code_puts_in_place_of_a_directory_is_not_followed(ends: Ends, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    (ends.there / "gentools").symlink_to(tmp_path / "elsewhere")
    put(ends.here, {"gentools/a.py": "x", "mcptools/b.py": "y"})
    notices = await ends.sync.send()
    assert "which is not followed where sandboxed code can make one: remove it" in "".join(notices) or notices
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert (ends.there / "mcptools/b.py").read_text() == "y"


async def test_file_that_is_too_large_is_named_with_the_limit_and_once(ends: Ends, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(file_sync, "Bounds", lambda: Bounds(total=300, one=100))
    ends.sync = ends.new_sync()
    put(ends.here, {"mcptools/a.py": "x" * 90, "toolfiles/big": "x" * 101})
    assert await ends.sync.send() == [
        "Not sent to the node, where code runs: toolfiles/big (it has 101 bytes, and a file may have 100 bytes)."
    ]
    assert await ends.sync.send() == []
    put(ends.there, {f"toolfiles/{n}": "x" * 90 for n in range(4)})
    (notice,) = await ends.sync.collect()
    assert notice.endswith("(all files together may have 300 bytes: delete those that are not needed).")
    assert len(found(ends.here)) == 4


async def test_directory_with_too_many_files_deletes_nothing_elsewhere(ends: Ends, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(file_sync, "Bounds", lambda: Bounds(files=10))
    ends.sync = ends.new_sync()
    put(ends.here, {f"gentools/{n}.py": "x" for n in range(8)})
    await ends.sync.send()
    put(ends.here, {f"gentools/more-{n}.py": "x" for n in range(8)})
    (notice,) = await ends.sync.send()
    assert "gentools (it has more than 10 entries)" in notice
    assert len(found(ends.there)) == 8


async def test_name_that_the_node_refuses_is_named_and_the_others_arrive(ends: Ends, monkeypatch: pytest.MonkeyPatch):
    put(ends.here, {"gentools/fine.py": "x", "gentools/refused/a.py": "y"})
    put(ends.there, {"gentools/refused": "a file of code"})
    notices = await ends.sync.send()
    assert any("gentools/refused/a.py" in notice and "not a directory" in notice for notice in notices)
    assert (ends.there / "gentools/fine.py").read_text() == "x"


async def test_uploaded_files_go_to_the_node_and_do_not_come_back(ends: Ends):
    put(ends.here, {"data/a.csv": "1", "data/b.csv": "2", "other": "3"})
    for name in ("data", "missing"):
        UploadedPaths(ends.here).add(ends.here / name)
    await ends.sync.send()
    assert found(ends.there) == {"data/a.csv": "1", "data/b.csv": "2"}
    put(ends.there, {"data/a.csv": "of code"})
    await ends.sync.collect()
    assert (ends.here / "data/a.csv").read_text() == "1"


async def test_installed_packages_go_to_a_node_of_the_same_platform(ends: Ends):
    package = ends.here / ".ipybox/packages"
    put(package, {"tidy/__init__.py": "x", "tidy-1.dist-info/METADATA": "Name: tidy\nVersion: 1\n"})
    assert await ends.sync.send() == []
    assert (ends.there / ".ipybox/packages/tidy/__init__.py").read_text() == "x"
    (notice,) = await ends.new_sync("it has another Python").send()
    assert notice == "Installed packages are not on the node (tidy): it has another Python."


State = FileState("0" * 64, 1, False)


def changes(paths: list[str], state: FileState = State, removed: tuple[str, ...] = ()) -> Changes:
    """Returns a message that is not validated, as that of a hostile node."""
    return Changes.model_construct(
        type="changes", files=dict.fromkeys(paths, state), removed=list(removed), omitted={}, more=False
    )


@pytest.mark.parametrize(
    ("paths", "violation"),
    [
        (["gentools/../../x"], "a path leads out of the workspace"),
        (["/etc/passwd"], "a path leads out of the workspace"),
        (["gentools/a\0b"], "a path leads out of the workspace"),
        (["data.csv"], "a file outside of the directories that are synchronized"),
        ([".ipybox/packages/x.py"], "a file outside of the directories that are synchronized"),
        (["gentools"], "a file outside of the directories that are synchronized"),
        ([f"gentools/{n}" for n in range(10**5)], "message about files"),
    ],
    ids=["parent", "absolute", "nul", "elsewhere", "packages", "directory", "many"],
)
async def test_node_that_reports_what_it_may_not_is_cut_off(ends: Ends, paths: list[str], violation: str):
    ends.be_hostile(lambda _: (changes(paths), b""))
    await ends.sync.collect()
    assert len(ends.violations) == 1
    assert violation in ends.violations[0]
    assert found(ends.here) == {}


async def test_hostile_node_can_delete_no_file_that_it_never_had(ends: Ends):
    put(ends.here, {"gentools/mine.py": "x", "images/mine.png": "y"})
    ends.be_hostile(lambda _: (changes([], removed=("gentools/mine.py", "images/mine.png")), b""))
    await ends.sync.collect()
    assert len(found(ends.here)) == 2


async def test_hostile_sizes_are_refused_before_anything_is_asked_for(ends: Ends):
    asked: list[ToNode] = []

    def answer(message: ToNode) -> tuple[FromNode, bytes]:
        asked.append(message)
        return changes(["toolfiles/x"], FileState("0" * 64, 10 << 30, False)), b""

    ends.be_hostile(answer)
    (notice,) = await ends.sync.collect()
    assert notice == "Not copied from the node: toolfiles/x (a file may have 64 MiB)."
    assert [type(each) for each in asked] == [FindChanges]


async def test_content_with_links_and_other_names_is_not_written(ends: Ends, tmp_path: Path):
    import io
    import tarfile

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        link = tarfile.TarInfo("gentools/x")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(link)
        for name in ("gentools/x/passwd", "gentools/other", "images/.env"):
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))
    content = packed.getvalue()

    def answer(message: ToNode) -> tuple[FromNode, bytes]:
        if isinstance(message, Get):
            return Content(tar=True, size=len(content)), content
        return changes(["gentools/x"]), b""

    ends.be_hostile(answer)
    await ends.sync.collect()
    assert found(ends.here) == {}


async def test_content_that_is_no_tar_cuts_the_node_off(ends: Ends):
    def answer(message: ToNode) -> tuple[FromNode, bytes]:
        if isinstance(message, Get):
            return Content(tar=True, size=4), b"junk"
        return changes(["gentools/x"]), b""

    ends.be_hostile(answer)
    await ends.sync.collect()
    assert "invalid files" in ends.violations[0]


async def test_endless_changes_do_not_hold_up_the_cell(ends: Ends):
    count = 0

    def answer(message: ToNode) -> tuple[FromNode, bytes]:
        nonlocal count
        if isinstance(message, Get):
            return Content(tar=True, size=1024), bytes(1024)
        count += 1
        return changes([f"images/{count}"]).model_copy(update={"more": True}), b""

    ends.be_hostile(answer)
    await ends.sync.collect()
    assert count == file_sync.MAX_QUESTIONS
    assert found(ends.here) == {}


async def test_answer_of_another_kind_cuts_the_node_off(ends: Ends):
    put(ends.here, {"gentools/a.py": "x"})
    ends.be_hostile(lambda message: (changes([]) if isinstance(message, Put | Remove) else _stored(), b""))
    await ends.sync.send()
    await ends.sync.collect()
    assert ends.violations == ["the node sent an answer of another kind"] * 2


def _stored() -> Stored:
    return Stored(conflicts=[], failed={})


def test_workspace_of_a_node_is_private_even_if_another_user_has_taken_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    taken = tmp_path / f"ipybox-nodes-{os.getuid()}"
    taken.mkdir(mode=0o755)
    taken.chmod(0o755)
    workspace = NodeWorkspace()
    assert not workspace.path.is_relative_to(taken)
    assert workspace.path.parent.stat().st_mode & 0o777 == 0o700
    workspace.remove()
    assert list(tmp_path.iterdir()) == [taken]


def test_workspace_of_a_killed_node_is_removed_and_that_of_another_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first = NodeWorkspace()
    left = first.path.with_name("left")
    (left / "closed").mkdir(parents=True)
    (left / "closed").chmod(0o500)
    second = NodeWorkspace()
    assert sorted(first.path.parent.iterdir()) == sorted([first.path, second.path])
    for each in (first, second):
        each.remove()
