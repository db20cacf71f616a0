"""The file of the audit log: what is appended by several processes, how it makes room, and what is no place for it."""

import asyncio
import os
import resource
import stat
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ipybox.audit import log as log_module
from ipybox.audit import writer
from ipybox.audit.audit import AuditLog
from ipybox.audit.log import AuditLogFile
from ipybox.audit.recorder import SessionRecorder
from ipybox.errors import AuditError
from ipybox.guest.tools.protocol import RunRequest
from ipybox.support.state import state_dir
from tests.audit.lines import lines, log_of
from tests.servers import WAIT

WRITER = """
import sys
from pathlib import Path
from ipybox.audit.audit import AuditLog
from ipybox.audit import log
workspace = Path(sys.argv[1])
log.MAX_BYTES, log.MAX_FULL = 10_000, 100
audit = AuditLog(workspace)
for number in range(500):
    audit.record("test", writer=sys.argv[2], number=number)
audit.close()
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[AuditLogFile]:
    monkeypatch.setattr(log_module, "MAX_BYTES", 100)
    monkeypatch.setattr(log_module, "MAX_FULL", 2)
    made = AuditLogFile(tmp_path)
    yield made
    made.close()


def append(log: AuditLogFile, line: bytes) -> None:
    log.append(deque([line]))


@contextmanager
def file_size_limit(size: int) -> Generator[None]:
    """Lets no file become larger: what is written ends there, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_log_is_for_its_user_alone_and_kept_out_of_repositories(tmp_path: Path, log: AuditLogFile):
    append(log, b"1\n")
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
    assert (tmp_path / ".ipybox" / ".gitignore").read_text() == "*\n"
    log.close()

    log.path.chmod(0o644)
    append(log, b"2\n")
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
    assert log.path.read_text() == "1\n2\n"


def test_a_full_file_is_moved_and_the_oldest_one_removed(log: AuditLogFile):
    for number in range(8):
        append(log, b"%d\n" % number * 20)
    assert log.path.read_text() == "6\n" * 20 + "7\n" * 20
    assert rotated(log, 1).read_text() == "4\n" * 20 + "5\n" * 20
    assert rotated(log, 2).read_text() == "2\n" * 20 + "3\n" * 20
    assert not rotated(log, 3).exists()

    append(log, b"x" * 200 + b"\n")
    assert log.path.read_text() == "x" * 200 + "\n", "a line is never cut in two"


async def test_processes_that_share_a_log_lose_nothing_and_tear_no_line(tmp_path: Path):
    arguments = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [await asyncio.create_subprocess_exec(*arguments, name) for name in "ab"]
    async with asyncio.timeout(WAIT):
        assert [await writer.wait() for writer in writers] == [0, 0]

    files = sorted((tmp_path / ".ipybox").glob("audit*.jsonl"), key=lambda file: file.stat().st_mtime_ns)
    assert len(files) > 5
    assert all(file.stat().st_size <= 10_000 for file in files)
    found = [line for file in files for line in lines(file)]
    for name in "ab":
        assert [line["number"] for line in found if line["writer"] == name] == list(range(500))


def move(log: AuditLogFile) -> None:
    log.path.rename(rotated(log, 1))


def move_the_directory(log: AuditLogFile) -> None:
    log.path.parent.rename(log.path.parent.with_name("elsewhere"))


def remove(log: AuditLogFile) -> None:
    log.path.unlink()


@pytest.mark.parametrize("disturb", [move, move_the_directory, remove])
def test_log_that_was_taken_away_is_begun_anew(log: AuditLogFile, disturb: Callable[[AuditLogFile], None]):
    append(log, b"1\n")
    disturb(log)
    append(log, b"2\n")
    assert log.path.read_text() == "2\n"


def link(path: Path, target: Path) -> None:
    target.touch()
    path.symlink_to(target)


def link_directory(path: Path, target: Path) -> None:
    target.mkdir()
    path.parent.rmdir()
    path.parent.symlink_to(target)


def hard_link(path: Path, target: Path) -> None:
    target.touch()
    path.hardlink_to(target)


def pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def directory(path: Path, _: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        pytest.param(link, "audit.jsonl", id="link"),
        pytest.param(link_directory, ".ipybox is a link", id="link_to_a_directory"),
        pytest.param(hard_link, "or a file with more than one hard link: remove it", id="hard_link"),
        pytest.param(pipe, "audit.jsonl", id="pipe"),
        pytest.param(directory, "Is a directory", id="directory"),
    ],
)
def test_what_was_planted_in_the_logs_place_is_refused(
    log: AuditLogFile, tmp_path: Path, plant: Callable[[Path, Path], None], said: str
):
    log.path.parent.mkdir()
    target = tmp_path / "target"
    plant(log.path, target)

    with pytest.raises(AuditError, match=f"can't write the audit log: .*{said}.*or set audit to off$"):
        log.check()
    log.close()

    assert not target.exists() or not (list(target.iterdir()) if target.is_dir() else target.read_text())


async def test_nothing_happens_while_there_is_no_room_and_the_log_says_what_it_lacks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    audit = AuditLog(tmp_path)
    audit.record("test", number=0)
    await audit.writer.flush(required=True)
    size = audit.file.path.stat().st_size
    with file_size_limit(size + 20):
        await audit.require()
        for number in (1, 2):
            audit.record("test", number=number)
        await audit.writer.flush(required=False)
        with pytest.raises(AuditError, match=r"No space left on device.*audit\.jsonl'; free up space"):
            await audit.require()
    assert audit.file.path.stat().st_size == size, "no half of a line is left"
    assert len(caplog.records) == 1

    await audit.require()
    audit.record("test", number=3)
    audit.close()

    assert [(line["event"], line.get("number"), line.get("missing")) for line in log_of(tmp_path)] == [
        ("test", 0, None),
        ("gap", None, 2),
        ("test", 3, None),
    ]


@contextmanager
def held_lock(workspace: Path) -> Generator[subprocess.Popen[bytes]]:
    """Holds the lock of a workspace's log in another process."""
    hold = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); print(); input()"
    command = [sys.executable, "-c", hold, str(AuditLogFile(workspace).lock_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


async def test_lines_wait_for_the_lock_up_to_a_limit_and_are_then_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writer, "WRITE_LIMIT", 0.1)
    audit = AuditLog(tmp_path)
    with held_lock(tmp_path):
        audit.record("test", number=0)
        with pytest.raises(AuditError, match=r"nothing could be written for 0\.1 s; end the process that holds .*lock"):
            await audit.writer.flush(required=True)
        await audit.require()
        monkeypatch.setattr(writer, "MAX_WAITING", 100)
        for number in (1, 2):
            audit.record("test", number=number, text="x" * 100)
        with pytest.raises(AuditError, match="100 bytes are waiting to be written"):
            await audit.writer.flush(required=True)
        with pytest.raises(AuditError, match="100 bytes are waiting to be written"):
            await audit.require()
        await asyncio.to_thread(audit.close)

    monkeypatch.undo()
    audit.close()
    await audit.require()
    audit.close()
    numbers = [(line["event"], line.get("number"), line.get("missing")) for line in log_of(tmp_path)]
    assert numbers == [("test", 0, None), ("test", 1, None), ("gap", None, 1)]


async def test_an_action_waits_for_its_own_line_if_other_threads_add_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writer, "WRITE_LIMIT", 0.1)
    monkeypatch.setattr(writer, "MAX_WAITING", 100)
    audit = AuditLog(tmp_path)
    with held_lock(tmp_path):
        audit.record("test", text="x" * 100)
        await asyncio.to_thread(audit.record, "refused")
        with pytest.raises(AuditError, match=r"nothing could be written for 0\.1 s"):
            await audit.writer.flush(required=True)
    monkeypatch.undo()
    audit.close()
    assert [line["event"] for line in log_of(tmp_path)] == ["test"]


def test_a_session_that_ends_does_not_wait_for_the_lines_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(writer, "WRITE_LIMIT", 5.0)
    audit = AuditLog(tmp_path)
    with held_lock(tmp_path):
        audit.record("test")
        closer = threading.Thread(target=audit.close)
        closer.start()
        for _ in range(1000):
            audit.record("test")
            closer.join(0.01)
            if not closer.is_alive():
                break
    audit.close()
    assert not closer.is_alive()
    assert caplog.records == []


def rotated(log: AuditLogFile, number: int) -> Path:
    """Where a full file is: 1 is the newest one, before the one at `path`."""
    return log.path.with_name(f"audit.{number}.jsonl")


def test_key_that_can_not_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (state_dir() / "audit.key").mkdir(parents=True)

    with pytest.raises(AuditError, match="can't read or create the key for the audit log's hashes: "):
        AuditLog(tmp_path).open()


async def test_arguments_that_are_too_deep_to_be_hashed_are_written_in_part(tmp_path: Path):
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]

    audit = AuditLog(tmp_path)
    recorder = SessionRecorder(audit)
    for arguments in ({"name": "x", "deep": deep}, {"name": "x"}):
        call = RunRequest(
            server_name="s", server_params={}, seal=None, tool_name="t", tool_args=arguments, output_mark=0
        )
        async with recorder.tool_call(call, lambda _: True):
            pass
    audit.close()

    first, second = log_of(tmp_path)
    assert first["arguments"]["name"] == "x"
    assert second.keys() == {*first, "arguments_hash"}
